package redisdriver_test

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/redisdriver"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

// One call may have the same lock several times. Each has to find what those before it have
// left, not what the call read first.
func TestOneLockTwiceInACall(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		rdb, scripts := s.Client(t), redisdriver.Scripts()
		const acquire, release = 0, 1
		call := func(script int, key string, each ...[]any) string {
			t.Helper()
			replies, err := rdb.Eval(t.Context(), scripts[script].Text, []string{key, key}, slices.Concat([]any{s.Prefix(), 60000}, slices.Concat(each...))...).Slice()
			require.NoError(t, err)
			return fmt.Sprint(replies)
		}
		ask := func(token, limit, room string) []any {
			return []any{token, "1 0 0", "30000 1 " + room + " 1 " + limit + " - - text"}
		}
		for name, record := range map[string]any{"never used": nil, "used": "123", "expired": "5 1 dead 1 30000 1 - 5 1 1 - text"} {
			key := s.Prefix() + name
			if record != nil {
				require.NoError(t, rdb.Set(t.Context(), key, record, time.Minute).Err())
			}
			require.Regexp(t, fmt.Sprintf(`^\[\d+ \d+ \[%d `, scripts[acquire].Statuses["BUSY"]), call(acquire, key, ask("one", "1", "0"), ask("other", "1", "0")), name)
			require.Regexp(t, `^\[waits .* 1 - .* waits .* 2 - .*\]$`, call(acquire, key, ask("first", "1", "9"), ask("second", "1", "9")), name)
			require.Equal(t, []any{"w1", "w2"}, rdb.HMGet(t.Context(), key, "t:first", "t:second").Val(), name)
		}
		thin := s.Prefix() + "thin"
		require.Regexp(t, `^\[(\d+ 1) (\d+ 1)\]$`, call(acquire, thin, ask("one", "1", "0"), ask("one", "1", "0")))
		require.Equal(t, "[1 0]", call(release, thin, []any{"one", "0 -"}, []any{"one", "0 -"}))
		for name, settled := range map[string]string{"settled": "0 -", "unsettled": "1 -"} {
			key := s.Prefix() + name
			require.Regexp(t, `^\[\d+ 1 \d+ 1\]$`, call(acquire, key, ask("one", "9", "0"), ask("other", "9", "0")), name)
			require.True(t, rdb.HExists(t.Context(), key, "h:2").Val(), name)
			require.Equal(t, "[1 1]", call(release, key, []any{"one", settled}, []any{"other", settled}), name)
			require.False(t, rdb.HExists(t.Context(), key, "h:1").Val(), name)
			require.Equal(t, "[0 0]", call(release, key, []any{"one", "0 -"}, []any{"other", "0 -"}), name)
		}
	})
}

// No call holds up the server for long, also if it is to handle all of its locks.
func TestCallStopsWhereQueuesAreLong(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		rdb, d := s.Client(t), open(t, s.Client(t), s)
		const locks = 12
		var leases []driver.Lease
		ask := func(i int, r driver.Request) driver.Status {
			r.Kind, r.Name, r.Ask, r.TTL, r.Wait = driver.RWMutex, fmt.Sprint("long", i), 1, time.Minute, true
			g, err := d.Acquire(t.Context(), &r)
			require.NoError(t, err)
			return g.Status
		}
		for i := range locks {
			require.Equal(t, driver.Granted, ask(i, driver.Request{Token: fmt.Sprint("writer", i)}))
			leases = append(leases, driver.Lease{Kind: driver.RWMutex, Name: fmt.Sprint("long", i), Token: fmt.Sprint("writer", i)})
		}
		handled := func(atLength ...any) (n int) {
			var keys []string
			args := []any{s.Prefix(), 60000}
			for _, l := range leases {
				keys = append(keys, d.Key(l.Kind, l.Name))
				args = append(args, l.Token, "2 0 0", fmt.Sprintf("60000 1 9 1 %d - - text", driver.MaxLimit))
			}
			replies, err := rdb.Eval(t.Context(), redisdriver.Scripts()[0].Text, keys, append(args, atLength...)...).Slice()
			require.NoError(t, err)
			for _, reply := range replies {
				if reply != nil {
					n++
				}
			}
			return n
		}
		require.Equal(t, 8, handled())
		require.Equal(t, 10, handled(10))
		require.Equal(t, locks, handled(64))

		for i := range locks {
			for reader := range 64 {
				require.Equal(t, driver.Queued, ask(i, driver.Request{Token: fmt.Sprint("reader", reader), Shared: true}))
			}
		}
		var keys []string
		args := []any{s.Prefix(), 60000}
		for _, l := range leases {
			keys, args = append(keys, d.Key(l.Kind, l.Name)), append(args, l.Token, "0 -")
		}
		replies, err := rdb.Eval(t.Context(), redisdriver.Scripts()[1].Text, keys, append(args, 64)...).Slice()
		require.NoError(t, err)
		require.Equal(t, slices.Concat(slices.Repeat([]any{int64(1)}, 8), make([]any, locks-8)), replies, "each of so many has let 64 in")
	})
}

// Lua can hand over a few thousand arguments.
func TestThousandsOfHoldersMayEndTogether(t *testing.T) {
	t.Parallel()
	s := redistest.Real(t)
	rdb := s.Client(t)
	d := open(t, rdb, s)
	const crowd = 4500
	for _, end := range []func(){
		func() { require.NoError(t, d.ForceRelease(t.Context(), driver.Semaphore, "crowd")) },
		func() { time.Sleep(4 * time.Second) },
	} {
		var all sync.WaitGroup
		for w := range 16 {
			all.Go(func() {
				for i := range crowd / 16 {
					r := driver.Request{Kind: driver.Semaphore, Name: "crowd", Token: fmt.Sprintf("t%d-%d-%d", w, i, time.Now().UnixNano()), Ask: 1,
						TTL: 3 * time.Second, Weight: 1, Limit: 10_000}
					if g, err := d.Acquire(t.Context(), &r); err != nil || g.Status != driver.Granted {
						t.Error(g.Status, err)
					}
				}
			})
		}
		all.Wait()
		end()
		r := driver.Request{Kind: driver.Semaphore, Name: "crowd", Token: fmt.Sprint("all", time.Now().UnixNano()), Ask: 1, TTL: time.Second, Weight: 10_000, Limit: 10_000}
		g, err := d.Acquire(t.Context(), &r)
		require.NoError(t, err)
		require.Equal(t, driver.Granted, g.Status)
		requireConsistent(t, rdb, driver.Semaphore, s.Prefix()+":2:semaphore:crowd")
		require.NoError(t, d.Release(t.Context(), driver.Lease{Kind: r.Kind, Name: r.Name, Token: r.Token}))
	}
}
