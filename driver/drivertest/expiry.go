package drivertest

import (
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
)

var expiryCases = []property{
	{"SilentHolderIsReplacedAfterItsTTL", func(t *test) {
		a, b := t.pair(lasting(short))
		a.lock()
		b.outlast(a)
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
		t.needs(Queue, Hint)
		t.push = t.has(Push) // A waiter that does not listen yet polls, and would get there anyway.
		a := t.contender(t.driver(), lasting(short))
		b := t.contender(t.driver(), waiting) // whose heartbeat would be far too late
		a.lock()
		for asks := 1; ; asks++ {
			g := b.askOnce()
			if g.Status == driver.Granted {
				require.False(t, time.Now().Before(a.trusted), foul+"granted while another holder may still trust its lease")
				break
			}
			require.LessOrEqual(t, asks, 5, "RetryAfter makes the waiter poll")
			require.Positive(t, g.RetryAfter)
			require.False(t, time.Now().Add(g.RetryAfter).After(a.overdue),
				"RetryAfter %v leads beyond the end of the lease", g.RetryAfter)
			t.sleep(g.RetryAfter)
		}
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
	{"EachHoldExpires", func(t *test) {
		d := t.driver()
		last := t.contender(d, lasting(short))
		last.lock()
		for range 3 {
			next := t.contender(d, lasting(short))
			next.outlast(last)
			last = next
		}
	}},
}
