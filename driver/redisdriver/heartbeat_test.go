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
		c := stage(t, s)
		d := c.d
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
	for what, happens := range map[string]func(*scene, *party){
		"the lease ended": func(*scene, *party) { time.Sleep(12 * blink) },
		"the holder left": func(_ *scene, h *party) { h.release() },
		"the key was deleted": func(c *scene, h *party) {
			require.NoError(c.t, c.s.Client(c.t).Del(c.t.Context(), c.d.Key(h.req.Kind, h.req.Name)).Err())
		},
	} {
		t.Run(what, func(t *testing.T) {
			redistest.Each(t, func(t *testing.T, s *redistest.Server) {
				c := stage(t, s)
				ttl := map[bool]time.Duration{true: blink * 6, false: minute}[what == "the lease ended"]
				holder, waiter := c.comes("holder", ttl), c.comes("waiter", minute)
				waiter.ask()
				happens(c, holder)
				waiter.must(driver.Granted)
			})
		})
	}
}

// It is not the first of several holders whose lease ends first. A limit that was lowered below what is
// held is as far as one of them goes: it holds as much as there is.
func TestHeartbeatOfALockWithSeveralHoldersNamesTheFirstEnd(t *testing.T) {
	for name, c := range map[string]struct{ much, before, after int64 }{"nobody has set it": {much: 2}, "it was lowered": {3, 4, 3}} {
		t.Run(name, func(t *testing.T) {
			redistest.Each(t, func(t *testing.T, s *redistest.Server) {
				lock := stage(t, s)
				resize := func(limit int64) {
					if limit > 0 {
						require.NoError(t, lock.d.Resize(t.Context(), "rule", fmt.Sprint("to", limit), limit))
					}
				}
				lock.comes("much", minute, permits(c.much))
				resize(c.before)
				lock.comes("little", minute/2, permits(1))
				resize(c.after)
				waiter := lock.comes("waiter", minute, permits(1))
				for range 2 {
					left := waiter.must(driver.Queued).RetryAfter
					require.Positive(t, left)
					require.LessOrEqual(t, left, minute/2+time.Second)
				}
			})
		})
	}
}

// A waiter can count on the key for as long as it may be silent, and on what is remembered of it.
func TestHeartbeatKeepsTheKey(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		rdb := s.Client(t)
		c := stage(t, s)
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

// No lease has more left than its TTL and grace. If one seems to, the server's clock was set
// back, and the lock must not stay blocked for as long as that.
func TestHeartbeatSeesThatTheClockWasSetBack(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		rdb := s.Client(t)
		c := stage(t, s)
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
