package sqltest

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/fence/sqlfence"
	"github.com/holdfast-go/holdfast/internal/test/pgtest"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
	tried "github.com/holdfast-go/holdfast/internal/test/seed"
)

var (
	schedules = flag.Int("schedules", 0, "how many schedules to play on SQLite; 0 is 1,000, in the soak 10,000, and a twentieth under the race detector")
	seed      = flag.Uint64("seed", tried.Of(), "of the schedules")
)

var defaultSchedules = redistest.Rounds(10_000)

// player is a holder that adds its letter to the text in the table, some times over: it reads the
// text, and writes it with one letter more. Before any statement that reaches the driver, those
// of the guard included, it may be paused for as long as one likes. If a row is locked, it gives
// up, and begins that turn again.
type player struct {
	letter string
	ctx    context.Context // without a fence if it is not guarded
	db     *sql.DB
	e      engine
	way    int
	level  sql.IsolationLevel
	turns  int // left

	done int // turns that are committed
	late bool
	over bool
	err  error

	step, stopped chan struct{}
}

// ways are those to read and to write.
var ways = []func(p *player) error{
	(*player).inTransaction, (*player).byStatements, (*player).inTransactionOfNobody, (*player).prepared, (*player).beside,
}

type querier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

func (p *player) add(q querier) error {
	var text string
	if err := q.QueryRowContext(p.ctx, "SELECT value FROM state WHERE id = 1").Scan(&text); err != nil {
		return err
	}
	_, err := q.ExecContext(p.ctx, p.e.update(), text+p.letter)
	return err
}

func (p *player) within(ctx context.Context, work func(tx *sql.Tx) error) error {
	tx, err := p.db.BeginTx(ctx, &sql.TxOptions{Isolation: p.level})
	if err != nil {
		return err
	}
	if err := work(tx); err != nil {
		return errors.Join(err, tx.Rollback())
	}
	return tx.Commit()
}

func (p *player) inTransaction() error {
	return p.within(p.ctx, func(tx *sql.Tx) error { return p.add(tx) })
}

func (p *player) byStatements() error { return p.add(p.db) }

// inTransactionOfNobody shows the lease to the statements only.
func (p *player) inTransactionOfNobody() error {
	return p.within(context.WithValue(context.Background(), playerKey{}, p), func(tx *sql.Tx) error { return p.add(tx) })
}

func (p *player) prepared() error {
	read, err := p.db.PrepareContext(p.ctx, "SELECT value FROM state WHERE id = 1")
	if err != nil {
		return err
	}
	write, err := p.db.PrepareContext(p.ctx, p.e.update())
	if err != nil {
		return errors.Join(err, read.Close())
	}
	var text string
	if err = read.QueryRowContext(p.ctx).Scan(&text); err == nil {
		_, err = write.ExecContext(p.ctx, text+p.letter)
	}
	return errors.Join(err, read.Close(), write.Close())
}

// beside has a transaction open in which it reads, and looks on another connection before it
// writes.
func (p *player) beside() error {
	return p.within(p.ctx, func(tx *sql.Tx) error {
		var text, again string
		if err := tx.QueryRowContext(p.ctx, "SELECT value FROM state WHERE id = 1").Scan(&text); err != nil {
			return err
		}
		if err := p.db.QueryRowContext(p.ctx, "SELECT value FROM state WHERE id = 1").Scan(&again); err != nil {
			return err
		}
		_, err := tx.ExecContext(p.ctx, p.e.update(), text+p.letter)
		return err
	})
}

func (p *player) run() {
	defer close(p.stopped)
	<-p.step
	for p.turns > 0 && !p.late {
		switch err := ways[p.way](p); {
		case err == nil:
			p.done++
			p.turns--
		case errors.Is(err, fence.ErrStale):
			p.late = true
		case !locked(err):
			p.err = err
			return
		}
	}
}

// play lets the player do a step, which ends before its next statement.
func (p *player) play() {
	p.step <- struct{}{}
	_, more := <-p.stopped
	p.over = !more
}

func locked(err error) bool {
	for _, text := range []string{
		"SQLITE_BUSY", "database is locked", "lock timeout", "Lock wait timeout", "could not serialize", "Record has changed",
		"eadlock", "restart transaction",
	} {
		if strings.Contains(err.Error(), text) {
			return true
		}
	}
	return false
}

// history plays a schedule and returns the text, and what it would be if the holders had come
// one after the other.
func history(t testing.TB, r *rand.Rand, e engine, db *sql.DB, guard bool, round int) (got, want, story string) {
	_, err := db.ExecContext(t.Context(), e.update(), "")
	require.NoError(t, err)
	all := make([]*player, 2+r.IntN(2))
	for i := range all {
		p := &player{
			letter: string(rune('a' + i)), db: db, e: e, way: r.IntN(len(ways)), level: levels(e)[r.IntN(len(levels(e)))], turns: 1 + r.IntN(3),
			step: make(chan struct{}), stopped: make(chan struct{}),
		}
		p.ctx = context.WithValue(t.Context(), playerKey{}, p)
		if guard {
			p.ctx = fence.With(p.ctx, exclusive("x", int64(3*round+i)))
		}
		all[i] = p
		go p.run()
		story += fmt.Sprintf("%s: way %d, %v; ", p.letter, p.way, p.level)
	}
	granted := 0 // so far; later ones do not have the lock yet
	for live := len(all); live > 0; {
		if r.IntN(6) == 0 || all[granted].over {
			granted = min(granted+1, len(all)-1)
		}
		p := all[r.IntN(granted+1)]
		for range 1 + r.IntN(5) { // and is then paused
			if !p.over {
				p.play()
				if p.over {
					live--
					require.NoError(t, p.err, story)
				}
			}
		}
	}
	for _, p := range all {
		want += strings.Repeat(p.letter, p.done)
	}
	return value(t, db), want, story
}

func playAll(t *testing.T, e engine, n int) {
	under := paused{connectorOf(t, e)}
	db, plain := opened(t, sqlfence.OpenDB(under, e.dialect), nil), opened(t, sql.OpenDB(under), nil)
	for _, d := range []*sql.DB{db, plain} {
		d.SetMaxIdleConns(8)
	}
	r := rand.New(rand.NewPCG(*seed, 1))
	for round := 1; round <= n; round++ {
		if got, want, story := history(t, r, e, db, true, round); got != want {
			t.Fatalf("FOUL: -seed %d, schedule %d: the history is %q, but that of the holders in their order %q (%s)", *seed, round, got, want, story)
		}
	}
	wrong := 0
	for round := range n/10 + 50 {
		if got, want, _ := history(t, r, e, plain, false, round); got != want {
			wrong++
		}
	}
	t.Logf("without the guard %d of %d histories are wrong", wrong, n/10+50)
	assert.NotZero(t, wrong, "the schedules are too tame")
}

// Whenever they are paused, what is stored is as if the holders had come one after the other
// in the order of their fences: no change is lost, and none is made from an old view.
func TestHistoryIsThatOfTheHoldersInTheOrderOfTheirFences(t *testing.T) {
	n := *schedules
	if n == 0 {
		n = defaultSchedules
	}
	t.Run("sqlite", func(t *testing.T) {
		for _, mode := range []string{"delete", "wal"} {
			t.Run(mode, func(t *testing.T) {
				e := sqlite(t, mode)
				e.dsn = strings.Replace(e.dsn, "busy_timeout(20000)", "busy_timeout(0)", 1)
				playAll(t, fresh(t, e), n/2)
			})
		}
	})
	t.Run("postgres", func(t *testing.T) {
		dsn := database(t, pgtest.Shared(t)) + " lock_timeout=2ms"
		playAll(t, fresh(t, engine{"pgx", "pgx", dsn, sqlfence.Postgres}), n/20)
	})
	t.Run("mariadb", func(t *testing.T) {
		dsn := sharedMariaDB(t).database(t) + "?innodb_lock_wait_timeout=0"
		playAll(t, fresh(t, engine{"mysql", "mysql", dsn, sqlfence.MySQL}), n/20)
	})
}

func BenchmarkTransaction(b *testing.B) {
	engines := map[string]func() engine{
		"sqlite":   func() engine { return sqlite(b, "wal") },
		"postgres": func() engine { return engine{"pgx", "pgx", pgtest.Start(b).DSN(), sqlfence.Postgres} },
	}
	for _, name := range []string{"sqlite", "postgres"} {
		b.Run(name, func(b *testing.B) {
			e := fresh(b, engines[name]())
			for _, of := range []struct {
				name string
				db   *sql.DB
				ctx  context.Context
			}{
				{"plain", e.plain(b), b.Context()},
				{"no lease", e.guarded(b), b.Context()},
				{"lease", e.guarded(b), holder(b, 1)},
			} {
				b.Run(of.name, func(b *testing.B) {
					for b.Loop() {
						tx, err := of.db.BeginTx(of.ctx, nil)
						require.NoError(b, err)
						_, err = tx.Exec(e.update(), "value")
						require.NoError(b, err)
						require.NoError(b, tx.Commit())
					}
				})
			}
		})
	}
}
