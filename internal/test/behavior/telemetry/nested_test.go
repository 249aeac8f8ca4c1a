package telemetry_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/test/behavior/lab"
)

// Two hooks with different providers tell the same, each to its own, and their spans
// nest: those of the inner one within those of the outer one.
func TestTwoTracingHooksTellBoth(t *testing.T) {
	outer := newTelemetry(t, holdfast.WithHoldSpans(holdfast.HoldSpansAlways))
	inner := newTelemetry(t, holdfast.WithHoldSpans(holdfast.HoldSpansAlways))
	c := lab.WithPuppet(t, lab.Puppet{}, outer.hook, inner.hook)
	ctx, request := outer.tracer.Start(t.Context(), "request")
	cycle(t, ctx, c, "x")
	request.End()
	for _, e := range []*telemetry{outer, inner} {
		assert.ElementsMatch(t, []string{acquired, "hold mutex exclusive: end_reason=released renewals=1", released}, e.told())
		assert.Equal(t, map[string]int64{acquiredFree: 1, heldTillEnd: 1, "renew.duration mode=exclusive primitive=mutex": 1}, e.counted())
	}
	for _, name := range []string{"acquire mutex", "hold mutex", "release mutex"} {
		assert.Equal(t, request.SpanContext().SpanID(), outer.ended(name).Parent().SpanID(), name)
		assert.Equal(t, outer.ended(name).SpanContext(), inner.ended(name).Parent(), name)
	}
}

// A hook that makes no hold spans does not hide those of another.
func TestHoldSpanOfTheOuterHookIsNotHidden(t *testing.T) {
	outer, inner := newTelemetry(t), newTelemetry(t, holdfast.WithHoldSpans(holdfast.HoldSpansNever))
	c := lab.WithPuppet(t, lab.Puppet{}, outer.hook, inner.hook)
	ctx, _ := outer.tracer.Start(t.Context(), "request")
	l, err := c.Mutex("x").Lease(ctx)
	require.NoError(t, err)
	within := trace.SpanContextFromContext(l.Context())
	require.NoError(t, l.Release(ctx))
	assert.Equal(t, outer.ended("hold mutex").SpanContext(), within)
}

// A hook that tries again makes two leases of one acquisition.
func TestLeasesOfAHookThatTriesAgainAreTold(t *testing.T) {
	e := newTelemetry(t, holdfast.WithHoldSpans(holdfast.HoldSpansAlways))
	c := lab.WithPuppet(t, lab.Puppet{}, e.hook, lab.Meddler{
		Acquire: func(next holdfast.AcquireFunc, ctx context.Context, op *holdfast.AcquireOp) (*holdfast.Lease, error) {
			first, err := next(ctx, op)
			require.NoError(t, err)
			require.NoError(t, first.Release(ctx))
			return next(ctx, op)
		}})
	l, err := c.Mutex("x").Lease(t.Context())
	require.NoError(t, err)
	require.NoError(t, l.Release(t.Context()))
	assert.ElementsMatch(t, []string{
		"acquire mutex exclusive: attempts=2 contended=false fencing_token=N outcome=acquired wakeups.local=0 wakeups.notify=0 wakeups.poll=0",
		held, released, held, released}, e.told())
	assert.Equal(t, map[string]int64{acquiredFree: 1, heldTillEnd: 2}, e.counted())
}

// A hook tries again without giving back what it had. The second lease would wait for the first.
func TestLeaseThatAHookHasForgottenIsReleased(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newTelemetry(t, holdfast.WithHoldSpans(holdfast.HoldSpansAlways))
		c := lab.WithPuppet(t, lab.Puppet{}, e.hook, lab.Meddler{
			Acquire: func(next holdfast.AcquireFunc, ctx context.Context, op *holdfast.AcquireOp) (*holdfast.Lease, error) {
				_, err := next(ctx, op)
				require.NoError(t, err)
				return next(ctx, op)
			}})
		l, err := c.Mutex("x").Lease(t.Context())
		require.NoError(t, err)
		require.NoError(t, l.Release(t.Context()))
		assert.ElementsMatch(t, []string{
			"acquire mutex exclusive: attempts=2 contended=false fencing_token=N outcome=acquired wakeups.local=0 wakeups.notify=0 wakeups.poll=0",
			held, released, held, released}, e.told())
		assert.Equal(t, map[string]int64{acquiredFree: 1, heldTillEnd: 2}, e.counted())
	})
}

// A renewal that arrives after the release of its lease has not failed.
func TestRenewalThatMeetsAReleaseHasNotFailed(t *testing.T) {
	e := newTelemetry(t, holdfast.WithHoldSpans(holdfast.HoldSpansAlways))
	sent, released := make(chan struct{}), make(chan struct{})
	c := lab.WithPuppet(t, lab.Puppet{OnRenew: func(context.Context, []driver.Lease) []error {
		close(sent)
		<-released
		return []error{driver.ErrNotHeld}
	}}, e.hook)
	l, err := c.Mutex("x").Lease(t.Context())
	require.NoError(t, err)
	renewed := make(chan error, 1)
	go func() { renewed <- l.Renew(context.Background()) }()
	<-sent
	require.NoError(t, l.Release(t.Context()))
	close(released)
	require.ErrorIs(t, <-renewed, holdfast.ErrNotHeld)
	assert.Equal(t, map[string]int64{acquiredFree: 1, heldTillEnd: 1}, e.counted())
}

// The news that the lock was granted can come before the answer that one has to wait.
func TestGrantThatOvertakesTheAnswerIsContended(t *testing.T) {
	e := newTelemetry(t)
	granted := make(chan struct{})
	c := lab.WithPuppet(t, lab.Puppet{OnAcquire: func(r *driver.Request) (driver.Grant, error) {
		r.Wake(driver.Grant{Status: driver.Granted, Ask: r.Ask, Fence: 1})
		<-granted
		return driver.Grant{Status: driver.Queued}, nil
	}}, e.hook)
	l, err := c.Mutex("x").Lease(t.Context())
	close(granted)
	require.NoError(t, err)
	require.NoError(t, l.Release(t.Context()))
	assert.Equal(t, true, attrsOf(e.ended("acquire mutex"))["holdfast.contended"])
}

// The client is closed just as the lock is granted: nobody has it then.
func TestGrantToAClientThatIsClosedIsToldToEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // a busy machine would not seem quick
		e := newTelemetry(t, holdfast.WithHoldSpans(holdfast.HoldSpansAlways))
		var c *holdfast.Client
		closed := make(chan error, 1)
		p := lab.Puppet{OnAcquire: func(r *driver.Request) (driver.Grant, error) {
			if r.Name == "x" {
				go func() { closed <- c.Close() }()
				require.Eventually(t, func() bool {
					_, err := c.Mutex("other").TryLease(t.Context())
					return err != nil
				}, lab.Soon, time.Millisecond)
			}
			return driver.Grant{Status: driver.Granted, Ask: r.Ask, Fence: 1}, nil
		}}
		c = holdfast.Open(p)
		c.AddHook(holdfast.NewTracingHook(holdfast.WithTracerProvider(e.traces), holdfast.WithMeterProvider(e.metrics),
			holdfast.WithHoldSpans(holdfast.HoldSpansAlways),
			holdfast.WithFilter(func(_ context.Context, op *holdfast.AcquireOp) bool { return op.Name == "x" })))
		for range 20 { // in a burst the caller waits for the answer itself, and so does not see that
			lease, err := c.Mutex("burst").Lease(t.Context())
			require.NoError(t, err)
			require.NoError(t, lease.Release(t.Context()))
		}
		_, err := c.Mutex("x").Lease(context.Background())
		require.ErrorIs(t, err, holdfast.ErrClosed)
		require.NoError(t, <-closed)
		var hold sdktrace.ReadOnlySpan
		for _, s := range e.spans.Ended() {
			if s.Name() == "hold mutex" {
				hold = s
			}
		}
		require.NotNil(t, hold)
		assert.EqualValues(t, 1, e.counted()[heldTillEnd])
	})
}

// A store may tell of a lost lease while it notes who wants to know of reconnects: the
// two must not wait for each other.
func TestAddHookDoesNotWaitForALoss(t *testing.T) {
	var wake func(driver.Grant)
	c := lab.WithPuppet(t, lab.Puppet{
		OnAcquire: func(r *driver.Request) (driver.Grant, error) {
			wake = r.Wake
			return lab.Instant{}.Acquire(t.Context(), r)
		},
		OnReport: func(func(string)) {
			if wake == nil {
				return // it is the client itself that wants to know
			}
			told := make(chan struct{})
			go func() { // which the store does under a lock that this call waits for
				defer close(told)
				wake(driver.Grant{Status: driver.Lost})
			}()
			select {
			case <-told:
			case <-time.After(lab.Soon):
				t.Error("the loss cannot be told")
			}
		},
	})
	l, err := c.Mutex("x").Lease(t.Context())
	require.NoError(t, err)
	c.AddHook(newTelemetry(t).hook)
	require.ErrorIs(t, l.Err(), holdfast.ErrLost)
}

// What happens in two calls of a hook around it is told of each by itself.
func TestAttemptsOfAHookAroundItAreToldOneByOne(t *testing.T) {
	e := newTelemetry(t, holdfast.WithHoldSpans(holdfast.HoldSpansAlways))
	c := lab.WithPuppet(t, lab.Puppet{}, lab.Meddler{
		Acquire: func(next holdfast.AcquireFunc, ctx context.Context, op *holdfast.AcquireOp) (*holdfast.Lease, error) {
			first, err := next(ctx, op)
			require.NoError(t, err)
			require.NoError(t, first.Release(ctx))
			return next(ctx, op)
		}}, e.hook)
	l, err := c.Mutex("x").Lease(t.Context())
	require.NoError(t, err)
	require.NoError(t, l.Release(t.Context()))
	acquired := "acquire mutex exclusive: attempts=1 contended=false fencing_token=N outcome=acquired wakeups.local=0 wakeups.notify=0 wakeups.poll=0"
	assert.ElementsMatch(t, []string{acquired, acquired, held, released, held, released}, e.told())
	assert.Equal(t, map[string]int64{acquiredFree: 2, heldTillEnd: 2}, e.counted())
}

// A lock that is filtered out has no part in what is told of the one within which it is taken.
func TestFilteredLockWithinAnotherEndsNothing(t *testing.T) {
	e := newTelemetry(t, holdfast.WithHoldSpans(holdfast.HoldSpansAlways),
		holdfast.WithFilter(func(_ context.Context, op *holdfast.AcquireOp) bool { return op.Name == "x" }))
	c := lab.WithPuppet(t, lab.Puppet{}, e.hook)
	outer, err := c.Mutex("x").Lease(t.Context())
	require.NoError(t, err)
	inner, err := c.Mutex("y").Lease(outer.Context())
	require.NoError(t, err)
	require.NoError(t, inner.Release(t.Context()))
	require.Len(t, e.told(), 1, "x is held")
	require.NoError(t, outer.Release(t.Context()))
	require.Len(t, e.told(), 3)
	assert.Equal(t, map[string]int64{acquiredFree: 1, heldTillEnd: 1}, e.counted())
}

// Nor has one that is granted when a hook inside has given up. No hook is told of its release.
func TestLeaseThatIsLateWithinAnotherEndsNothing(t *testing.T) {
	for _, again := range []bool{false, true} {
		t.Run(fmt.Sprint("again ", again), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := newTelemetry(t, holdfast.WithHoldSpans(holdfast.HoldSpansAlways))
				var waited, released atomic.Bool // y
				c := lab.WithPuppet(t, lab.Puppet{OnAcquire: func(r *driver.Request) (driver.Grant, error) {
					if r.Name == "y" && !waited.Swap(true) {
						time.Sleep(time.Second)
					}
					return driver.Grant{Status: driver.Granted, Ask: r.Ask, Fence: 1}, nil
				}, OnRelease: func(l driver.Lease) error {
					released.Store(released.Load() || l.Name == "y")
					return nil
				}}, e.hook, lab.Meddler{Acquire: func(next holdfast.AcquireFunc, ctx context.Context, op *holdfast.AcquireOp) (*holdfast.Lease, error) {
					if op.Name == "x" {
						return next(ctx, op)
					}
					slow := *op
					go next(ctx, &slow) //nolint:errcheck // nobody looks
					time.Sleep(time.Second / 2)
					if again {
						return next(ctx, op)
					}
					return nil, errors.New("too slow")
				}})
				outer, err := c.Mutex("x").Lease(t.Context())
				require.NoError(t, err)
				inner, err := c.Mutex("y").Lease(outer.Context())
				require.Equal(t, again, err == nil)
				if again {
					require.NoError(t, inner.Release(t.Context()))
				}
				time.Sleep(time.Second)
				require.True(t, released.Load())
				require.EqualValues(t, 1, e.active()["holdfast.hold.active"], "x is held")
				require.NoError(t, outer.Release(t.Context()))
				require.Zero(t, e.active()["holdfast.hold.active"])
				require.EqualValues(t, map[bool]int64{false: 1, true: 2}[again], e.counted()[heldTillEnd])
			})
		})
	}
}

func TestLossThatTheReleaseFindsIsCounted(t *testing.T) {
	e := newTelemetry(t)
	c := lab.WithPuppet(t, lab.Puppet{OnRelease: func(driver.Lease) error { return driver.ErrNotHeld }}, e.hook)
	l, err := c.Mutex("x").Lease(t.Context())
	require.NoError(t, err)
	require.ErrorIs(t, l.Release(t.Context()), holdfast.ErrLost)
	assert.EqualValues(t, 1, e.counted()["lease.lost mode=exclusive primitive=mutex"])
}

// A hook inside panics, as an HTTP server recovers from it. All that was begun has ended.
func TestTelemetryEndsWithAHookThatPanics(t *testing.T) {
	for _, when := range []string{"before", "after", "holding", "release"} {
		t.Run(when, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := newTelemetry(t, holdfast.WithHoldSpans(holdfast.HoldSpansAlways))
				mishap := func(then string) {
					if then == when {
						panic("mishap")
					}
				}
				c := lab.WithPuppet(t, lab.Puppet{}, e.hook, lab.Meddler{
					Acquire: func(next holdfast.AcquireFunc, ctx context.Context, op *holdfast.AcquireOp) (*holdfast.Lease, error) {
						mishap("before")
						outer := op.Holding
						op.Holding = func(ctx context.Context, fence int64) context.Context {
							ctx = outer(ctx, fence)
							mishap("holding")
							return ctx
						}
						l, err := next(ctx, op)
						mishap("after")
						return l, err
					},
					Release: func(next holdfast.ReleaseFunc, ctx context.Context, op *holdfast.ReleaseOp) error {
						mishap("release")
						return next(ctx, op)
					},
				})
				require.PanicsWithValue(t, "mishap", func() {
					_ = c.Mutex("x").Do(t.Context(), func(context.Context) error { return nil })
				})
				require.NoError(t, c.Close())
				synctest.Wait()
				require.Len(t, e.spans.Ended(), len(e.spans.Started()))
				require.Contains(t, strings.Join(e.told(), "\n"), "error.type=panic")
				require.Contains(t, e.active(), "holdfast.wait.active")
				for name, n := range e.active() {
					require.Zero(t, n, name)
				}
			})
		})
	}
}

// Hooks that break their contract, within it, end no program.
func TestHooksThatReturnNothingAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newTelemetry(t)
		var nothing bool
		c := lab.WithPuppet(t, lab.Puppet{}, e.hook, lab.Meddler{
			Acquire: func(next holdfast.AcquireFunc, ctx context.Context, op *holdfast.AcquireOp) (*holdfast.Lease, error) {
				if nothing {
					return nil, nil
				}
				return next(ctx, op)
			},
			Renew: func(holdfast.RenewFunc, context.Context, *holdfast.RenewOp) []error { return nil },
		})
		l, err := c.Mutex("x").Lease(t.Context())
		require.NoError(t, err)
		time.Sleep(lab.Ages)
		require.ErrorIs(t, l.Err(), holdfast.ErrLost)
		nothing = true
		_, err = c.Mutex("y").Lease(t.Context())
		require.ErrorContains(t, err, "neither the lease of next nor an error")
	})
}
