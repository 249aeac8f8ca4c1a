package redisdriver_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/redisdriver"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

// A grant stops after 64 places. Whichever script it was part of, the driver goes on at
// once, and nobody beside an open lock waits for a heartbeat.

const crowded = 150 // more than two calls let in

// crowd is a semaphore of which a token that has crashed held most, and one holds the rest.
type crowd struct {
	d       *redisdriver.Driver
	holder  *party
	crashed *party
	first   *party // of those that wait
}

// thatServe are the ways to find out that the lease of the one that crashed is over.
func thatServe() map[string]func(*testing.T, *crowd) {
	ctx := context.Background()
	refused := func(weight, limit int64, want error) func(*testing.T, *crowd) {
		return func(t *testing.T, c *crowd) {
			other := join(t, c.d, "other", time.Hour)
			permitsOf(weight)(&other.req)
			other.req.Ask, other.req.Limit = 1, limit
			_, err := c.d.Acquire(ctx, &other.req)
			require.ErrorIs(t, err, want)
		}
	}
	ways := map[string]func(*testing.T, *crowd){
		"the ask of a waiter":    func(_ *testing.T, c *crowd) { c.first.must(driver.Granted) },
		"the repeat of a holder": func(_ *testing.T, c *crowd) { c.holder.must(driver.Granted) },
		"a try": func(t *testing.T, c *crowd) {
			hasty := join(t, c.d, "hasty", time.Hour)
			permitsOf(2 * crowded)(&hasty.req)
			hasty.req.Wait = false
			hasty.must(driver.Busy)
		},
		"a request with another limit": refused(1, 7, driver.ErrLimitConflict),
		"a request for too much":       refused(2*crowded+1, 2*crowded, driver.ErrLimitExceeded),
		"a release":                    func(_ *testing.T, c *crowd) { c.holder.release() },
		"a release that is late":       func(_ *testing.T, c *crowd) { _ = c.d.Release(ctx, c.crashed.lease()) }, // either answer will do
		"a downgrade that is late": func(t *testing.T, c *crowd) {
			require.ErrorIs(t, c.d.Downgrade(ctx, c.crashed.lease(), 1), driver.ErrNotHeld)
		},
		"a force":  func(t *testing.T, c *crowd) { require.NoError(t, c.d.ForceRelease(ctx, driver.Semaphore, "rule")) },
		"a resize": func(t *testing.T, c *crowd) { require.NoError(t, c.d.Resize(ctx, "rule", "resize", 2*crowded)) },
	}
	for what, do := range map[string]func(*party) error{
		"renewal": renewed, "notice": noticed, "raise": raised, "attachment": attached, "confirmation": confirmed,
	} {
		ways[what+" of another"] = func(t *testing.T, c *crowd) { require.NoError(t, do(c.holder)) }
		ways[what+" that is late"] = func(t *testing.T, c *crowd) { require.ErrorIs(t, do(c.crashed), driver.ErrNotHeld) }
	}
	return ways
}

// permitsOf asks for so many permits of twice as many as the crowd wants.
func permitsOf(n int64) func(*driver.Request) {
	return func(r *driver.Request) { r.Kind, r.Weight, r.Limit = driver.Semaphore, n, 2*crowded }
}

// gather returns the crowd; its lease ends after a minute and some.
func gather(t *testing.T, d *redisdriver.Driver) *crowd {
	c := &crowd{d: d, holder: join(t, d, "holder", time.Hour), crashed: join(t, d, "crashed", minute)}
	permitsOf(crowded)(&c.holder.req)
	permitsOf(crowded)(&c.crashed.req)
	c.crashed.must(driver.Granted)
	c.holder.must(driver.Granted)
	for i := range crowded {
		w := join(t, d, fmt.Sprint("waiter", i), time.Hour)
		permitsOf(1)(&w.req)
		w.req.Wake = nil
		w.must(driver.Queued)
		if i == 0 {
			c.first = w
		}
	}
	return c
}

func (c *crowd) requireServed(t *testing.T) {
	t.Helper()
	info, err := c.d.Inspect(context.Background(), driver.Semaphore, "rule")
	require.NoError(t, err)
	require.Empty(t, info.Queue, "they wait beside an open lock")
}

func TestLongQueueIsServedAtOnceOnRealRedis(t *testing.T) {
	s, clock := redistest.RealWithClock(t)
	rdb := s.Client(t)
	for name, serve := range thatServe() {
		t.Run(name, func(t *testing.T) {
			clock.Set(0)
			require.NoError(t, rdb.FlushAll(t.Context()).Err())
			c := gather(t, open(t, rdb, s))
			clock.Set(2 * minute)
			serve(t, c)
			c.requireServed(t)
			requireConsistent(t, rdb, driver.Semaphore, s.Prefix()+":2:semaphore:rule")
		})
	}
}

// A grant looks at 64 places and is then run again. Between the runs the lock is like any
// other.
func TestGrantsInPiecesLeaveAConsistentLock(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		ctx, rdb := context.Background(), s.Client(t)
		d := open(t, rdb, s)
		key := s.Prefix() + ":2:rwmutex:crowd"
		r := driver.Request{Kind: driver.RWMutex, Name: "crowd", Token: "writer", Ask: 1, TTL: time.Minute, Wait: true}
		_, err := d.Acquire(ctx, &r)
		require.NoError(t, err)
		const crowd = 200
		for i := range crowd {
			r.Token, r.Shared = fmt.Sprint("reader", i), true
			_, err := d.Acquire(ctx, &r)
			require.NoError(t, err)
		}
		requireConsistent(t, rdb, driver.RWMutex, key)

		require.NoError(t, d.Release(ctx, driver.Lease{Kind: r.Kind, Name: r.Name, Token: "writer"}))
		requireConsistent(t, rdb, driver.RWMutex, key)
		info, err := d.Inspect(ctx, r.Kind, r.Name)
		require.NoError(t, err)
		require.Len(t, info.Holders, crowd)
		require.NoError(t, d.ForceRelease(ctx, r.Kind, r.Name))
		requireConsistent(t, rdb, driver.RWMutex, key)
	})
}
