package drivertest

import (
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
)

var pushCases = able([]property{
	{"GrantIsPushed", func(t *test) {
		a, b := t.pair(waiting)
		before := a.lock()
		b.queue()
		a.release()
		g := b.pushed()
		require.EqualValues(t, 1, g.Ask)
		require.Equal(t, g.Fence, b.lock().Fence, "a repeat")
		t.grows(before, g)
	}},
	{"PushNamesTheLastAskThatWasHandled", func(t *test) {
		a, b := t.pair(waiting)
		a.lock()
		for range 3 {
			b.queue()
		}
		a.release()
		require.EqualValues(t, 3, b.pushed().Ask)
	}},
	{"PushedGrantLastsFromTheAskItNames", func(t *test) {
		a := t.contender(t.driver())
		b := t.contender(t.driver(), waiting, lasting(3*short))
		c := t.contender(t.driver())
		a.lock()
		b.queue()
		pass(t, short) // Some of the time that the ask is worth is used up.
		a.release()
		b.pushed()
		c.outlast(b)
	}},
	{"WaiterThatBecomesNextIsToldToAsk", func(t *test) {
		t.needs(Hint)
		for _, handOver := range []bool{false, true} {
			t.name = t.unique()
			a, b := t.pair(lasting(long/2), waiting)
			c := t.contender(t.driver(), waiting, lasting(10*long/3)) // whose heartbeat is due when a's lease is over
			a.lock()
			queue(b, c)
			if handOver {
				a.release()
				b.pushed()
			} else {
				b.release()
			}
			c.hears(driver.Queued, "to ask again")
			after := c.queue().RetryAfter
			require.Positive(t, after)
			if !handOver { // b's lease has just begun, and a waiter looks a moment after its end
				require.LessOrEqual(t, after, t.real(long/2)+t.grace())
			}
		}
	}},
	{"PushesComeInOrder", func(t *test) {
		holder, waiters := t.line(6)
		for i, w := range waiters {
			holder.release()
			w.pushed()
			unwoken(waiters[i+1:]...)
			holder = w
		}
	}},
	{"PushFindsTokenOfAnyPrintableCharacters", func(t *test) {
		a, b := t.pair(waiting)
		for c := '!'; c <= '~'; c++ {
			b.req.Token += string(c)
		}
		a.lock()
		b.queue()
		a.release()
		b.pushed()
	}},
	{"ReleasedWaiterIsNotWoken", func(t *test) {
		d := t.driver()
		a, b, c := t.contender(d), t.contender(d, waiting), t.contender(d, waiting)
		a.lock()
		queue(b, c)
		release(b, a)
		c.pushed() // By now the news for b would have come, too.
		b.unwoken()
	}},
	{"NewsOfAReleasedTokenStops", func(t *test) {
		a, d := t.driver(), t.driver()
		for range 30 {
			t.name = t.unique()
			holder, b, c := t.contender(a), t.contender(d, waiting), t.contender(d, waiting)
			holder.lock()
			queue(b, c)
			// The grant to b is on its way, perhaps, while b is released.
			released := make(chan error, 1)
			go func() { released <- holder.releaseOnce() }()
			b.release()
			for len(b.wakes) > 0 {
				<-b.wakes // came before the release returned
			}
			require.NoError(t, <-released)
			c.pushed() // By now the news for b would have come.
			b.unwoken()
		}
	}},
	{"PushAfterAnotherTokenOfTheDriverExpired", func(t *test) {
		d := t.driver()
		gone := t.contender(d, lasting(short))
		b, c := t.contender(d, waiting), t.contender(t.driver(), waiting)
		gone.lock()
		queue(b, c)
		b.outlast(gone)
		b.release()
		require.Equal(t, driver.Granted, c.pushed().Status)
	}},
}, Push)
