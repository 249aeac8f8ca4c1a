package redlock_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/holdfast-go/holdfast/driver/redlock"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
	"github.com/holdfast-go/holdfast/internal/test/referee"
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
			r := referee.Referee{Limit: 1}
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
						r.EnterWith(1, lease.Fence())
						r.Leave(1)
						assert.NoError(t, lease.Release(ctx))
					}
				})
			}
			wg.Wait()
			r.RequireFair(t, int64(clients*rounds))
			t.Logf("%d hand-overs in %v, Jain index of the waits %.3f", clients*rounds, time.Since(start), jain(waited))
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
