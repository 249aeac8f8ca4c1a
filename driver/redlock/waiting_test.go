package redlock_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/redlock"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

// A release wakes the waiter. To find out by asking would take a third of the TTL, which is so long
// that no machine takes a third of that for what is a matter of milliseconds.
func TestReleaseWakesTheWaiter(t *testing.T) {
	q := newQuorum(t, native, 5)
	const ttl = time.Minute
	a, b := q.client(), q.client()
	var slowest time.Duration
	for range redistest.Rounds(50) {
		held, err := a.Mutex("orders", holdfast.WithTTL(ttl)).Lease(t.Context())
		require.NoError(t, err)
		got := make(chan time.Time, 1)
		go func() {
			lease, err := b.Mutex("orders", holdfast.WithTTL(ttl)).Lease(context.Background())
			got <- time.Now()
			if assert.NoError(t, err) {
				assert.NoError(t, lease.Release(context.Background()))
			}
		}()
		q.waiters(1)
		released := time.Now()
		require.NoError(t, held.Release(t.Context()))
		slowest = max(slowest, (<-got).Sub(released))
		q.waiters(0)
	}
	t.Logf("slowest: %v; the poll interval is %v", slowest, ttl/3)
	require.Less(t, slowest, ttl/3/3)
}

// waiters returns when so many wait on at least a majority of nodes.
func (q *quorum) waiters(n int) {
	q.Helper()
	require.Eventually(q, func() bool {
		nodes := 0
		for i := range q.servers {
			d := q.node(i)
			look, _ := driver.As[driver.Inspector](d)
			if info, err := look.Inspect(q.Context(), driver.Mutex, "orders"); err == nil && len(info.Queue) == n {
				nodes++
			}
			assert.NoError(q, d.Close())
		}
		return nodes > len(q.servers)/2
	}, 15*time.Second, time.Millisecond)
}

// Contenders that come at the same time split the votes. None of them waits for ever: if none gave
// way, not one would have had the lock after a minute. How even their turns are depends on the machine
// here, see TestEachOfACrowdHasItsTurnInVirtualTime.
func TestManyContendersAllFinish(t *testing.T) {
	for name, n := range map[string]int{"3 nodes": 3, "5 nodes": 5} {
		t.Run(name, func(t *testing.T) {
			const clients = 16
			rounds := 4 + redistest.Rounds(20)
			q := newQuorum(t, native, n)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			var mu sync.Mutex
			var inside, visits int
			var fence int64
			waited := make([]time.Duration, clients)
			start := time.Now()
			var wg sync.WaitGroup
			for i := range clients {
				lock := q.client(redlock.WithTimeout(50 * time.Millisecond)).Mutex("orders") // the default: for how long votes are split follows it
				wg.Go(func() {
					for range rounds {
						asked := time.Now()
						lease, err := lock.Lease(ctx)
						if !assert.NoError(t, err) {
							return
						}
						waited[i] += time.Since(asked)
						mu.Lock()
						inside++
						assert.Equal(t, 1, inside, "FOUL: two are in the room")
						assert.Greater(t, lease.Fence(), fence, "FOUL: a fence that does not grow")
						fence = lease.Fence()
						mu.Unlock()
						mu.Lock()
						inside--
						visits++
						mu.Unlock()
						assert.NoError(t, lease.Release(ctx))
					}
				})
			}
			wg.Wait()
			require.Equal(t, clients*rounds, visits)
			t.Logf("%d hand-overs in %v, Jain index of the waits %.3f", visits, time.Since(start), jain(waited))
			for i := range q.servers {
				q.requireFree(i)
			}
		})
	}
}

// jain is 1 if all have the same, and 1/n if one has everything.
func jain(waits []time.Duration) float64 {
	var sum, squares float64
	for _, w := range waits {
		sum += float64(w)
		squares += float64(w) * float64(w)
	}
	return sum * sum / (float64(len(waits)) * squares)
}

// Each of three waiters is first in line at one of three nodes. Nobody has a majority then,
// and nobody would ever have one if none gave way.
func TestSplitVotesAreGivenBack(t *testing.T) {
	q := newQuorum(t, native, 3)
	var releases []func()
	for i := range q.servers {
		releases = append(releases, q.occupy(i, "holder"))
	}
	tokens := []string{"a", "b", "c"}
	for i, token := range tokens {
		node := q.node(i)
		r := request(token)
		r.Wait = true
		g, err := node.Acquire(t.Context(), r)
		require.NoError(t, err)
		require.Equal(t, driver.Queued, g.Status)
		require.NoError(t, node.Close())
	}
	got := make(chan string, 10*len(tokens)) // news may come twice
	drivers := map[string]driver.Driver{}
	for _, token := range tokens {
		d := q.driver(redlock.WithTimeout(time.Second))
		drivers[token] = d
		r := request(token)
		r.Ask, r.Wait = 2, true
		r.Wake = func(g driver.Grant) {
			if g.Status == driver.Granted {
				got <- token
			}
		}
		g, err := d.Acquire(t.Context(), r)
		require.NoError(t, err)
		require.Equal(t, driver.Queued, g.Status)
	}
	for _, release := range releases {
		release()
	}
	served := map[string]bool{}
	for len(served) < len(tokens) {
		select {
		case token := <-got:
			if !served[token] {
				require.NoError(t, drivers[token].Release(t.Context(), lease(token)))
			}
			served[token] = true
		case <-time.After(ttl * 9 / 10): // then their leases would end by themselves
			t.Fatal("votes are split, and nobody gives way")
		}
	}
}

func TestCancelledWaiterLeavesNothing(t *testing.T) {
	q := newQuorum(t, native, 5)
	held, err := q.client().Mutex("orders").Lease(t.Context())
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	go func() {
		_, err := q.client().Mutex("orders").Lease(ctx)
		gone <- err
	}()
	q.waiters(1)
	cancel()
	require.ErrorIs(t, <-gone, context.Canceled)
	q.waiters(0)
	require.NoError(t, held.Release(t.Context()))
	for i := range q.servers {
		q.requireFree(i)
	}
}
