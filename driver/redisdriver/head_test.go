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

// Nobody is told when a lease ends, so the waiter that is next must know when to look. One
// that became next after its last ask does not know it, and its heartbeat may come hours
// later than the end of the lease of a holder that has crashed.

const (
	minute = time.Minute
	hour   = time.Hour
	blink  = 30 * time.Millisecond
)

// waysToBecomeNext make their last waiter the next one, after it has asked.
var waysToBecomeNext = map[string]func(*scene) (last *party){
	"the one before leaves": func(c *scene) *party {
		p := c.line(minute, minute, hour)
		p[1].release()
		return p[2]
	},
	"the one before is granted the lock": func(c *scene) *party {
		p := c.line(minute, minute, hour)
		p[0].release()
		return p[2]
	},
	"the one before is passed over": func(c *scene) *party {
		a, leave := c.comes("holder", minute), c.crasher(minute)
		p := c.line(minute, hour)
		leave()
		a.release()
		return p[1]
	},
	"the one that is next then is gone, too": func(c *scene) *party {
		p, leave := c.line(minute, minute), c.crasher(hour)
		last := c.comes("last", hour)
		leave()
		p[1].release()
		return last
	},
	"the holder is forced": func(c *scene) *party {
		p := c.line(minute, minute, hour)
		require.NoError(c.t, c.d.ForceRelease(context.Background(), driver.Mutex, "rule"))
		return p[2]
	},
	"a waiter joins its owner": func(c *scene) *party {
		a := c.comes("holder", minute)
		c.comes("b", minute, owned)
		b := c.comes("b2", minute, owned)
		last := c.comes("last", hour)
		a.release()
		b.must(driver.Granted)
		return last
	},
	"a part is released": func(c *scene) *party {
		p := c.weigh(1, 2, 1, 3)
		p[0].release()
		return p[3]
	},
	"a holder keeps less": func(c *scene) *party {
		p := c.weigh(3, 1, 3)
		require.NoError(c.t, c.d.Downgrade(context.Background(), p[0].lease(), 2))
		return p[2]
	},
	"the limit is raised": func(c *scene) *party {
		p := c.weigh(3, 1, 3)
		require.NoError(c.t, c.d.Resize(context.Background(), "rule", "resize", 4))
		return p[2]
	},
	"the limit is lowered": func(c *scene) *party {
		p := c.weigh(1, 3, 2)
		require.NoError(c.t, c.d.Resize(context.Background(), "rule", "resize", 2))
		return p[2]
	},
	// Here the waiter is next from the beginning, but the lease ends earlier than it was told.
	"the lease goes to one with a shorter TTL": func(c *scene) *party {
		p := c.line(hour, hour)
		r := join(c.t, c.d, "attached", minute).req
		r.Ask = 1
		_, err := c.d.Attach(context.Background(), p[0].lease(), &r)
		require.NoError(c.t, err)
		return p[1]
	},
}

// crasher has a client wait, and returns how it goes without a word.
func (c *scene) crasher(ttl time.Duration) (leave func()) {
	d, proxy := flaky(c.t, c.s)
	c.comesTo(d, "gone", ttl)
	return func() {
		proxy.Refuse(true)
		proxy.Cut()
		subscribed(c.t, c.s.Client(c.t), c.s, 1)
	}
}

// waysInTime are those in which something has to end first.
var waysInTime = map[string]func(*scene) (last *party){
	"the one before falls silent": func(c *scene) *party {
		p := c.line(minute, blink, hour)
		time.Sleep(2 * blink)
		require.NoError(c.t, renewed(p[0]))
		return p[2]
	},
	"many before fall silent": func(c *scene) *party {
		a := c.comes("holder", minute)
		for i := range 150 {
			c.comes(fmt.Sprint("silent", i), blink)
		}
		last := c.comes("last", hour)
		time.Sleep(2 * blink)
		require.NoError(c.t, renewed(a))
		return last
	},
	"a part expires, and a holder repeats its ask": func(c *scene) *party {
		c.comes("crashed", blink, permits(1))
		p := c.weigh(2, 1, 3)
		time.Sleep(2 * blink)
		p[0].must(driver.Granted)
		return p[2]
	},
	"a part expires, and another is renewed": func(c *scene) *party {
		c.comes("crashed", blink, permits(1))
		p := c.weigh(2, 1, 3)
		time.Sleep(2 * blink)
		require.NoError(c.t, renewed(p[0]))
		return p[2]
	},
}

func TestWhoBecomesNextLooksWhenTheLeaseEnds(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		for name, becomesNext := range waysToBecomeNext {
			t.Run(name, func(t *testing.T) {
				require.NoError(t, s.Client(t).Del(t.Context(), key(s), s.Prefix()+":2:semaphore:rule").Err())
				stage(t, s).requireTold(becomesNext)
			})
		}
	})
}

func TestWhoBecomesNextInTimeLooksWhenTheLeaseEnds(t *testing.T) {
	for name, becomesNext := range waysInTime {
		t.Run(name, func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T, s *redistest.Server) {
				stage(t, s).requireTold(becomesNext)
			})
		})
	}
}

// requireTold checks that a waiter is told to ask when it becomes next, and then when to look.
func (c *scene) requireTold(becomesNext func(*scene) (last *party)) {
	c.t.Helper()
	last := becomesNext(c)
	select {
	case g := <-last.news:
		require.Equal(c.t, driver.Queued, g.Status)
	case <-time.After(5 * time.Second):
		require.FailNow(c.t, "the waiter that is next is not told to ask again")
	}
	after := last.must(driver.Queued).RetryAfter
	require.Greater(c.t, after, time.Duration(0), "is not told when to look")
	require.LessOrEqual(c.t, after, minute+minute/20)
}

// A waiter behind an owner is told when the first lease of its tokens ends. So it needs no news
// when the one that would have lasted longest is released.
func TestWaiterBehindAnOwnerLooksWhenItsFirstLeaseEnds(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T, s *redistest.Server) {
		c := stage(t, s)
		a := c.comes("holder", hour, owned)
		c.comes("kin", minute, owned)
		last := waits(t, c.d, "last", hour)
		subscribed(t, s.Client(t), s, 1)
		after := last.must(driver.Queued).RetryAfter
		require.Greater(t, after, time.Duration(0), "is not told when to look")
		require.LessOrEqual(t, after, minute+minute/20)
		a.release()
		time.Sleep(after)
		last.must(driver.Granted)
	})
}

// The same from outside: the free lock does not wait for a heartbeat that comes much later.
func TestLockOfACrashedHolderGoesToWhoBecameNextAtItsEnd(t *testing.T) {
	bubble(t, func(t *testing.T, s *redistest.Server, d *redisdriver.Driver) {
		holds(t, d, "crashed", 2*time.Second)
		began := time.Now()
		first, last := waits(t, d, "first", 2*time.Second), waits(t, d, "last", time.Minute)
		time.Sleep(time.Second)
		first.release()
		for g := (driver.Grant{}); g.Status != driver.Granted; g = last.ask() {
			select {
			case <-last.news:
			case <-time.After(max(time.Millisecond, min(g.RetryAfter, last.req.TTL/3))):
			}
		}
		require.Less(t, time.Since(began), 3*time.Second)
	})
}

// A hand-over costs no ask of the waiter that is next then, if that asks in time anyway.
func TestHandOverAsksNothingOfWaitersWithTheSameTTL(t *testing.T) {
	each(t, func(t *testing.T, s *redistest.Server, d *redisdriver.Driver) {
		a, b, c, e := holds(t, d, "a", ttl), join(t, d, "b", ttl), join(t, d, "c", ttl), join(t, d, "e", ttl)
		for _, w := range []*party{b, c, e} {
			w.must(driver.Queued)
		}
		a.release()
		b.pushed()
		b.release()
		c.pushed()
		c.release()
		require.Equal(t, driver.Granted, (<-e.news).Status, "not told to ask")
	})
}

// Rule 13. Nobody tells a token that does not wait when a lease ends.
func TestTokenThatDoesNotWaitIsToldWhenTheLeaseEnds(t *testing.T) {
	bubble(t, func(t *testing.T, s *redistest.Server, d *redisdriver.Driver) {
		holds(t, d, "a", time.Minute)
		b := join(t, d, "b", time.Minute)
		b.req.Wait = false
		for _, passed := range []time.Duration{0, 20 * time.Second} {
			time.Sleep(passed)
			require.Equal(t, time.Minute-passed+501*time.Millisecond, b.must(driver.Busy).RetryAfter)
		}
	})
}

// Rule 13. Nobody is told when a lease expires, so the first in the queue is told when
// to look, and gets the lock then.
func TestHeadOfTheQueueLooksWhenTheLeaseEnds(t *testing.T) {
	bubble(t, func(t *testing.T, s *redistest.Server, d *redisdriver.Driver) {
		rdb := s.Client(t)
		holds(t, d, "a", 3*time.Second)
		b, c := waits(t, d, "b", ttl), join(t, d, "c", ttl)
		subscribed(t, rdb, s, 1)
		after := b.must(driver.Queued).RetryAfter
		require.InDelta(t, 3*time.Second+150*time.Millisecond, after, float64(20*time.Millisecond))
		require.Zero(t, c.must(driver.Queued).RetryAfter, "only the head")
		time.Sleep(after)
		b.must(driver.Granted)

		holder, newcomer := join(t, d, "holder", 3*time.Second), join(t, d, "newcomer", ttl)
		holder.req.Name, newcomer.req.Name = "another", "another"
		holder.must(driver.Granted)
		require.InDelta(t, after, newcomer.must(driver.Queued).RetryAfter, float64(20*time.Millisecond), "at once")
	})
}

// Rule 13. The first in the queue is told when to look, although the one before it left.
func TestHeadBehindAGapLooksWhenTheLeaseEnds(t *testing.T) {
	bubble(t, func(t *testing.T, s *redistest.Server, d *redisdriver.Driver) {
		rdb := s.Client(t)
		x, a, b := join(t, d, "x", ttl), join(t, d, "a", ttl), join(t, d, "b", ttl)
		c := join(t, d, "c", 4*ttl) // its next heartbeat comes after the end of the lease
		x.must(driver.Granted)
		a.must(driver.Queued)
		b.must(driver.Queued)
		c.must(driver.Queued)
		b.release()
		x.release()
		a.pushed()
		subscribed(t, rdb, s, 1)
		require.InDelta(t, ttl+ttl/20, c.must(driver.Queued).RetryAfter, float64(20*time.Millisecond))
	})
}
