package drivertest

import (
	"slices"
	"sync"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
)

var queueCases = able([]property{
	{"NoMoreWaitThanTheBoundAllows", func(t *test) {
		t.crowdAtABound(4)
	}},
	{"FullQueueLeavesNothingOfTheTokenBehind", func(t *test) {
		a, b := t.couple()
		full := t.contender(t.driver(), waiting, bounded(1))
		for range 2 { // It may try again.
			full.full()
		}
		more := t.contender(t.driver(), waiting, bounded(2))
		more.queue()
		full.releasesNothing()
		a.release()
		b.lock()
		b.release()
		more.lock()
		more.release()
		full.lock()
	}},
	{"WaiterIsNotTurnedAwayByABound", func(t *test) {
		a, b := t.pair(waiting, bounded(1))
		other := t.contender(t.driver(), waiting)
		a.lock()
		queue(b, other, b)
		other.req.MaxWaiters = 1 // A caller asks without a bound then; but it might.
		other.queue()
		a.release()
		b.lock()
		b.release()
		other.lock()
	}},
	{"PlaceOfAWaiterThatLeftIsFree", func(t *test) {
		a, b := t.pair(waiting, bounded(2))
		a.lock()
		b.queue()
		for range 5 {
			c := t.contender(t.driver(), waiting, bounded(2))
			c.queue()
			t.contender(t.driver(), waiting, bounded(2)).full()
			c.release()
		}
		a.release()
		b.lock()
	}},
	{"BoundDoesNotConcernWhoDoesNotWait", func(t *test) {
		a, b := t.pair(bounded(1))
		a.lock()
		b.busy()
		a.release()
		b.lock()
	}},
	{"WaiterHasTheLockAfterRelease", func(t *test) {
		a, b := t.couple()
		a.release()
		b.lock()
	}},
	{"WaitersAreServedInOrder", func(t *test) {
		holder, waiters := t.line(6)
		for i, w := range waiters {
			holder.release()
			// Asking out of turn, the last one first, helps nobody.
			for j := len(waiters) - 1; j > i; j-- {
				waiters[j].queue()
			}
			w.lock()
			holder = w
		}
		holder.release()
		t.contender(t.driver()).lock() // Nobody had two places.
	}},
	{"NobodyOvertakesAWaiter", func(t *test) {
		a, b := t.couple()
		hasty, late := t.contender(t.driver()), t.contender(t.driver(), waiting)
		hasty.busy()
		a.release()
		hasty.busy()
		late.queue()
		b.lock()
	}},
	{"TryDoesNotOvertakeAWaiterWhenALeaseExpires", func(t *test) {
		a := t.contender(t.driver(), lasting(short))
		b := t.contender(t.driver(), waiting)
		a.lock()
		b.queue()
		t.outwait(short)
		t.contender(t.driver()).busy()
		b.lock()
	}},
	{"WaiterThatAsksInTimeKeepsItsPlace", func(t *test) {
		const ttl = 9 * short
		a := t.contender(t.driver())
		b := t.contender(t.driver(), waiting, lasting(ttl))
		c := t.contender(t.driver(), waiting)
		a.lock()
		queue(b, c)
		for range 2 {
			pass(t, ttl/3) // the longest silence that the contract allows b
			c.queue()      // The store has a look at the queue.
			b.queue()
		}
		pass(t, ttl/3)
		a.release()
		c.queue()
		b.lock()
	}},
	{"WaiterThatStopsAskingIsSkipped", func(t *test) {
		a := t.contender(t.driver())
		gone := t.contender(t.driver(), waiting, lasting(short))
		b := t.contender(t.driver(), waiting)
		a.lock()
		queue(gone, b)
		t.silence(short)
		a.release()
		b.lock()
		gone.queue()
	}},
	{"WaitersThatStopAskingLeaveAFreeLock", func(t *test) {
		a := t.contender(t.driver())
		a.lock()
		for range 3 {
			t.contender(a.d, waiting, lasting(short)).queue()
		}
		t.silence(short)
		a.release()
		t.contender(t.driver()).lock()
	}},
	{"WaiterThatDiesJustAsItIsGrantedDelaysForItsTTL", func(t *test) {
		a := t.contender(t.driver())
		gone := t.contender(t.driver(), waiting, lasting(2*short))
		b := t.contender(t.driver(), waiting)
		a.lock()
		queue(gone, b)
		a.release()
		gone.lock()
		b.outlast(gone)
	}},
}, Queue)

// line returns a holder and n waiters of three drivers, in the order in which they
// came.
func (t *test) line(n int, mods ...func(*driver.Request)) (holder *contender, waiters []*contender) {
	drivers := []driver.Driver{t.driver(), t.driver(), t.driver()}
	holder = t.contender(drivers[0], append(mods, waiting)...)
	holder.lock()
	for i := range n {
		w := t.contender(drivers[i%len(drivers)], append(mods, waiting)...)
		w.queue()
		waiters = append(waiters, w)
	}
	return holder, waiters
}

func bounded(n int64) func(*driver.Request) {
	return func(r *driver.Request) { r.MaxWaiters = n }
}

// crowdAtABound has ten times as many come at one moment as may wait, and the same again.
func (t *test) crowdAtABound(bound int64) {
	holder := t.contender(t.driver())
	holder.lock()
	drivers := []driver.Driver{t.driver(), t.driver(), t.driver()}
	var waiters []*contender
	for range 2 {
		var wg sync.WaitGroup
		var mu sync.Mutex
		start := make(chan struct{})
		for i := range 10 * int(bound) {
			c := t.contender(drivers[i%len(drivers)], waiting, bounded(bound), lasting(10*long))
			wg.Go(func() {
				<-start
				ctx, cancel := t.bounded()
				defer cancel()
				g, err := c.ask(ctx)
				mu.Lock()
				defer mu.Unlock()
				assert.NoError(t, err)
				if err == nil && g.Status != driver.Full {
					assert.Equal(t, driver.Queued, g.Status)
					waiters = append(waiters, c)
				}
			})
		}
		close(start)
		wg.Wait()
		require.Len(t, waiters, int(bound), "wait; the first crowd fills the queue, and the second finds it full")
	}
	for _, w := range waiters {
		w.queue() // A heartbeat is never turned away.
	}
	holder.release()
	for began := time.Now(); len(waiters) > 0; pass(t, 10*time.Millisecond) {
		waiters = slices.DeleteFunc(waiters, func(w *contender) bool {
			if w.askOnce().Status != driver.Granted {
				return false
			}
			w.release()
			return true
		})
		require.Less(t, time.Since(began), 2*t.patience(), "all that wait are served")
	}
}
