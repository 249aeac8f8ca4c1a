package drivertest

import (
	"fmt"
	"slices"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
)

var releaseCases = []property{
	{"ReleaseFreesTheLock", func(t *test) {
		a, b := t.pair()
		a.lock()
		a.release()
		b.lock()
	}},
	{"ReleaseNeverTouchesAnotherHold", func(t *test) {
		a, b := t.pair()
		other := t.contender(t.driver())
		a.lock()
		a.release()
		b.lock()
		a.releasesNothing()
		require.ErrorIs(t, a.settle(), driver.ErrNotHeld)
		other.releasesNothing()
		t.contender(t.driver()).busy()
		b.holds()
	}},
	{"ReleaseOfAnExpiredLease", func(t *test) {
		a, b := t.pair(lasting(short))
		a.lock()
		t.outwait(short)
		if err := a.releaseOnce(); err != nil { // nobody took it meanwhile
			require.ErrorIs(t, err, driver.ErrNotHeld)
		}
		b.lock()
	}},
	{"ReleaseNeverTouchesAnotherWaiter", func(t *test) {
		t.needs(Queue)
		a, b := t.pair(waiting)
		other := t.contender(b.d, waiting)
		a.lock()
		b.queue()
		other.releasesNothing()
		a.release()
		b.lock()
	}},
	{"WithdrawnWaiterIsSkipped", func(t *test) {
		t.needs(Queue)
		for i, which := range []string{"first", "middle", "last"} {
			t.name = t.unique()
			holder, waiters := t.line(3)
			waiters[i].release()
			waiters[i].releasesNothing()
			for _, w := range slices.Delete(waiters, i, i+1) {
				holder.release()
				w.place = fmt.Sprintf(", after the %s of 3 waiters was withdrawn", which)
				w.lock()
				holder = w
			}
			holder.release()
			t.contender(holder.d).lock()
		}
	}},
	{"ReleaseOfANewlyGrantedWaiterPassesOn", func(t *test) {
		t.queues()
		holder, waiters := t.line(2)
		holder.release()
		waiters[0].release() // It may not know yet that it was granted the lock.
		served(waiters[1])
	}},
	{"ReleaseNeedNotKnowTheTTL", func(t *test) {
		a, b := t.pair()
		a.lock()
		a.req.TTL = 0
		a.release()
		b.lock()
	}},
}

var unsettledCases = []property{
	{"StragglerOfATokenNeverSeenAcquiresNothing", func(t *test) {
		a, b := t.pair()
		require.ErrorIs(t, a.settle(), driver.ErrNotHeld)
		a.refused()
		b.lock()
	}},
	{"StragglerAfterAHoldAcquiresNothing", func(t *test) {
		a, b := t.pair()
		a.lock()
		require.NoError(t, a.settle())
		a.refused()
		b.lock()
		a.refused()
		a.releasesNothing()
		a.refused() // A plain release takes nothing back.
		t.contender(a.d).busy()
	}},
	{"StragglerOfAWaiterDoesNotQueue", func(t *test) {
		t.needs(Queue)
		a, b := t.couple()
		require.NoError(t, b.settle())
		b.refused()
		a.release()
		b.refused()
		t.contender(t.driver()).lock()
	}},
	{"StragglerOfAGrantedWaiterAcquiresNothing", func(t *test) {
		t.needs(Queue)
		a, b := t.couple()
		a.release()
		require.NoError(t, b.settle())
		b.refused()
		t.contender(t.driver()).lock()
	}},
	{"StragglerAfterATTLAcquiresNothing", func(t *test) {
		for _, over := range []bool{false, true} { // when the token is given up
			t.name = t.unique()
			a := t.contender(t.driver(), lasting(short))
			a.lock()
			if !over {
				require.NoError(t, a.settle())
			}
			t.outwait(short)
			if over {
				a.settled()
			}
			a.refused()
			t.contender(a.d).lock()
		}
	}},
	{"StragglerThroughAnotherDriverAcquiresNothing", func(t *test) {
		a, b := t.pair()
		a.lock()
		require.NoError(t, a.settle())
		a.d = b.d
		a.refused()
	}},
	{"UnsettledCountsAfterAPlainRelease", func(t *test) {
		a := t.contender(t.driver())
		a.lock()
		a.release()
		require.ErrorIs(t, a.settle(), driver.ErrNotHeld)
		a.refused()
	}},
	{"UnsettledIsOfOneTokenOnly", func(t *test) {
		d := t.driver()
		var gone []*contender
		for range 10 {
			a := t.contender(d)
			a.lock()
			require.NoError(t, a.settle())
			gone = append(gone, a)
		}
		each(gone, (*contender).refused)
		t.contender(d).lock()
	}},
	{"UnsettledIsOfOneNameOnly", func(t *test) {
		a := t.contender(t.driver())
		require.ErrorIs(t, a.settle(), driver.ErrNotHeld)
		a.req.Name = t.unique()
		a.lock()
	}},
	{"UnsettledReleaseLetsTheNextWaiterHaveIt", func(t *test) {
		t.needs(Queue)
		holder, waiters := t.line(3)
		require.NoError(t, waiters[0].settle())
		require.NoError(t, holder.settle())
		waiters[1].lock()
		require.NoError(t, waiters[1].settle())
		waiters[2].lock()
	}},
}
