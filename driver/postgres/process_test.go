//go:build unix

package pgdriver_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	pgdriver "github.com/holdfast-go/holdfast/driver/postgres"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

// patience bounds the wait for what should happen at once.
const patience = time.Minute

// What a child reads from its environment.
const (
	dsnVar = "HOLDFAST_TEST_DSN"
	ttlVar = "HOLDFAST_TEST_TTL"
)

func init() {
	redistest.RegisterChild("pg contender", contend)
	redistest.RegisterChild("worker", work)
}

// child is a client in a process of its own.
func child() (*holdfast.Client, *pgxpool.Pool) {
	ttl, err := time.ParseDuration(os.Getenv(ttlVar))
	must(err)
	c, err := pgxpool.ParseConfig(os.Getenv(dsnVar))
	must(err)
	c.MaxConns = 4
	pool, err := pgxpool.NewWithConfig(context.Background(), c)
	must(err)
	return holdfast.Open(pgdriver.New(pool), holdfast.WithTTL(ttl)), pool
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// contend does what it is told, a word a line: it leases the lock, reports its fence, and
// releases it.
func contend() {
	locks, _ := child()
	var lease *holdfast.Lease
	fmt.Println("ready")
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		var err error
		switch in.Text() {
		case "lease":
			if lease, err = locks.Mutex("l").Lease(context.Background()); err == nil {
				fmt.Println("leased", lease.Fence())
			}
		case "err":
			fmt.Println("lost", lease.Err() != nil)
		case "release":
			err = lease.Release(context.Background())
			fmt.Println("released")
		}
		must(err)
	}
}

// work takes turns until its input ends. In a turn it adds 1 to a number in the way that
// loses updates if two do it at a time, and writes down its fence.
func work() {
	locks, pool := child()
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		_, _ = os.Stdin.Read(make([]byte, 1))
		cancel()
	}()
	for ctx.Err() == nil {
		lease, err := locks.Mutex("l").Lease(ctx)
		if err != nil {
			continue // the server is being hurt, or it is over
		}
		err = pgx.BeginFunc(lease.Context(), pool, func(tx pgx.Tx) error { return turn(lease, tx) })
		if err == nil {
			fmt.Println("turn", lease.Fence())
		}
		_ = lease.Release(context.Background())
	}
	must(locks.Close())
	pool.Close()
}

func turn(lease *holdfast.Lease, tx pgx.Tx) error {
	ctx := lease.Context()
	if _, err := tx.Exec(ctx, `SELECT holdfast.fenced('l', $1)`, lease.Fence()); err != nil {
		return err
	}
	var n int
	if err := tx.QueryRow(ctx, `SELECT n FROM counter`).Scan(&n); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, `UPDATE counter SET n = $1`, n+1); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, `INSERT INTO journal (fence) VALUES ($1)`, lease.Fence())
	return err
}

// arena is where processes compete. The test itself only looks on.
type arena struct {
	*testing.T
	store
	ttl   time.Duration
	locks *holdfast.Client
}

func newArena(t *testing.T, ttl time.Duration) *arena {
	t.Helper()
	return arenaAt(t, begin(t), ttl)
}

func arenaAt(t *testing.T, s store, ttl time.Duration) *arena {
	t.Helper()
	_, err := s.Exec(t.Context(), `
		CREATE TABLE counter (n int); INSERT INTO counter VALUES (0);
		CREATE TABLE journal (at bigserial, fence bigint);`)
	require.NoError(t, err)
	a := &arena{t, s, ttl, holdfast.Open(pgdriver.New(s.Pool), holdfast.WithTTL(ttl))}
	t.Cleanup(func() { assert.NoError(t, a.locks.Close()) })
	return a
}

func (a *arena) children(name string, n int) []*redistest.Process {
	a.Helper()
	ps := make([]*redistest.Process, n)
	for i := range ps {
		ps[i] = redistest.Child(a, name, dsnVar+"="+a.DSN(), ttlVar+"="+a.ttl.String())
	}
	return ps
}

func (a *arena) contenders(n int) []*redistest.Process {
	a.Helper()
	ps := a.children("pg contender", n)
	for _, p := range ps {
		a.expect(p, "ready")
	}
	return ps
}

func (a *arena) tell(p *redistest.Process, word string) {
	a.Helper()
	_, err := fmt.Fprintln(p.Stdin(), word)
	require.NoError(a, err)
}

// expect waits for a line that begins so, and returns the rest.
func (a *arena) expect(p *redistest.Process, word string) string {
	a.Helper()
	select {
	case line, ok := <-p.Lines():
		if !ok {
			require.Fail(a, "the process has ended", p.Stderr())
		}
		require.True(a, strings.HasPrefix(line, word), line)
		return strings.TrimPrefix(line, word+" ")
	case <-time.After(patience):
		require.Fail(a, "no "+word)
		return ""
	}
}

// line has the first hold the lock and the others wait for it in their order. They have all
// waited before, so all are listening.
func (a *arena) line(ps []*redistest.Process) {
	a.Helper()
	for range 2 {
		for i, p := range ps {
			a.tell(p, "lease")
			if i == 0 {
				a.expect(p, "leased")
			}
			a.until(func(info holdfast.Info) bool { return len(info.Holders) == 1 && len(info.Queue) == i })
		}
		if a.listening() == len(ps)-1 {
			return
		}
		for i, p := range ps {
			a.tell(p, "release")
			a.expect(p, "released")
			if i+1 < len(ps) {
				a.expect(ps[i+1], "leased")
			}
		}
	}
	require.Fail(a, "they do not listen")
}

// listening is how many clients listen for news.
func (a *arena) listening() (n int) {
	a.Helper()
	require.NoError(a, a.QueryRow(a.Context(), `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'SELECT holdfast.hear%'`).Scan(&n))
	return n
}

func (a *arena) until(good func(holdfast.Info) bool) {
	a.Helper()
	require.Eventually(a, func() bool {
		info, err := a.locks.Mutex("l").Inspect(a.Context())
		return err == nil && good(info)
	}, patience, 5*time.Millisecond)
}

func TestProcessesExcludeEachOther(t *testing.T) {
	a := newArena(t, 10*time.Second)
	processes, turns := 4, 20
	if redistest.Again() {
		processes, turns = 8, 60
	}
	workers := a.children("worker", processes)
	for range turns {
		for _, w := range workers {
			a.expect(w, "turn") // They all get on.
		}
	}
	a.judge(workers, processes*turns)
}

// judge ends the workers that live, and looks at what all have done.
func (a *arena) judge(workers []*redistest.Process, least int) {
	a.Helper()
	for _, w := range workers {
		require.NoError(a, w.Stdin().Close())
		require.NoError(a, w.Wait())
	}
	var counted, written, disorder int
	require.NoError(a, a.QueryRow(a.Context(), `SELECT (SELECT n FROM counter), count(*),
		count(*) FILTER (WHERE fence <= before) FROM (SELECT fence, lag(fence) OVER (ORDER BY at) AS before FROM journal) j`).
		Scan(&counted, &written, &disorder))
	require.GreaterOrEqual(a, written, least)
	require.Equal(a, written, counted, "FOUL: updates were lost, two were in at a time")
	require.Zero(a, disorder, "FOUL: fences that are not larger than the one before")
	a.Logf("%d turns", written)
}

// Some are killed, some are paused for longer than their lease, wherever they just are. Their
// transactions count on the fence, so a paused one cannot do damage when it goes on.
func TestKilledAndPausedProcessesDoNoDamageAndHoldUpNobodyForLong(t *testing.T) {
	redistest.SoakOnly(t)
	a := newArena(t, 3*time.Second)
	workers := a.children("worker", 8)
	progress := func() {
		a.Helper()
		for _, w := range workers {
			for len(w.Lines()) > 0 {
				<-w.Lines()
			}
		}
		for range 5 {
			for _, w := range workers {
				a.expect(w, "turn")
			}
		}
	}
	progress()
	for range 4 {
		for _, w := range workers[:2] {
			require.NoError(t, w.Signal(syscall.SIGSTOP))
		}
		victim := redistest.Child(a, "worker", dsnVar+"="+a.DSN(), ttlVar+"="+a.ttl.String())
		a.expect(victim, "turn")
		victim.Kill()
		living := workers
		workers = workers[2:]
		progress()
		time.Sleep(2 * a.ttl) // so that the leases of those that sleep are over
		workers = living
		for _, w := range workers[:2] {
			require.NoError(t, w.Signal(syscall.SIGCONT))
		}
		progress()
		workers = append(workers[2:], workers[:2]...)
	}
	a.judge(workers, 8*5*5)
}

func TestNextWaiterGetsTheLockOfAKilledHolder(t *testing.T) {
	a := newArena(t, 6*time.Second)
	ps := a.contenders(3)
	a.line(ps)
	ps[0].Kill()
	a.expect(ps[1], "leased")
	a.tell(ps[1], "release")
	a.expect(ps[1], "released")
	a.expect(ps[2], "leased")
}

func TestKilledWaiterDelaysNobody(t *testing.T) {
	a := newArena(t, 3*time.Minute)
	ps := a.contenders(3)
	a.line(ps)
	ps[1].Kill()
	// The server finds the connection of the process closed.
	require.Eventually(t, func() bool { return a.listening() == 1 }, patience, time.Millisecond)
	a.tell(ps[0], "release")
	a.expect(ps[0], "released")
	began := time.Now()
	a.expect(ps[2], "leased")
	require.Less(t, time.Since(began), a.ttl/6, "a heartbeat of the killed one would not be over for long")
}

func TestPausedHolderLosesTheLockAndSeesIt(t *testing.T) {
	a := newArena(t, 6*time.Second)
	ps := a.contenders(2)
	a.line(ps)
	require.NoError(t, ps[0].Signal(syscall.SIGSTOP))
	a.expect(ps[1], "leased")
	require.NoError(t, ps[0].Signal(syscall.SIGCONT))
	a.tell(ps[0], "err")
	require.Equal(t, "true", a.expect(ps[0], "lost"), "FOUL: two believe to hold the lock")
	a.tell(ps[1], "err")
	require.Equal(t, "false", a.expect(ps[1], "lost"))
}

func TestPausedWaiterIsServedWhenItGoesOn(t *testing.T) {
	a := newArena(t, 6*time.Second)
	ps := a.contenders(3)
	a.line(ps)
	require.NoError(t, ps[1].Signal(syscall.SIGSTOP))
	a.until(func(info holdfast.Info) bool { return len(info.Queue) == 1 }) // The store gave it up.
	a.tell(ps[0], "release")
	a.expect(ps[0], "released")
	a.expect(ps[2], "leased")
	require.NoError(t, ps[1].Signal(syscall.SIGCONT))
	a.tell(ps[2], "release")
	a.expect(ps[2], "released")
	a.expect(ps[1], "leased")
}

func TestServerMayRestartOrCrashWhileProcessesCompete(t *testing.T) {
	redistest.SoakOnly(t)
	t.Parallel()
	a := arenaAt(t, start(t, "-c", "max_connections=200"), 10*time.Second)
	workers := a.children("worker", 4)
	for i := range 4 {
		for range 5 {
			for _, w := range workers {
				a.expect(w, "turn")
			}
		}
		if i%2 == 1 {
			a.Kill()
		}
		a.Restart()
		for _, w := range workers {
			for len(w.Lines()) > 0 {
				<-w.Lines()
			}
		}
	}
	for _, w := range workers {
		a.expect(w, "turn")
	}
	a.judge(workers, 4*5*4)
}

// All sorts of connections are cut at random: those that work, those that listen, and those
// whose answer was on its way after the commit.
func TestConnectionsMayBeTerminatedWhileProcessesCompete(t *testing.T) {
	redistest.SoakOnly(t)
	a := newArena(t, 3*time.Second)
	workers := a.children("worker", 6)
	for range 60 {
		_, err := a.Exec(t.Context(), `SELECT pg_terminate_backend(pid) FROM (
			SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()
			ORDER BY random() LIMIT 2) victims`)
		if err == nil {
			time.Sleep(30 * time.Millisecond) // so that some work is done between
		}
	}
	for _, w := range workers {
		for len(w.Lines()) > 0 {
			<-w.Lines()
		}
		a.expect(w, "turn")
	}
	a.judge(workers, len(workers))
}
