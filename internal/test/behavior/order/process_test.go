//go:build unix

package order_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/test/behavior/lab"
	"github.com/holdfast-go/holdfast/internal/test/referee"
)

func TestCancelledHeadWakesThoseBehindItInOtherProcesses(t *testing.T) {
	t.Parallel()
	for kind, scene := range lab.Kinds {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			a, cs := lab.NewFleet(t, kind, 10*time.Second)
			cs[0].Take(scene.Little)
			a.Queue(scene.All, nil, cs[1])
			a.Queue(scene.Little, cs[1:2], cs[2], cs[3])
			cs[1].Tell(lab.Order{Do: "cancel", Lock: "l"})
			assert.Contains(t, cs[1].Expect("refused", "l").Is, "Canceled")
			for _, c := range cs[2:] {
				c.Expect("leased", "l")
			}
			assert.Len(t, a.Inspect("l").Holders, 3, a.Situation("l"))
			for _, c := range []*lab.Contender{cs[0], cs[2], cs[3]} {
				c.Release("l")
			}
		})
	}
}

// As many read as there are processes, and more come all the time.
func TestNobodyStarvesBesideAStreamOfSmallRequests(t *testing.T) {
	const limit = 12
	for kind, scene := range map[driver.Kind]struct{ small, large lab.Order }{
		driver.RWMutex: {
			lab.Order{Kind: "read", Weight: 1}, lab.Order{Kind: "write"},
		},
		driver.Semaphore: {
			lab.Order{Kind: "permits", Weight: 1, Limit: limit}, lab.Order{Kind: "permits", Weight: limit, Limit: limit},
		},
	} {
		t.Run(string(kind), func(t *testing.T) {
			a, cs := lab.NewFleet(t, kind, 10*time.Second)
			r := &referee.Referee{Limit: limit}
			stream, large := cs[1:], cs[0]
			scene.small.Do, scene.small.Lock = "hammer", "l"
			scene.small.Stay = 5 * time.Millisecond
			const each = 4
			for _, c := range stream {
				for range each {
					c.Tell(scene.small)
				}
			}
			a.Until("l", "a stream", func(i holdfast.Info) bool { return len(i.Holders) > 2 })
			scene.large.Do, scene.large.Lock = "lease", "l"
			for range 5 {
				large.Tell(scene.large)
				got := large.Expect("leased", "l")
				t.Logf("served after %v", got.At-got.Began)
				info := a.Inspect("l")
				require.Len(t, info.Holders, 1)
				assert.True(t, lab.IsFrom(large, info.Holders[0].Holder))
				large.Release("l")
			}
			for _, c := range stream {
				c.Tell(lab.Order{Do: "stop"})
			}
			r.RequireFair(t, a.Hammered(stream, r, each))
		})
	}
}

func TestProcessesAreServedInOrderOfArrival(t *testing.T) {
	t.Parallel()
	a := lab.NewArena(t, 10*time.Second)
	cs := a.Contenders(6)
	for round := range 3 {
		lock := fmt.Sprint("l", round)
		// Process ids and places in a hash must not be what decides.
		rand.Shuffle(len(cs), func(i, j int) { cs[i], cs[j] = cs[j], cs[i] })
		holder, waiters := cs[0], cs[1:]
		holder.Lease(lock)
		a.Wait("turn", lock, waiters...)
		for i, w := range a.Inspect(lock).Queue {
			assert.True(t, lab.IsFrom(waiters[i], w.Holder), a.Situation(lock))
		}
		// The holder asks again as soon as it can, and it comes last, too.
		holder.Tell(lab.Order{Do: "release", Lock: lock})
		holder.Tell(lab.Order{Do: "turn", Lock: lock})

		left, fence := holder.Expect("released", lock).Began, int64(0)
		for i, c := range append(waiters, holder) {
			r := c.Expect("turn", lock)
			require.Empty(t, r.Err)
			require.Greater(t, r.At, left, "FOUL: not the order of arrival, or two inside: number %d of %d", i+1, len(cs))
			require.Greater(t, r.Fence, fence, "FOUL: not the order of arrival: number %d of %d", i+1, len(cs))
			left, fence = r.Left, r.Fence
		}
	}
}
