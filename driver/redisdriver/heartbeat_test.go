package redisdriver_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

// Thousands may wait, and each says so every TTL/3. While nothing happens to the lock, that is
// one read of the lock, one of the waiter's record and one write of that. All else stays as it is.
func TestHeartbeatWhereNothingHappensWritesOnlyItsRecord(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		rdb := s.Client(t)
		d := open(t, rdb, s)
		c := &scene{t: t, s: s, d: d}
		c.comes("holder", minute)
		first := c.comes("first", minute)
		last := c.comes("last", minute)
		for _, p := range []*party{first, last} {
			p.ask() // so that its place is known, and that somebody listens
		}
		key := d.Key(first.req.Kind, first.req.Name)
		before := rdb.HGetAll(t.Context(), key).Val()
		for field, p := range map[string]*party{"w:1": first, "w:2": last} {
			cost := map[string]int64{"hmget": 1, "hset": 1, "hget": 1, "exists": 0, "pexpireat": 0, "publish": 0}
			for try := 0; ; try++ {
				var calls map[string]int64
				if s.Mini() == nil {
					calls = s.CommandStats(t)
				}
				g := p.must(driver.Queued)
				require.Equal(t, p == first, g.RetryAfter > 0, "only the first is told when the lease ends")
				if s.Mini() != nil {
					break
				}
				now, made := s.CommandStats(t), map[string]int64{}
				for cmd := range cost {
					made[cmd] = now[cmd] - calls[cmd]
				}
				if try == 2 || made["publish"] == 0 { // A ping of the subscription may come in between.
					require.Equal(t, cost, made)
					break
				}
			}
			after := rdb.HGetAll(t.Context(), key).Val()
			require.NotEqual(t, before[field], after[field])
			before[field] = after[field]
			require.Equal(t, before, after)
			requireConsistent(t, rdb, first.req.Kind, key)
		}
	})
}

// The short way overlooks nothing that does happen.
func TestHeartbeatSeesWhatHasHappened(t *testing.T) {
	for what, happen := range map[string]struct {
		do   func(*scene, *party, *party)
		want driver.Status
	}{
		"nothing":         {func(*scene, *party, *party) {}, driver.Queued},
		"the lease ended": {func(_ *scene, _, _ *party) { time.Sleep(2 * blink * 6) }, driver.Granted},
		"the key was deleted": {func(c *scene, h, _ *party) {
			require.NoError(c.t, c.s.Client(c.t).Del(c.t.Context(), c.d.Key(h.req.Kind, h.req.Name)).Err())
		}, driver.Granted},
		"the holder left": {func(_ *scene, h, _ *party) { h.release() }, driver.Granted},
	} {
		t.Run(what, func(t *testing.T) {
			redistest.Each(t, func(t *testing.T, s *redistest.Server) {
				c := &scene{t: t, s: s, d: open(t, s.Client(t), s)}
				ttl := minute
				if what == "the lease ended" {
					ttl = blink * 6
				}
				holder, waiter := c.comes("holder", ttl), c.comes("waiter", minute)
				waiter.ask()
				happen.do(c, holder, waiter)
				waiter.must(happen.want)
			})
		})
	}
}

// A limit may have been lowered below what is held. Then one of several holders can hold as much
// as there is.
func TestHeartbeatOfALockWithSeveralHoldersNamesTheFirstEnd(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		c := &scene{t: t, s: s, d: open(t, s.Client(t), s)}
		c.comes("much", minute, permits(3))
		resize := func(limit int64) {
			require.NoError(t, c.d.Resize(t.Context(), "rule", fmt.Sprint("to", limit), limit))
		}
		resize(4)
		c.comes("little", minute/2, permits(1))
		resize(3)
		waiter := c.comes("waiter", minute, permits(1))
		for range 2 {
			require.LessOrEqual(t, waiter.must(driver.Queued).RetryAfter, minute/2+time.Second)
		}
	})
}

// The same where nobody has set the limit, so that the short way answers.
func TestHeartbeatOfALockWithSeveralLeasesNamesTheFirstEnd(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		c := &scene{t: t, s: s, d: open(t, s.Client(t), s)}
		c.comes("much", minute, permits(2))
		c.comes("little", minute/2, permits(1))
		waiter := c.comes("waiter", minute, permits(1))
		for range 2 {
			left := waiter.must(driver.Queued).RetryAfter
			require.Positive(t, left)
			require.LessOrEqual(t, left, minute/2+time.Second)
		}
	})
}

// After a failover that lost writes two can have been given one place. Its record is that of
// the second, and a heartbeat of the first must not make it its own.
func TestHeartbeatTakesNoPlaceOfAnother(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		rdb := s.Client(t)
		c := &scene{t: t, s: s, d: open(t, rdb, s)}
		c.comes("holder", minute)
		waiter := c.comes("waiter", minute)
		waiter.ask()
		key := c.d.Key(waiter.req.Kind, waiter.req.Name)
		record := strings.Replace(rdb.HGet(t.Context(), key, "w:1").Val(), "waiter ", "other ", 1)
		require.NoError(t, rdb.HSet(t.Context(), key, "w:1", record, "t:other", "w1").Err())
		require.NoError(t, rdb.HDel(t.Context(), key, "t:waiter").Err())
		waiter.must(driver.Queued)
		require.Equal(t, record, rdb.HGet(t.Context(), key, "w:1").Val())
		require.Contains(t, rdb.HGet(t.Context(), key, "w:2").Val(), "waiter ")
	})
}

// A waiter can count on the key for as long as it may be silent, and on what is remembered of it.
func TestHeartbeatKeepsTheKey(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		rdb := s.Client(t)
		c := &scene{t: t, s: s, d: open(t, rdb, s)}
		c.comes("holder", minute)
		waiter := c.comes("waiter", minute)
		waiter.ask()
		key := c.d.Key(waiter.req.Kind, waiter.req.Name)
		soon := time.Now().Add(20 * time.Second)
		require.NoError(t, rdb.HSet(t.Context(), key, "life", soon.UnixMilli()).Err())
		require.NoError(t, rdb.PExpireAt(t.Context(), key, soon).Err())
		waiter.must(driver.Queued)
		require.Greater(t, rdb.PTTL(t.Context(), key).Val(), minute*2/3)
		requireConsistent(t, rdb, waiter.req.Kind, key)
	})
}

func TestHeartbeatOfTheFirstTellsAHolderThatWantsToKnow(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		c := &scene{t: t, s: s, d: open(t, s.Client(t), s)}
		holder := c.comes("holder", minute, func(r *driver.Request) { r.Notice = true })
		waiter := c.comes("waiter", minute)
		for range 3 { // when it came, and each time that it asks again
			select {
			case g := <-holder.news:
				require.Equal(t, driver.Wanted, g.Status)
			case <-time.After(5 * time.Second):
				require.Fail(t, "the holder hears nothing")
			}
			waiter.must(driver.Queued)
		}
	})
}

// No lease has more left than its TTL and grace. If one seems to, the server's clock was set
// back, and the lock must not stay blocked for as long as that.
func TestHeartbeatSeesThatTheClockWasSetBack(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		rdb := s.Client(t)
		c := &scene{t: t, s: s, d: open(t, rdb, s)}
		holder := c.comes("holder", minute)
		waiter := c.comes("waiter", minute)
		waiter.ask()
		key := c.d.Key(holder.req.Kind, holder.req.Name)
		words := strings.SplitN(rdb.HGet(t.Context(), key, "h:1").Val(), " ", 3) // token expires …
		words[1] = fmt.Sprint(time.Now().Add(time.Hour).UnixMilli())
		require.NoError(t, rdb.HSet(t.Context(), key, "h:1", strings.Join(words, " ")).Err())
		require.LessOrEqual(t, waiter.must(driver.Queued).RetryAfter, minute+time.Second)
	})
}
