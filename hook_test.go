package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/memdriver"
	"github.com/holdfast-go/holdfast/internal/test/behavior/lab"
)

// What hooks cost in allocations per lease and release, beyond what these cost without.
// The times are measured by BenchmarkLeaseWithoutStore.
const (
	// The op of an acquisition, the function that it runs and what that keeps, and the op of
	// a release. That does not depend on how many hooks there are.
	hookCost = 4
	// What a tracing hook makes even without an SDK, mostly attributes: for three spans
	// and seven calls of instruments, and the context of the lease, which it follows. It is
	// 63; more than that deserves a look.
	tracingCost = 66
)

func allocations(t *testing.T, hooks ...holdfast.Hook) float64 {
	t.Helper()
	return least(t, func(mu *holdfast.Mutex) {
		l, err := mu.Lease(context.Background())
		require.NoError(t, err)
		require.NoError(t, l.Release(context.Background()))
	}, hooks...)
}

// least returns how many allocations f makes with a mutex of a store that answers at once,
// which virtual time makes certain: a client waits in another way for a slow one. The race
// detector empties pools now and then, so it is the least of many runs, each counted by itself.
func least(t *testing.T, f func(mu *holdfast.Mutex), hooks ...holdfast.Hook) float64 {
	t.Helper()
	least := math.Inf(1)
	synctest.Test(t, func(t *testing.T) {
		mu := lab.WithPuppet(t, lab.Puppet{}, hooks...).Mutex("x")
		for range 1000 {
			least = min(least, testing.AllocsPerRun(1, func() { f(mu) }))
		}
	})
	return least
}

func TestHooksCostLittle(t *testing.T) {
	none := allocations(t)
	base := allocations(t, holdfast.HookBase{})
	one := allocations(t, passing())
	three := allocations(t, passing(), passing(), passing())
	tracing := allocations(t, holdfast.NewTracingHook(
		holdfast.WithTracerProvider(noop.NewTracerProvider()), holdfast.WithMeterProvider(metricnoop.NewMeterProvider())))
	t.Logf("no hook %v, one that is not interested %v, one %v, three %v, tracing without an SDK %v", none, base, one, three, tracing)
	assert.LessOrEqual(t, base-none, float64(hookCost))
	// Nothing, but for what the race detector takes from pools, which differs from run to run.
	assert.InDelta(t, base, one, 1, "a hook costs nothing but what it does")
	assert.InDelta(t, one, three, 1)
	assert.LessOrEqual(t, tracing-none, float64(hookCost+tracingCost))
}

// Without hooks there is nothing to pay for. A lease is made of these: the acquisition with
// the lease in it, what that needs until the lock is held, the token, the function that
// hears news of it, and the doorway; for Lock also what Unlock finds there. That is 5 and 6;
// it can be more where the race detector empties pools, or an Unlock sets a timer.
func TestNoHooksCostNothing(t *testing.T) {
	assert.LessOrEqual(t, allocations(t), 8.)
	assert.LessOrEqual(t, least(t, func(mu *holdfast.Mutex) {
		mu.Lock()
		mu.Unlock()
	}), 10.)
}

// passing is a hook that does nothing, in each place.
func passing() holdfast.Hook {
	return lab.Meddler{
		Acquire: func(next holdfast.AcquireFunc, ctx context.Context, op *holdfast.AcquireOp) (*holdfast.Lease, error) {
			return next(ctx, op)
		},
		Release: func(next holdfast.ReleaseFunc, ctx context.Context, op *holdfast.ReleaseOp) error {
			return next(ctx, op)
		},
		Renew: func(next holdfast.RenewFunc, ctx context.Context, op *holdfast.RenewOp) []error { return next(ctx, op) },
	}
}

// What a hook of the program says is no trouble of the store, unless it says that it is.
func TestVetoOfAHookIsTheLastWordUnlessItSaysThatItMayPass(t *testing.T) {
	lab.InBubble(t, func(t *testing.T, l *lab.Lab) {
		veto, passes := errors.New("not today"), fmt.Errorf("not now: %w", driver.ErrTransient)
		var says atomic.Pointer[error]
		say := func(err error) { says.Store(&err) }
		say(veto)
		c, began := l.Near(), time.Now()
		c.AddHook(lab.Meddler{
			Acquire: func(next holdfast.AcquireFunc, ctx context.Context, op *holdfast.AcquireOp) (*holdfast.Lease, error) {
				if err := *says.Load(); err != nil {
					return nil, err
				}
				return next(ctx, op)
			},
			Renew: func(next holdfast.RenewFunc, ctx context.Context, op *holdfast.RenewOp) []error {
				if err := *says.Load(); err != nil {
					return slices.Repeat([]error{err}, len(op.Leases))
				}
				return next(ctx, op)
			},
		})
		_, err := c.Mutex("x").Lease(t.Context())
		require.ErrorIs(t, err, veto)
		require.NotErrorIs(t, err, holdfast.ErrUnavailable)
		require.Contains(t, lab.Panics(t, c.Mutex("x").Lock), "not today")
		require.Zero(t, time.Since(began), "FOUL: a veto is waited out")

		say(passes)
		locked := lab.Begin(c.Mutex("x").Lock)
		time.Sleep(5 * time.Second)
		l.Stays(locked)
		require.Contains(t, l.Log.String(), "not now")
		say(nil)
		l.Ends(locked)
		c.Mutex("x").Unlock()

		lease := l.Lease(c, "x")
		say(veto)
		began = time.Now()
		require.ErrorIs(t, lease.Renew(t.Context()), veto)
		require.Zero(t, time.Since(began), "FOUL: a veto is waited out")
		say(nil)
		require.NoError(t, lease.Release(t.Context()))
	})
}

// Who looks for a span finds what it is in the documentation of NameHook.
func TestNameHookSaysWhatSpansAreCalled(t *testing.T) {
	text, err := os.ReadFile("redishook.go")
	require.NoError(t, err)
	doc := regexp.MustCompile(`(?s)// NameHook returns.*?\nfunc NameHook`).FindString(string(text))
	files, err := filepath.Glob("driver/*/*.go")
	require.NoError(t, err)
	named := map[string]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		for _, call := range regexp.MustCompile(`(?:\.(?:Call|On)|plain\.New)\("(\w+)"`).FindAllStringSubmatch(string(text), -1) {
			named[call[1]] = true
			require.Contains(t, doc, `"`+call[1]+`"`, file)
		}
	}
	require.GreaterOrEqual(t, len(named), 5)
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
		for _, no := range []string{"go.opentelemetry.io/otel/sdk", "redisotel", "go.opentelemetry.io/otel/exporters", "miniredis", "testify", "/internal/test/redistest"} {
			assert.NotContains(t, d, no)
		}
	}
}

// Another may have the lock by then.
func TestLeaseIsLostIfAHookHoldsItUpForLongerThanTheTTL(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memdriver.New()
		c, other := holdfast.Open(store), holdfast.Open(store)
		defer other.Close()
		defer c.Close()
		ttl := holdfast.WithTTL(time.Second)
		c.AddHook(lab.Meddler{Acquire: func(next holdfast.AcquireFunc, ctx context.Context, op *holdfast.AcquireOp) (*holdfast.Lease, error) {
			op.Holding = func(ctx context.Context, _ int64) context.Context {
				time.Sleep(2 * time.Second)
				return ctx
			}
			return next(ctx, op)
		}})
		err := c.Mutex("x", ttl).Do(t.Context(), func(ctx context.Context) error {
			require.ErrorIs(t, context.Cause(ctx), holdfast.ErrLost)
			lease, err := other.Mutex("x", ttl).TryLease(t.Context())
			require.NoError(t, err)
			return lease.Release(t.Context())
		})
		require.ErrorIs(t, err, holdfast.ErrLost)
	})
}

// One takes the locks after each other, as another has the last, and a hook panics at that one.
func TestHookThatPanicsLeavesAllFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memdriver.New()
		c, other := holdfast.Open(store), holdfast.Open(store)
		defer other.Close()
		defer c.Close()
		c.AddHook(lab.Meddler{Acquire: func(next holdfast.AcquireFunc, ctx context.Context, op *holdfast.AcquireOp) (*holdfast.Lease, error) {
			lease, err := next(ctx, op)
			if op.Name == "b" && err == nil {
				panic("mishap")
			}
			return lease, err
		}})
		other.Mutex("b").Lock()
		time.AfterFunc(time.Minute, other.Mutex("b").Unlock)
		require.PanicsWithValue(t, "mishap", func() { _, _ = holdfast.All(t.Context(), c.Mutex("a"), c.Mutex("b")) })
		synctest.Wait()
		require.True(t, other.Mutex("a").TryLock())
		require.True(t, other.Mutex("b").TryLock())
	})
}

// It may have recovered from a panic of the next.
func TestLeaseThatAHookDropsIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := holdfast.Open(memdriver.New())
		defer c.Close()
		released := 0
		c.AddHook(lab.Meddler{
			Acquire: func(next holdfast.AcquireFunc, ctx context.Context, op *holdfast.AcquireOp) (*holdfast.Lease, error) {
				lease, err := next(ctx, op)
				if op.Name == "released" {
					require.NoError(t, lease.Release(ctx))
				}
				return nil, errors.Join(err, errors.New("dropped"))
			},
			Release: func(next holdfast.ReleaseFunc, ctx context.Context, op *holdfast.ReleaseOp) error {
				released++
				return next(ctx, op)
			},
		})
		for _, name := range []string{"dropped", "released"} {
			_, err := c.Mutex(name).Lease(t.Context())
			require.ErrorContains(t, err, "dropped")
			info, err := c.Mutex(name).Inspect(t.Context())
			require.NoError(t, err)
			require.Empty(t, info.Holders)
		}
		require.Equal(t, 2, released, "once each")
	})
}

// takes are the ways to a lock. Each gives it back, if it got it.
func takes(c *holdfast.Client) map[string]func() error {
	ctx, do := context.Background(), func(context.Context) error { return nil }
	refused := errors.New("refused")
	tried := func(ok bool, undo func()) error {
		if !ok {
			return refused
		}
		undo()
		return nil
	}
	return map[string]func() error{
		"Lease": func() error {
			l, err := c.Mutex("x").Lease(ctx)
			if err != nil {
				return err
			}
			return l.Release(ctx)
		},
		"Do":      func() error { return c.Mutex("x").Do(ctx, do) },
		"RDo":     func() error { return c.RWMutex("x").RDo(ctx, do) },
		"owner":   func() error { return c.Mutex("x", holdfast.WithOwner("me")).Do(ctx, do) },
		"Lock":    func() error { c.Mutex("x").Lock(); c.Mutex("x").Unlock(); return nil },
		"RLock":   func() error { c.RWMutex("x").RLock(); c.RWMutex("x").RUnlock(); return nil },
		"TryLock": func() error { return tried(c.Mutex("x").TryLock(), c.Mutex("x").Unlock) },
		"Acquire": func() error {
			s := c.Semaphore("x", 2)
			if err := s.Acquire(ctx, 1); err != nil {
				return err
			}
			s.Release(1)
			return nil
		},
	}
}

// slowly is a store that takes a while to look.
type slowly struct{ *memdriver.Driver }

const aWhile = 10 * time.Millisecond

func (s slowly) Acquire(ctx context.Context, r *driver.Request) (driver.Grant, error) {
	time.Sleep(aWhile)
	return s.Driver.Acquire(ctx, r)
}

// Whatever hooks do with a lease, it is had once, and then nobody has it: hooks that drop it although they return
// no error, return it beside one, return it for another, or call next late, and those around them that try again.
func TestWhatHooksDoNotReturnIsHeldByNobody(t *testing.T) {
	dropped := errors.New("dropped")
	type acquire = func(next holdfast.AcquireFunc, ctx context.Context, op *holdfast.AcquireOp) (*holdfast.Lease, error)
	for name, bad := range map[string]acquire{
		"drops": func(next holdfast.AcquireFunc, ctx context.Context, op *holdfast.AcquireOp) (*holdfast.Lease, error) {
			_, err := next(ctx, op)
			return nil, errors.Join(err, dropped)
		},
		"returns both": func(next holdfast.AcquireFunc, ctx context.Context, op *holdfast.AcquireOp) (*holdfast.Lease, error) {
			l, err := next(ctx, op)
			return l, errors.Join(err, dropped)
		},
		"returns another": func(next holdfast.AcquireFunc, ctx context.Context, op *holdfast.AcquireOp) (*holdfast.Lease, error) {
			_, err := next(ctx, op)
			return new(holdfast.Lease), err
		},
		"returns before": func(next holdfast.AcquireFunc, ctx context.Context, op *holdfast.AcquireOp) (*holdfast.Lease, error) {
			late := *op
			go next(ctx, &late) //nolint:errcheck // nobody looks
			time.Sleep(aWhile / 2)
			return nil, dropped
		},
		"has returned before": func(next holdfast.AcquireFunc, ctx context.Context, op *holdfast.AcquireOp) (*holdfast.Lease, error) {
			late := *op
			time.AfterFunc(time.Second, func() { _, _ = next(ctx, &late) })
			return nil, dropped
		},
		"recovers": func(next holdfast.AcquireFunc, ctx context.Context, op *holdfast.AcquireOp) (l *holdfast.Lease, err error) {
			defer func() {
				if recover() != nil {
					l, err = nil, dropped
				}
			}()
			_, _ = next(ctx, op)
			panic("mishap")
		},
	} {
		for _, again := range []bool{false, true} {
			for _, way := range slices.Sorted(maps.Keys(takes(nil))) {
				if again && (name == "returns another" || name == "returns before" && way == "TryLock") {
					continue // nobody tries again without an error; the first try is in the way
				}
				t.Run(fmt.Sprint(name, "/", way, "/", again), func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						store := memdriver.New()
						c, other := holdfast.Open(slowly{store}), holdfast.Open(store)
						defer other.Close()
						defer c.Close()
						require.NoError(t, takes(c)[way]()) // the client has been served before
						c.AddHook(holdfast.NewTracingHook())
						if again {
							c.AddHook(lab.Meddler{Acquire: func(next holdfast.AcquireFunc, ctx context.Context, op *holdfast.AcquireOp) (*holdfast.Lease, error) {
								l, err := next(ctx, op)
								if err != nil {
									return next(ctx, op)
								}
								return l, err
							}})
						}
						calls := 0
						c.AddHook(lab.Meddler{Acquire: func(next holdfast.AcquireFunc, ctx context.Context, op *holdfast.AcquireOp) (*holdfast.Lease, error) {
							if calls++; calls == 1 {
								return bad(next, ctx, op)
							}
							return next(ctx, op)
						}})
						done := make(chan error, 1)
						go func() { done <- takes(c)[way]() }()
						time.Sleep(10 * time.Second)
						select {
						case err := <-done:
							require.Equal(t, again || way == "Lock" || way == "RLock", err == nil, "%v", err)
						default:
							t.Error("it waits for itself")
						}
						for kind, held := range map[string]func() (holdfast.Info, error){
							"mutex":     func() (holdfast.Info, error) { return other.Mutex("x").Inspect(t.Context()) },
							"rwmutex":   func() (holdfast.Info, error) { return other.RWMutex("x").Inspect(t.Context()) },
							"semaphore": func() (holdfast.Info, error) { return other.Semaphore("x", 2).Inspect(t.Context()) },
						} {
							info, err := held()
							require.NoError(t, err)
							require.Empty(t, info.Holders, kind)
						}
					})
				})
			}
		}
	}
}

// A job of which a hook has kept the lease from its caller was not done: the next one may.
func TestMinHoldIsNotKeptForALeaseThatAHookDrops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memdriver.New()
		c, other := holdfast.Open(store), holdfast.Open(store)
		defer other.Close()
		defer c.Close()
		c.AddHook(lab.Meddler{Acquire: func(next holdfast.AcquireFunc, ctx context.Context, op *holdfast.AcquireOp) (*holdfast.Lease, error) {
			_, err := next(ctx, op)
			return nil, errors.Join(err, errors.New("dropped"))
		}})
		_, err := c.Mutex("job", holdfast.WithMinHold(time.Minute)).TryLease(t.Context())
		require.ErrorContains(t, err, "dropped")
		require.True(t, other.Mutex("job").TryLock())
		other.Mutex("job").Unlock()
	})
}

// The hook drops a nested lease when that in which it was nested has been of use.
func TestMinHoldIsKeptThoughAHookDropsANestedLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memdriver.New()
		c, other := holdfast.Open(store), holdfast.Open(store)
		defer other.Close()
		defer c.Close()
		var outer *holdfast.Lease
		c.AddHook(lab.Meddler{Acquire: func(next holdfast.AcquireFunc, ctx context.Context, op *holdfast.AcquireOp) (*holdfast.Lease, error) {
			l, err := next(ctx, op)
			if outer == nil {
				outer = l
				return l, err
			}
			require.NoError(t, outer.Release(ctx))
			return nil, errors.Join(err, errors.New("dropped"))
		}})
		job := c.Mutex("job", holdfast.WithMinHold(time.Minute), holdfast.WithReentrancy())
		lease, err := job.Lease(t.Context())
		require.NoError(t, err)
		_, err = job.Lease(lease.Context())
		require.ErrorContains(t, err, "dropped")
		time.Sleep(time.Second)
		require.False(t, other.Mutex("job").TryLock())
		time.Sleep(time.Minute)
		require.True(t, other.Mutex("job").TryLock())
		other.Mutex("job").Unlock()
	})
}

func TestHookThatReturnsNoContextIsToldSo(t *testing.T) {
	c := holdfast.Open(memdriver.New())
	defer c.Close()
	c.AddHook(lab.Meddler{Acquire: func(next holdfast.AcquireFunc, ctx context.Context, op *holdfast.AcquireOp) (*holdfast.Lease, error) {
		op.Holding = func(context.Context, int64) context.Context { return nil }
		return next(ctx, op)
	}})
	require.PanicsWithValue(t, "holdfast: Holding of a hook returns no context", c.Mutex("x").Lock)
}
