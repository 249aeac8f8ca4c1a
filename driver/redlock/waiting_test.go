package redlock_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver/redlock"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

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
