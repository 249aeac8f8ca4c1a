package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/memdriver"
	"github.com/holdfast-go/holdfast/internal/test/behavior/lab"
)

func TestHookEndsAWait(t *testing.T) {
	enough := errors.New("enough")
	impatient := lab.Meddler{
		Acquire: func(next holdfast.AcquireFunc, ctx context.Context, op *holdfast.AcquireOp) (*holdfast.Lease, error) {
			op.Interrupt = make(chan error, 1)
			time.AfterFunc(time.Second, func() { op.Interrupt <- enough })
			return next(ctx, op)
		},
	}
	waits := map[string]func(*holdfast.Client, context.Context) error{
		"mutex":  func(c *holdfast.Client, ctx context.Context) error { _, err := c.Mutex("x").Lease(ctx); return err },
		"reader": func(c *holdfast.Client, ctx context.Context) error { _, err := c.RWMutex("x").RLease(ctx); return err },
		"permit": func(c *holdfast.Client, ctx context.Context) error {
			_, err := c.Semaphore("x", 1).Lease(ctx, 1)
			return err
		},
	}
	for name, wait := range waits {
		for _, own := range []bool{false, true} { // the holder is of the same process
			synctest.Test(t, func(t *testing.T) {
				d := memdriver.New()
				holder := holdfast.Open(d)
				c := holder
				if !own {
					c = holdfast.Open(d)
					defer c.Close()
				}
				defer holder.Close()
				mu, err := holder.Mutex("x").Lease(t.Context())
				require.NoError(t, err)
				rw, err := holder.RWMutex("x").Lease(t.Context())
				require.NoError(t, err)
				sem, err := holder.Semaphore("x", 1).Lease(t.Context(), 1)
				require.NoError(t, err)
				c.AddHook(impatient)
				began := time.Now()
				require.ErrorIs(t, wait(c, t.Context()), enough, name)
				assert.Equal(t, time.Second, time.Since(began))
				synctest.Wait()
				for _, inspect := range []func(context.Context) (holdfast.Info, error){
					c.Mutex("x").Inspect, c.RWMutex("x").Inspect, c.Semaphore("x", 1).Inspect,
				} {
					info, err := inspect(t.Context())
					require.NoError(t, err)
					assert.Empty(t, info.Queue, "it has left the queue")
				}
				for _, l := range []*holdfast.Lease{mu, rw, sem} {
					require.NoError(t, l.Release(t.Context()))
				}
			})
		}
	}
}

// exploding is a driver on which a hook of the store's client panics, once.
type exploding struct {
	*memdriver.Driver
	now bool
}

func (e *exploding) Timeout() time.Duration { return time.Second }

func (e *exploding) Acquire(ctx context.Context, r *driver.Request) (driver.Grant, error) {
	if e.now {
		e.now = false
		panic("a hook of go-redis")
	}
	return e.Driver.Acquire(ctx, r)
}

// A caller that asks the store itself may recover from a panic there, as net/http does. Then the others of its process
// must not wait for it.
func TestPanicOfACallerThatAsksItselfLeavesTheLockToOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &exploding{Driver: memdriver.New()}
		c := holdfast.Open(store)
		lease := func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			l, err := c.Mutex("x").Lease(ctx)
			require.NoError(t, err)
			require.NoError(t, l.Release(ctx))
		}
		lease()
		store.now = true
		require.Panics(t, lease)
		lease()
		require.NoError(t, c.Close())
	})
}

// A hook that makes the context of a lease panics, and who has called recovers. That lease is nobody's then:
// one that the store has just granted, and one that has passed from a goroutine.
func TestPanicBesideAGrantLeavesTheLockToOthers(t *testing.T) {
	for _, name := range []string{"granted", "passed on"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := holdfast.Open(memdriver.New())
				bad := false
				c.AddHook(lab.Meddler{Acquire: func(next holdfast.AcquireFunc, ctx context.Context, op *holdfast.AcquireOp) (*holdfast.Lease, error) {
					op.Holding = func(ctx context.Context, _ int64) context.Context {
						if bad {
							panic("bad hook")
						}
						return ctx
					}
					return next(ctx, op)
				}})
				lease := func() {
					ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
					defer cancel()
					l, err := c.Mutex("x").Lease(ctx)
					require.NoError(t, err)
					require.NoError(t, l.Release(ctx))
				}
				lease()
				done := make(chan any)
				recovered := func() {
					defer func() { done <- recover() }()
					lease()
				}
				if name == "passed on" {
					held, err := c.Mutex("x").Lease(t.Context())
					require.NoError(t, err)
					go recovered()
					synctest.Wait()
					bad = true
					require.NoError(t, held.Release(t.Context()))
				} else {
					bad = true
					go recovered()
				}
				require.Equal(t, "bad hook", <-done)
				bad = false
				lease()
				require.NoError(t, c.Close())
			})
		})
	}
}

// looksAtTheFirst is a hook that keeps the first lease from its caller for a while.
func looksAtTheFirst(d time.Duration) holdfast.Hook {
	first := true
	return lab.Meddler{Acquire: func(next holdfast.AcquireFunc, ctx context.Context, op *holdfast.AcquireOp) (*holdfast.Lease, error) {
		looks := first
		first = false
		l, err := next(ctx, op)
		if looks {
			time.Sleep(d)
		}
		return l, err
	}}
}

// A hook still looks at a lock that was lost meanwhile, and another goroutine of the process has got it. Of the
// two one is in, and the other waits for its Unlock.
func TestLockThatIsLostWithinAHookIsNotBesideAnother(t *testing.T) {
	for _, tries := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			store := memdriver.New()
			c, other := holdfast.Open(store), holdfast.Open(store)
			c.AddHook(looksAtTheFirst(500 * time.Millisecond))
			in := make(chan bool, 1)
			go func() {
				if tries {
					in <- c.Mutex("x").TryLock()
					return
				}
				c.Mutex("x").Lock()
				in <- true
			}()
			synctest.Wait()
			require.NoError(t, other.Mutex("x").ForceUnlock(t.Context()))
			c.Mutex("x").Lock()
			time.Sleep(time.Second)
			if tries {
				require.False(t, <-in)
			} else {
				require.Empty(t, in, "FOUL: both are in")
			}
			c.Mutex("x").Unlock()
			if !tries {
				require.True(t, <-in)
				c.Mutex("x").Unlock()
			}
			require.True(t, other.Mutex("x").TryLock())
			other.Mutex("x").Unlock()
			require.NoError(t, c.Close())
			require.NoError(t, other.Close())
		})
	}
}

// lateNews is a store of which a client hears late that a lock is lost.
type lateNews struct{ *memdriver.Driver }

func (s lateNews) Acquire(ctx context.Context, r *driver.Request) (driver.Grant, error) {
	late := *r
	late.Wake = func(g driver.Grant) {
		if g.Status != driver.Lost {
			r.Wake(g)
			return
		}
		time.AfterFunc(200*time.Millisecond, func() { r.Wake(g) })
	}
	return s.Driver.Acquire(ctx, &late)
}

// The client does not know yet that the lock at which a hook still looks was lost. It asks the store for another
// goroutine, which has to queue there.
func TestLockThatIsLostUnheardWithinAHookIsNotBesideAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memdriver.New()
		c, other := holdfast.Open(lateNews{store}), holdfast.Open(store)
		defer other.Close()
		defer c.Close()
		c.AddHook(looksAtTheFirst(100 * time.Millisecond))
		x := c.Mutex("x", holdfast.WithStrictFIFO())
		in := make(chan bool, 1)
		go func() {
			x.Lock()
			in <- true
		}()
		synctest.Wait()
		require.NoError(t, other.Mutex("x").ForceUnlock(t.Context()))
		x.Lock()
		time.Sleep(time.Second)
		require.Empty(t, in, "FOUL: both are in")
		x.Unlock()
		require.True(t, <-in)
		x.Unlock()
	})
}

// strict is a store that refuses releases after a while.
type strict struct {
	*memdriver.Driver
	refuses atomic.Bool
}

var errStrict = fmt.Errorf("%w: not now", driver.ErrNotExecuted)

func (s *strict) Release(ctx context.Context, l driver.Lease) error {
	if s.refuses.Load() {
		time.Sleep(100 * time.Millisecond)
		return errStrict
	}
	return s.Driver.Release(ctx, l)
}

// Whatever a release comes to, its error says that the context had ended.
func TestErrorOfAReleaseSaysThatItsContextHadEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &strict{Driver: memdriver.New()}
		c := holdfast.Open(store)
		lease, err := c.Mutex("x").Lease(t.Context())
		require.NoError(t, err)
		store.refuses.Store(true)
		ctx, cancel := context.WithCancelCause(t.Context())
		gone := errors.New("gone")
		cancel(gone)
		err = lease.Release(ctx)
		require.ErrorIs(t, err, gone)
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorIs(t, err, errStrict)
		store.refuses.Store(false)
		require.NoError(t, c.Close())
	})
}

// unready is a driver that has no connection for the first ask, and whose server loads for the next two.
type unready struct {
	*memdriver.Driver
	tries int // from the first of these on; 0: it is ready
}

func (u *unready) Timeout() time.Duration { return time.Second }

func (u *unready) Acquire(ctx context.Context, r *driver.Request) (driver.Grant, error) {
	if u.tries == 0 || u.tries == 4 {
		return u.Driver.Acquire(ctx, r)
	}
	if u.tries++; u.tries == 2 {
		<-ctx.Done()
		return driver.Grant{}, fmt.Errorf("%w: %w: %w", driver.ErrTransient, driver.ErrNotExecuted, ctx.Err())
	}
	return driver.Grant{}, fmt.Errorf("%w: loading", driver.ErrTransient)
}

// An ask in place that was never sent is none of the three attempts of a try.
func TestTryThatWasNotSentIsNoAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &unready{Driver: memdriver.New()}
		c := holdfast.Open(store)
		lease, err := c.Mutex("x").Lease(t.Context())
		require.NoError(t, err)
		require.NoError(t, lease.Release(t.Context()))
		store.tries = 1
		began := time.Now()
		lease, err = c.Mutex("x").TryLease(t.Context())
		require.NoError(t, err)
		require.Less(t, time.Since(began), 30*time.Second)
		require.NoError(t, lease.Release(t.Context()))
		require.NoError(t, c.Close())
	})
}
