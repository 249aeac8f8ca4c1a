package drivertest

import (
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
)

// block is how many fences a test asks for. A store that takes them from a clock of
// microseconds has fewer to give.
const block = 2_000_000

// lastFence is the last fence of a grant for which so many were asked.
func lastFence(t *test, g driver.Grant, asked int64) int64 {
	require.Equal(t, driver.Granted, g.Status)
	require.Positive(t, g.Fence)
	require.LessOrEqual(t, max(g.Fences, 1), asked, "more than were asked for")
	return g.Fence + max(g.Fences, 1) - 1
}

// grows requires that the fence of a grant is larger than that of one before, if the driver has fences.
func (t *test) grows(before, after driver.Grant) {
	if t.has(Fences) {
		require.Greater(t, after.Fence, before.Fence, foul+"a fence does not grow")
	}
}

var fenceCases = able([]property{
	{"FencesIncreaseOverTheQueue", func(t *test) {
		t.needs(Queue)
		holder, waiters := t.line(5, reserving(block))
		for _, w := range waiters {
			last := lastFence(t, holder.grant, block)
			holder.release()
			require.Greater(t, w.lock().Fence, last, foul+"a fence does not grow")
			holder = w
		}
	}},
	{"FencesIncreaseOverWithdrawals", func(t *test) {
		t.needs(Queue)
		holder, waiters := t.line(2)
		release(waiters[0], holder)
		require.Greater(t, waiters[1].lock().Fence, holder.grant.Fence, foul+"a fence does not grow")
	}},
	{"ReservedFencesAreNotGiven", func(t *test) {
		a, b := t.pair(reserving(block))
		var given int64
		for range 5 { // of a lock that was not used before there may be no more than one
			for _, c := range []*contender{a, b} {
				c = t.contender(c.d, reserving(block))
				g := c.lock()
				require.Greater(t, g.Fence, given, foul+"a fence does not grow")
				given = lastFence(t, g, block)
				c.release()
			}
		}
		require.Greater(t, t.contender(a.d).lock().Fence, given, foul+"a fence does not grow")
	}},
	{"RepeatHasTheSameFences", func(t *test) {
		a, b := t.pair(reserving(block))
		a.lock()
		a.release()
		g := b.lock()
		again := b.lock()
		require.Equal(t, g.Fence, again.Fence)
		require.Equal(t, max(g.Fences, 1), max(again.Fences, 1))
	}},
	{"ReservedFencesAreNotGivenAfterExpiry", func(t *test) {
		a, b := t.pair(lasting(short), reserving(block))
		given := lastFence(t, a.lock(), block)
		require.Greater(t, b.outlast(a).Fence, given, foul+"a fence does not grow")
	}},
}, Fences)
