//go:build unix

package pgdriver_test

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	pgdriver "github.com/holdfast-go/holdfast/driver/postgres"
	"github.com/holdfast-go/holdfast/internal/test/contend"
	"github.com/holdfast-go/holdfast/internal/test/crew"
	"github.com/holdfast-go/holdfast/internal/test/pgtest"
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
	crew.Register("worker", work)
	contend.Register(func(addrs []string) (*holdfast.Client, func()) {
		pool := connect(addrs[0])
		return holdfast.Open(pgdriver.New(pool), holdfast.WithTTL(contend.TTL)), pool.Close
	})
}

// connect returns the pool of a process.
func connect(dsn string) *pgxpool.Pool {
	c, err := pgxpool.ParseConfig(dsn)
	must(err)
	c.MaxConns = 4
	pool, err := pgxpool.NewWithConfig(context.Background(), c)
	must(err)
	return pool
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// work takes turns until it is dismissed. In a turn it adds 1 to a number in the way that
// loses updates if two do it at a time, and writes down its fence, which it reports.
func work() {
	ttl, err := time.ParseDuration(os.Getenv(ttlVar))
	must(err)
	pool := connect(os.Getenv(dsnVar))
	locks := holdfast.Open(pgdriver.New(pool), holdfast.WithTTL(ttl))
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		crew.Order[string]()
		cancel()
	}()
	for ctx.Err() == nil {
		lease, err := locks.Mutex("l").Lease(ctx)
		if err != nil {
			continue // the server is being hurt, or it is over
		}
		err = pgx.BeginFunc(lease.Context(), pool, func(tx pgx.Tx) error { return turn(lease, tx) })
		if err == nil {
			crew.Report(lease.Fence())
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
	ttl time.Duration
}

func newArena(t *testing.T, ttl time.Duration) *arena {
	t.Helper()
	return arenaAt(t, own(t), ttl)
}

func arenaAt(t *testing.T, s store, ttl time.Duration) *arena {
	t.Helper()
	_, err := s.Exec(t.Context(), `
		CREATE TABLE counter (n int); INSERT INTO counter VALUES (0);
		CREATE TABLE journal (at bigserial, fence bigint);`)
	require.NoError(t, err)
	return &arena{t, s, ttl}
}

func (a *arena) workers(n int) []*crew.Process {
	a.Helper()
	ps := make([]*crew.Process, n)
	for i := range ps {
		ps[i] = crew.Start(a, "worker", dsnVar+"="+a.DSN(), ttlVar+"="+a.ttl.String())
	}
	return ps
}

// turns waits until each worker has had so many turns.
func turns(n int, workers []*crew.Process) {
	for range n {
		for _, w := range workers {
			crew.Hear[int64](w)
		}
	}
}

// moreTurns is turns, from now on.
func moreTurns(n int, workers []*crew.Process) {
	for _, w := range workers {
		crew.Said[int64](w)
	}
	turns(n, workers)
}

func TestProcessesExcludeEachOther(t *testing.T) {
	a := newArena(t, 10*time.Second)
	processes, rounds := 4, 20
	if redistest.Again() {
		processes, rounds = 8, 60
	}
	workers := a.workers(processes)
	turns(rounds, workers) // They all get on.
	a.judge(workers, processes*rounds)
}

// judge ends the workers that live, and looks at what all have done.
func (a *arena) judge(workers []*crew.Process, least int) {
	a.Helper()
	for _, w := range workers {
		w.Dismiss()
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
	workers := a.workers(8)
	moreTurns(5, workers)
	for range 4 {
		for _, w := range workers[:2] {
			w.Pause()
		}
		victim := a.workers(1)
		turns(1, victim)
		victim[0].Kill()
		moreTurns(5, workers[2:])
		time.Sleep(2 * a.ttl) // so that the leases of those that sleep are over
		for _, w := range workers[:2] {
			w.Resume()
		}
		moreTurns(5, workers)
		workers = append(workers[2:], workers[:2]...)
	}
	a.judge(workers, 8*5*5)
}

// Behind a session pooler the backend outlives the process that it served, and then serves another one that
// listens.
func TestKilledWaiterDelaysNobody(t *testing.T) {
	for name, way := range map[string]func(*testing.T, store) string{
		"direct":         func(_ *testing.T, s store) string { return s.DSN() },
		"session pooler": func(t *testing.T, s store) string { return s.Bouncer(t, "session", 40) },
	} {
		t.Run(name, func(t *testing.T) {
			s := own(t)
			r := contend.NewReferee(t)
			r.Lease = 3 * time.Minute
			dsn := way(t, s)
			contender := func() *contend.Contender { return r.Contender(contend.Kinds[0], dsn) }
			holder, victim, next := contender(), contender(), contender()
			holder.Tell("lock")
			holder.Hears("in")
			for i, c := range []*contend.Contender{victim, next} {
				c.Tell("lock")
				require.Eventually(t, func() bool { return s.waiters(t) == i+1 }, patience, time.Millisecond)
			}
			victim.Kill()
			// The server, or the pooler, finds the connection of the process closed.
			require.Eventually(t, func() bool { return s.sessions(t) == 1 }, patience, time.Millisecond)
			if name == "session pooler" {
				contender().Tell("lock")
				require.Eventually(t, func() bool { return s.sessions(t) == 2 }, patience, time.Millisecond)
			}
			holder.Tell("unlock")
			began := time.Now()
			next.Hears("in")
			require.Less(t, time.Since(began), r.Lease/6, "a heartbeat of the killed one would not be over for long")
		})
	}
}

// waiters is how many tokens wait whose clients are known to listen.
func (s store) waiters(t *testing.T) (n int) {
	t.Helper()
	require.NoError(t, s.QueryRow(t.Context(), `SELECT count(*) FROM holdfast.claim WHERE listener IS NOT NULL AND NOT held`).Scan(&n))
	return n
}

// sessions is how many listen for news.
func (s store) sessions(t *testing.T) (n int) {
	t.Helper()
	require.NoError(t, s.QueryRow(t.Context(), `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND database = (SELECT oid FROM pg_database WHERE datname = current_database())`).Scan(&n))
	return n
}

func TestProcesses(t *testing.T) {
	redistest.SoakOnly(t)
	server := pgtest.Shared(t, calm...)
	t.Parallel()
	t.Run("", func(t *testing.T) { // so that the server outlives the parallel tests
		contend.Run(t, func(tb testing.TB) string { return database(tb, server).DSN() })
	})
}

func TestServerMayRestartOrCrashWhileProcessesCompete(t *testing.T) {
	redistest.SoakOnly(t)
	t.Parallel()
	a := arenaAt(t, start(t, "-c", "max_connections=200"), 10*time.Second)
	workers := a.workers(4)
	for i := range 4 {
		moreTurns(5, workers)
		if i%2 == 1 {
			a.Kill()
		}
		a.Restart()
	}
	moreTurns(1, workers)
	a.judge(workers, 4*5*4)
}

// All sorts of connections are cut at random: those that work, those that listen, and those
// whose answer was on its way after the commit.
func TestConnectionsMayBeTerminatedWhileProcessesCompete(t *testing.T) {
	redistest.SoakOnly(t)
	a := newArena(t, 3*time.Second)
	workers := a.workers(6)
	for range 60 {
		_, err := a.Exec(t.Context(), `SELECT pg_terminate_backend(pid) FROM (
			SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()
			ORDER BY random() LIMIT 2) victims`)
		if err == nil {
			time.Sleep(30 * time.Millisecond) // so that some work is done between
		}
	}
	moreTurns(1, workers)
	a.judge(workers, len(workers))
}
