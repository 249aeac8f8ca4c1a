package sqltest

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/fence/sqlfence"
	"github.com/holdfast-go/holdfast/internal/pgtest"
)

var (
	schedules = flag.Int("schedules", 0, "how many schedules to play on SQLite; 0 is 10,000, or 500 under the race detector")
	seed      = flag.Uint64("seed", rand.Uint64(), "of the schedules")
)

var defaultSchedules = 10_000

// player is a holder that adds its letter to the text in the table, some times over: it reads the
// text, and writes it with one letter more, in one transaction or by two statements. Between
// any two steps it may be paused for as long as one likes. If a row is locked, it gives up, and
// begins that turn again.
type player struct {
	letter string
	ctx    context.Context // without a fence if it is not guarded
	db     *sql.DB
	e      engine
	alone  bool // by statements
	turns  int  // left

	tx   *sql.Tx
	text string
	step int
	done int // turns that are committed
	late bool
}

const (
	begins = iota
	reads
	writing
	commits
	steps
)

// play does the next step.
func (p *player) play() error {
	var err error
	switch p.step {
	case begins:
		if !p.alone {
			p.tx, err = p.db.BeginTx(p.ctx, nil)
		}
	case reads:
		const query = "SELECT value FROM state WHERE id = 1"
		if p.alone {
			err = p.db.QueryRowContext(p.ctx, query).Scan(&p.text)
		} else {
			err = p.tx.QueryRowContext(p.ctx, query).Scan(&p.text)
		}
	case writing:
		if p.alone {
			_, err = p.db.ExecContext(p.ctx, p.e.update(), p.text+p.letter)
		} else {
			_, err = p.tx.ExecContext(p.ctx, p.e.update(), p.text+p.letter)
		}
	case commits:
		if !p.alone {
			err = p.tx.Commit()
		}
		if err == nil {
			p.done++
			p.turns--
		}
	}
	switch {
	case err == nil:
		p.step = (p.step + 1) % steps
		return nil
	case errors.Is(err, fence.ErrStale):
		p.late = true
	case !locked(err):
		return err
	}
	if p.tx != nil {
		if err := p.tx.Rollback(); err != nil && err != sql.ErrTxDone {
			return err
		}
	}
	p.step = begins
	return nil
}

func locked(err error) bool {
	return strings.Contains(err.Error(), "SQLITE_BUSY") || strings.Contains(err.Error(), "database is locked") || strings.Contains(err.Error(), "lock timeout")
}

func (p *player) over() bool { return p.turns == 0 || p.late }

// history plays a schedule and returns the text, and what it would be if the holders had come
// one after the other.
func history(t testing.TB, r *rand.Rand, e engine, db *sql.DB, guard bool, round int) (got, want string) {
	_, err := db.ExecContext(t.Context(), e.update(), "")
	require.NoError(t, err)
	var all [2]*player
	for i := range all {
		p := &player{letter: string(rune('a' + i)), ctx: t.Context(), db: db, e: e, alone: r.IntN(2) == 0, turns: 1 + r.IntN(3)}
		if guard {
			p.ctx = fence.With(t.Context(), exclusive("x", int64(2*round+i)))
		}
		all[i] = p
	}
	began := false
	for !all[0].over() || !all[1].over() {
		i := r.IntN(2)
		began = began || r.IntN(4) == 0 // until then the second does not have the lock
		if i == 1 && !began && !all[0].over() || all[i].over() {
			continue
		}
		for range 1 + r.IntN(4) { // and is then paused
			if !all[i].over() {
				require.NoError(t, all[i].play())
			}
		}
	}
	return value(t, db), strings.Repeat("a", all[0].done) + strings.Repeat("b", all[1].done)
}

func playAll(t *testing.T, e engine, n int) {
	db, plain := e.guarded(t), e.plain(t)
	for _, d := range []*sql.DB{db, plain} {
		d.SetMaxIdleConns(4)
	}
	r := rand.New(rand.NewPCG(*seed, 1))
	for round := 1; round <= n; round++ {
		if got, want := history(t, r, e, db, true, round); got != want {
			t.Fatalf("-seed %d, schedule %d: the history is %q, but that of the holders in their order %q", *seed, round, got, want)
		}
	}
	wrong := 0
	for round := range n/10 + 50 {
		if got, want := history(t, r, e, plain, false, round); got != want {
			wrong++
		}
	}
	t.Logf("without the guard %d of %d histories are wrong", wrong, n/10+50)
	assert.NotZero(t, wrong, "the schedules are too tame")
}

// Whenever the two are paused, what is stored is as if the holders had come one after the other
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
		server := pgtest.Start(t)
		playAll(t, fresh(t, engine{"pgx", "pgx", server.DSN() + " lock_timeout=2ms", sqlfence.Postgres}), n/20)
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
