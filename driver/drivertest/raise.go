package drivertest

import (
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver/redlock"
)

var raiseCases = able([]property{
	{"RaisedFenceIsThatOfTheLease", func(t *test) {
		a, b := t.pair()
		fence := a.lock().Fence
		require.Equal(t, fence, a.raised(fence-1, 1), "nothing is lowered")
		require.Equal(t, fence, a.raised(fence, 1))
		raised := a.raised(fence+block, 1)
		require.GreaterOrEqual(t, raised, fence+block)
		require.Equal(t, raised, a.raised(fence+block, 1), "once more changes nothing")
		require.Equal(t, raised, a.lock().Fence)
		b.busy()
		a.release()
		require.Greater(t, b.lock().Fence, raised, foul+"a fence does not grow")
	}},
	{"RaisedFenceReservesOthers", func(t *test) {
		a, b := t.pair(reserving(block))
		fence := a.lock().Fence
		require.Less(t, a.raised(fence+1, block), fence+block, "what is reserved is its own")
		a.release()
		require.Greater(t, b.lock().Fence, fence+block, foul+"a fence does not grow")
	}},
	{"RaisedFenceIsNotGivenAfterExpiry", func(t *test) {
		a, b := t.pair(lasting(short))
		fence := a.raised(a.lock().Fence+block, 1)
		require.Greater(t, b.outlast(a).Fence, fence, foul+"a fence does not grow")
	}},
}, Raise)

// raise raises the fence of the lease to that, at least.
func (c *contender) raise(fence, fences int64) (int64, error) {
	ctx, cancel := c.t.call()
	defer cancel()
	return can[redlock.FenceRaiser](c).RaiseFence(ctx, c.lease(), fence, fences)
}

// raised raises the fence of the lease, which it must have.
func (c *contender) raised(fence, fences int64) int64 {
	now, err := c.raise(fence, fences)
	require.NoError(c.t, err)
	return now
}
