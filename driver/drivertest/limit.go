package drivertest

import (
	"errors"
	"math"
	"sync"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
)

// The limit of a semaphore is for its first holder to say.
var limitCases = []property{
	refusal("ZeroWeightIsRefused", weighing(0, 5)),
	refusal("NegativeWeightIsRefused", weighing(-1, 5)),
	refusal("ZeroLimitIsRefused", weighing(1, 0)),
	refusal("NegativeLimitIsRefused", weighing(1, -5)),
	refusal("LimitAboveTheLargestIsRefused", weighing(1, driver.MaxLimit+1)),
	refusal("NoWeightAndNoLimitIsRefused", weighing(0, 0)),
	{"MoreThanTheLimitIsRefusedAtOnce", func(t *test) {
		d := t.driver()
		for _, weight := range []int64{6, 7, driver.MaxLimit, math.MaxInt64} {
			t.refuses(d, driver.ErrLimitExceeded, weighing(weight, 5)) // of an unused one
		}
		t.refuses(d, driver.ErrLimitExceeded, weighing(driver.MaxLimit+1, driver.MaxLimit))
		t.contender(d, weighing(1, 4)).lock() // None of them has set the limit.
		t.refuses(d, driver.ErrLimitExceeded, weighing(5, 4))
		t.contender(d, weighing(3, 4)).lock()
		t.refuses(d, driver.ErrLimitExceeded, weighing(5, 4))
	}},
	{"MoreThanTheLimitHoldsUpNobody", func(t *test) {
		t.needs(Queue)
		a, b := t.contender(t.driver(), weighing(3, 5)), t.contender(t.driver(), weighing(3, 5), waiting)
		c := t.contender(a.d, weighing(2, 5), waiting)
		a.lock()
		t.refuses(a.d, driver.ErrLimitExceeded, weighing(6, 5))
		b.queue()
		t.refuses(a.d, driver.ErrLimitExceeded, weighing(6, 5))
		c.queue()
		a.release()
		lock(b, c)
	}},
	{"OtherLimitIsRefusedWhileOneHolds", func(t *test) {
		d := t.driver()
		a := t.contender(d, weighing(2, 5))
		first := a.lock()
		for _, limit := range []int64{1, 4, 6, driver.MaxLimit} {
			t.refuses(d, driver.ErrLimitConflict, weighing(1, limit))
		}
		require.Equal(t, first.Fence, a.lock().Fence)
		a.holds()
		t.contender(d, weighing(4, 5)).busy() // The limit is what it was,
		b := t.contender(d, weighing(3, 5))
		b.lock() // and so is what is left.
		t.grows(first, b.grant)
		a.shows(5, 2, 3)
		a.release()
		t.refuses(d, driver.ErrLimitConflict, weighing(1, 6)) // The first one to hold has gone; another is there.
	}},
	{"LimitIsThatOfAllWhoComeAtOnce", func(t *test) {
		for _, limit := range []int64{5, 6, 7, 5, 6, 7} { // each is new to the lock, which nobody uses
			all := t.several(4, weighing(1, limit))
			errs := make([]error, len(all))
			var asks sync.WaitGroup
			for i, c := range all {
				asks.Go(func() {
					ctx, cancel := t.bounded()
					defer cancel()
					_, errs[i] = c.ask(ctx)
				})
			}
			asks.Wait()
			require.NoError(t, errors.Join(errs...))
			release(all...)
		}
	}},
	{"OtherLimitChangesNothingForWaiters", func(t *test) {
		t.needs(Queue)
		a, b := t.contender(t.driver(), weighing(2, 5)), t.contender(t.driver(), weighing(4, 5), waiting)
		c := t.contender(b.d, weighing(1, 5), waiting)
		a.lock()
		queue(b, c)
		t.refuses(a.d, driver.ErrLimitConflict, weighing(1, 9))
		b.unwoken()
		queue(b, c)
		a.release()
		lock(b, c)
		t.permits(5, 1)[0].busy()
	}},
	{"OtherLimitIsRefusedWhileOneWaits", func(t *test) {
		t.needs(Queue)
		dead := t.contender(t.driver(), weighing(5, 5), lasting(2*short))
		w := t.contender(t.driver(), weighing(2, 5), waiting)
		dead.lock()
		w.queue()
		t.outwait(2 * short)
		t.refuses(dead.d, driver.ErrLimitConflict, weighing(1, 6))
		w.lock()
		t.permits(5, 4)[0].busy()
		t.permits(5, 3)[0].lock()
	}},
	{"OtherLimitIsFineAfterTheLastLeft", func(t *test) {
		d := t.driver()
		for _, limit := range []int64{5, 6, 1, driver.MaxLimit, 2} {
			c := t.permits(limit, 1, limit)
			c[0].lock()
			c[1].busy()
			c[0].release()
			c[1].lock()
			t.refuses(d, driver.ErrLimitConflict, weighing(1, 7))
			c[1].release()
		}
	}},
	{"OtherLimitIsFineAfterTheLastWithdrew", func(t *test) {
		t.needs(Queue)
		a, b := t.contender(t.driver(), weighing(4, 5)), t.contender(t.driver(), weighing(4, 5), waiting)
		a.lock()
		b.queue()
		b.release()
		t.refuses(a.d, driver.ErrLimitConflict, weighing(1, 2))
		a.release()
		c := t.permits(2, 1, 1, 1)
		lock(c[0], c[1])
		c[2].busy()
	}},
	{"OtherLimitIsFineAfterAllDied", func(t *test) {
		d, queued := t.driver(), t.has(Queue)
		t.contender(d, weighing(2, 5), lasting(2*short)).lock()
		t.contender(d, weighing(1, 5), lasting(2*short)).lock()
		if queued {
			t.contender(d, weighing(4, 5), lasting(2*short), waiting).queue()
		}
		t.outwait(2 * short)
		c := t.permits(3, 3, 1)
		c[0].lock()
		c[1].busy()
	}},
	{"OtherLimitIsRefusedUntilTheLastDied", func(t *test) {
		d := t.driver()
		dead, alive := t.contender(d, weighing(4, 5), lasting(short)), t.contender(d, weighing(1, 5))
		lock(dead, alive)
		t.outwait(short)
		t.refuses(d, driver.ErrLimitConflict, weighing(1, 3))
		t.contender(d, weighing(4, 5)).lock()
	}},
}

// refuses requires that requests for the lock of the test are refused for good with
// that error, whether or not they would wait, and leave nothing.
func (t *test) refuses(d driver.Driver, want error, mods ...func(*driver.Request)) {
	for _, wait := range []bool{false, true} {
		c := t.contender(d, mods...)
		c.req.Wait = wait
		c.denied(want)
		c.releasesNothing()
		c.holdsNothing()
		c.unwoken()
	}
}

// denied asks, and must be refused for good with that error.
func (c *contender) denied(want error) {
	ctx, cancel := c.t.bounded()
	defer cancel()
	g, err := c.ask(ctx)
	require.ErrorIs(c.t, err, want, "answered %+v, with weight %d of %d", g, c.req.Weight, c.req.Limit)
	require.ErrorIs(c.t, err, driver.ErrNotExecuted)
	require.NotErrorIs(c.t, err, driver.ErrTransient, "it would be tried again for ever")
}
