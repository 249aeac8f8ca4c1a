package drivertest

import "github.com/holdfast-go/holdfast/driver"

var queueCases = []property{
	{"WaiterIsQueued", func(t *test) {
		t.needs(Queue)
		a, b := t.pair(waiting)
		a.lock()
		b.queue()
	}},
	{"WaiterHasTheLockAfterRelease", func(t *test) {
		t.needs(Queue)
		a, b := t.pair(waiting)
		a.lock()
		b.queue()
		a.release()
		b.lock()
	}},
	{"WaitersAreServedInOrder", func(t *test) {
		t.needs(Queue)
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
	}},
	{"AskingAgainKeepsThePlace", func(t *test) {
		t.needs(Queue)
		holder, waiters := t.line(3)
		for range 3 {
			waiters[0].queue() // It neither goes to the end nor gets a second place.
		}
		for _, w := range waiters {
			holder.release()
			w.lock()
			holder = w
		}
		holder.release()
		t.contender(t.driver()).lock()
	}},
	{"TryDoesNotOvertakeAWaiter", func(t *test) {
		t.needs(Queue)
		a, b := t.pair(waiting)
		hasty := t.contender(t.driver())
		a.lock()
		b.queue()
		hasty.busy()
		a.release()
		hasty.busy()
		b.lock()
	}},
	{"NewWaiterDoesNotOvertake", func(t *test) {
		t.needs(Queue)
		a, b := t.pair(waiting)
		late := t.contender(t.driver(), waiting)
		a.lock()
		b.queue()
		a.release()
		late.queue()
		b.lock()
	}},
	{"TryDoesNotOvertakeAWaiterWhenALeaseExpires", func(t *test) {
		t.needs(Queue)
		a := t.contender(t.driver(), lasting(short))
		b := t.contender(t.driver(), waiting)
		a.lock()
		b.queue()
		t.outwait(short)
		t.contender(t.driver()).busy()
		b.lock()
	}},
	{"WaiterThatAsksInTimeKeepsItsPlace", func(t *test) {
		t.needs(Queue)
		const ttl = 9 * short
		a := t.contender(t.driver())
		b := t.contender(t.driver(), waiting, lasting(ttl))
		c := t.contender(t.driver(), waiting)
		a.lock()
		b.queue()
		c.queue()
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
		t.needs(Queue)
		a := t.contender(t.driver())
		gone := t.contender(t.driver(), waiting, lasting(short))
		b := t.contender(t.driver(), waiting)
		a.lock()
		gone.queue()
		b.queue()
		t.silence(short)
		a.release()
		b.lock()
		gone.queue()
	}},
	{"WaitersThatStopAskingLeaveAFreeLock", func(t *test) {
		t.needs(Queue)
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
		t.needs(Queue)
		a := t.contender(t.driver())
		gone := t.contender(t.driver(), waiting, lasting(2*short))
		b := t.contender(t.driver(), waiting)
		a.lock()
		gone.queue()
		b.queue()
		a.release()
		gone.lock()
		b.outlast(gone)
	}},
}

// line returns a holder and n waiters of three drivers, in the order in which they
// came.
func (t *test) line(n int, mods ...func(*driver.Request)) (holder *contender, waiters []*contender) {
	t.Helper()
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
