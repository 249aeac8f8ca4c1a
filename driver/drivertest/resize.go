package drivertest

import (
	"fmt"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
)

var resizeCases = able([]property{
	{"ResizeUpLetsWaitersIn", func(t *test) {
		t.queues()
		held, c := t.permits(5, 5)[0], t.permits(5, 2, 1, 3, 1)
		held.lock()
		enqueue(c...)
		held.resize(9)
		served(c[:2]...)
		remain(c[2:]...)
		held.resize(12)
		served(c[2:]...)
		t.permits(5, 1)[0].busy()
	}},
	{"RepeatedResizeChangesNothing", func(t *test) {
		c := t.permits(5, 5, 1, 1, 1)
		c[0].lock()
		c[0].resizeBy("first", 7)
		c[0].resizeBy("second", 6)
		c[0].resizeBy("first", 7) // its answer was lost
		c[1].lock()
		c[2].busy()
		c[0].resizeBy("third", 7)
		c[2].lock()
		c[3].busy()
	}},
	{"ResizeDownTakesNothingAway", func(t *test) {
		c := t.permits(5, 3, 2)
		lock(c...)
		c[0].resize(1)
		for _, held := range c {
			held.unwoken()
			held.holds()
			held.lock() // A repeat is of the same hold, though it could not be had now.
		}
		c[0].shows(1, 3, 2)
	}},
	{"ResizeDownLetsNobodyInUntilEnoughLeft", func(t *test) {
		t.needs(Queue)
		held, w := t.permits(5, 2, 2, 1), t.contender(t.driver(), weighing(1, 5), waiting)
		hasty := t.permits(5, 1)[0]
		lock(held...)
		held[0].resize(2)
		hasty.busy()
		w.queue()
		held[0].release() // Three are held, of two.
		w.queue()
		hasty.busy()
		held[2].release() // Two of two.
		w.queue()
		hasty.busy()
		w.unwoken()
		held[1].release()
		lock(w, hasty)
		t.permits(5, 1)[0].busy()
	}},
	{"ResizeDownRefusesWaitersThatNeedMore", func(t *test) {
		t.queues()
		held, big := t.permits(9, 3)[0], t.permits(9, 7, 9)
		small, last := t.contender(t.driver(), weighing(2, 9), waiting), t.contender(t.driver(), weighing(1, 9), waiting)
		held.lock()
		enqueue(big...)
		queue(small, last)
		held.resize(5)
		served(small)
		for _, w := range big {
			w.unwoken()
			w.denied(driver.ErrLimitExceeded)
			w.releasesNothing()
		}
		last.queue()
		small.release()
		last.lock()
		unwoken(big...)
	}},
	{"ResizeDownRefusesWaitersBehindAFullSemaphore", func(t *test) {
		t.queues()
		held, big := t.permits(9, 5, 3), t.permits(9, 6, 7)
		small := t.contender(t.driver(), weighing(1, 9), waiting)
		lock(held...)
		enqueue(big...)
		small.queue()
		held[0].resize(4)
		big[0].denied(driver.ErrLimitExceeded) // More are held than there are.
		big[0].releasesNothing()
		small.queue()
		held[0].release()
		served(small)
		big[1].denied(driver.ErrLimitExceeded)
		big[1].denied(driver.ErrLimitExceeded)
	}},
	{"RefusedWaiterLetsThoseBehindItIn", func(t *test) {
		t.queues()
		dead, big := t.permits(9, 8)[0], t.contender(t.driver(), weighing(9, 9), waiting)
		small := t.contender(t.driver(), weighing(1, 9), waiting)
		dead.req.TTL = 3 * short
		dead.lock()
		queue(big, small)
		dead.resize(5)
		t.outwait(3 * short)
		big.denied(driver.ErrLimitExceeded)
		served(small)
	}},
	{"RequestsWithAnyLimitAreServedAfterResize", func(t *test) {
		d := t.driver()
		held := t.contender(d, weighing(2, 5))
		held.lock()
		held.resize(6)
		for _, limit := range []int64{1, 5, 6, driver.MaxLimit} {
			t.contender(d, weighing(1, limit)).lock()
		}
		t.contender(d, weighing(1, 7)).busy()
		t.refuses(d, driver.ErrLimitExceeded, weighing(7, 9))
	}},
	{"ResizedLimitStaysWhenTheLastLeft", func(t *test) {
		c := t.permits(5, 5, 2, 2, 1)
		c[0].lock()
		c[0].resize(3)
		c[0].release()
		t.refuses(c[0].d, driver.ErrLimitExceeded, weighing(4, 5))
		c[1].lock()
		c[2].busy()
		c[3].lock()
		t.permits(5, 1)[0].busy()
	}},
	{"ResizeOfAnUnusedSemaphore", func(t *test) {
		c := t.permits(5, 3, 2, 1)
		c[0].resize(4)
		t.refuses(c[0].d, driver.ErrLimitExceeded, weighing(5, 5))
		c[0].lock()
		c[1].busy()
		c[2].lock()
	}},
	{"ResizeToTheLargestLimit", func(t *test) {
		c := t.permits(5, 5, driver.MaxLimit-5, 1, 1)
		c[0].lock()
		c[0].resize(driver.MaxLimit)
		c[2].lock()
		c[1].busy()
		c[2].release()
		c[1].lock()
		c[3].busy()
	}},
	{"ResizeOutOfBoundsIsRefused", func(t *test) {
		c := t.permits(5, 4, 2, 1)
		c[0].lock()
		for _, limit := range []int64{0, -1, driver.MaxLimit + 1} {
			err := c[0].resizeOnce(limit)
			require.ErrorIs(t, err, driver.ErrNotExecuted)
			require.NotErrorIs(t, err, driver.ErrTransient)
		}
		c[1].busy()
		t.refuses(c[0].d, driver.ErrLimitConflict, weighing(1, 6)) // Nor does it count as resized.
		c[2].lock()
	}},
	{"ResizeIsOfOneNameOnly", func(t *test) {
		c := t.permits(5, 5, 1)
		c[0].lock()
		require.NoError(t, t.contender(c[0].d, named(t.unique())).resizeOnce(9))
		c[1].busy()
		t.refuses(c[0].d, driver.ErrLimitConflict, weighing(1, 9))
	}},
	{"ResizeLetsWaitersHaveWhatADeadHolderLeft", func(t *test) {
		t.needs(Push)
		c := t.permits(5, 2, 3, 4)
		c[0].req.TTL, c[2].req.Wait = 2*short, true
		lock(c[0], c[1])
		c[2].queue()
		t.outwait(2 * short)
		c[1].resize(7)
		c[2].pushed()
		t.permits(5, 1)[0].busy()
	}},
}, Resize)

// resizeOnce sets the limit of the semaphore that the token is for.
func (c *contender) resizeOnce(limit int64) error {
	c.resizes++
	return c.tryResize(fmt.Sprintf("%s-resize-%d", c.req.Token, c.resizes), limit)
}

func (c *contender) resizeBy(token string, limit int64) {
	require.NoError(c.t, c.tryResize(c.req.Token+"-"+token, limit), "Resize")
}

func (c *contender) tryResize(token string, limit int64) error {
	ctx, cancel := c.t.call()
	defer cancel()
	return can[driver.Resizer](c).Resize(ctx, c.req.Name, token, limit)
}

func (c *contender) resize(limit int64) {
	require.NoError(c.t, c.resizeOnce(limit), "Resize")
}
