package drivertest

import (
	"github.com/stretchr/testify/require"
)

// block is how many fences a test reserves. A fence that follows a clock of
// microseconds passes it only after seconds, so that time does not hide a driver
// that forgot the reservation.
const block = 2_000_000

var fenceCases = []Case{
	{"FencesIncreaseOverReleases", func(t *test) {
		t.needs(Fences)
		a, b := t.driver(), t.driver()
		last := int64(0)
		for range 10 {
			a, b = b, a
			c := t.contender(a)
			require.Greater(t, c.lock().Fence, last)
			last = c.grant.Fence
			c.release()
		}
	}},
	{"FencesIncreaseOverTheQueue", func(t *test) {
		t.needs(Fences, Queue)
		holder, waiters := t.line(5)
		for _, w := range waiters {
			last := holder.grant.Fence
			holder.release()
			require.Greater(t, w.lock().Fence, last)
			holder = w
		}
	}},
	{"FencesIncreaseOverExpiry", func(t *test) {
		t.needs(Fences)
		a, b := t.pair(lasting(short))
		last := a.lock().Fence
		require.Greater(t, b.outlast(a).Fence, last)
	}},
	{"FencesIncreaseOverWithdrawals", func(t *test) {
		t.needs(Fences, Queue)
		holder, waiters := t.line(2)
		waiters[0].release()
		holder.release()
		require.Greater(t, waiters[1].lock().Fence, holder.grant.Fence)
	}},
	{"ReservedFencesAreNotGiven", func(t *test) {
		t.needs(Fences)
		a, b := t.pair(reserving(block))
		first := a.lock().Fence
		a.release()
		second := b.lock().Fence
		require.Greater(t, second, first+block-1)
		b.release()
		require.Greater(t, t.contender(a.d).lock().Fence, second+block-1)
	}},
	{"ReservedFencesOfAWaiterAreNotGiven", func(t *test) {
		t.needs(Fences, Queue)
		holder, waiters := t.line(2, reserving(block))
		first := holder.grant.Fence
		holder.release()
		second := waiters[0].lock().Fence
		require.Greater(t, second, first+block-1)
		waiters[0].release()
		require.Greater(t, waiters[1].lock().Fence, second+block-1)
	}},
	{"ReservedFencesAreNotGivenAfterExpiry", func(t *test) {
		t.needs(Fences)
		a, b := t.pair(lasting(short), reserving(block))
		first := a.lock().Fence
		require.Greater(t, b.outlast(a).Fence, first+block-1)
	}},
}
