package redisdriver_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

// The first part of a script writes out what the second has functions for. Two locks, of
// which one has a tombstone, so that it is taken and freed the long way, must look the same
// in the end, at the same time of a clock that stands still.
func TestShortWayLeavesWhatTheLongWayLeaves(t *testing.T) {
	const short, long = "short", "long"
	for name, asks := range map[string][]driver.Request{
		"mutex":        {{Kind: driver.Mutex, TTL: 10 * time.Second}},
		"brief":        {{Kind: driver.Mutex, TTL: 30 * time.Millisecond}},
		"long":         {{Kind: driver.Mutex, TTL: 40 * time.Second}}, // for more than half the retention
		"many fences":  {{Kind: driver.Mutex, TTL: 10 * time.Second, Fences: 200_000_000}},
		"writer":       {{Kind: driver.RWMutex, TTL: 10 * time.Second}},
		"readers":      {{Kind: driver.RWMutex, TTL: 20 * time.Second, Shared: true}, {Kind: driver.RWMutex, TTL: time.Second, Shared: true}},
		"reserved":     {{Kind: driver.RWMutex, TTL: time.Second, Shared: true, Fences: 200_000_000}, {Kind: driver.RWMutex, TTL: time.Second, Shared: true}},
		"long readers": {{Kind: driver.RWMutex, TTL: 50 * time.Second, Shared: true}, {Kind: driver.RWMutex, TTL: time.Second, Shared: true}},
		"more readers": {{Kind: driver.RWMutex, TTL: time.Second, Shared: true}, {Kind: driver.RWMutex, TTL: 50 * time.Second, Shared: true, Fences: 32}},
		"permits":      {{Kind: driver.Semaphore, TTL: 9 * time.Second, Weight: 2, Limit: 7}, {Kind: driver.Semaphore, TTL: 8 * time.Second, Weight: 5, Limit: 7}},
	} {
		t.Run(name, func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T, s *redistest.Server) {
				rdb := s.Client(t)
				d := open(t, rdb, s)
				key := func(name string) string { return s.Prefix() + ":2:" + string(asks[0].Kind) + ":" + name }
				same := func(what string) {
					t.Helper()
					a, b := rdb.HGetAll(t.Context(), key(short)).Val(), rdb.HGetAll(t.Context(), key(long)).Val()
					require.NotEmpty(t, a)
					delete(b, "dead")
					require.Equal(t, b, a, what)
				}
				for range 2 { // the second time with fields of the first
					require.NoError(t, rdb.HSet(t.Context(), key(long), "dead", "\nother 99999999999999").Err())
					for i, r := range asks {
						r.Token, r.Ask, r.Wait, r.Holder = string(rune('a'+i)), 1, true, "some text"
						var fences []int64
						for _, r.Name = range []string{short, long} {
							g, err := d.Acquire(t.Context(), &r)
							require.NoError(t, err)
							require.Equal(t, driver.Granted, g.Status)
							fences = append(fences, g.Fence)
						}
						require.Equal(t, fences[0], fences[1])
						same("taken")
						require.Equal(t, rdb.PTTL(t.Context(), key(long)).Val(), rdb.PTTL(t.Context(), key(short)).Val())
						time.Sleep(10 * time.Millisecond)
					}
					for i, r := range asks {
						for _, name := range []string{short, long} {
							require.NoError(t, d.Release(t.Context(), driver.Lease{
								Kind: r.Kind, Name: name, Token: string(rune('a' + i)), TTL: r.TTL, Unsettled: name == long,
							}))
						}
						same("freed")
					}
				}
			})
		})
	}
}
