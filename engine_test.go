package holdfast_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/memdriver"
)

// What a review of the engine found by reading two versions of it side by side.

// What a lock is waited for is of now: a client remembers locks for a while.
func TestTroubleOfLongAgoIsNotWhyAWaitEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &failing{Driver: memdriver.New()}
		c, other := holdfast.Open(d), holdfast.Open(d.Driver)
		d.down.Store(true)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := c.Mutex("x").Lease(ctx)
		require.ErrorIs(t, err, driver.ErrTransient)
		d.down.Store(false)
		time.Sleep(time.Hour)

		held, err := other.Mutex("x").Lease(t.Context())
		require.NoError(t, err)
		first := wait(t.Context(), c.Mutex("x"))
		synctest.Wait() // it is in the store's queue
		ctx, cancel = context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err = c.Mutex("x").Lease(ctx)
		require.ErrorIs(t, err, holdfast.ErrLocked)
		require.NotErrorIs(t, err, driver.ErrTransient)
		require.NoError(t, held.Release(t.Context()))
		<-first.done
		require.NoError(t, first.lease.Release(t.Context()))
		require.NoError(t, c.Close())
		require.NoError(t, other.Close())
	})
}

// A lock can be taken away by force before anybody has had it.
func TestLossBeforeAnybodyHadTheLockIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, log := memdriver.New(), new(labLog)
		c := holdfast.Open(store, holdfast.WithLogger(slog.New(slog.NewTextHandler(log, nil))))
		other := holdfast.Open(store)
		c.AddHook(meddler{acquire: func(next holdfast.AcquireFunc, ctx context.Context, op *holdfast.AcquireOp) (*holdfast.Lease, error) {
			op.Holding = func(ctx context.Context, _ int64) context.Context {
				assert.NoError(t, other.Mutex("x").ForceUnlock(t.Context()))
				return ctx
			}
			return next(ctx, op)
		}})
		c.Mutex("x").Lock()
		synctest.Wait()
		c.Mutex("x").Unlock()
		require.Contains(t, log.String(), "lock lost")
		require.NoError(t, c.Close())
		require.NoError(t, other.Close())
	})
}

// A turn ends when somebody else waits, however often the lock has gone round before.
func TestTurnEndsHoweverManyPassesWereBefore(t *testing.T) {
	for _, before := range []int{100, 40_000} {
		t.Run(fmt.Sprint(before), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memdriver.New()
				a, b := holdfast.Open(store, holdfast.WithLinger(time.Hour), holdfast.WithTTL(24*time.Hour)), holdfast.Open(store)
				mu := a.Mutex("x")
				for range before {
					mu.Lock()
					mu.Unlock()
				}
				mu.Lock()
				var passes atomic.Int64
				var wanted, stop atomic.Bool
				var wg sync.WaitGroup
				for range 2 {
					wg.Go(func() {
						for !stop.Load() {
							mu.Lock()
							if wanted.Load() {
								passes.Add(1)
							}
							time.Sleep(time.Millisecond)
							mu.Unlock()
						}
					})
				}
				synctest.Wait()
				wg.Go(func() {
					lease, err := b.Mutex("x").Lease(context.Background())
					stop.Store(true)
					if assert.NoError(t, err) {
						assert.LessOrEqual(t, passes.Load(), int64(40))
						assert.NoError(t, lease.Release(context.Background()))
					}
				})
				synctest.Wait()
				wanted.Store(true)
				mu.Unlock()
				wg.Wait()
				require.NoError(t, a.Close())
				require.NoError(t, b.Close())
			})
		})
	}
}

// pondering takes its time to say where a lock is.
type pondering struct{ *memdriver.Driver }

func (pondering) Node(driver.Kind, string) string {
	time.Sleep(2 * time.Second)
	return ""
}

// A driver that takes its time must not keep anybody from giving up. In real time, since a
// goroutine that waits for a mutex stops that of a bubble.
func TestWaiterGivesUpInTimeBesideASlowDriver(t *testing.T) {
	t.Parallel()
	c := holdfast.Open(pondering{memdriver.New()})
	held := wait(context.Background(), c.Mutex("x"))
	time.Sleep(50 * time.Millisecond) // it has been granted, and the driver is asked where that is
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	began := time.Now()
	_, err := c.Mutex("x").Lease(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Less(t, time.Since(began), time.Second)
	<-held.done
	require.NoError(t, held.lease.Release(context.Background()))
	require.NoError(t, c.Close())
}

// single tells when a lock is wanted, but gives one number with each, and no more later.
type single struct{ d *memdriver.Driver }

func (s single) Acquire(ctx context.Context, r *driver.Request) (driver.Grant, error) {
	one := *r
	one.Fences = 1
	return s.d.Acquire(ctx, &one)
}
func (s single) Renew(ctx context.Context, l []driver.Lease) []error { return s.d.Renew(ctx, l) }
func (s single) Release(ctx context.Context, l driver.Lease) error   { return s.d.Release(ctx, l) }
func (s single) Close() error                                        { return s.d.Close() }
func (s single) Notices() bool                                       { return true }

// A lock that lingers without a number for the next lease is in nobody's way.
func TestLockThatLingersWithoutANumberIsHadAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := holdfast.Open(single{memdriver.New()}, holdfast.WithLinger(time.Hour))
		began := time.Now()
		for range 3 {
			lease, err := c.Mutex("x").Lease(t.Context())
			require.NoError(t, err)
			require.NoError(t, lease.Release(t.Context()))
			lease, err = c.Mutex("x").TryLease(t.Context())
			require.NoError(t, err)
			require.NoError(t, lease.Release(t.Context()))
		}
		require.Zero(t, time.Since(began))
		require.NoError(t, c.Close())
	})
}

// tagged says of itself who it is, and notes who was in the way.
type tagged struct {
	holdfast.HookBase
	blockers []string
}

func (h *tagged) AcquireHook(next holdfast.AcquireFunc) holdfast.AcquireFunc {
	return func(ctx context.Context, op *holdfast.AcquireOp) (*holdfast.Lease, error) {
		op.Holding = func(ctx context.Context, _ int64) context.Context { return holdfast.WithHolderTag(ctx, "me") }
		lease, err := next(ctx, op)
		h.blockers = op.Blockers
		return lease, err
	}
}

// A third party's hook can do what NewTracingHook does: link waiters to who was in their way,
// also if the lock had been let go and only lingered.
func TestHookHearsWhoWasInTheWay(t *testing.T) {
	for _, lingers := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			store, h := memdriver.New(), &tagged{}
			a, b := holdfast.Open(store, holdfast.WithLinger(time.Hour)), holdfast.Open(store)
			a.AddHook(&tagged{})
			b.AddHook(h)
			lease, err := a.Mutex("x").Lease(t.Context())
			require.NoError(t, err)
			if lingers {
				require.NoError(t, lease.Release(t.Context()))
			}
			w := wait(t.Context(), b.Mutex("x"))
			synctest.Wait()
			if !lingers {
				require.NoError(t, lease.Release(t.Context()))
			}
			<-w.done
			require.NoError(t, w.err)
			require.Equal(t, []string{"me"}, h.blockers)
			require.NoError(t, w.lease.Release(t.Context()))
			require.NoError(t, a.Close())
			require.NoError(t, b.Close())
		})
	}
}

// Each Close returns, and the driver is closed once, whatever ends beside them.
func TestClosesBesideTheLastOperationAllReturn(t *testing.T) {
	for range 3000 {
		d := &counted{instant: instant{}}
		c := holdfast.Open(d)
		lease, err := c.Mutex("x").Lease(t.Context())
		require.NoError(t, err)
		var wg sync.WaitGroup
		wg.Go(func() { _ = lease.Release(context.Background()) })
		for range 3 {
			wg.Go(func() { assert.NoError(t, c.Close()) })
		}
		promptly(t, soon, func() error { wg.Wait(); return nil })
		require.EqualValues(t, 1, d.closes.Load())
	}
}

// counted counts how often it is closed.
type counted struct {
	instant
	closes atomic.Int32
}

func (c *counted) Close() error { c.closes.Add(1); return nil }
