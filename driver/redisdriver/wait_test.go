package redisdriver_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

// Thousands may wait, and each says so every TTL/3. While nothing happens to the lock, that is
// one read of the lock and one write of the waiter's record, and leaves all else as it is.
func TestHeartbeatWhereNothingHappensIsOneReadAndOneWrite(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		rdb := s.Client(t)
		d := open(t, rdb, s)
		c := &scene{t: t, s: s, d: d}
		c.comes("holder", minute)
		first, second := c.comes("first", minute), c.comes("second", minute)
		for _, p := range []*party{first, second} {
			p.ask() // so that its place is known, and that somebody listens
		}
		key := d.Key(first.req.Kind, first.req.Name)
		before := rdb.HGetAll(t.Context(), key).Val()
		for place, p := range []*party{first, second} {
			field := fmt.Sprint("w:", place+1)
			var calls map[string]int64
			if s.Mini() == nil {
				calls = s.CommandStats(t)
			}
			g := p.must(driver.Queued)
			require.Equal(t, place == 0, g.RetryAfter > 0, "only the first is told when the lease ends")
			if s.Mini() == nil {
				now := s.CommandStats(t)
				for cmd, n := range map[string]int64{"hmget": 1, "hset": 1, "hget": 0, "exists": 0, "pexpire": 0, "publish": 0} {
					require.Equal(t, n, now[cmd]-calls[cmd], cmd)
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

// What does happen is not overlooked by the short way.
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
