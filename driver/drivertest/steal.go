package drivertest

import (
	"errors"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
)

// stealCases are of a Mutex, and of an RWMutex held for writing.
var stealCases = able([]property{
	{"StealTakesTheLockFromItsHolder", func(t *test) {
		a, b := t.pair(heldBy("thief"))
		first := a.lock()
		stolen := b.stolen()
		a.holdsNothing()
		a.releasesNothing()
		a.refused()
		b.holds()
		t.grows(first, stolen)
		b.release()
		c := t.contender(t.driver())
		if next := c.lock(); t.has(Fences) {
			require.Greater(t, next.Fence, stolen.Fence, foul+"a fence does not grow")
		}
	}},
	{"StealTellsTheHolderWhoHasIt", func(t *test) {
		t.needs(Push)
		a, b := t.pair()
		a.lock()
		b.req.Holder = "a thief\nlost " + b.req.Token
		b.stolen()
		g := a.loses()
		require.Contains(t, g.Holder, "a thief")
		require.Contains(t, g.Holder, "lost", "and nothing of it is news of its own")
		b.unwoken()
	}},
	{"StealLeavesWaitersTheirPlaces", func(t *test) {
		t.needs(Queue)
		_, waiters := t.line(3)
		thief := t.contender(t.driver())
		thief.stolen()
		queue(waiters...)
		thief.release()
		for _, w := range waiters {
			w.lock()
			w.release()
		}
	}},
	{"StealFromAWaiterThatHasNotHeardLeavesItsPlace", func(t *test) {
		t.needs(Queue)
		holder, waiters := t.line(3)
		holder.release()
		thief := t.contender(t.driver())
		thief.stolen()
		ctx, cancel := t.bounded()
		defer cancel()
		_, err := waiters[0].ask(ctx)
		require.ErrorIs(t, err, driver.ErrNotHeld)
		unheard, _ := errors.AsType[driver.Unheard](err)
		heir := t.contender(waiters[0].d, waiting)
		heir.req.Place = unheard.Place
		heir.queue()
		if unheard.Place.Number == 0 {
			waiters = append(waiters[1:], heir) // the store takes no notice of places
		} else {
			waiters[0] = heir
		}
		thief.release()
		for _, w := range waiters {
			w.lock()
			w.release()
		}
	}},
	{"StealByAWaiterEndsItsWait", func(t *test) {
		t.needs(Queue)
		_, waiters := t.line(2)
		waiters[0].stolen()
		waiters[0].release()
		waiters[1].lock()
	}},
	{"StealMayBeRepeated", func(t *test) {
		a, b := t.pair(reserving(block))
		a.lock()
		g := b.stolen()
		for range 3 {
			again := b.stolen()
			require.Equal(t, g.Fence, again.Fence)
			require.Equal(t, g.Fences, again.Fences)
		}
		b.holds()
	}},
	{"StealIsNotRepeatedAgainstTheNextThief", func(t *test) {
		a, b := t.pair()
		a.stolen()
		b.stolen()
		a.notStolen()
		b.holds()
		b.release()
		a.notStolen()
		t.contender(t.driver()).lock()
	}},
	{"StealIsNotRepeatedWhenItsLeaseIsOver", func(t *test) {
		a, b := t.pair()
		a.req.TTL = short
		a.stolen()
		b.outlast(a)
		a.notStolen()
		b.holds()
	}},
	{"StealThatComesAfterItsReleaseTakesNothing", func(t *test) {
		a, b := t.pair()
		b.lock()
		require.ErrorIs(t, a.settle(), driver.ErrNotHeld)
		a.notStolen()
		b.holds()
	}},
	{"StealHearsOfWaiters", func(t *test) {
		t.needs(Notice, Push)
		a, b := t.pair(waiting)
		c := t.contender(t.driver())
		a.lock()
		b.queue()
		c.req.Wait = true
		c.stolen()
		require.True(t, c.noticed())
		c.release()
		b.pushed()
	}},
}, Steal)

// stealAllCases are of an RWMutex.
var stealAllCases = able([]property{
	{"StealTakesTheLockFromAllReaders", func(t *test) {
		readers := t.several(6, reading)
		lock(readers...)
		w := t.contender(t.driver())
		g := w.stolen()
		for _, r := range readers {
			r.holdsNothing()
			t.grows(r.grant, g)
		}
		w.holds()
		t.contender(t.driver(), reading).busy()
	}},
	{"StealOfAPartIsRefused", func(t *test) {
		a, b := t.pair(reading)
		a.lock()
		_, err := b.steal()
		require.ErrorIs(t, err, errors.ErrUnsupported)
		require.ErrorIs(t, err, driver.ErrNotExecuted)
		b.req.Kind, b.req.Shared, b.req.Weight, b.req.Limit = driver.Semaphore, false, 1, 1
		_, err = b.steal()
		require.ErrorIs(t, err, errors.ErrUnsupported)
		a.holds()
	}},
}, Steal)

// steal asks for the lock of whoever has it.
func (c *contender) steal() (driver.Grant, error) {
	ctx, cancel := c.t.call()
	defer cancel()
	return c.asking(func(r *driver.Request) (driver.Grant, error) { return can[driver.Stealer](c).Steal(ctx, r) })
}

// stolen is steal of a token that must succeed.
func (c *contender) stolen() driver.Grant {
	g, err := c.steal()
	require.NoError(c.t, err)
	require.Equal(c.t, driver.Granted, g.Status)
	return g
}

// notStolen is steal of a token that has had its turn.
func (c *contender) notStolen() {
	g, err := c.steal()
	require.ErrorIs(c.t, err, driver.ErrNotHeld, "a token has stolen twice: %+v", g)
}
