package holdfast_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/test/behavior/lab"
)

// The context of Lease bounds the waiting, not the holding.
func TestLeaseOutlivesTheContextItWasAcquiredWith(t *testing.T) {
	t.Parallel()
	lab.WithPatience(t, func(t *testing.T, l *lab.Lab) {
		const ttl = 300 * time.Millisecond
		type word struct{}
		ctx, cancel := context.WithCancel(context.WithValue(t.Context(), word{}, "value"))
		lease, err := l.Near(holdfast.WithTTL(ttl)).Mutex("x").Lease(ctx)
		require.NoError(t, err)
		with := lease.WithContext(ctx)
		cancel()
		select {
		case <-with.Done():
		case <-time.After(lab.Soon):
			t.Fatal("WithContext outlives its context")
		}
		assert.ErrorIs(t, context.Cause(with), context.Canceled)
		l.Keeps(lease, 2*ttl)
		assert.Equal(t, "value", lease.Context().Value(word{}))
		// Also when everything is over Release works.
		require.NoError(t, lease.Release(ctx))
		l.Free(l.Near(), "x")
	})
}

func TestReleaseIsCountedOnce(t *testing.T) {
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		c := l.Near()
		lease := l.Lease(c, "x")
		var released atomic.Int64
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				switch err := lease.Release(context.Background()); {
				case err == nil:
					released.Add(1)
				default:
					assert.ErrorIs(t, err, holdfast.ErrNotHeld)
				}
			})
		}
		lab.Promptly(t, lab.Soon, func() error { wg.Wait(); return nil })
		assert.EqualValues(t, 1, released.Load())

		next := l.Lease(c, "x")
		require.ErrorIs(t, lease.Release(t.Context()), holdfast.ErrNotHeld)
		require.ErrorIs(t, lease.Renew(t.Context()), holdfast.ErrNotHeld)
		require.ErrorIs(t, lease.Err(), holdfast.ErrNotHeld)
		require.ErrorIs(t, context.Cause(lease.Context()), context.Canceled)
		l.Holds(next)
		require.NoError(t, next.Release(t.Context()))
	})
}
