package telemetry_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver/memdriver"
	"github.com/holdfast-go/holdfast/internal/test/behavior/lab"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

func TestHooksSeeAttach(t *testing.T) {
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		a, b := l.Near(), l.Far()
		e := newTelemetry(t, holdfast.WithHoldSpans(holdfast.HoldSpansAlways))
		b.AddHook(e.hook)
		lease := l.Attach(b, l.Detach(l.Take(lab.Permits(a.Semaphore("x", 3), 2))))
		l.GiveBack(lease)
		e.quiet(l)
		assert.ElementsMatch(t, []string{
			"acquire semaphore shared: attempts=1 contended=false fencing_token=N outcome=acquired wakeups.local=0 wakeups.notify=0 wakeups.poll=0",
			"hold semaphore shared: end_reason=released permits=2 renewals=0",
			"release semaphore shared: outcome=released permits=2",
		}, e.told())
	})
}

// A hook is called for what it is interested in only, and stands in the way of nothing else. That which
// was added first is the outermost.
func TestHookThatWasAddedFirstIsOutermost(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		var calls []string
		acquire := func(who string) func(holdfast.AcquireFunc, context.Context, *holdfast.AcquireOp) (*holdfast.Lease, error) {
			return func(next holdfast.AcquireFunc, ctx context.Context, op *holdfast.AcquireOp) (*holdfast.Lease, error) {
				calls = append(calls, who+" acquires")
				defer func() { calls = append(calls, who+" has acquired") }()
				return next(ctx, op)
			}
		}
		release := func(who string) func(holdfast.ReleaseFunc, context.Context, *holdfast.ReleaseOp) error {
			return func(next holdfast.ReleaseFunc, ctx context.Context, op *holdfast.ReleaseOp) error {
				calls = append(calls, who+" releases")
				defer func() { calls = append(calls, who+" has released") }()
				return next(ctx, op)
			}
		}
		renew := func(who string) func(holdfast.RenewFunc, context.Context, *holdfast.RenewOp) []error {
			return func(next holdfast.RenewFunc, ctx context.Context, op *holdfast.RenewOp) []error {
				calls = append(calls, who+" renews")
				defer func() { calls = append(calls, who+" has renewed") }()
				return next(ctx, op)
			}
		}
		c := lab.New(t, s).Near()
		for _, h := range []holdfast.Hook{
			lab.Meddler{Acquire: acquire("a"), Release: release("a"), Renew: renew("a")}, holdfast.HookBase{},
			lab.Meddler{Acquire: acquire("b")}, lab.Meddler{Release: release("c")}, lab.Meddler{Renew: renew("d")},
		} {
			c.AddHook(h)
		}
		cycle(t, t.Context(), c, "x")
		assert.Equal(t, []string{
			"a acquires", "b acquires", "b has acquired", "a has acquired",
			"a renews", "d renews", "d has renewed", "a has renewed",
			"a releases", "c releases", "c has released", "a has released",
		}, calls)
	})
}

// A third party's hook can do what NewTracingHook does: link waiters to who was in their way,
// also if the lock had been let go and only lingered.
func TestHookHearsWhoWasInTheWay(t *testing.T) {
	for _, lingers := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			store := memdriver.New()
			var blockers []string
			tagging := lab.Meddler{Acquire: func(next holdfast.AcquireFunc, ctx context.Context, op *holdfast.AcquireOp) (*holdfast.Lease, error) {
				op.Holding = func(ctx context.Context, _ int64) context.Context { return holdfast.WithHolderTag(ctx, "me") }
				lease, err := next(ctx, op)
				blockers = op.Blockers
				return lease, err
			}}
			a, b := holdfast.Open(store, holdfast.WithLinger(time.Hour)), holdfast.Open(store)
			a.AddHook(tagging)
			b.AddHook(tagging)
			lease, err := a.Mutex("x").Lease(t.Context())
			require.NoError(t, err)
			if lingers {
				require.NoError(t, lease.Release(t.Context()))
			}
			w := lab.Wait(t.Context(), b.Mutex("x"))
			synctest.Wait()
			if !lingers {
				require.NoError(t, lease.Release(t.Context()))
			}
			<-w.Done
			require.NoError(t, w.Err)
			require.Equal(t, []string{"me"}, blockers)
			require.NoError(t, w.Lease.Release(t.Context()))
			require.NoError(t, a.Close())
			require.NoError(t, b.Close())
		})
	}
}

type contextKey struct{}

func TestHookCanSetTheContextOfTheLease(t *testing.T) {
	s := redistest.Shared(t)
	c := lab.New(t, s).Near()
	var fence int64
	c.AddHook(lab.Meddler{Acquire: func(next holdfast.AcquireFunc, ctx context.Context, op *holdfast.AcquireOp) (*holdfast.Lease, error) {
		op.Holding = func(ctx context.Context, f int64) context.Context {
			fence = f
			return context.WithValue(ctx, contextKey{}, "held")
		}
		return next(context.WithValue(ctx, contextKey{}, "asked"), op)
	}})
	l, err := c.Mutex("x").Lease(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "held", l.Context().Value(contextKey{}))
	assert.Equal(t, l.Fence(), fence)
	require.NoError(t, l.Release(t.Context()))
}

// What a hook is told of an acquisition and of a release.
func TestHooksAreToldWhatIsAskedFor(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		l := lab.New(t, s)
		c, other := l.Near(), l.Near()
		hearing(l, c)
		var got []string
		c.AddHook(lab.Meddler{
			Acquire: func(next holdfast.AcquireFunc, ctx context.Context, op *holdfast.AcquireOp) (*holdfast.Lease, error) {
				before := fmt.Sprint(op.Kind, " ", op.Name, " shared ", op.Shared, " weight ", op.Weight, " wait ", op.Wait, " ", op.TTL)
				lease, err := next(ctx, op)
				got = append(got, fmt.Sprint(before, ": contended ", op.Contended, " asked ", op.Asked, " ", op.Wakeups))
				return lease, err
			},
			Release: func(next holdfast.ReleaseFunc, ctx context.Context, op *holdfast.ReleaseOp) error {
				got = append(got, fmt.Sprint("release ", op.Lease.Name(), " keep ", op.Keep))
				return next(ctx, op)
			},
		})
		rw, sem := c.RWMutex("x", holdfast.WithTTL(time.Minute)), c.Semaphore("x", 5)
		rw.RLock()
		rw.RUnlock()
		require.True(t, rw.TryLock())
		rw.Unlock()
		require.True(t, sem.TryAcquire(3))
		sem.Release(2)
		sem.Release(1)
		held := l.Lease(other, "y")
		w := l.Wait(c, "y")
		l.UntilQueue("y", 1)
		l.GiveBack(held)
		l.GiveBack(w.Granted(lab.Soon))
		held = l.Lease(other, "y")
		require.False(t, c.Mutex("y").TryLock())
		l.GiveBack(held)
		assert.Equal(t, []string{
			"rwmutex x shared true weight 0 wait true 1m0s: contended false asked 1 {0 0 0 0}",
			"release x keep 0",
			"rwmutex x shared false weight 0 wait false 1m0s: contended false asked 1 {0 0 0 0}",
			"release x keep 0",
			"semaphore x shared false weight 3 wait false 36s: contended false asked 1 {0 0 0 0}",
			"release x keep 1",
			"release x keep 0",
			"mutex y shared false weight 0 wait true 36s: contended true asked 1 {1 0 0 0}",
			"release y keep 0",
			"mutex y shared false weight 0 wait false 36s: contended true asked 1 {0 0 0 0}",
		}, got)
	})
}

// Hooks can be added while others are in use; each acquisition has all that were there
// before it, and none twice. (With -race.)
func TestHooksAreAddedWhileOthersAreInUse(t *testing.T) {
	const hooks = 20
	c := lab.WithPuppet(t, lab.Puppet{})
	var calls [hooks]atomic.Int64
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for {
				cycle(t, context.Background(), c, fmt.Sprint("x", i))
				select {
				case <-stop:
					return
				default:
				}
			}
		})
	}
	for i := range hooks {
		c.AddHook(lab.Meddler{Acquire: func(next holdfast.AcquireFunc, ctx context.Context, op *holdfast.AcquireOp) (*holdfast.Lease, error) {
			calls[i].Add(1)
			return next(ctx, op)
		}})
	}
	close(stop)
	wg.Wait()
	var before [hooks]int64
	for i := range calls {
		before[i] = calls[i].Load()
	}
	cycle(t, t.Context(), c, "last")
	for i := range calls {
		assert.EqualValues(t, 1, calls[i].Load()-before[i], "hook %d", i)
	}
}

// Close does not wait for hooks that do not call it, nor ends what they do: a waiter gets
// ErrClosed through them. Leases that Close releases are not released through hooks.
func TestCloseEndsWhatIsWithinHooks(t *testing.T) {
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		c, other := l.Near(), l.Near()
		held := l.Lease(other, "x")
		heard := make(chan error, 1)
		var releases atomic.Int64
		c.AddHook(lab.Meddler{
			Acquire: func(next holdfast.AcquireFunc, ctx context.Context, op *holdfast.AcquireOp) (*holdfast.Lease, error) {
				lease, err := next(ctx, op)
				if err != nil {
					heard <- err
				}
				return lease, err
			},
			Release: func(next holdfast.ReleaseFunc, ctx context.Context, op *holdfast.ReleaseOp) error {
				releases.Add(1)
				return next(ctx, op)
			},
		})
		lease := l.Lease(c, "y")
		ended := make(chan error, 1)
		context.AfterFunc(lease.Context(), func() { ended <- context.Cause(lease.Context()) })
		w := l.Wait(c, "x")
		l.UntilQueue("x", 1)
		require.NoError(t, lab.Promptly(t, lab.Soon, c.Close))
		require.ErrorIs(t, w.Failed(lab.Soon), holdfast.ErrClosed)
		require.ErrorIs(t, <-heard, holdfast.ErrClosed)
		require.ErrorIs(t, lab.Promptly(t, lab.Soon, func() error { return <-ended }), holdfast.ErrClosed)
		l.GiveBack(held)
		l.Free(other, "y")

		assert.Zero(t, releases.Load())
		require.ErrorIs(t, lease.Release(t.Context()), holdfast.ErrNotHeld)
		assert.EqualValues(t, 1, releases.Load())
		_, err := c.Mutex("z").Lease(t.Context())
		require.ErrorIs(t, err, holdfast.ErrClosed)
		require.ErrorIs(t, <-heard, holdfast.ErrClosed)
		c.AddHook(holdfast.HookBase{}) // changes nothing
	})
}

// A hook that panics, in a program that goes on nevertheless, keeps nobody from using the client, nor
// from closing it, and leaves nothing locked that nobody could unlock.
func TestHookThatPanicsDoesNotWedgeTheClient(t *testing.T) {
	for _, when := range []string{"before", "after"} {
		t.Run(when, func(t *testing.T) {
			lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
				l.Remember()
				var armed atomic.Bool
				c := l.Near()
				mishap := func(then string) {
					if then == when && armed.Load() {
						panic("mishap")
					}
				}
				c.AddHook(lab.Meddler{
					Acquire: func(next holdfast.AcquireFunc, ctx context.Context, op *holdfast.AcquireOp) (*holdfast.Lease, error) {
						mishap("before")
						lease, err := next(ctx, op)
						mishap("after")
						return lease, err
					},
					Release: func(next holdfast.ReleaseFunc, ctx context.Context, op *holdfast.ReleaseOp) error {
						mishap("before")
						err := next(ctx, op)
						mishap("after")
						return err
					},
				})
				panics := func(f func()) {
					t.Helper()
					armed.Store(true)
					defer armed.Store(false)
					assert.PanicsWithValue(t, "mishap", func() { f() })
				}
				panics(func() { _, _ = c.Mutex("lease").Lease(t.Context()) })
				panics(c.Mutex("lock").Lock)
				panics(func() { c.Mutex("try").TryLock() })
				mu := c.Mutex("unlock")
				mu.Lock()
				panics(mu.Unlock)
				lease := l.Lease(c, "release")
				panics(func() { _ = lease.Release(t.Context()) })

				// These call hooks on goroutines of their own, where nobody could recover.
				panics(func() { _, _ = holdfast.All(t.Context(), c.Mutex("one"), c.Mutex("two")) })
				all, err := holdfast.All(t.Context(), c.Mutex("three"), c.Mutex("four"))
				require.NoError(t, err)
				panics(func() { _ = all.Release(t.Context()) })
				permits := c.Semaphore("permits", 3)
				for range 3 {
					require.NoError(t, permits.Acquire(t.Context(), 1))
				}
				panics(func() { permits.Release(3) })
				panics(func() { _ = c.Mutex("do").Do(t.Context(), func(context.Context) error { return nil }) })
				panics(func() { c.RWMutex("rw").RLock() })

				for _, name := range []string{"lease", "lock", "try", "unlock", "release", "one", "two", "three", "four", "do"} {
					l.SoonFree(l.Near(), name)
				}
				bounded, cancel := context.WithTimeout(t.Context(), lab.Soon)
				defer cancel()
				_, err = l.Near().Semaphore("permits", 3).Lease(bounded, 3)
				require.NoError(t, err)
				_, err = l.Near().RWMutex("rw").Lease(bounded)
				require.NoError(t, err)
				l.Free(c, "other")
				c.Mutex("other").Lock()
				c.Mutex("other").Unlock()
				require.NoError(t, lab.Promptly(t, lab.Soon, c.Close))
			})
		})
	}
}

// hookThatForgets returns too little.
type hookThatForgets struct{ holdfast.HookBase }

func (hookThatForgets) RenewHook(holdfast.RenewFunc) holdfast.RenewFunc {
	return func(context.Context, *holdfast.RenewOp) []error { return nil }
}

func TestHookThatReturnsTooLittleIsAnError(t *testing.T) {
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		c := l.Near()
		c.AddHook(hookThatForgets{})
		lease := l.Lease(c, "x")
		require.ErrorContains(t, lease.Renew(t.Context()), "RenewHook")
		require.NoError(t, lease.Release(t.Context()))
		c.AddHook(lab.Meddler{Acquire: func(holdfast.AcquireFunc, context.Context, *holdfast.AcquireOp) (*holdfast.Lease, error) {
			return nil, nil
		}})
		_, err := c.Mutex("x").Lease(t.Context())
		require.ErrorContains(t, err, "AcquireHook")
		require.Panics(t, func() { c.AddHook(nil) })
	})
}
