package drivertest

import (
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
)

var permitDowngradeCases = []property{
	{"DowngradeGivesSomePermitsBack", func(t *test) {
		t.needs(Downgrade)
		c := t.permits(5, 5, 4, 3, 1)
		first := c[0].lock()
		c[0].downgrade(2)
		c[1].busy()
		c[2].lock()
		c[3].busy()
		c[0].holds()
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
		c[0].req.TTL = 10 * short
		c[0].lock()
		pass(t, 7*short) // as for a writer
		c[0].downgrade(1)
		c[1].outlast(c[0])
	}},
	{"DowngradeLetsInThoseWhoFit", func(t *test) {
		t.needs(Downgrade, Queue)
		t.push = t.has(Push)
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
		t.needs(Downgrade)
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
		lock(c[0], c[1])
		t.outwait(short)
		require.ErrorIs(t, c[0].downgradeOnce(1), driver.ErrNotHeld)
		c[2].lock()
		require.ErrorIs(t, c[0].downgradeOnce(1), driver.ErrNotHeld)
		t.permits(5, 1)[0].busy()
		c[1].holds()
	}},
	{"DowngradeOfOneLeavesTheOthers", func(t *test) {
		t.needs(Downgrade)
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
}
