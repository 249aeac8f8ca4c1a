package pgdriver_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/drivertest"
	pgdriver "github.com/holdfast-go/holdfast/driver/postgres"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

func (s store) count(t *testing.T, table string) (n int) {
	t.Helper()
	require.NoError(t, s.QueryRow(t.Context(), `SELECT count(*) FROM holdfast.`+table).Scan(&n))
	return n
}

// sweep has everything looked at, as if it were time.
func (s store) sweep(t *testing.T) {
	t.Helper()
	_, err := s.Exec(t.Context(), `UPDATE holdfast.lock SET look = '-infinity'`)
	require.NoError(t, err)
	_, err = s.Exec(t.Context(), `SELECT holdfast.sweep()`)
	require.NoError(t, err)
}

// age makes all that is in the store older.
func (s store) age(t *testing.T, by time.Duration) {
	t.Helper()
	for _, sql := range []string{
		`UPDATE holdfast.lock SET fence = fence - $1::bigint / 1000, idle = idle - $1::bigint / 1000`,
		`UPDATE holdfast.claim SET until = until - make_interval(secs => $1::bigint / 1e9), asks = asks - make_interval(secs => $1::bigint / 1e9)`,
		`UPDATE holdfast.tombstone SET until = until - make_interval(secs => $1::bigint / 1e9)`,
	} {
		_, err := s.Exec(t.Context(), sql, int64(by))
		require.NoError(t, err)
	}
}

func TestWhatNobodyUsesIsSweptAfterAMinute(t *testing.T) {
	s := begin(t)
	a := s.asker(t)
	last := a.granted(request("a", long))
	a.waits("waiter", long)
	given := lease("straggler", long)
	given.Unsettled = true
	require.ErrorIs(t, a.Release(t.Context(), given), driver.ErrNotHeld)
	for range 3 {
		s.sweep(t)
		require.Equal(t, 1, s.count(t, "lock"), "it is in use")
	}
	s.lapse(t, 2*long)
	s.sweep(t) // Both have crashed.
	require.Zero(t, s.count(t, "claim"))
	_, err := a.Acquire(t.Context(), request("straggler", long))
	require.ErrorIs(t, err, driver.ErrNotHeld, "that is remembered")
	for range 3 {
		s.age(t, 50*time.Second)
		s.sweep(t)
	}
	require.Zero(t, s.count(t, "tombstone"))
	require.Zero(t, s.count(t, "lock"))
	require.Greater(t, a.granted(request("b", long)), last)
}

func TestSweepForgetsNoLockThatWasUsedSinceItsLastLook(t *testing.T) {
	s := begin(t)
	a := s.asker(t)
	for i := range 4 {
		token := fmt.Sprint("t", i)
		a.granted(request(token, long))
		a.release(token)
		s.age(t, 2*time.Minute)
		s.sweep(t)
		require.Equal(t, 1, s.count(t, "lock"))
	}
	s.sweep(t)
	require.Zero(t, s.count(t, "lock"))
}

func TestClockThatWasSetBackBlocksNobodyForLongAndRepeatsNoFence(t *testing.T) {
	s := begin(t)
	a := s.asker(t)
	last := a.granted(request("crashed", time.Second))
	a.waits("waiter", time.Second)
	const step = time.Hour
	s.age(t, -step)
	last += step.Microseconds()
	next := request("next", long)
	next.Wait = true
	require.Eventually(t, func() bool {
		g := a.ask(next)
		if g.Status != driver.Granted {
			return false
		}
		require.Equal(t, last+1, g.Fence, "FOUL: a fence that was given before")
		return true
	}, patience, 10*time.Millisecond, "it is still locked, and would be for an hour")
	a.release("next")
	require.Equal(t, last+2, a.granted(request("later", long)))
	a.release("later")
	s.sweep(t)
	s.sweep(t)
	require.Equal(t, 1, s.count(t, "lock"), "its fence is ahead of the clock")
}

// An ask may have to wait for the row of its lock. The lease begins after that.
func TestLeaseBeginsWhenTheRowOfTheLockIsFree(t *testing.T) {
	s := begin(t)
	a := s.asker(t)
	a.granted(request("before", long))
	a.release("before")
	tx := s.stuck(t)
	asked := make(chan driver.Grant)
	go func() {
		g, err := a.Acquire(context.Background(), request("a", long))
		assert.NoError(t, err)
		asked <- g
	}()
	require.Eventually(t, func() bool { return s.blocked(t) == 1 }, patience, time.Millisecond)
	time.Sleep(time.Second)
	var before, until time.Time
	require.NoError(t, tx.QueryRow(t.Context(), `SELECT clock_timestamp()`).Scan(&before))
	require.NoError(t, tx.Commit(t.Context()))
	require.Equal(t, driver.Granted, (<-asked).Status)
	require.NoError(t, s.QueryRow(t.Context(), `SELECT until FROM holdfast.claim`).Scan(&until))
	require.GreaterOrEqual(t, until.Sub(before), long)
}

// What was told is on disk, be it by an answer or by news: the server crashes as soon as that is there,
// and its WAL writer would have left to the crash whatever a commit did not sync.
func TestWhatWasToldIsThereAfterACrash(t *testing.T) {
	t.Parallel()
	s := start(t, "-c", "wal_writer_delay=10s")
	a := s.asker(t)
	crash := func() driver.Holder {
		t.Helper()
		s.Kill()
		s.Restart()
		var info driver.Info
		require.Eventually(a, func() (ok bool) { // The driver has to find out that its connections are gone.
			var err error
			info, err = a.Inspect(a.Context(), driver.Mutex, "l")
			return err == nil
		}, patience, 10*time.Millisecond)
		require.Len(t, info.Holders, 1, "FOUL: what was told is lost")
		return info.Holders[0]
	}
	answered := a.granted(request("holder", time.Hour))
	require.Equal(t, answered, crash().Fence, "FOUL: a free lock was granted by an answer")

	require.NoError(t, a.Renew(t.Context(), []driver.Lease{lease("holder", 2*time.Hour)})[0])
	require.Greater(t, crash().TimeLeft, time.Hour+time.Minute, "FOUL: a lease was renewed")

	news := make(chan driver.Grant, 10)
	waiter := a.waits("waiter", time.Hour, news)
	crash()
	a.listens(waiter)
	go func() { _ = a.Release(t.Context(), lease("holder", time.Hour)) }()
	told := hears(t, news)
	require.Equal(t, told.Fence, crash().Fence, "FOUL: a lock was handed over by news")
	require.Greater(t, told.Fence, answered)
	require.Equal(t, told.Fence, a.granted(waiter))
}

func TestWaiterThatWasDroppedReturnsToItsPlace(t *testing.T) {
	s := begin(t)
	a := s.asker(t)
	a.granted(request("holder", 5*long))
	first, second := request("first", long), request("second", 5*long)
	for _, r := range []*driver.Request{first, second} {
		r.Wait, r.Holder = true, r.Token
		require.Equal(t, driver.Queued, a.ask(r).Status)
	}
	s.lapse(t, 2*long)
	require.NoError(t, a.Renew(t.Context(), []driver.Lease{lease("holder", 5*long)})[0])
	a.busy(request("hasty", long)) // drops the one that is silent
	require.Equal(t, 2, s.count(t, "claim"))
	require.Equal(t, driver.Queued, a.ask(first).Status)
	info, err := a.Inspect(t.Context(), driver.Mutex, "l")
	require.NoError(t, err)
	require.Equal(t, []driver.Waiter{{Holder: "first"}, {Holder: "second"}}, info.Queue)
}

// Two batches that have the same leases in opposite orders must not wait for each other.
func TestBatchesOfRenewalsDoNotDeadlock(t *testing.T) {
	s := begin(t)
	a := s.asker(t)
	var there, back []driver.Lease
	for i := range 50 {
		r := request("t", long)
		r.Name = fmt.Sprint("lock ", i)
		a.granted(r)
		l := driver.Lease{Kind: r.Kind, Name: r.Name, Token: r.Token, TTL: long}
		there, back = append(there, l), append([]driver.Lease{l}, back...)
	}
	var wg sync.WaitGroup
	for _, batch := range [][]driver.Lease{there, back, there, back} {
		wg.Go(func() {
			for range 30 {
				for _, err := range a.Renew(context.Background(), batch) {
					assert.NoError(t, err)
				}
			}
		})
	}
	wg.Wait()
}

func TestEveryFileOfTheSchemaIsRunAndSaysWhatItIs(t *testing.T) {
	found, err := filepath.Glob("sql/*.sql")
	require.NoError(t, err)
	require.Len(t, pgdriver.Parts, len(found))
	for _, part := range pgdriver.Parts {
		text, err := os.ReadFile("sql/" + part + ".sql")
		require.NoError(t, err)
		require.True(t, strings.HasPrefix(string(text), "-- "+part+".sql: "), part)
	}
}

func TestMigrateMayBeRunAtAnyTimeByMany(t *testing.T) {
	s := own(t)
	_, err := s.Exec(t.Context(), `DROP SCHEMA holdfast CASCADE`)
	require.NoError(t, err)
	d := s.asker(t)
	_, err = d.Acquire(t.Context(), request("a", long))
	require.ErrorContains(t, err, "pgdriver.Migrate")
	require.NotErrorIs(t, err, driver.ErrTransient)
	require.ErrorIs(t, err, driver.ErrNotExecuted)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() { assert.NoError(t, pgdriver.Migrate(context.Background(), s.Pool)) })
	}
	wg.Wait()
	d.granted(request("a", long))
	require.NoError(t, pgdriver.Migrate(t.Context(), s.Pool))
	d.busy(request("b", long))
}

func TestOtherIsolationLevelsAreRefused(t *testing.T) {
	s := begin(t)
	for _, level := range []string{"repeatable read", "serializable"} {
		s.Pool = s.pool(t, func(c *pgxpool.Config) { c.ConnConfig.RuntimeParams["default_transaction_isolation"] = level })
		_, err := s.asker(t).Acquire(t.Context(), request("a", long))
		require.ErrorContains(t, err, "READ COMMITTED")
		require.NotErrorIs(t, err, driver.ErrTransient)
	}
}

// What the package documentation says that a user needs.
func TestUserWithTheDocumentedRightsCanDoAll(t *testing.T) {
	s := own(t)
	_, err := s.Exec(t.Context(), pgdriver.Rights(t))
	require.NoError(t, err)
	s.Pool = s.pool(t, func(c *pgxpool.Config) { c.ConnConfig.User = "app" })
	if redistest.Again() {
		s.conform(t, "ForceTellsAHolderThatWaited", "NoticeTellsTheHolderThatSomebodyWaits", "RaisedFenceIsThatOfTheLease",
			"AttachTakesTheLeaseOver", "ResizeUpLetsWaitersIn", "DowngradeLetsTheReadersAtTheHeadIn", "InspectShowsTheQueueInOrder",
			"StragglerOfATokenNeverSeenAcquiresNothing", "RenewExtendsEachLeaseOfABatch")
	}
	a := s.asker(t)
	a.all()
	s.fenced(t, a.granted(request("a", long)))
	_, err = s.Exec(t.Context(), `SELECT holdfast.sweep()`)
	require.NoError(t, err)
}

// all makes every call that there is, of locks that nobody else uses, and expects of each what the
// schema can only give if the statement and its arguments got through.
func (a asker) all() {
	a.Helper()
	ctx, k, name := a.Context(), driver.Mutex, "of "+a.Name()
	named := func(token string) driver.Lease { return driver.Lease{Kind: k, Name: name, Token: token, TTL: long} }
	by := func(token string) *driver.Request {
		return &driver.Request{Kind: k, Name: name, Token: token, Ask: 1, TTL: long, Owner: "o\xff\x00", Holder: "h " + token, Wake: func(driver.Grant) {}}
	}
	first := a.granted(by("a"))
	for i, err := range a.Renew(ctx, []driver.Lease{named("a"), named("nobody")}) {
		require.Equal(a, i == 1, errors.Is(err, driver.ErrNotHeld), "%v", err)
	}
	raised, err := a.RaiseFence(ctx, named("a"), first+1000, 1)
	require.NoError(a, err)
	require.GreaterOrEqual(a, raised, first+1000)
	wanted, err := a.Notice(ctx, named("a"))
	require.NoError(a, err)
	require.False(a, wanted)

	g, err := a.Attach(ctx, named("a"), by("heir"))
	require.NoError(a, err)
	require.Equal(a, "o\xff\x00", g.Owner)
	heard := make(chan driver.Grant, 10)
	waiter := by("waiter")
	waiter.Owner, waiter.Wait, waiter.Wake = "", true, func(g driver.Grant) { heard <- g }
	require.Equal(a, driver.Queued, a.ask(waiter).Status)
	info, err := a.Inspect(ctx, k, name)
	require.NoError(a, err)
	require.Len(a, info.Holders, 1)
	require.Equal(a, "o\xff\x00", info.Holders[0].Owner)
	require.Equal(a, "h waiter", info.Queue[0].Holder)
	names := 0
	require.NoError(a, a.List(ctx, name, func(driver.Kind, string) error { names++; return nil }))
	require.Equal(a, 1, names)
	require.NoError(a, a.Release(ctx, named("heir")))
	for g = soon(a.T, heard); g.Status != driver.Granted; g = a.ask(waiter) {
		require.True(a, g.Reconnect, "%+v", g) // it did not listen yet
	}
	require.Greater(a, g.Fence, raised, "FOUL: a fence that does not grow")
	g, err = a.Steal(ctx, by("thief"))
	require.NoError(a, err)
	require.Equal(a, driver.Granted, g.Status)
	require.NoError(a, a.ForceRelease(ctx, k, name))
	late := named("straggler")
	late.Unsettled = true
	require.ErrorIs(a, a.Release(ctx, late), driver.ErrNotHeld)
	_, err = a.Acquire(ctx, by("straggler"))
	require.ErrorIs(a, err, driver.ErrNotHeld)

	k = driver.RWMutex
	writer := by("writer")
	writer.Owner = ""
	a.granted(writer)
	require.NoError(a, a.Downgrade(ctx, named("writer"), 1))
	reader := by("reader")
	reader.Owner, reader.Shared = "", true
	a.granted(reader)

	k = driver.Semaphore
	permits := by("permits")
	permits.Owner, permits.Weight, permits.Limit = "", 2, 3
	a.granted(permits)
	require.NoError(a, a.Resize(ctx, name, fmt.Sprintf("change-%p", permits), 1))
	require.NoError(a, a.Downgrade(ctx, named("permits"), 1))
	require.NoError(a, a.Release(ctx, named("permits")))
	for _, l := range []driver.Lease{
		{Kind: driver.RWMutex, Name: name, Token: "writer", TTL: long}, {Kind: driver.RWMutex, Name: name, Token: "reader", TTL: long},
	} {
		require.NoError(a, a.Release(ctx, l))
	}
	permits.Token = "more"
	_, err = a.Acquire(ctx, permits) // the limit is another one now
	require.ErrorIs(a, err, driver.ErrLimitExceeded)
}

// Poolers allow some ways to send a query and forbid others.
func TestAllModesOfSendingQueriesWork(t *testing.T) {
	s := begin(t)
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
	} {
		t.Run(mode.String(), func(t *testing.T) {
			s.Pool = s.pool(t, func(c *pgxpool.Config) { c.ConnConfig.DefaultQueryExecMode = mode })
			s.asker(t).all()
			if redistest.Again() {
				s.conform(t, "OwnersOfAnyBytes", "NamesOfAnyBytes", "ForceTellsAHolderThatWaited", "NoticeTellsTheHolderThatSomebodyWaits",
					"RaisedFenceIsThatOfTheLease", "ResizeUpLetsWaitersIn", "InspectShowsOwnersThatWait", "AttachTakesTheLeaseOver",
					"DowngradeLetsTheReadersAtTheHeadIn", "RenewExtendsEachLeaseOfABatch")
			}
		})
	}
}

// conform holds drivers on the pool to some of the properties that all drivers have.
func (s store) conform(t *testing.T, names ...string) {
	cases := slices.DeleteFunc(drivertest.Cases(), func(c drivertest.Case) bool { return !slices.Contains(names, c.Name) })
	require.Len(t, cases, len(names), "properties that are not known")
	s.conforms(t, cases, abilities)
}

// clients returns two clients of the store with drivers of their own. Their heartbeats come after 100 s.
func (s store) clients(t *testing.T, opts ...pgdriver.Option) (a, b *holdfast.Client) {
	t.Helper()
	for _, c := range []**holdfast.Client{&a, &b} {
		*c = holdfast.Open(pgdriver.New(s.Pool, opts...), holdfast.WithTTL(5*long))
		t.Cleanup(func() { assert.NoError(t, (*c).Close()) })
	}
	return a, b
}

// handOver has b wait for a lock that a releases, and returns how long that takes.
func handOver(t *testing.T, a, b *holdfast.Client) time.Duration {
	t.Helper()
	held, err := a.Mutex("l").Lease(t.Context())
	require.NoError(t, err)
	got := make(chan *holdfast.Lease, 1)
	go func() {
		next, err := b.Mutex("l").Lease(t.Context())
		assert.NoError(t, err)
		got <- next
	}()
	require.Eventually(t, func() bool {
		info, err := a.Mutex("l").Inspect(t.Context())
		return err == nil && len(info.Queue) == 1
	}, patience, time.Millisecond)
	released := time.Now()
	require.NoError(t, held.Release(t.Context()))
	next := <-got
	took := time.Since(released)
	require.Greater(t, next.Fence(), held.Fence(), "FOUL: a fence that does not grow")
	require.NoError(t, next.Release(t.Context()))
	return took
}

// The subscription is made in another database, where nobody is told anything. So it is behind
// a PgBouncer in transaction mode: LISTEN works, and nothing is heard.
func TestWaitersPollWhereNoNewsComesIn(t *testing.T) {
	s := begin(t)
	c, err := pgx.ParseConfig(s.Database("postgres").DSN())
	require.NoError(t, err)
	a, b := s.clients(t, pgdriver.WithListenConfig(c))
	for range 5 {
		require.Less(t, handOver(t, a, b), 30*time.Second, "a heartbeat would take 100 s")
	}

	reasons := make(chan string, 10)
	d := s.asker(t, pgdriver.WithListenConfig(c))
	d.OnReconnect(func(reason string) { reasons <- reason })
	holder, waiter := request("holder", long), request("waiter", long)
	d.granted(holder)
	waiter.Wait = true
	for range 200 {
		g := d.ask(waiter)
		require.Equal(t, driver.Queued, g.Status)
		require.LessOrEqual(t, g.RetryAfter, 250*time.Millisecond)
		select {
		case reason := <-reasons:
			require.Equal(t, "mute", reason)
			return
		case <-time.After(g.RetryAfter):
		}
	}
	require.Fail(t, "it was not told that no news comes in")
}

func TestListenIsMadeAgain(t *testing.T) {
	s := begin(t)
	d := s.asker(t)
	reasons := make(chan string, 10)
	d.OnReconnect(func(reason string) { reasons <- reason })
	news := make(chan driver.Grant, 10)
	waiter := request("waiter", long)
	waiter.Wake = func(g driver.Grant) { news <- g }
	d.granted(request("holder", long))
	d.listens(waiter)
	for len(news) > 0 {
		<-news
	}
	_, err := s.Exec(t.Context(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE 'SELECT holdfast.hear%'`)
	require.NoError(t, err)
	ask := driver.Grant{Status: driver.Queued, Reconnect: true}
	require.Equal(t, ask, soon(t, news), "it is gone")
	require.Equal(t, "error", soon(t, reasons))
	require.Equal(t, ask, soon(t, news), "it is there again")
	require.Greater(t, d.ask(waiter).RetryAfter, time.Second)
	d.release("holder")
	require.Equal(t, driver.Granted, soon(t, news).Status)
}

// A right that is taken away ends nobody who has had it: whoever waits goes on when it is back.
func TestRightThatIsTakenAwayIsWaitedFor(t *testing.T) {
	s := own(t)
	sql := func(text string) {
		t.Helper()
		_, err := s.Exec(t.Context(), text)
		require.NoError(t, err)
	}
	sql(`GRANT USAGE ON SCHEMA holdfast TO app; GRANT ALL ON ALL SEQUENCES IN SCHEMA holdfast TO app`)
	const rights = ` ALL ON ALL TABLES IN SCHEMA holdfast `
	sql(`GRANT` + rights + `TO app`)
	pool := s.pool(t, func(c *pgxpool.Config) { c.ConnConfig.User = "app" })
	locks := holdfast.Open(pgdriver.New(pool), holdfast.WithLogger(slog.New(slog.DiscardHandler)))
	defer locks.Close()
	nothing := func(context.Context) error { return nil }
	require.NoError(t, locks.Mutex("x").Do(t.Context(), nothing))

	sql(`REVOKE` + rights + `FROM app`)
	_, err := locks.Mutex("x").TryLease(t.Context())
	require.ErrorIs(t, err, driver.ErrDenied)
	done := make(chan error, 1)
	go func() { done <- locks.Mutex("x").Do(t.Context(), nothing) }()
	select {
	case err := <-done:
		t.Fatal("it has left: ", err)
	case <-time.After(500 * time.Millisecond):
	}
	sql(`GRANT` + rights + `TO app`)
	select {
	case err := <-done:
		require.NoError(t, err)
	case <-time.After(30 * time.Second):
		t.Fatal("it still waits")
	}
}
