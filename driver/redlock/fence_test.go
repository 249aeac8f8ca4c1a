package redlock_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/memdriver"
	"github.com/holdfast-go/holdfast/driver/redlock"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

// counting is a node that takes a while to get an ask, and counts how often it is told a fence.
type counting struct {
	driver.Driver
	away   time.Duration
	raised *atomic.Int64
}

func (c counting) Unwrap() driver.Driver { return c.Driver }

func (c counting) Acquire(ctx context.Context, r *driver.Request) (driver.Grant, error) {
	time.Sleep(c.away)
	return c.Driver.Acquire(ctx, r)
}

func (c counting) RaiseFence(ctx context.Context, l driver.Lease, fence, fences int64) (int64, error) {
	c.raised.Add(1)
	raiser, _ := driver.As[redlock.FenceRaiser](c.Driver)
	return raiser.RaiseFence(ctx, l, fence, fences)
}

// Each node gives numbers of its own clock, at the time when the ask comes to it. A client that
// uses as many numbers as it is given leaves none for the next that a node could give again.
func TestNodesReachedAtDifferentTimesHaveAFenceInCommon(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T, s *redistest.Server) {
		var raised atomic.Int64
		var nodes []driver.Driver
		for i, p := range []string{"a:", "b:", "c:"} {
			nodes = append(nodes, counting{native(s.Client(t), s.Prefix()+p), time.Duration(i) * 100 * time.Microsecond, &raised})
		}
		var last int64
		for i := range 6 {
			d := redlock.New([]driver.Driver{shared{nodes[i%3]}, shared{nodes[(i+1)%3]}, shared{nodes[(i+2)%3]}}, redlock.WithDelayedRestart(0))
			r := request("token-" + string(rune('a'+i)))
			r.Fences = []int64{1, 1000}[i%2]
			before := raised.Load()
			g, err := d.Acquire(t.Context(), r)
			require.NoError(t, err)
			require.Equal(t, driver.Granted, g.Status)
			require.Greater(t, g.Fence, last)
			require.LessOrEqual(t, g.Fences, r.Fences)
			last = g.Fence + max(g.Fences, 1) - 1
			if i > 0 { // of a lock that is new each node gives the time alone
				require.Equal(t, before, raised.Load(), "a second trip to agree on a fence")
			}
			require.NoError(t, d.Release(t.Context(), lease(r.Token)))
			require.NoError(t, d.Close())
			time.Sleep(300 * time.Microsecond)
		}
		require.Positive(t, raised.Load())
		for _, n := range nodes {
			require.NoError(t, n.Close())
		}
	})
}

// shared is a node that several drivers have.
type shared struct{ driver.Driver }

func (s shared) Unwrap() driver.Driver { return s.Driver }
func (shared) Close() error            { return nil }

// ranged is a node that grants the numbers from first to last.
type ranged struct {
	driver.Driver
	cut atomic.Bool

	mu          sync.Mutex
	first, last int64
	raised      bool
}

func (n *ranged) Unwrap() driver.Driver { return n.Driver }

func (n *ranged) Acquire(ctx context.Context, r *driver.Request) (driver.Grant, error) {
	if n.cut.Load() {
		return driver.Grant{}, errDial
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	g, err := n.Driver.Acquire(ctx, r)
	g.Fence, g.Fences = n.first, n.last-n.first+1
	return g, err
}

func (n *ranged) RaiseFence(_ context.Context, _ driver.Lease, fence, fences int64) (int64, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.raised, n.first, n.last = true, fence, fence+fences-1
	return fence, nil
}

func (n *ranged) has(fence int64) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.first <= fence && fence <= n.last
}

func (n *ranged) written() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.raised
}

func overRanges(t *testing.T, ranges ...[2]int64) ([]*ranged, driver.Driver) {
	var of []*ranged
	var nodes []driver.Driver
	for _, r := range ranges {
		n := &ranged{Driver: memdriver.New(), first: r[0], last: r[1]}
		of, nodes = append(of, n), append(nodes, n)
	}
	d := redlock.New(nodes, redlock.WithDelayedRestart(0))
	t.Cleanup(func() { assert.NoError(t, d.Close()) })
	return of, d
}

func TestFenceIsOneThatAMajorityHasReserved(t *testing.T) {
	for name, c := range map[string]struct {
		ranges        [][2]int64
		fence, fences int64
		written       bool // back to nodes that did not have it
	}{
		"all have it":              {[][2]int64{{10, 40}, {20, 50}, {15, 35}}, 20, 5, false},
		"two have it":              {[][2]int64{{10, 20}, {20, 50}, {60, 90}}, 20, 1, false},
		"the last number of one":   {[][2]int64{{10, 15}, {15, 15}, {1, 2}}, 15, 1, false},
		"one number each":          {[][2]int64{{7, 7}, {7, 7}, {9, 9}}, 7, 1, false},
		"each has others":          {[][2]int64{{10, 19}, {20, 29}, {30, 34}}, 30, 5, true},
		"one ends before another":  {[][2]int64{{10, 19}, {20, 29}, {1, 2}}, 20, 5, true},
		"two of five are not most": {[][2]int64{{10, 30}, {20, 29}, {1, 2}, {40, 41}, {50, 59}}, 50, 5, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				nodes, d := overRanges(t, c.ranges...)
				r := request("token")
				r.Fences = 5
				g, err := d.Acquire(t.Context(), r)
				require.NoError(t, err)
				require.Equal(t, driver.Granted, g.Status)
				require.Equal(t, [2]int64{c.fence, c.fences}, [2]int64{g.Fence, g.Fences})
				for k := g.Fence; k < g.Fence+g.Fences; k++ {
					have := 0
					for _, n := range nodes {
						if n.has(k) {
							have++
						}
					}
					require.Greater(t, have, len(nodes)/2, "number %d", k)
				}
				written := false
				for _, n := range nodes {
					written = written || n.written()
				}
				require.Equal(t, c.written, written)
			})
		})
	}
}

// A repeat of an ask hears of one node more. The fences that it has in common with another are
// smaller than the one that the first answer told.
func TestFenceThatWasToldDoesNotGoBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, d := overRanges(t, [2]int64{10, 20}, [2]int64{15, 25}, [2]int64{5, 30})
		nodes[2].cut.Store(true)
		r := request("token")
		first, err := d.Acquire(t.Context(), r)
		require.NoError(t, err)
		require.EqualValues(t, 15, first.Fence)

		nodes[2].cut.Store(false)
		r.Ask++
		again, err := d.Acquire(t.Context(), r)
		require.NoError(t, err)
		require.Equal(t, first.Fence, again.Fence)
	})
}

// A node that answers later has fewer of the fences that the holder was told.
func TestFencesThatWereToldAreToldAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		nodes, d := overRanges(t, [2]int64{10, 60}, [2]int64{10, 50}, [2]int64{10, 30})
		nodes[2].cut.Store(true)
		r := request("token")
		r.Fences = 40
		first, err := d.Acquire(t.Context(), r)
		require.NoError(t, err)
		require.EqualValues(t, 40, first.Fences)

		nodes[2].cut.Store(false)
		for range 3 {
			r.Ask++
			again, err := d.Acquire(t.Context(), r)
			require.NoError(t, err)
			require.Equal(t, [2]int64{first.Fence, first.Fences}, [2]int64{again.Fence, again.Fences})
			require.NoError(t, d.Renew(t.Context(), []driver.Lease{lease("token")})[0]) // all have answered
		}
	})
}

// The votes of nodes come in any order, with ranges that meet or do not. The grant is told when
// two are there, and whoever looks when the third has come as well must find its fence.
func TestInspectShowsTheFenceThatWasTold(t *testing.T) {
	onLinks(t, func(t *testing.T, stores []driver.Driver, dial func() ([]*link, driver.Driver)) {
		links, d := dial()
		rng := rand.New(rand.NewPCG(23, 2))
		pause := func() { time.Sleep(time.Duration(rng.IntN(800)) * time.Microsecond) }
		raises := func() (n int32) {
			for _, l := range links {
				n += l.raises.Load()
			}
			return n
		}
		hold := func(s driver.Driver, token string) {
			r := request(token)
			r.Fences = 1 + rng.Int64N(500) // so the next range begins somewhere else on each node
			g, err := s.Acquire(t.Context(), r)
			require.NoError(t, err)
			require.Equal(t, driver.Granted, g.Status)
		}
		shows := func(i int, g driver.Grant, last int64) int64 {
			synctest.Wait()
			require.Equal(t, driver.Granted, g.Status)
			info, err := d.(driver.Inspector).Inspect(t.Context(), driver.Mutex, "orders")
			require.NoError(t, err)
			require.Len(t, info.Holders, 1)
			require.Equal(t, g.Fence, info.Holders[0].Fence, "round %d", i)
			require.GreaterOrEqual(t, info.Holders[0].LastFence, g.Fence+g.Fences-1)
			require.Greater(t, g.Fence, last)
			return g.Fence + g.Fences - 1
		}
		var last int64
		for i := range 100 {
			order := rng.Perm(len(links))
			asked := request(fmt.Sprint("asked-", i))
			asked.Fences = 1 + rng.Int64N(40)
			for _, s := range stores {
				hold(s, asked.Token+"-before")
				pause()
				require.NoError(t, s.Release(t.Context(), lease(asked.Token+"-before")))
			}
			for _, l := range links {
				l.keepsAsks.Store(true)
			}
			go func() {
				for _, n := range order {
					pause()
					links[n].keepsAsks.Store(false)
					links[n].deliver()
				}
			}()
			before := raises()
			g, err := d.Acquire(t.Context(), asked)
			require.NoError(t, err)
			common := raises() == before
			time.Sleep(10 * time.Millisecond)
			last = shows(i, g, last)
			require.True(t, !common || raises() == before, "round %d: it was told too early", i)
			require.NoError(t, d.Release(t.Context(), lease(asked.Token)))
			synctest.Wait()

			pushed := request(fmt.Sprint("pushed-", i))
			news := make(chan driver.Grant, 1)
			pushed.Fences, pushed.Wait, pushed.Wake = asked.Fences, true, func(g driver.Grant) { news <- g }
			for _, s := range stores {
				hold(s, pushed.Token+"-before")
			}
			g, err = d.Acquire(t.Context(), pushed)
			require.NoError(t, err)
			require.Equal(t, driver.Queued, g.Status)
			for _, n := range order {
				pause()
				require.NoError(t, stores[n].Release(t.Context(), lease(pushed.Token+"-before")))
			}
			g = <-news
			time.Sleep(10 * time.Millisecond)
			last = shows(i, g, last)
			require.NoError(t, d.Release(t.Context(), lease(pushed.Token)))
			synctest.Wait()
		}
	})
}
