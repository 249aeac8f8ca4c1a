package redisdriver_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/redisdriver"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

// busy has others under way all the time, so that calls are shared.
func busy(t *testing.T, d *redisdriver.Driver) {
	var all sync.WaitGroup
	for i := range 24 {
		all.Go(func() {
			for j := 0; t.Context().Err() == nil; j++ {
				r := driver.Request{Kind: driver.Mutex, Name: fmt.Sprint("busy", i), Token: fmt.Sprintf("busy%d-%d", i, j), Ask: 1, TTL: ttl}
				_, _ = d.Acquire(t.Context(), &r)
				_ = d.Release(t.Context(), driver.Lease{Kind: r.Kind, Name: r.Name, Token: r.Token})
			}
		})
	}
	t.Cleanup(all.Wait) // the context ends before
}

// asks has n callers ask for the same at a time. It returns the tokens that were granted it.
func asks(t *testing.T, d *redisdriver.Driver, n int, r driver.Request) (granted []string) {
	var all sync.WaitGroup
	var mu sync.Mutex
	for i := range n {
		r := r
		r.Token = fmt.Sprint(r.Name, "-", i)
		all.Go(func() {
			g, err := d.Acquire(t.Context(), &r)
			mu.Lock()
			defer mu.Unlock()
			if err == nil && g.Status == driver.Granted {
				granted = append(granted, r.Token)
			} else if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	return granted
}

// One call may have the same lock several times. Each has to find what those before it have
// left, not what the call read first.
func TestOneLockSeveralTimesInASharedCall(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		d := open(t, s.Client(t), s)
		busy(t, d)
		rounds := redistest.Rounds(10)
		for i := range rounds {
			readers := driver.Request{Kind: driver.RWMutex, Name: fmt.Sprint("readers", i), Ask: 1, TTL: ttl, Shared: true}
			in := asks(t, d, 40, readers)
			info, err := d.Inspect(t.Context(), readers.Kind, readers.Name)
			require.NoError(t, err)
			require.Len(t, in, 40)
			require.Len(t, info.Holders, 40)
			var all sync.WaitGroup
			for j, token := range in {
				l := driver.Lease{Kind: readers.Kind, Name: readers.Name, Token: token, Unsettled: j%2 == 0}
				all.Go(func() {
					if err := d.Release(t.Context(), l); err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
			info, err = d.Inspect(t.Context(), readers.Kind, readers.Name)
			require.NoError(t, err)
			require.Empty(t, info.Holders)

			free := driver.Request{Kind: driver.Mutex, Name: fmt.Sprint("free", i), Token: "before", Ask: 1, TTL: ttl}
			_, err = d.Acquire(t.Context(), &free)
			require.NoError(t, err)
			require.NoError(t, d.Release(t.Context(), driver.Lease{Kind: free.Kind, Name: free.Name, Token: free.Token}))
			require.Len(t, asks(t, d, 40, free), 1)

			mutex := driver.Request{Kind: driver.Mutex, Name: fmt.Sprint("expired", i), Token: "crashed", Ask: 1, TTL: 10 * time.Millisecond}
			_, err = d.Acquire(t.Context(), &mutex)
			require.NoError(t, err)
			time.Sleep(30 * time.Millisecond)
			mutex.TTL = ttl
			require.Len(t, asks(t, d, 40, mutex), 1)

			mutex.Wait, mutex.Ask = true, 2
			mutex.Wake = func(driver.Grant) {}
			require.Len(t, asks(t, d, 40, mutex), 1, "who holds it")
			info, err = d.Inspect(t.Context(), mutex.Kind, mutex.Name)
			require.NoError(t, err)
			require.Len(t, info.Queue, 39)
		}
	})
}

// The same without the luck that it takes for a free lock to be twice in a call.
func TestFreeLockTwiceInACallIsTakenOnce(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		rdb := s.Client(t)
		acquire := redisdriver.Scripts()[0]
		require.Equal(t, "acquire", acquire.Verb)
		for name, record := range map[string]any{"never used": nil, "used": "123"} {
			key := s.Prefix() + name
			if record != nil {
				require.NoError(t, rdb.Set(t.Context(), key, record, time.Minute).Err())
			}
			args := []any{s.Prefix(), 60000}
			for _, token := range []string{"one", "other"} {
				args = append(args, token, "1 0 0", "30000 1 0 1 1 - - text")
			}
			replies, err := rdb.Eval(t.Context(), acquire.Text, []string{key, key}, args...).Slice()
			require.NoError(t, err)
			require.Regexp(t, `^\d+ 1$`, replies[0], name)
			require.EqualValues(t, acquire.Statuses["BUSY"], replies[1].([]any)[0], name)
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

// A caller that waits for the next call is not left behind those that hang.
func TestCallersBehindCallsThatHangGoAlone(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		d, _, w := watched(t, s)
		_, err := d.Acquire(t.Context(), askFor("warm"))
		require.NoError(t, err)
		alone := w.seen()[len(w.seen())-1].script
		shared := func() (n int) {
			for _, r := range w.seen() {
				if r.script != alone {
					n += len(r.keys)
				}
			}
			return n
		}
		const n = 300 // more than three calls take along
		for round, hung := 0, 0; hung == 0; round++ {
			require.Less(t, round, 20, "none shared a call")
			open := w.shut(func(_ int, r run) bool { return r.script != alone })
			answered := make(chan error, n)
			for i := range n {
				go func() {
					_, err := d.Acquire(context.Background(), askFor(fmt.Sprint("behind", round, "-", i)))
					answered <- err
				}()
			}
			assert.Eventually(t, func() bool {
				hung = shared()
				return len(answered) == n-hung
			}, 10*time.Second, time.Millisecond)
			open()
			for range n {
				require.NoError(t, <-answered)
			}
		}
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
