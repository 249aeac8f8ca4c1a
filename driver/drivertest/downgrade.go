package drivertest

import (
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
)

var writerDowngradeCases = []Case{
	{"DowngradedWriterReads", func(t *test) {
		t.needs(Downgrade)
		w, r := t.contender(t.driver()), t.contender(t.driver(), reading)
		w.lock()
		r.busy()
		w.downgrade(1)
		r.lock()
		t.contender(r.d).busy()
		require.NoError(t, w.renew())
		r.release()
		t.contender(r.d).busy()
		w.release()
		t.contender(r.d).lock()
	}},
	{"DowngradeKeepsTheFence", func(t *test) {
		t.needs(Downgrade, Fences, Inspect)
		w := t.contender(t.driver(), heldBy("it"))
		g := w.lock()
		before := t.inspect(w).Holders[0]
		w.downgrade(1)
		after := t.inspect(w).Holders
		require.Len(t, after, 1)
		require.True(t, after[0].Shared)
		require.Equal(t, g.Fence, after[0].Fence)
		require.Equal(t, "it", after[0].Holder)
		require.True(t, before.Since.Equal(after[0].Since), "a downgrade is no new hold")
		require.LessOrEqual(t, after[0].TimeLeft, before.TimeLeft)
	}},
	{"DowngradeKeepsTheEndOfTheLease", func(t *test) {
		t.needs(Downgrade)
		w, next := t.pair()
		w.req.TTL = 3 * short
		w.lock()
		pass(t, short)
		w.downgrade(1)
		next.outlast(w)
	}},
	{"DowngradeForgetsNoReservedFence", func(t *test) {
		t.needs(Downgrade, Fences)
		w := t.contender(t.driver(), reserving(block))
		first := w.lock().Fence
		w.downgrade(1)
		require.Greater(t, t.contender(w.d, reading).lock().Fence, first+block-1)
	}},
	{"DowngradeLetsTheReadersAtTheHeadIn", func(t *test) {
		t.needs(Downgrade, Queue)
		t.push = t.has(Push)
		w, readers, next, late := t.procession()
		w.downgrade(1)
		for _, r := range readers {
			if t.push {
				r.pushed()
			}
			r.lock()
		}
		next.unwoken()
		next.queue()
		late.queue()
		t.contender(next.d, reading).busy()
		for _, r := range readers {
			r.release()
		}
		next.queue()
		w.release()
		next.lock()
		late.queue()
	}},
	{"DowngradeLetsNobodyOvertakeAWriter", func(t *test) {
		t.needs(Downgrade, Queue)
		w, next := t.pair(waiting)
		late, hasty := t.contender(t.driver(), waiting, reading), t.contender(t.driver(), reading)
		w.lock()
		next.queue()
		late.queue()
		w.downgrade(1)
		late.unwoken()
		late.queue()
		hasty.busy()
		next.queue()
		w.release()
		next.lock()
		late.queue()
	}},
	{"DowngradeMayBeRepeated", func(t *test) {
		t.needs(Downgrade)
		w, r := t.contender(t.driver()), t.contender(t.driver(), reading)
		w.lock()
		for range 3 {
			w.downgrade(1)
		}
		r.lock()
		w.downgrade(1)
		t.contender(r.d).busy()
		w.release() // Whatever it gave up it did not give up twice.
		t.contender(r.d).busy()
		require.NoError(t, r.renew())
		r.release()
		t.contender(r.d).lock()
	}},
	{"DowngradeOfAReader", func(t *test) {
		t.needs(Downgrade)
		a, b := t.pair(reading)
		a.lock()
		b.lock()
		a.downgrade(1)
		t.contender(b.d).busy()
		a.release()
		t.contender(b.d).busy()
		require.NoError(t, b.renew())
	}},
	{"DowngradeOfWhoDoesNotHold", func(t *test) {
		t.needs(Downgrade)
		w, other := t.pair()
		require.ErrorIs(t, other.downgradeOnce(1), driver.ErrNotHeld)
		w.lock()
		require.ErrorIs(t, other.downgradeOnce(1), driver.ErrNotHeld)
		t.contender(w.d, reading).busy()
		w.release()
		require.ErrorIs(t, w.downgradeOnce(1), driver.ErrNotHeld)
		other.lock()
		require.ErrorIs(t, w.downgradeOnce(1), driver.ErrNotHeld)
		t.contender(w.d, reading).busy()
		require.NoError(t, other.renew())
	}},
	{"DowngradeOfAWaiter", func(t *test) {
		t.needs(Downgrade, Queue)
		holder, waiters := t.line(2)
		require.ErrorIs(t, waiters[0].downgradeOnce(1), driver.ErrNotHeld)
		t.contender(holder.d, reading).busy()
		waiters[1].queue()
		holder.release()
		waiters[0].lock() // It kept its place, and waited for what it had asked.
		t.contender(holder.d, reading).busy()
	}},
	{"DowngradeRevivesNoExpiredLease", func(t *test) {
		t.needs(Downgrade)
		w := t.contender(t.driver(), lasting(short))
		w.lock()
		t.outwait(short)
		require.ErrorIs(t, w.downgradeOnce(1), driver.ErrNotHeld)
		require.ErrorIs(t, w.renew(), driver.ErrNotHeld)
		next := t.contender(w.d)
		next.lock()
		require.ErrorIs(t, w.downgradeOnce(1), driver.ErrNotHeld)
		t.contender(w.d, reading).busy()
		require.NoError(t, next.renew())
	}},
	{"DowngradeAfterForce", func(t *test) {
		t.needs(Downgrade, Force)
		w := t.contender(t.driver())
		w.lock()
		require.NoError(t, w.force())
		require.ErrorIs(t, w.downgradeOnce(1), driver.ErrNotHeld)
		t.contender(w.d).lock()
	}},
}

var permitDowngradeCases = []Case{
	{"DowngradeGivesSomePermitsBack", func(t *test) {
		t.needs(Downgrade)
		c := t.permits(5, 5, 4, 3, 1)
		first := c[0].lock()
		c[0].downgrade(2)
		c[1].busy()
		c[2].lock()
		c[3].busy()
		require.NoError(t, c[0].renew())
		if t.has(Inspect) {
			info := t.inspect(c[0])
			require.Len(t, info.Holders, 2)
			require.EqualValues(t, 2, info.Holders[0].Weight)
			require.Equal(t, first.Fence, info.Holders[0].Fence)
			require.EqualValues(t, 3, info.Holders[1].Weight)
		}
		c[0].release() // gives back the two that were left
		c[3].lock()
		t.permits(5, 2)[0].busy()
		t.permits(5, 1)[0].lock()
	}},
	{"DowngradeIsToAWeightAndNotByOne", func(t *test) {
		t.needs(Downgrade)
		c := t.permits(5, 5, 3, 2, 1)
		c[0].lock()
		for range 3 {
			c[0].downgrade(3)
		}
		c[1].busy()
		c[0].downgrade(2)
		c[0].downgrade(3) // Late ones, and larger ones, give and take nothing.
		c[0].downgrade(5)
		c[0].downgrade(driver.MaxLimit)
		c[1].lock()
		c[3].busy()
		c[0].release()
		c[2].lock()
		c[3].busy()
	}},
	{"DowngradeKeepsTheEndOfAPartOfTheLease", func(t *test) {
		t.needs(Downgrade)
		c := t.permits(5, 5, 5)
		c[0].req.TTL = 3 * short
		c[0].lock()
		pass(t, short)
		c[0].downgrade(1)
		c[1].outlast(c[0])
	}},
	{"DowngradeLetsInThoseWhoFit", func(t *test) {
		t.needs(Downgrade, Queue)
		t.push = t.has(Push)
		held, c := t.permits(5, 5)[0], t.permits(5, 1, 2, 3, 1)
		held.lock()
		for _, w := range c {
			w.req.Wait = true
			w.queue()
		}
		held.downgrade(1)
		for _, w := range c[:2] {
			if t.push {
				w.pushed()
			}
			w.lock()
		}
		for _, w := range c[2:] {
			w.unwoken()
			w.queue()
		}
		c[1].release()
		c[2].lock()
		c[3].queue()
	}},
	{"DowngradeToNothingIsRefused", func(t *test) {
		t.needs(Downgrade)
		c := t.permits(5, 5, 1)
		c[0].lock()
		for _, weight := range []int64{0, -1, -5} {
			err := c[0].downgradeOnce(weight)
			require.ErrorIs(t, err, driver.ErrNotExecuted)
			require.NotErrorIs(t, err, driver.ErrTransient)
		}
		c[1].busy()
		require.NoError(t, c[0].renew())
	}},
	{"DowngradeOfWhoHoldsNoPermits", func(t *test) {
		t.needs(Downgrade)
		c := t.permits(5, 4, 4, 2)
		c[0].lock()
		require.ErrorIs(t, c[1].downgradeOnce(1), driver.ErrNotHeld)
		c[2].busy()
		c[0].release()
		require.ErrorIs(t, c[0].downgradeOnce(1), driver.ErrNotHeld)
		c[1].lock()
		require.ErrorIs(t, c[0].downgradeOnce(1), driver.ErrNotHeld)
		c[2].busy()
	}},
	{"DowngradeRevivesNoExpiredPermits", func(t *test) {
		t.needs(Downgrade)
		c := t.permits(5, 2, 3, 2)
		c[0].req.TTL = short
		c[0].lock()
		c[1].lock()
		t.outwait(short)
		require.ErrorIs(t, c[0].downgradeOnce(1), driver.ErrNotHeld)
		c[2].lock()
		require.ErrorIs(t, c[0].downgradeOnce(1), driver.ErrNotHeld)
		t.permits(5, 1)[0].busy()
		require.NoError(t, c[1].renew())
	}},
	{"DowngradeOfOneLeavesTheOthers", func(t *test) {
		t.needs(Downgrade)
		c := t.permits(9, 4, 4, 3, 1, 4)
		c[0].lock()
		c[1].lock()
		c[0].downgrade(2)
		c[2].lock()
		c[3].busy()
		require.NoError(t, c[1].renew())
		c[1].release()
		c[4].lock()
		c[3].busy()
	}},
}

// downgradeOnce gives some of the hold up.
func (c *contender) downgradeOnce(weight int64) error {
	c.t.Helper()
	d, ok := driver.As[driver.Downgrader](c.d)
	require.True(c.t, ok)
	ctx, cancel := c.t.bounded()
	defer cancel()
	return d.Downgrade(ctx, c.lease(), weight)
}

// downgrade gives up some of what the token must have.
func (c *contender) downgrade(weight int64) {
	c.t.Helper()
	require.NoError(c.t, c.downgradeOnce(weight), "Downgrade")
}
