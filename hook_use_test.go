package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

// A hook that is interested in one thing is called for that only, and stands in the way
// of nothing else.
func TestHookIsCalledForWhatItIsInterestedIn(t *testing.T) {
	var calls []string
	c := withPuppet(t, puppet{},
		meddler{acquire: func(next holdfast.AcquireFunc, ctx context.Context, op *holdfast.AcquireOp) (*holdfast.Lease, error) {
			calls = append(calls, "acquire")
			return next(ctx, op)
		}},
		holdfast.HookBase{},
		meddler{release: func(next holdfast.ReleaseFunc, ctx context.Context, op *holdfast.ReleaseOp) error {
			calls = append(calls, "release")
			return next(ctx, op)
		}},
		meddler{renew: func(next holdfast.RenewFunc, ctx context.Context, op *holdfast.RenewOp) []error {
			calls = append(calls, "renew")
			return next(ctx, op)
		}})
	cycle(t, t.Context(), c, "x")
	assert.Equal(t, []string{"acquire", "renew", "release"}, calls)
}

// What a hook is told of an acquisition and of a release.
func TestHooksAreToldWhatIsAskedFor(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		l := newLab(t, s)
		c, other := l.near(), l.near()
		l.hearing(c)
		var got []string
		c.AddHook(meddler{
			acquire: func(next holdfast.AcquireFunc, ctx context.Context, op *holdfast.AcquireOp) (*holdfast.Lease, error) {
				before := fmt.Sprint(op.Kind, " ", op.Name, " shared ", op.Shared, " weight ", op.Weight, " wait ", op.Wait, " ", op.TTL)
				lease, err := next(ctx, op)
				got = append(got, fmt.Sprint(before, ": contended ", op.Contended, " asked ", op.Asked, " ", op.Wakeups))
				return lease, err
			},
			release: func(next holdfast.ReleaseFunc, ctx context.Context, op *holdfast.ReleaseOp) error {
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
		held := l.lease(other, "y")
		w := l.wait(c, "y")
		l.untilQueue("y", 1)
		l.giveBack(held)
		l.giveBack(w.granted(soon))
		held = l.lease(other, "y")
		require.False(t, c.Mutex("y").TryLock())
		l.giveBack(held)
		assert.Equal(t, []string{
			"rwmutex x shared true weight 0 wait true 1m0s: contended false asked 1 {0 0 0}",
			"release x keep 0",
			"rwmutex x shared false weight 0 wait false 1m0s: contended false asked 1 {0 0 0}",
			"release x keep 0",
			"semaphore x shared false weight 3 wait false 30s: contended false asked 1 {0 0 0}",
			"release x keep 1",
			"release x keep 0",
			"mutex y shared false weight 0 wait true 30s: contended true asked 1 {1 0 0}",
			"release y keep 0",
			"mutex y shared false weight 0 wait false 30s: contended true asked 1 {0 0 0}",
		}, got)
	})
}

// Hooks can be added while others are in use; each acquisition has all that were there
// before it, and none twice. (With -race.)
func TestHooksAreAddedWhileOthersAreInUse(t *testing.T) {
	const hooks = 20
	c := withPuppet(t, puppet{})
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
		c.AddHook(meddler{acquire: func(next holdfast.AcquireFunc, ctx context.Context, op *holdfast.AcquireOp) (*holdfast.Lease, error) {
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

// Close does not wait for hooks that do not call it, nor ends what they do: who waits gets
// ErrClosed through them. Leases that Close releases are not released through hooks.
func TestCloseEndsWhatIsWithinHooks(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		c, other := l.near(), l.near()
		held := l.lease(other, "x")
		heard := make(chan error, 1)
		var releases atomic.Int64
		c.AddHook(meddler{
			acquire: func(next holdfast.AcquireFunc, ctx context.Context, op *holdfast.AcquireOp) (*holdfast.Lease, error) {
				lease, err := next(ctx, op)
				if err != nil {
					heard <- err
				}
				return lease, err
			},
			release: func(next holdfast.ReleaseFunc, ctx context.Context, op *holdfast.ReleaseOp) error {
				releases.Add(1)
				return next(ctx, op)
			},
		})
		lease := l.lease(c, "y")
		ended := make(chan error, 1)
		context.AfterFunc(lease.Context(), func() { ended <- context.Cause(lease.Context()) })
		w := l.wait(c, "x")
		l.untilQueue("x", 1)
		require.NoError(t, promptly(t, soon, c.Close))
		require.ErrorIs(t, w.failed(soon), holdfast.ErrClosed)
		require.ErrorIs(t, <-heard, holdfast.ErrClosed)
		require.ErrorIs(t, promptly(t, soon, func() error { return <-ended }), context.Canceled)
		l.giveBack(held)
		l.free(other, "y")

		assert.Zero(t, releases.Load())
		require.ErrorIs(t, lease.Release(t.Context()), holdfast.ErrNotHeld)
		assert.EqualValues(t, 1, releases.Load())
		_, err := c.Mutex("z").Lease(t.Context())
		require.ErrorIs(t, err, holdfast.ErrClosed)
		require.ErrorIs(t, <-heard, holdfast.ErrClosed)
		c.AddHook(holdfast.HookBase{}) // changes nothing
	})
}

// There is no hook for a loss: the context is one.
func TestLossIsSeenByAfterFunc(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		lost := make(chan error, 1)
		c := l.near()
		c.AddHook(meddler{acquire: func(next holdfast.AcquireFunc, ctx context.Context, op *holdfast.AcquireOp) (*holdfast.Lease, error) {
			lease, err := next(ctx, op)
			if err == nil {
				context.AfterFunc(lease.Context(), func() { lost <- context.Cause(lease.Context()) })
			}
			return lease, err
		}})
		lease := l.lease(c, "x")
		require.NoError(t, l.near().Mutex("x").ForceUnlock(t.Context()))
		require.ErrorIs(t, lease.Renew(t.Context()), holdfast.ErrLost)
		require.ErrorIs(t, promptly(t, soon, func() error { return <-lost }), holdfast.ErrLost)
	})
}

// A hook must not panic. One that does, in a program that goes on nevertheless, keeps
// nobody from using the client, nor from closing it.
func TestHookThatPanicsDoesNotWedgeTheClient(t *testing.T) {
	for _, when := range []string{"before", "after"} {
		t.Run(when, func(t *testing.T) {
			everywhere(t, func(t *testing.T, l *lab) {
				l.remember()
				var armed atomic.Bool
				c := l.near()
				mishap := func(then string) {
					if then == when && armed.Load() {
						panic("mishap")
					}
				}
				c.AddHook(meddler{
					acquire: func(next holdfast.AcquireFunc, ctx context.Context, op *holdfast.AcquireOp) (*holdfast.Lease, error) {
						mishap("before")
						lease, err := next(ctx, op)
						mishap("after")
						return lease, err
					},
					release: func(next holdfast.ReleaseFunc, ctx context.Context, op *holdfast.ReleaseOp) error {
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
				lease := l.lease(c, "release")
				panics(func() { _ = lease.Release(t.Context()) })

				l.free(c, "other")
				c.Mutex("other").Lock()
				c.Mutex("other").Unlock()
				require.NoError(t, promptly(t, soon, c.Close))
				for _, name := range []string{"lease", "lock", "try", "unlock", "release"} {
					l.soonFree(l.near(), name)
				}
			})
		})
	}
}

// The library itself needs no more than the API of OpenTelemetry.
func TestLibraryImportsNoSDK(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", ".").Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		t.Fatalf("%v: %s", err, exit.Stderr)
	}
	require.NoError(t, err)
	deps := strings.Fields(string(out))
	assert.Contains(t, deps, "go.opentelemetry.io/otel/trace")
	for _, d := range deps {
		for _, no := range []string{"go.opentelemetry.io/otel/sdk", "redisotel", "go.opentelemetry.io/otel/exporters", "miniredis", "testify", "/internal/redistest"} {
			assert.NotContains(t, d, no)
		}
	}
}
