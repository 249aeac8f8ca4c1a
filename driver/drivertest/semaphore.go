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
		for _, c := range held {
			c.lock()
		}
		next := t.permits(5, 1, 3, 2)
		next[0].busy()
		held[0].release()
		next[1].busy()
		next[2].lock()
		next[0].busy()
		require.NoError(t, held[1].renew())
		require.NoError(t, held[2].renew())
	}},
	{"RepeatTakesNoMorePermits", func(t *test) {
		c := t.permits(5, 2, 3, 1)
		first := c[0].lock()
		for range 3 {
			require.Equal(t, first.Fence, c[0].lock().Fence)
		}
		c[1].lock()
		c[2].busy()
		c[0].release() // One release gives it all back, however often it was granted,
		require.ErrorIs(t, c[0].releaseOnce(), driver.ErrNotHeld)
		more := t.permits(5, 3, 2, 1) // and a second one nothing.
		more[0].busy()
		more[1].lock()
		more[2].busy()
	}},
	{"LargeRequestIsNotStarved", func(t *test) {
		t.needs(Queue)
		t.push = t.has(Push)
		held, big := t.permits(5, 2, 1), t.contender(t.driver(), weighing(4, 5), waiting)
		small, hasty := t.contender(t.driver(), weighing(1, 5), waiting), t.permits(5, 1)[0]
		held[0].lock()
		held[1].lock()
		big.queue()
		hasty.busy() // There is room for it, but it is kept for the large one.
		small.queue()
		held[1].lock()
		require.NoError(t, held[1].renew())
		held[1].release()
		hasty.busy()
		small.queue()
		held[0].release()
		if t.push {
			big.pushed()
			small.pushed() // The rest is for the next one.
		}
		big.lock()
		small.lock()
		hasty.busy()
	}},
	{"CancelledLargeRequestLetsAllInThatFit", func(t *test) {
		t.needs(Queue)
		t.push = t.has(Push)
		held := t.permits(5, 2)[0]
		big, small := t.contender(t.driver(), weighing(5, 5), waiting), t.permits(5, 1, 2, 1, 1)
		held.lock()
		big.queue()
		for _, c := range small {
			c.req.Wait = true
			c.queue()
		}
		big.release()
		for _, c := range small[:2] {
			if t.push {
				c.pushed()
			}
			c.lock()
		}
		small[2].unwoken()
		small[2].queue()
		small[3].queue()
		small[1].release()
		small[2].lock()
		small[3].lock()
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
		gone.queue()
		small.queue()
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
		if t.has(Inspect) {
			info := t.inspect(one)
			require.EqualValues(t, limit, info.Limit)
			require.Len(t, info.Holders, 2)
			require.EqualValues(t, limit-1, info.Holders[0].Weight)
			require.EqualValues(t, 1, info.Holders[1].Weight)
		}
		one.release()
		two.busy()
		another.lock()
		most.release()
		all.busy()
		another.release()
		all.lock()
		two.busy()
		another = t.permits(limit, 1)[0]
		another.busy()
	}},
	{"LargestLimitInTheQueue", func(t *test) {
		t.needs(Queue)
		const limit = driver.MaxLimit
		c := t.permits(limit, limit, limit-2, 2, 1)
		for _, w := range c[1:] {
			w.req.Wait = true
		}
		c[0].lock()
		c[1].queue()
		c[2].queue()
		c[3].queue()
		if t.has(Inspect) {
			require.EqualValues(t, limit-2, t.inspect(c[0]).Queue[0].Weight)
		}
		c[0].release()
		c[1].lock()
		c[2].lock()
		c[3].queue()
	}},
	{"PermitsOfDeadHoldersComeBackOneByOne", func(t *test) {
		alive := t.permits(6, 1)[0]
		c := t.permits(6, 2, 3, 2, 3, 1)
		c[0].req.TTL, c[1].req.TTL = 2*short, 5*short
		alive.lock()
		c[0].lock()
		c[1].lock()
		c[4].busy()
		c[2].outlast(c[0])
		c[3].outlast(c[1])
		c[4].busy()
		require.NoError(t, c[2].renew())
		require.NoError(t, alive.renew())
	}},
	{"PermitsOfADeadHolderComeBackWhileOthersRenew", func(t *test) {
		c := t.permits(5, 1, 2, 2, 3, 2)
		c[1].req.TTL = short
		for _, held := range c[:3] {
			held.lock()
		}
		t.outwait(short)
		require.NoError(t, c[0].renew())
		require.NoError(t, c[2].renew())
		c[3].busy()
		require.ErrorIs(t, c[1].renew(), driver.ErrNotHeld)
		c[4].lock()
		require.ErrorIs(t, c[1].releaseOnce(), driver.ErrNotHeld)
		t.permits(5, 1)[0].busy()
	}},
	{"WaitersShareWhatADeadHolderLeaves", func(t *test) {
		t.needs(Push)
		c := t.permits(5, 1, 4, 2, 2, 1)
		c[1].req.TTL = 3 * short
		c[0].lock()
		c[1].lock()
		for _, w := range c[2:] {
			w.req.Wait = true
			w.queue()
		}
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
		t.needs(Force, Queue)
		t.push = t.has(Push)
		c := t.permits(5, 2, 3, 1, 4, 1)
		c[0].lock()
		c[1].lock()
		for _, w := range c[2:] {
			w.req.Wait = true
			w.queue()
		}
		require.NoError(t, c[4].force())
		if t.push {
			for _, lost := range c[:2] {
				_, ok := lost.woken(driver.Lost, t.patience())
				require.True(t, ok, "Wake did not tell of the loss within %v", t.patience())
			}
			c[2].pushed()
			c[3].pushed()
		}
		c[2].lock()
		c[3].lock()
		c[4].queue()
		for _, lost := range c[:2] {
			require.ErrorIs(t, lost.renew(), driver.ErrNotHeld)
			require.ErrorIs(t, lost.releaseOnce(), driver.ErrNotHeld)
			lost.refused()
		}
		c[4].queue()
	}},
}

// permits returns tokens that want that much of a semaphore with that limit, each.
func (t *test) permits(limit int64, weights ...int64) []*contender {
	t.Helper()
	all := t.several(len(weights))
	for i, c := range all {
		c.req.Weight, c.req.Limit = weights[i], limit
	}
	return all
}
