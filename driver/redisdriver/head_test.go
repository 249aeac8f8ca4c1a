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

// scene is a lock with a cast of clients. All but last have TTLs of a minute or less.
type scene struct {
	t *testing.T
	s *redistest.Server
	d *redisdriver.Driver
}

const (
	minute = time.Minute
	hour   = time.Hour
	blink  = 30 * time.Millisecond
)

func (c *scene) comes(token string, ttl time.Duration, mods ...func(*driver.Request)) *party {
	return c.comesTo(c.d, token, ttl, mods...)
}

func (c *scene) comesTo(d *redisdriver.Driver, token string, ttl time.Duration, mods ...func(*driver.Request)) *party {
	c.t.Helper()
	p := join(c.t, d, token, ttl)
	for _, mod := range mods {
		mod(&p.req)
	}
	p.ask()
	return p
}

// permits asks for so many permits of 3.
func permits(n int64) func(*driver.Request) {
	return func(r *driver.Request) { r.Kind, r.Weight, r.Limit = driver.Semaphore, n, 3 }
}

func owned(r *driver.Request) { r.Owner = "an owner" }

// waysToBecomeNext make their last waiter the next one, after it has asked.
var waysToBecomeNext = map[string]func(*scene) (last *party){
	"the one before leaves": func(c *scene) *party {
		c.comes("holder", minute)
		b, last := c.comes("b", minute), c.comes("last", hour)
		b.release()
		return last
	},
	"the one before is granted the lock": func(c *scene) *party {
		a := c.comes("holder", minute)
		c.comes("b", minute)
		last := c.comes("last", hour)
		a.release()
		return last
	},
	"the one before is passed over": func(c *scene) *party {
		d, proxy := flaky(c.t, c.s)
		a := c.comes("holder", minute)
		c.comesTo(d, "gone", minute)
		c.comes("b", minute)
		last := c.comes("last", hour)
		proxy.Refuse(true)
		proxy.Cut()
		subscribed(c.t, c.s.Client(c.t), c.s, 1)
		a.release()
		return last
	},
	"the one that is next then is gone, too": func(c *scene) *party {
		d, proxy := flaky(c.t, c.s)
		c.comes("holder", minute)
		b := c.comes("b", minute)
		c.comesTo(d, "gone", hour)
		last := c.comes("last", hour)
		proxy.Refuse(true)
		proxy.Cut()
		subscribed(c.t, c.s.Client(c.t), c.s, 1)
		b.release()
		return last
	},
	"the holder is forced": func(c *scene) *party {
		c.comes("holder", minute)
		c.comes("b", minute)
		last := c.comes("last", hour)
		require.NoError(c.t, c.d.ForceRelease(context.Background(), driver.Mutex, "rule"))
		return last
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
		a := c.comes("holder", minute, permits(1))
		c.comes("another", minute, permits(2))
		c.comes("b", minute, permits(1))
		last := c.comes("last", hour, permits(3))
		a.release()
		return last
	},
	"a holder keeps less": func(c *scene) *party {
		a := c.comes("holder", minute, permits(3))
		c.comes("b", minute, permits(1))
		last := c.comes("last", hour, permits(3))
		require.NoError(c.t, c.d.Downgrade(context.Background(), a.lease(), 2))
		return last
	},
	"the limit is raised": func(c *scene) *party {
		c.comes("holder", minute, permits(3))
		c.comes("b", minute, permits(1))
		last := c.comes("last", hour, permits(3))
		require.NoError(c.t, c.d.Resize(context.Background(), "rule", "resize", 4))
		return last
	},
	"the limit is lowered": func(c *scene) *party {
		c.comes("holder", minute, permits(1))
		c.comes("b", minute, permits(3))
		last := c.comes("last", hour, permits(2))
		require.NoError(c.t, c.d.Resize(context.Background(), "rule", "resize", 2))
		return last
	},
	// Here the waiter is next from the beginning, but the lease ends earlier than it was told.
	"the lease goes to one with a shorter TTL": func(c *scene) *party {
		a := c.comes("holder", hour)
		last := c.comes("last", hour)
		r := join(c.t, c.d, "attached", minute).req
		r.Ask = 1
		_, err := c.d.Attach(context.Background(), a.lease(), &r)
		require.NoError(c.t, err)
		return last
	},
}

// waysInTime are those in which something has to end first.
var waysInTime = map[string]func(*scene) (last *party){
	"the one before falls silent": func(c *scene) *party {
		a := c.comes("holder", minute)
		c.comes("b", blink)
		last := c.comes("last", hour)
		time.Sleep(2 * blink)
		require.NoError(c.t, renewed(a))
		return last
	},
	"many before fall silent": func(c *scene) *party {
		a := c.comes("holder", minute)
		for i := range 300 {
			c.comes(fmt.Sprint("silent", i), blink)
		}
		last := c.comes("last", hour)
		time.Sleep(2 * blink)
		require.NoError(c.t, renewed(a))
		return last
	},
	"a part expires, and a holder repeats its ask": func(c *scene) *party {
		c.comes("crashed", blink, permits(1))
		a := c.comes("holder", minute, permits(2))
		c.comes("b", minute, permits(1))
		last := c.comes("last", hour, permits(3))
		time.Sleep(2 * blink)
		a.must(driver.Granted)
		return last
	},
	"a part expires, and another is renewed": func(c *scene) *party {
		c.comes("crashed", blink, permits(1))
		a := c.comes("holder", minute, permits(2))
		c.comes("b", minute, permits(1))
		last := c.comes("last", hour, permits(3))
		time.Sleep(2 * blink)
		require.NoError(c.t, renewed(a))
		return last
	},
}

func TestWhoBecomesNextLooksWhenTheLeaseEnds(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		for name, becomesNext := range waysToBecomeNext {
			t.Run(name, func(t *testing.T) {
				require.NoError(t, s.Client(t).Del(t.Context(), key(s), s.Prefix()+":2:semaphore:rule").Err())
				(&scene{t, s, open(t, s.Client(t), s)}).requireTold(becomesNext)
			})
		}
	})
}

func TestWhoBecomesNextInTimeLooksWhenTheLeaseEnds(t *testing.T) {
	for name, becomesNext := range waysInTime {
		t.Run(name, func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T, s *redistest.Server) {
				(&scene{t, s, open(t, s.Client(t), s)}).requireTold(becomesNext)
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
		rdb := s.Client(t)
		c := &scene{t, s, open(t, rdb, s)}
		a := c.comes("holder", hour, owned)
		c.comes("kin", minute, owned)
		last := join(t, c.d, "last", hour)
		last.must(driver.Queued)
		subscribed(t, rdb, s, 1)
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
	redistest.Bubble(t, func(t *testing.T, s *redistest.Server) {
		d := open(t, s.Client(t), s)
		join(t, d, "crashed", 2*time.Second).must(driver.Granted)
		began := time.Now()
		first, last := join(t, d, "first", 2*time.Second), join(t, d, "last", time.Minute)
		first.must(driver.Queued)
		last.must(driver.Queued)
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
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		d := open(t, s.Client(t), s)
		a, b, c, e := join(t, d, "a", ttl), join(t, d, "b", ttl), join(t, d, "c", ttl), join(t, d, "e", ttl)
		a.must(driver.Granted)
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
