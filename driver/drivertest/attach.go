package drivertest

import (
	"sync"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
)

var attachCases = able([]property{
	{"AttachTakesTheLeaseOver", func(t *test) {
		old, next := t.pair()
		first := old.lock()
		g := next.attach(old)
		require.Equal(t, next.req.Weight > 0, g.Weight > 0)
		t.grows(first, g)
		old.holdsNothing()
		old.releasesNothing()
		old.refused()
		t.contender(old.d).busy()
		next.holds()
		next.release()
		t.contender(old.d).lock()
	}},
	{"AttachMayBeRepeated", func(t *test) {
		old, next := t.pair()
		old.lock()
		g := next.attach(old)
		again := next.attach(old)
		require.Equal(t, g.Fence, again.Fence)
		require.Equal(t, g.Weight, again.Weight)
		require.Equal(t, g.Fence, next.lock().Fence, "an ask of the new token is a repeat, too")
		next.release()
		t.contender(old.d).lock()
	}},
	{"AttachOfOneIsForOne", func(t *test) {
		old := t.contender(t.driver())
		old.lock()
		d := [2]driver.Driver{t.driver(), t.driver()}
		var won []*contender
		var mu sync.Mutex
		var all sync.WaitGroup
		for i := range 8 {
			c := t.contender(d[i%2])
			all.Go(func() {
				for range 3 {
					if _, err := c.attachOnce(old); err != nil {
						return
					}
				}
				mu.Lock()
				defer mu.Unlock()
				won = append(won, c)
			})
		}
		all.Wait()
		require.Len(t, won, 1)
		won[0].holds()
	}},
	{"AttachLastsItsOwnTTL", func(t *test) {
		old, next, after := t.contender(t.driver()), t.contender(t.driver(), lasting(2*short)), t.contender(t.driver())
		old.lock()
		next.attach(old)
		after.outlast(next)
	}},
	{"AttachLetsNobodyIn", func(t *test) {
		t.needs(Queue)
		old, waiters := t.line(1)
		next := t.contender(t.driver())
		next.attach(old)
		remain(waiters[0])
		next.release()
		waiters[0].lock()
	}},
	{"AttachOfWhoWasGivenUp", func(t *test) {
		old, next := t.pair()
		old.lock()
		_ = next.settle() // before its attempt arrives
		_, err := next.attachOnce(old)
		require.ErrorIs(t, err, driver.ErrNotHeld)
		old.holds()
	}},
	{"AttachShowsTheNewHolder", func(t *test) {
		t.needs(Inspect)
		old, next := t.contender(t.driver(), heldBy("old")), t.contender(t.driver(), heldBy("new"))
		old.lock()
		g := next.attach(old)
		info := t.inspect(old)
		require.Len(t, info.Holders, 1)
		require.Equal(t, "new", info.Holders[0].Holder)
		require.Equal(t, g.Fence, info.Holders[0].Fence)
		require.Equal(t, g.Weight, info.Holders[0].Weight)
	}},
	{"AttachedHolderHearsOfItsLoss", func(t *test) {
		t.needs(Force, Push)
		old, next := t.pair()
		old.lock()
		next.attach(old)
		require.NoError(t, old.force())
		next.loses()
		old.unwoken()
	}},
	{"DetachedHolderHearsNothing", func(t *test) {
		t.needs(Force, Push)
		d := t.driver()
		old, other := t.contender(d), t.contender(d, named(t.unique()))
		lock(old, other)
		a, _ := driver.As[driver.Attacher](d)
		a.Detach(old.lease())
		require.NoError(t, old.force())
		require.NoError(t, other.force())
		other.loses()
		old.unwoken()
	}},
}, Attach)

func (c *contender) attachOnce(old *contender) (driver.Grant, error) {
	a, _ := driver.As[driver.Attacher](c.d)
	ctx, cancel := c.t.call()
	defer cancel()
	return c.asking(func(r *driver.Request) (driver.Grant, error) { return a.Attach(ctx, old.lease(), r) })
}

// attach takes over what another token must have.
func (c *contender) attach(old *contender) driver.Grant {
	g, err := c.attachOnce(old)
	require.NoError(c.t, err, "Attach")
	require.Equal(c.t, driver.Granted, g.Status)
	return g
}
