//go:build unix

package pgdriver_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
)

// queue is one in which the last waiter, of a client of its own, waits in the server.
type queue struct {
	store
	asker // of all others
	last  *driver.Request
	of    asker
	woken chan driver.Grant
}

// newQueue makes a queue behind a holder that counts as quick for as long as it holds the lock.
func newQueue(t *testing.T, s store, last *pgxpool.Pool) *queue {
	t.Helper()
	q := &queue{s, s.asker(t), request("last", long), store{s.Server, last}.asker(t), make(chan driver.Grant, 10)}
	q.granted(request("holder", long))
	q.since(t, "infinity")
	for i := range 8 {
		r := request(fmt.Sprint("w", i), long)
		r.Wait = true
		require.Equal(t, driver.Queued, q.ask(r).Status)
	}
	q.last.Wait, q.last.Wake = true, func(g driver.Grant) { q.woken <- g }
	require.Equal(t, driver.Queued, q.of.ask(q.last).Status)
	require.Eventually(t, func() bool { return q.looks(t) != 0 }, patience, time.Millisecond)
	for i := range 8 {
		q.release(fmt.Sprint("w", i))
	}
	return q
}

// since changes since when the lock is held.
func (q *queue) since(t *testing.T, when string) {
	t.Helper()
	_, err := q.Exec(t.Context(), `UPDATE holdfast.claim SET since = $1::text::timestamptz WHERE held`, when)
	require.NoError(t, err)
}

// looks returns the backend in which the last waiter looks for its grant, 0 if it does not.
func (q *queue) looks(t *testing.T) (pid int) {
	t.Helper()
	require.NoError(t, q.QueryRow(t.Context(), `SELECT coalesce(max(l.pid), 0) FROM pg_locks l JOIN holdfast.claim c
		ON l.objid::bigint = c.place & 2147483647 WHERE l.locktype = 'advisory' AND l.granted AND c.token = 'last' AND NOT c.held`).Scan(&pid))
	return pid
}

func (q *queue) wakes(t *testing.T) driver.Grant {
	t.Helper()
	select {
	case g := <-q.woken:
		return g
	case <-time.After(patience):
		require.Fail(t, "it is not woken")
		return driver.Grant{}
	}
}

func TestWaiterThatLooksForItsGrantIsServedWithoutNews(t *testing.T) {
	t.Parallel()
	s := start(t)
	q := newQueue(t, s, s.Pool)
	conn, err := pgx.Connect(t.Context(), s.DSN())
	require.NoError(t, err)
	defer func() { _ = conn.Close(context.Background()) }()
	var channel string
	require.NoError(t, conn.QueryRow(t.Context(), `SELECT 'holdfast_' || client FROM holdfast.claim WHERE token = 'last'`).Scan(&channel))
	_, err = conn.Exec(t.Context(), `LISTEN `+channel)
	require.NoError(t, err)
	q.release("holder")
	g := q.wakes(t)
	require.Equal(t, driver.Granted, g.Status)
	require.EqualValues(t, 1, g.Ask, "the grant rests on what it asked")
	info, err := q.Inspect(t.Context(), driver.Mutex, "l")
	require.NoError(t, err)
	require.Equal(t, info.Holders[0].Fence, g.Fence)
	_, err = s.Exec(t.Context(), `SELECT pg_notify($1, 'end')`, channel)
	require.NoError(t, err)
	for {
		note, err := conn.WaitForNotification(t.Context())
		require.NoError(t, err)
		if note.Payload == "end" {
			break
		}
		require.Equal(t, "ping", note.Payload)
	}
	q.of.release("last")
}

// However a waiter stops to look, it asks. From then on it is told, as all others are.
func TestWaiterThatStopsLookingAsksAndIsTold(t *testing.T) {
	t.Parallel()
	for name, stop := range map[string]func(*testing.T, *queue){
		"the holder keeps the lock": func(t *testing.T, q *queue) { q.since(t, "-infinity") },
		"its session ends": func(t *testing.T, q *queue) {
			_, err := q.Exec(t.Context(), `SELECT pg_terminate_backend($1)`, q.looks(t))
			require.NoError(t, err)
		},
		"its statement is cancelled": func(t *testing.T, q *queue) {
			_, err := q.Exec(t.Context(), `SELECT pg_cancel_backend($1)`, q.looks(t))
			require.NoError(t, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t)
			q := newQueue(t, s, s.pool(t))
			stop(t, q)
			require.Equal(t, driver.Queued, q.wakes(t).Status)
			require.Zero(t, q.looks(t))
			require.Equal(t, driver.Queued, q.of.ask(q.last).Status)
			q.release("holder")
			for g := q.wakes(t); ; g = q.wakes(t) {
				if g.Status == driver.Granted {
					break
				}
			}
		})
	}
}

// The transaction that grants the lock has seen the waiter look, and tells it nothing. The waiter stops
// before that commits. Then its ask waits for the commit, and finds the grant.
func TestWaiterThatStopsLookingWhileItIsServedFindsItsGrant(t *testing.T) {
	t.Parallel()
	s := start(t)
	q := newQueue(t, s, s.pool(t))
	pid := q.looks(t)
	tx, err := s.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), `SELECT holdfast.release('mutex', 'l', 'holder', NULL, false)`)
	require.NoError(t, err)
	_, err = s.Exec(t.Context(), `SELECT pg_terminate_backend($1)`, pid)
	require.NoError(t, err)
	require.Equal(t, driver.Queued, q.wakes(t).Status)
	answer := make(chan driver.Grant, 1)
	go func() {
		g, _ := q.of.Acquire(t.Context(), q.last)
		answer <- g
	}()
	require.Eventually(t, func() bool {
		var waits bool
		err := s.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'transactionid' AND NOT granted)`).Scan(&waits)
		return err == nil && waits
	}, patience, time.Millisecond)
	require.NoError(t, tx.Commit(t.Context()))
	require.Equal(t, driver.Granted, (<-answer).Status)
}

// Whoever waits in the server holds up neither the end of its client, nor those who have no connection left.
func TestClientCanBeClosedWhileAWaiterLooks(t *testing.T) {
	t.Parallel()
	s := start(t)
	q := newQueue(t, s, s.pool(t))
	began := time.Now()
	require.NoError(t, q.of.Close())
	require.Less(t, time.Since(began), 5*time.Second)
	require.Eventually(t, func() bool { return q.looks(t) == 0 }, patience, time.Millisecond)
}

// Behind a pooler each who waits in the server would take one of the few sessions that all share.
func TestWaitersBehindATransactionPoolerStopToWaitInTheServer(t *testing.T) {
	t.Parallel()
	s := start(t)
	dsn := s.Bouncer(t, "transaction", 4)
	q := newQueue(t, s, s.pool(t, func(c *pgxpool.Config) {
		other, err := pgxpool.ParseConfig(dsn)
		require.NoError(t, err)
		*c = *other
		c.MaxConns, c.ConnConfig.DefaultQueryExecMode = 3, pgx.QueryExecModeExec
	}))
	q.since(t, "-infinity")
	require.Equal(t, driver.Queued, q.wakes(t).Status)
	q.since(t, "infinity")
	for i := range 9 {
		r := request(fmt.Sprint("again", i), long)
		r.Wait = true
		require.Equal(t, driver.Queued, q.of.ask(r).Status)
	}
	require.Never(t, func() bool {
		var waiting bool
		err := s.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory')`).Scan(&waiting)
		return err != nil || waiting
	}, 200*time.Millisecond, 10*time.Millisecond)
}
