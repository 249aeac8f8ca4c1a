package drivertest

import (
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
)

var expiryCases = []property{
	{"SilentHolderIsReplacedAfterItsTTL", func(t *test) {
		last, next := t.pair(lasting(short))
		last.lock()
		next.outlast(last)
		t.contender(last.d).outlast(next)
	}},
	{"SilentHolderIsReplacedByTheNextWaiter", func(t *test) {
		t.needs(Queue)
		a := t.contender(t.driver(), lasting(short))
		b := t.contender(t.driver(), waiting)
		c := t.contender(t.driver(), waiting)
		a.lock()
		queue(b, c)
		b.outlast(a)
		c.queue()
	}},
	{"RetryAfterLeadsTheFirstWaiterToTheLock", func(t *test) {
		t.needs(Hint)
		t.queues()
		a := t.contender(t.driver(), lasting(short))
		a.lock()
		t.contender(t.driver(), waiting).isLedPast(a, 5)
	}},
	{"RepeatRevivesNoExpiredLease", func(t *test) {
		a := t.contender(t.driver(), lasting(short))
		first := a.lock()
		t.outwait(short)
		// The repeat may find the lock free and get it, but not the old lease: others
		// may have had the lock since.
		g := a.askOnce()
		if g.Status == driver.Granted && t.has(Fences) {
			require.Greater(t, g.Fence, first.Fence, foul+"a fence does not grow")
			require.Equal(t, uint64(len(a.sent)), g.Ask, "a new grant rests on a new ask")
		}
	}},
	{"RepeatTakesNothingFromTheNextHolder", func(t *test) {
		a := t.contender(t.driver(), lasting(short))
		b := t.contender(t.driver())
		a.lock()
		b.outlast(a)
		a.busy()
		b.holds()
		a.releasesNothing()
		t.contender(t.driver()).busy()
	}},
	{"RepeatAfterExpiryQueuesBehindAWaiter", func(t *test) {
		t.needs(Queue)
		a := t.contender(t.driver(), lasting(short), waiting)
		b := t.contender(t.driver(), waiting)
		a.lock()
		b.queue()
		t.outwait(short)
		a.queue()
		b.lock()
	}},
}

// isLedPast requires that RetryAfter has a token ask as the lease of the last holder ends, by when its
// heartbeat would be far too late, and have the lock with so many asks.
func (c *contender) isLedPast(last *contender, most int) {
	for asks := 1; ; asks++ {
		g := c.askOnce()
		if g.Status == driver.Granted {
			require.False(c.t, time.Now().Before(last.trusted), foul+"granted while another holder may still trust its lease")
			return
		}
		require.LessOrEqual(c.t, asks, most, "RetryAfter makes the waiter poll")
		require.Positive(c.t, g.RetryAfter)
		require.False(c.t, time.Now().Add(g.RetryAfter).After(last.overdue),
			"RetryAfter %v leads beyond the end of the lease", g.RetryAfter)
		c.t.sleep(g.RetryAfter)
	}
}
