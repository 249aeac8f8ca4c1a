package pgdriver_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
	pgdriver "github.com/holdfast-go/holdfast/driver/postgres"
)

// long is the TTL of leases that must not end during a test, unless that has the end come by itself.
const long = time.Minute

// asker asks one driver for the lock l.
type asker struct {
	*testing.T
	*pgdriver.Driver
}

func (s store) asker(t *testing.T, opts ...pgdriver.Option) asker {
	d := pgdriver.New(s.Pool, opts...)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return asker{t, d}
}

func request(token string, ttl time.Duration) *driver.Request {
	return &driver.Request{Kind: driver.Mutex, Name: "l", Token: token, Ask: 1, TTL: ttl, Wake: func(driver.Grant) {}}
}

func lease(token string, ttl time.Duration) driver.Lease {
	return driver.Lease{Kind: driver.Mutex, Name: "l", Token: token, TTL: ttl}
}

func (a asker) ask(r *driver.Request) driver.Grant {
	a.Helper()
	for end := time.Now().Add(patience); ; {
		g, err := a.Acquire(a.Context(), r)
		r.Ask++
		if errors.Is(err, context.DeadlineExceeded) && time.Now().Before(end) {
			continue // No answer in time, on a machine that has much to do.
		}
		require.NoError(a, err)
		return g
	}
}

func (a asker) granted(r *driver.Request) int64 {
	a.Helper()
	g := a.ask(r)
	require.Equal(a, driver.Granted, g.Status)
	return g.Fence
}

func (a asker) busy(r *driver.Request) driver.Grant {
	a.Helper()
	g := a.ask(r)
	require.Equal(a, driver.Busy, g.Status, "FOUL: another holds the lock")
	return g
}

// waits has a token wait for the lock, and returns how it asks again. The news of the token comes to news.
func (a asker) waits(token string, ttl time.Duration, news ...chan<- driver.Grant) *driver.Request {
	a.Helper()
	r := request(token, ttl)
	r.Wait = true
	if len(news) > 0 {
		r.Wake = func(g driver.Grant) { news[0] <- g }
	}
	require.Equal(a, driver.Queued, a.ask(r).Status)
	return r
}

// listens has a token ask until its driver hears.
func (a asker) listens(r *driver.Request) {
	a.Helper()
	r.Wait = true
	require.Eventually(a, func() bool { return a.ask(r).RetryAfter > time.Second }, patience, 10*time.Millisecond)
}

// soon returns what comes, and fails if that is nothing.
func soon[T any](t *testing.T, c <-chan T) (it T) {
	t.Helper()
	select {
	case it = <-c:
	case <-time.After(patience):
		require.FailNow(t, "nothing comes")
	}
	return it
}

// hears returns the grant that a token is told.
func hears(t *testing.T, news <-chan driver.Grant) driver.Grant {
	t.Helper()
	for {
		if g := soon(t, news); g.Status == driver.Granted {
			return g
		}
	}
}

func (a asker) release(token string) {
	a.Helper()
	require.NoError(a, a.Release(a.Context(), lease(token, long)))
}

// stuck keeps the rows of all locks, or of those of some names, until the transaction ends.
func (s store) stuck(t *testing.T, names ...string) pgx.Tx {
	t.Helper()
	tx, err := s.Begin(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	_, err = tx.Exec(t.Context(), `SELECT FROM holdfast.lock WHERE $1::bytea[] IS NULL OR name = ANY($1::bytea[]) FOR UPDATE`, names)
	require.NoError(t, err)
	return tx
}

// blocked is how many calls wait for a row.
func (s store) blocked(t *testing.T) (n int) {
	t.Helper()
	require.NoError(t, s.QueryRow(t.Context(), `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`).Scan(&n))
	return n
}

// fenced begins a transaction that counts on the lease with that fence.
func (s store) fenced(t *testing.T, fence int64) pgx.Tx {
	t.Helper()
	tx, err := s.Begin(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	_, err = tx.Exec(t.Context(), `SELECT holdfast.fenced('l', $1)`, fence)
	require.NoError(t, err)
	return tx
}

// lapse has so much time pass for all that hold and wait: no test has to keep a lease, and then to
// let it go, by the clock of a machine that may stand still.
func (s store) lapse(t *testing.T, by time.Duration) {
	t.Helper()
	_, err := s.Exec(t.Context(), `UPDATE holdfast.claim SET until = until - make_interval(secs => $1::bigint / 1e9),
		asks = asks - make_interval(secs => $1::bigint / 1e9)`, int64(by))
	require.NoError(t, err)
}

func TestTransactionIsRefusedTheFenceOfALeaseThatIsOver(t *testing.T) {
	s := begin(t)
	a := s.asker(t)
	check := func(fence int64) error {
		_, err := s.Exec(t.Context(), `SELECT holdfast.fenced('l', $1)`, fence)
		return err
	}
	require.Error(t, check(1))
	first := a.granted(request("a", long))
	require.NoError(t, check(first))
	require.Error(t, check(first-1))
	s.lapse(t, 2*long)
	require.Error(t, check(first), "FOUL: it is over, though nobody else has noticed")
	second := a.granted(request("b", long))
	require.NoError(t, check(second))
	var answer *pgconn.PgError
	require.ErrorAs(t, check(first), &answer)
	require.Equal(t, "55000", answer.Code)
	a.release("b")
	require.Error(t, check(second))
}

// A lease ends while the transaction of its holder is about to commit: as if it had been paused
// between the check and the commit. See TestNoVerbLosesAnUpdateOfATransactionThatCountsOnALease.
func TestNobodyGetsTheLockBeforeTheTransactionThatCountsOnItHasEnded(t *testing.T) {
	s := begin(t)
	a := s.asker(t)
	tx := s.fenced(t, a.granted(request("a", long)))
	s.lapse(t, 2*long)
	g := a.busy(request("hasty", long))
	require.Less(t, g.RetryAfter, time.Second, "nobody will tell")
	waiter := a.waits("waiter", long)
	require.NotZero(t, a.ask(waiter).RetryAfter)
	require.ErrorIs(t, a.Renew(t.Context(), []driver.Lease{lease("a", long)})[0], driver.ErrNotHeld)
	require.NoError(t, tx.Commit(t.Context()))
	a.granted(waiter)
}

func TestLeaseThatATransactionCountsOnIsRenewed(t *testing.T) {
	s := begin(t)
	a := s.asker(t)
	fence := a.granted(request("a", long))
	tx := s.fenced(t, fence)
	for range 4 {
		s.lapse(t, long/2)
		require.NoError(t, a.Renew(t.Context(), []driver.Lease{lease("a", long)})[0])
	}
	require.Equal(t, fence, a.granted(request("a", long)), "a repeat")
	a.busy(request("b", long))
	require.NoError(t, tx.Commit(t.Context()))
}

// Others of its owner may come in beside a holder, but not once its lease is over.
func TestOwnerOfALeaseThatIsOverWaitsForItsTransaction(t *testing.T) {
	s := begin(t)
	a := s.asker(t)
	first, second := request("first", long), request("second", long)
	first.Owner, second.Owner = "o", "o"
	fence := a.granted(first)
	tx := s.fenced(t, fence)
	s.lapse(t, 2*long)
	a.busy(second)
	require.NoError(t, tx.Commit(t.Context()))
	require.Greater(t, a.granted(second), fence)
}
