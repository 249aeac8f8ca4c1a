package pgdriver_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	pgdriver "github.com/holdfast-go/holdfast/driver/postgres"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

// The host of the server dies without a word, and its successor answers at the same address.
// Connections that were there are silent for ever.
func TestServerThatDiesWithoutAWordCostsNoLease(t *testing.T) {
	s := begin(t)
	link, dsn := s.Through(t)
	config, err := pgxpool.ParseConfig(dsn)
	require.NoError(t, err)
	config.MaxConns = 4
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	locks := holdfast.Open(pgdriver.New(pool))
	defer func() { assert.NoError(t, locks.Close()) }()
	held, err := locks.Mutex("held").Lease(t.Context())
	require.NoError(t, err)
	other, err := locks.Mutex("other").Lease(t.Context())
	require.NoError(t, err)
	all := func(f func(name string)) {
		var wg sync.WaitGroup
		for i := range 12 {
			wg.Go(func() { f(fmt.Sprint("free ", i)) })
		}
		wg.Wait()
	}
	all(func(name string) { // so that all connections are there
		m := locks.Mutex(name)
		m.Lock()
		m.Unlock()
	})
	queued := make(chan *holdfast.Lease, 1)
	go func() {
		l, err := locks.Mutex("other", holdfast.WithStrictFIFO()).Lease(context.Background())
		assert.NoError(t, err)
		queued <- l
	}()
	time.Sleep(1500 * time.Millisecond) // The pool tries connections that were idle for longer than a second.

	link.Silence(true)
	link.Silence(false)
	began := time.Now()
	all(func(name string) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		l, err := locks.Mutex(name).Lease(ctx)
		if assert.NoError(t, err) {
			assert.NoError(t, l.Release(ctx))
		}
	})
	took := time.Since(began)
	t.Log("free locks were there after", took)
	assert.Less(t, took, 10*time.Second, "that is the TTL")
	_, err = locks.Mutex("held").TryLease(t.Context())
	assert.ErrorIs(t, err, holdfast.ErrLocked)
	require.NoError(t, other.Release(t.Context()))
	released := time.Now()
	next := <-queued
	t.Log("the waiter had its lock", time.Since(released), "after the release")
	assert.Less(t, time.Since(released), 10*time.Second)
	assert.NoError(t, next.Release(t.Context()))
	time.Sleep(time.Until(began.Add(11 * time.Second)))
	assert.NoError(t, held.Err(), "a lease of 10 s")
}

// A caller that gives up does not take its call along: the answer to that is still to come.
func TestCallThatHasBegunOutlivesItsCaller(t *testing.T) {
	s := begin(t)
	a := s.asker(t)
	a.granted(request("before", long))
	a.release("before")
	tx := s.stuck(t)
	ctx, cancel := context.WithCancel(t.Context())
	answer := make(chan error, 1)
	go func() {
		_, err := a.Acquire(ctx, request("a", long))
		answer <- err
	}()
	require.Eventually(t, func() bool { return s.blocked(t) == 1 }, patience, time.Millisecond)
	cancel()
	select {
	case err := <-answer:
		require.Fail(t, "it was cancelled", "%v", err)
	case <-time.After(200 * time.Millisecond):
	}
	require.NoError(t, tx.Commit(t.Context()))
	require.NoError(t, <-answer)
	a.busy(request("b", long))
}

// One that is not answered ends all the same, and may have been carried out.
func TestCallsAreBounded(t *testing.T) {
	s := begin(t)
	a := s.asker(t)
	a.granted(request("before", long))
	tx := s.stuck(t)
	began := time.Now()
	err := a.Renew(t.Context(), []driver.Lease{lease("before", long)})[0]
	require.ErrorIs(t, err, driver.ErrTransient)
	require.NotErrorIs(t, err, driver.ErrNotExecuted)
	require.ErrorContains(t, err, "no answer within 3s")
	require.Less(t, time.Since(began), patience)
	require.NoError(t, tx.Rollback(t.Context()))
	require.NoError(t, a.Renew(t.Context(), []driver.Lease{lease("before", long)})[0])
}

// A server that is slow is not asked for a new connection with each call that is late: one costs
// it more than many calls.
func TestCallThatIsLateKeepsItsConnection(t *testing.T) {
	s := begin(t)
	a := s.asker(t)
	const ttl = 1500 * time.Millisecond
	a.granted(request("before", long))
	backends := func(where string) (pids []int) {
		t.Helper()
		require.NoError(t, s.QueryRow(t.Context(), `SELECT array_agg(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid() AND `+where).Scan(&pids))
		return pids
	}
	late := func() (pid int) {
		t.Helper()
		tx := s.stuck(t)
		defer func() { require.NoError(t, tx.Rollback(t.Context())) }()
		began := time.Now()
		err := a.Renew(t.Context(), []driver.Lease{lease("before", ttl)})[0]
		require.ErrorIs(t, err, driver.ErrTransient)
		require.NotErrorIs(t, err, driver.ErrNotExecuted)
		require.ErrorContains(t, err, "no answer within 500ms")
		pids := backends("wait_event_type = 'Lock'")
		if time.Since(began) > 2500*time.Millisecond {
			return 0 // Its time may be over.
		}
		require.Len(t, pids, 1)
		return pids[0]
	}
	for range 10 {
		pid := late()
		if pid == 0 {
			continue
		}
		require.Eventually(t, func() bool {
			return slices.Contains(backends("state = 'idle'"), pid)
		}, patience, time.Millisecond, "it was given up")
		return
	}
	require.Fail(t, "the machine is too slow")
}

// Calls that wait for the row of one lock leave others a connection.
func TestLockThatIsStuckCostsNoLeaseOnAnother(t *testing.T) {
	s := begin(t)
	far := s.asker(t)
	far.granted(request("before", long))
	s.Pool = s.pool(t, func(c *pgxpool.Config) { c.MaxConns = 4 })
	locks := holdfast.Open(pgdriver.New(s.Pool), holdfast.WithTTL(3*time.Second), holdfast.WithLogger(slog.New(slog.DiscardHandler)))
	defer func() { assert.NoError(t, locks.Close()) }()
	held, err := locks.Mutex("other").Lease(t.Context())
	require.NoError(t, err)
	s.stuck(t, "l")
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	stuck := locks.Mutex("l", holdfast.WithStrictFIFO(), holdfast.WithTTL(time.Second))
	for _, get := range []func(context.Context) (*holdfast.Lease, error){stuck.Lease, stuck.Lease, stuck.Steal, stuck.Steal} {
		wg.Go(func() {
			_, err := get(ctx)
			assert.ErrorIs(t, err, context.DeadlineExceeded)
		})
	}
	wg.Wait()
	require.NoError(t, held.Err())
	require.NoError(t, held.Release(t.Context()))
}

// pgx prepares statements if it is not told otherwise, and such a pooler loses them.
func TestPoolerOfTransactionsNeedsNoModeOfQueries(t *testing.T) {
	redistest.SoakOnly(t)
	s := own(t)
	for mode, size := range map[string]int{
		"transaction": 5,
		"session":     8, // a connection and a listener of each client
	} {
		t.Run(mode, func(t *testing.T) {
			dsn := s.Bouncer(t, mode, size)
			var clients []*holdfast.Client
			for range 4 {
				config, err := pgxpool.ParseConfig(dsn)
				require.NoError(t, err)
				config.MaxConns = 1
				pool, err := pgxpool.NewWithConfig(t.Context(), config)
				require.NoError(t, err)
				t.Cleanup(pool.Close)
				clients = append(clients, holdfast.Open(pgdriver.New(pool), holdfast.WithTTL(long)))
			}
			var wg sync.WaitGroup
			for i, c := range clients {
				wg.Go(func() {
					for range 20 {
						for _, name := range []string{"shared", fmt.Sprint("own ", i)} {
							l, err := c.Mutex(name).Lease(context.Background())
							if !assert.NoError(t, err) {
								return
							}
							assert.NoError(t, l.Renew(context.Background()))
							assert.NoError(t, l.Release(context.Background()))
						}
					}
				})
			}
			wg.Wait()
			for _, c := range clients {
				assert.NoError(t, c.Close())
			}
		})
	}
}

// What a pool does with each new connection, such as to take a role, is done for that of news, too.
func TestListenerConnectsAsThePoolDoes(t *testing.T) {
	s := begin(t)
	var prepared sync.Map
	s.Pool = s.pool(t, func(c *pgxpool.Config) {
		c.AfterConnect = func(_ context.Context, conn *pgx.Conn) error {
			prepared.Store(conn.PgConn().PID(), true)
			return nil
		}
	})
	a := s.asker(t)
	a.granted(request("holder", long))
	a.listens(a.waits("waiter", long))
	var pids []uint32
	require.NoError(t, s.QueryRow(t.Context(), `SELECT array_agg(pid::oid) FROM pg_stat_activity
		WHERE datname = current_database() AND query = 'SELECT holdfast.hear()'`).Scan(&pids))
	require.NotEmpty(t, pids)
	for _, pid := range pids {
		_, ok := prepared.Load(pid)
		require.True(t, ok, "the listener is a connection like the others")
	}
}
