package drivertest

import (
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
)

var forceCases = able([]property{
	{"ForceOfAFreeLock", func(t *test) {
		a := t.contender(t.driver())
		require.ErrorIs(t, a.force(), driver.ErrNotHeld)
		a.lock()
		a.release()
		require.ErrorIs(t, a.force(), driver.ErrNotHeld)
		t.contender(a.d, lasting(short)).lock()
		t.outwait(short)
		require.ErrorIs(t, a.force(), driver.ErrNotHeld)
	}},
	{"ForceTellsAHolderThatWaited", func(t *test) {
		t.needs(Push)
		a, b := t.couple()
		a.release()
		b.pushed()
		require.NoError(t, a.force())
		b.loses()
		a.unwoken()
	}},
	{"ForceLetsTheNextWaiterHaveIt", func(t *test) {
		t.queues()
		holder, waiters := t.line(2)
		require.NoError(t, waiters[1].force())
		served(waiters[0])
		remain(waiters[1])
		t.grows(holder.grant, waiters[0].grant)
		holder.releasesNothing()
		waiters[0].holds()
	}},
	{"ForceFreesTheLock", func(t *test) {
		a, b := t.pair()
		a.lock()
		require.NoError(t, b.force())
		a.holdsNothing()
		a.releasesNothing()
		a.refused() // A repeat that was under way. It must not find the lock free.
		b.lock()
		a.refused()
		b.holds()
	}},
	{"ReleasedHolderHearsOfNoLoss", func(t *test) {
		t.needs(Push)
		d := t.driver()
		a, b := t.contender(d), t.contender(d)
		a.lock()
		a.release()
		b.lock()
		require.NoError(t, b.force())
		b.loses()
		a.unwoken()
	}},
}, Force)

// force takes the lock from whoever holds it.
func (c *contender) force() error {
	ctx, cancel := c.t.call()
	defer cancel()
	return can[driver.Forcer](c).ForceRelease(ctx, c.req.Kind, c.req.Name)
}
