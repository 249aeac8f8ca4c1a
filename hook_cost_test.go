package holdfast_test

import (
	"context"
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/holdfast-go/holdfast"
)

// What hooks cost in allocations per lease and release, beyond what these cost without.
// The times are measured by BenchmarkLeaseWithoutStore.
const (
	// The op of an acquisition, the function that it runs and what that keeps, and the op of
	// a release. That does not depend on how many hooks there are.
	hookCost = 4
	// What a tracing hook makes even without an SDK, mostly attributes: for three spans
	// and six calls of instruments, and the context of the lease, which it follows. It is
	// 65; more than that deserves a look.
	tracingCost = 68
)

func allocations(t *testing.T, hooks ...holdfast.Hook) float64 {
	t.Helper()
	locks := withPuppet(t, puppet{}, hooks...)
	mu := locks.Mutex("x")
	least := math.Inf(1) // the race detector empties pools now and then, and that counts
	for range 10 {
		least = min(least, testing.AllocsPerRun(100, func() {
			l, err := mu.Lease(context.Background())
			require.NoError(t, err)
			require.NoError(t, l.Release(context.Background()))
		}))
	}
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
	assert.Equal(t, base, one, "a hook costs nothing but what it does")
	assert.Equal(t, one, three)
	assert.LessOrEqual(t, tracing-none, float64(hookCost+tracingCost))
}

// Without hooks there is nothing to pay for. What a lease is made of: the acquisition with
// the lease in it, what that needs until the lock is held, the token, the function that
// hears news of it, and the doorway; for Lock also what Unlock finds there. That is 5 and 6;
// it can be more where the race detector empties pools, or an Unlock sets a timer.
func TestNoHooksCostNothing(t *testing.T) {
	assert.LessOrEqual(t, allocations(t), 8.)
	mu := withPuppet(t, puppet{}).Mutex("x")
	assert.LessOrEqual(t, testing.AllocsPerRun(200, func() {
		mu.Lock()
		mu.Unlock()
	}), 10.)
}

// passing is a hook that does nothing, in each place.
func passing() holdfast.Hook {
	return meddler{
		acquire: func(next holdfast.AcquireFunc, ctx context.Context, op *holdfast.AcquireOp) (*holdfast.Lease, error) {
			return next(ctx, op)
		},
		release: func(next holdfast.ReleaseFunc, ctx context.Context, op *holdfast.ReleaseOp) error {
			return next(ctx, op)
		},
		renew: func(next holdfast.RenewFunc, ctx context.Context, op *holdfast.RenewOp) []error { return next(ctx, op) },
	}
}
