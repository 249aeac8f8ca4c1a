package drivertest

import (
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
)

// weighing asks for n of limit permits.
func weighing(n, limit int64) func(*driver.Request) {
	return func(r *driver.Request) { r.Weight, r.Limit = n, limit }
}

var semaphoreCases = []property{
	{"WeightsAddUpToTheLimit", func(t *test) {
		held := t.permits(5, 2, 2, 1)
		lock(held...)
		next := t.permits(5, 1, 3, 2)
		next[0].busy()
		held[0].release()
		next[1].busy()
		next[2].lock()
		next[0].busy()
		holds(held[1], held[2])
	}},
	{"RepeatTakesNoMorePermits", func(t *test) {
		c := t.permits(5, 2, 3, 1)
		c[0].lock()
		c[0].repeats()
		c[1].lock()
		c[2].busy()
		c[0].release() // One release gives it all back, however often it was granted,
		c[0].releasesNothing()
		more := t.permits(5, 3, 2, 1) // and a second one nothing.
		more[0].busy()
		more[1].lock()
		more[2].busy()
	}},
	{"LargeRequestIsNotStarved", func(t *test) {
		t.queues()
		held, big := t.permits(5, 2, 1), t.contender(t.driver(), weighing(4, 5), waiting)
		small, hasty := t.contender(t.driver(), weighing(1, 5), waiting), t.permits(5, 1)[0]
		lock(held[0], held[1])
		big.queue()
		hasty.busy() // There is room for it, but it is kept for the large one.
		small.queue()
		held[1].lock()
		held[1].holds()
		held[1].release()
		hasty.busy()
		small.queue()
		held[0].release()
		if t.push {
			pushed(big, small) // The rest is for the next one.
		}
		lock(big, small)
		hasty.busy()
	}},
	{"CancelledLargeRequestLetsAllInThatFit", func(t *test) {
		t.queues()
		held := t.permits(5, 2)[0]
		big, small := t.contender(t.driver(), weighing(5, 5), waiting), t.permits(5, 1, 2, 1, 1)
		held.lock()
		big.queue()
		enqueue(small...)
		big.release()
		served(small[:2]...)
		small[2].unwoken()
		queue(small[2], small[3])
		small[1].release()
		lock(small[2], small[3])
		held.release()
		t.permits(5, 3)[0].busy()
		t.permits(5, 2)[0].lock()
	}},
	{"SilentLargeRequestIsSkipped", func(t *test) {
		t.needs(Queue)
		held, small := t.permits(5, 3)[0], t.contender(t.driver(), weighing(1, 5), waiting)
		gone := t.contender(t.driver(), weighing(5, 5), waiting, lasting(4*short))
		hasty := t.permits(5, 1)[0]
		held.lock()
		queue(gone, small)
		hasty.busy()
		t.silence(4 * short)
		hasty.lock() // after the small one, for which the store also has a look
		small.lock()
		t.permits(5, 1)[0].busy()
		gone.unwoken()
	}},
	{"FencesIncreaseOverPermits", func(t *test) {
		t.needs(Fences, Queue)
		held, waiters := t.permits(5, 5)[0], t.permits(5, 2, 1, 2)
		last := held.lock().Fence
		for _, c := range waiters {
			c.req.Wait, c.req.Fences = true, block
			c.queue()
		}
		held.release()
		for _, c := range waiters {
			require.Greater(t, c.lock().Fence, last, foul+"a fence does not grow")
			require.Equal(t, c.grant.Fence, c.lock().Fence)
			last = lastFence(t, c.grant, block)
		}
	}},
	{"LargestLimit", func(t *test) {
		const limit = driver.MaxLimit
		c := t.permits(limit, limit-1, 2, 1, 1, limit)
		most, two, one, another, all := c[0], c[1], c[2], c[3], c[4]
		most.lock()
		two.busy()
		one.lock()
		another.busy()
		one.shows(limit, limit-1, 1)
		one.release()
		two.busy()
		another.lock()
		most.release()
		all.busy()
		another.release()
		all.lock()
		two.busy()
		t.permits(limit, 1)[0].busy()
	}},
	{"LargestLimitInTheQueue", func(t *test) {
		t.needs(Queue)
		const limit = driver.MaxLimit
		c := t.permits(limit, limit, limit-2, 2, 1)
		c[0].lock()
		enqueue(c[1:]...)
		if t.has(Inspect) {
			require.EqualValues(t, limit-2, t.inspect(c[0]).Queue[0].Weight)
		}
		c[0].release()
		lock(c[1], c[2])
		c[3].queue()
	}},
	{"PermitsOfDeadHoldersComeBackOneByOne", func(t *test) {
		alive := t.permits(6, 1)[0]
		c := t.permits(6, 2, 3, 2, 3, 1)
		c[0].req.TTL, c[1].req.TTL = 2*short, 5*short
		lock(alive, c[0], c[1])
		c[4].busy()
		c[2].outlast(c[0])
		c[3].outlast(c[1])
		c[4].busy()
		holds(c[2], alive)
	}},
	{"PermitsOfADeadHolderComeBackWhileOthersRenew", func(t *test) {
		c := t.permits(5, 1, 2, 2, 3, 2)
		c[1].req.TTL = short
		lock(c[:3]...)
		t.outwait(short)
		holds(c[0], c[2])
		c[3].busy()
		c[1].holdsNothing()
		c[4].lock()
		c[1].releasesNothing()
		t.permits(5, 1)[0].busy()
	}},
	{"WaitersShareWhatADeadHolderLeaves", func(t *test) {
		t.needs(Push)
		c := t.permits(5, 1, 4, 2, 2, 1)
		c[1].req.TTL = 3 * short
		lock(c[0], c[1])
		enqueue(c[2:]...)
		c[2].outlast(c[1])
		c[3].pushed()
		c[4].unwoken()
	}},
	{"InspectShowsWeightsAndTheLimit", func(t *test) {
		t.needs(Inspect, Queue)
		d := t.driver()
		require.Zero(t, t.inspect(t.contender(d)).Limit, "it is not in use")
		t.contender(d, weighing(3, 5), heldBy("b")).lock()
		c := t.contender(d, weighing(1, 5), heldBy("a"))
		c.lock()
		t.contender(d, weighing(4, 5), heldBy("big"), waiting).queue()
		t.contender(d, weighing(1, 5), heldBy("small"), waiting).queue()
		info := t.inspect(c)
		require.EqualValues(t, 5, info.Limit)
		require.Len(t, info.Holders, 2)
		require.Equal(t, "b", info.Holders[0].Holder)
		require.EqualValues(t, 3, info.Holders[0].Weight)
		require.Equal(t, "a", info.Holders[1].Holder)
		require.EqualValues(t, 1, info.Holders[1].Weight)
		require.Equal(t, c.grant.Fence, info.Holders[1].Fence)
		require.False(t, info.Holders[0].Shared)
		require.Equal(t, []driver.Waiter{{Holder: "big", Weight: 4}, {Holder: "small", Weight: 1}}, info.Queue)
	}},
	{"ForceEndsAllHoldersOfPermits", func(t *test) {
		t.needs(Force)
		t.queues()
		c := t.permits(5, 2, 3, 1, 4, 1)
		lock(c[0], c[1])
		enqueue(c[2:]...)
		require.NoError(t, c[4].force())
		if t.push {
			each(c[:2], func(c *contender) { c.loses() })
			pushed(c[2], c[3])
		}
		lock(c[2], c[3])
		c[4].queue()
		for _, lost := range c[:2] {
			lost.holdsNothing()
			lost.releasesNothing()
			lost.refused()
		}
		c[4].queue()
	}},
	{"AttachToPermits", func(t *test) {
		t.needs(Attach)
		weighing := func(n int64) func(*driver.Request) { return func(r *driver.Request) { r.Weight = n } }
		a, b := t.contender(t.driver(), weighing(3)), t.contender(t.driver(), weighing(1))
		next := t.contender(t.driver(), lasting(2*short))
		lock(a, b)
		require.EqualValues(t, 3, next.attach(a).Weight)
		t.contender(b.d, weighing(2)).busy()
		t.contender(b.d, weighing(1)).lock()
		t.outwait(2 * short)
		t.contender(b.d, weighing(3)).lock() // whoever crashed
		t.contender(b.d, weighing(1)).busy()
	}},
}

// permits returns tokens that want that much of a semaphore with that limit, each.
func (t *test) permits(limit int64, weights ...int64) []*contender {
	all := t.several(len(weights))
	for i, c := range all {
		c.req.Weight, c.req.Limit = weights[i], limit
	}
	return all
}

// shows requires that Inspect, if there is one, shows a limit, nobody that waits, and holders of these weights.
func (c *contender) shows(limit int64, weights ...int64) {
	if !c.t.has(Inspect) {
		return
	}
	info := c.t.inspect(c)
	require.Equal(c.t, limit, info.Limit)
	require.Empty(c.t, info.Queue)
	require.Len(c.t, info.Holders, len(weights))
	for i, h := range info.Holders {
		require.Equal(c.t, weights[i], h.Weight)
	}
}
