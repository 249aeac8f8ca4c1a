package drivertest

import (
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
)

var forceCases = []property{
	{"ForceFreesTheLock", func(t *test) {
		t.needs(Force)
		a, b := t.pair()
		a.lock()
		require.NoError(t, b.force())
		b.lock()
	}},
	{"ForceOfAFreeLock", func(t *test) {
		t.needs(Force)
		a := t.contender(t.driver())
		require.ErrorIs(t, a.force(), driver.ErrNotHeld)
		a.lock()
		a.release()
		require.ErrorIs(t, a.force(), driver.ErrNotHeld)
	}},
	{"ForceOfAnExpiredLease", func(t *test) {
		t.needs(Force)
		a := t.contender(t.driver(), lasting(short))
		a.lock()
		t.outwait(short)
		require.ErrorIs(t, a.force(), driver.ErrNotHeld)
	}},
	{"ForceEndsTheLeaseForItsHolder", func(t *test) {
		t.needs(Force)
		a, b := t.pair()
		a.lock()
		require.NoError(t, b.force())
		require.ErrorIs(t, a.renew(), driver.ErrNotHeld)
		require.ErrorIs(t, a.releaseOnce(), driver.ErrNotHeld)
	}},
	{"ForceTellsTheHolder", func(t *test) {
		t.needs(Force, Push)
		a, b := t.pair()
		a.lock()
		require.NoError(t, b.force())
		_, ok := a.woken(driver.Lost, t.patience())
		require.True(t, ok, "Wake did not tell of the loss within %v", t.patience())
	}},
	{"ForceTellsAHolderThatWaited", func(t *test) {
		t.needs(Force, Push)
		a, b := t.pair(waiting)
		a.lock()
		b.queue()
		a.release()
		b.pushed()
		require.NoError(t, a.force())
		_, ok := b.woken(driver.Lost, t.patience())
		require.True(t, ok, "Wake did not tell of the loss within %v", t.patience())
		a.unwoken()
	}},
	{"ForceLetsTheNextWaiterHaveIt", func(t *test) {
		t.needs(Force, Queue)
		holder, waiters := t.line(2)
		require.NoError(t, waiters[1].force())
		waiters[1].queue()
		g := waiters[0].lock()
		if t.has(Fences) {
			require.Greater(t, g.Fence, holder.grant.Fence, foul+"a fence does not grow")
		}
		require.ErrorIs(t, holder.releaseOnce(), driver.ErrNotHeld)
		require.NoError(t, waiters[0].renew())
	}},
	{"ForcePushesToTheNextWaiter", func(t *test) {
		t.needs(Force, Push)
		holder, waiters := t.line(2)
		require.NoError(t, holder.force())
		waiters[0].pushed()
		waiters[1].unwoken()
	}},
	{"ForcedHolderDoesNotGetTheLockBack", func(t *test) {
		t.needs(Force)
		a, b := t.pair()
		a.lock()
		require.NoError(t, b.force())
		// A repeat that was under way. It must not find the lock free.
		a.refused()
		b.lock()
		a.refused()
		require.NoError(t, b.renew())
	}},
	{"ReleasedHolderHearsOfNoLoss", func(t *test) {
		t.needs(Force, Push)
		d := t.driver()
		a, b := t.contender(d), t.contender(d)
		a.lock()
		a.release()
		b.lock()
		require.NoError(t, b.force())
		_, ok := b.woken(driver.Lost, t.patience())
		require.True(t, ok)
		a.unwoken()
	}},
}

// force takes the lock from whoever holds it.
func (c *contender) force() error {
	c.t.Helper()
	f, ok := driver.As[driver.Forcer](c.d)
	require.True(c.t, ok)
	ctx, cancel := c.t.call()
	defer cancel()
	return f.ForceRelease(ctx, c.req.Kind, c.req.Name)
}
