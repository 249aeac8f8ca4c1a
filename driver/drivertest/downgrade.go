package drivertest

import (
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
)

var writerDowngradeCases = []property{
	{"DowngradedWriterReads", func(t *test) {
		t.needs(Downgrade)
		w, r := t.contender(t.driver()), t.contender(t.driver(), reading)
		w.lock()
		r.busy()
		w.downgrade(1)
		r.lock()
		t.contender(r.d).busy()
		w.holds()
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
		w.req.TTL = 10 * short
		w.lock()
		pass(t, 7*short) // more than the grace: no other end is near this one
		w.downgrade(1)
		next.outlast(w)
	}},
	{"DowngradeForgetsNoReservedFence", func(t *test) {
		t.needs(Downgrade, Fences)
		w := t.contender(t.driver(), reserving(block))
		given := lastFence(t, w.lock(), block)
		w.downgrade(1)
		require.Greater(t, t.contender(w.d, reading).lock().Fence, given, foul+"a fence does not grow")
	}},
	{"DowngradeLetsTheReadersAtTheHeadIn", func(t *test) {
		t.needs(Downgrade, Queue)
		t.push = t.has(Push)
		w, readers, next, late := t.procession()
		w.downgrade(1)
		served(readers...)
		next.unwoken()
		queue(next, late)
		t.contender(next.d, reading).busy()
		release(readers...)
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
		queue(next, late)
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
		w.release() // It gave up its part once, not twice.
		t.contender(r.d).busy()
		r.holds()
		r.release()
		t.contender(r.d).lock()
	}},
	{"DowngradeOfAReader", func(t *test) {
		t.needs(Downgrade)
		a, b := t.pair(reading)
		lock(a, b)
		a.downgrade(1)
		t.contender(b.d).busy()
		a.release()
		t.contender(b.d).busy()
		b.holds()
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
		other.holds()
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
	{"DowngradeOfAWaiterWhoseTurnItIs", func(t *test) {
		t.needs(Downgrade, Queue)
		dead, w := t.contender(t.driver(), lasting(2*short)), t.contender(t.driver(), waiting)
		r := t.contender(dead.d, reading)
		dead.lock()
		w.queue()
		t.outwait(2 * short)
		// Only the store can know whether w holds it by now. The answer must be true.
		if err := w.downgradeOnce(1); err != nil {
			require.ErrorIs(t, err, driver.ErrNotHeld)
			w.lock()
			r.busy()
			return
		}
		r.lock()
		w.holds()
	}},
	{"DowngradeRevivesNoExpiredLease", func(t *test) {
		t.needs(Downgrade)
		w := t.contender(t.driver(), lasting(short))
		w.lock()
		t.outwait(short)
		require.ErrorIs(t, w.downgradeOnce(1), driver.ErrNotHeld)
		w.holdsNothing()
		next := t.contender(w.d)
		next.lock()
		require.ErrorIs(t, w.downgradeOnce(1), driver.ErrNotHeld)
		t.contender(w.d, reading).busy()
		next.holds()
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

// downgradeOnce gives some of the hold up.
func (c *contender) downgradeOnce(weight int64) error {
	ctx, cancel := c.t.call()
	defer cancel()
	return can[driver.Downgrader](c).Downgrade(ctx, c.lease(), weight)
}

// downgrade gives up some of what the token must have.
func (c *contender) downgrade(weight int64) {
	require.NoError(c.t, c.downgradeOnce(weight), "Downgrade")
}
