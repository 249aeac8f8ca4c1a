package drivertest

import (
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
)

var extendCases = able([]property{
	{"ExtendRenews", func(t *test) {
		a, b := t.pair(lasting(2 * short))
		a.lock()
		pass(t, short/2)
		a.extended(1)
		b.outlast(a)
	}},
	{"ExtendGivesFencesBeyondAll", func(t *test) {
		t.needs(Fences)
		a, b := t.pair(reserving(block))
		first := a.lock()
		given := lastFence(t, first, block)
		for range 3 {
			g := a.extended(block)
			require.False(t, g.Wanted)
			require.Greater(t, g.Fence, given, foul+"a fence does not grow")
			given = lastFence(t, g, block)
		}
		require.Equal(t, first.Fence, a.lock().Fence, "a repeat is of the same grant")
		if t.has(Inspect) {
			h := t.inspect(a).Holders[0]
			require.Equal(t, first.Fence, h.Fence)
			require.Equal(t, given, h.LastFence)
		}
		a.release()
		require.Greater(t, b.lock().Fence, given, foul+"a fence does not grow")
	}},
	{"ExtendedFencesAreNotGivenAfterExpiry", func(t *test) {
		t.needs(Fences)
		a, b := t.pair(lasting(short))
		a.lock()
		given := lastFence(t, a.extended(block), block)
		require.Greater(t, b.outlast(a).Fence, given, foul+"a fence does not grow")
	}},
	{"ExtendTellsThatSomebodyWaits", func(t *test) {
		t.needs(Queue)
		a, b := t.pair(lasting(2*short), waiting)
		c := t.contender(t.driver())
		a.lock()
		require.False(t, a.extended(1).Wanted)
		b.req.TTL = long
		b.queue()
		require.True(t, a.extended(2*block).Wanted)
		// It was renewed nevertheless, and has more fences.
		pass(t, short)
		wanted := a.extended(2 * block)
		require.True(t, wanted.Wanted)
		pass(t, 3*short/2)
		a.holds()
		b.queue()
		a.release()
		g := b.lock()
		if t.has(Fences) {
			require.Greater(t, g.Fence, lastFence(t, wanted, 2*block), foul+"a fence does not grow")
		}
		b.release()
		c.lock()
	}},
	{"ExtendForgetsWhoWaitsNoMore", func(t *test) {
		t.needs(Queue)
		a := t.contender(t.driver())
		b, c := t.pair(waiting)
		a.lock()
		b.queue()
		b.release()
		require.False(t, a.extended(1).Wanted, "it gave up")
		c.req.TTL = short
		c.queue()
		require.True(t, a.extended(1).Wanted)
		t.sleep(t.real(short) + t.grace())
		require.False(t, a.extended(1).Wanted, "it has been silent for too long")
	}},
}, Extend)

// extend extends the lease and reserves so many fences.
func (c *contender) extend(fences int64) (driver.Grant, error) {
	ctx, cancel := c.t.call()
	defer cancel()
	sent := time.Now()
	g, err := can[driver.Extender](c).Extend(ctx, c.lease(), fences)
	if err == nil {
		c.lasts(sent)
	}
	return g, err
}

// extended extends the lease, which it must have.
func (c *contender) extended(fences int64) driver.Grant {
	g, err := c.extend(fences)
	require.NoError(c.t, err)
	return g
}
