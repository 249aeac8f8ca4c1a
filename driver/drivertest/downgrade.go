package drivertest

import (
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
)

var writerDowngradeCases = able([]property{
	{"DowngradedWriterReads", func(t *test) {
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
		t.needs(Fences, Inspect)
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
	{"DowngradeKeepsTheEndOfTheLease", downgradeKeepsTheEnd},
	{"DowngradeForgetsNoReservedFence", func(t *test) {
		t.needs(Fences)
		w := t.contender(t.driver(), reserving(block))
		given := lastFence(t, w.lock(), block)
		w.downgrade(1)
		require.Greater(t, t.contender(w.d, reading).lock().Fence, given, foul+"a fence does not grow")
	}},
	{"DowngradeLetsTheReadersAtTheHeadIn", func(t *test) {
		t.queues()
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
		t.needs(Queue)
		w, next := t.pair(waiting)
		late, hasty := t.contender(t.driver(), waiting, reading), t.contender(t.driver(), reading)
		w.lock()
		queue(next, late)
		w.downgrade(1)
		remain(late)
		hasty.busy()
		next.queue()
		w.release()
		next.lock()
		late.queue()
	}},
	{"DowngradeMayBeRepeated", func(t *test) {
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
		a, b := t.pair(reading)
		lock(a, b)
		a.downgrade(1)
		t.contender(b.d).busy()
		a.release()
		t.contender(b.d).busy()
		b.holds()
	}},
	{"DowngradeOfAWaiterWhoseTurnItIs", func(t *test) {
		t.needs(Queue)
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
}, Downgrade)

var permitDowngradeCases = able([]property{
	{"DowngradeGivesSomePermitsBack", func(t *test) {
		c := t.permits(5, 5, 4, 3, 1)
		c[0].lock()
		c[0].downgrade(2)
		c[1].busy()
		c[2].lock()
		c[3].busy()
		c[0].holds()
		c[0].shows(5, 2, 3)
		c[0].repeats()
		c[0].release() // gives back the two that were left
		c[3].lock()
		t.permits(5, 2)[0].busy()
		t.permits(5, 1)[0].lock()
	}},
	{"DowngradeIsToAWeightAndNotByOne", func(t *test) {
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
	{"DowngradeKeepsTheEndOfAPartOfTheLease", downgradeKeepsTheEnd},
	{"DowngradeLetsInThoseWhoFit", func(t *test) {
		t.queues()
		held, c := t.permits(5, 5)[0], t.permits(5, 1, 2, 3, 1)
		held.lock()
		enqueue(c...)
		held.downgrade(1)
		served(c[:2]...)
		remain(c[2:]...)
		c[1].release()
		c[2].lock()
		c[3].queue()
	}},
	{"DowngradeToNothingIsRefused", func(t *test) {
		c := t.permits(5, 5, 1)
		c[0].lock()
		for _, weight := range []int64{0, -1, -5} {
			err := c[0].downgradeOnce(weight)
			require.ErrorIs(t, err, driver.ErrNotExecuted)
			require.NotErrorIs(t, err, driver.ErrTransient)
		}
		c[1].busy()
		c[0].holds()
	}},
	{"DowngradeOfOneLeavesTheOthers", func(t *test) {
		c := t.permits(9, 4, 4, 3, 1, 4)
		lock(c[0], c[1])
		c[0].downgrade(2)
		c[2].lock()
		c[3].busy()
		c[1].holds()
		c[1].release()
		c[4].lock()
		c[3].busy()
	}},
}, Downgrade)

// downgradeKeepsTheEnd is the property that no downgrade makes a lease longer or shorter.
func downgradeKeepsTheEnd(t *test) {
	c, next := t.pair()
	c.req.TTL = 10 * short
	c.lock()
	pass(t, 7*short) // more than the grace: no other end is near this one
	c.downgrade(1)
	next.outlast(c)
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
