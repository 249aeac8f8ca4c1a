package loss_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/test/behavior/lab"
)

// Leases that others wait for are renewed in as few trips as those that nobody waits for.
func TestLeasesThatOthersWaitForOutlastADistance(t *testing.T) {
	lab.WithPatience(t, func(t *testing.T, l *lab.Lab) {
		const n, ttl = 100, 4 * time.Second
		far, near := l.Far(holdfast.WithTTL(ttl)), l.Near(holdfast.WithTTL(ttl))
		l.Ready(far)
		ctx, stop := context.WithCancel(t.Context())
		var waiters sync.WaitGroup
		var leases []*holdfast.Lease
		for i := range n {
			leases = append(leases, l.Lease(far, fmt.Sprint("jobs:", i)))
			waiters.Go(func() {
				if lease, err := near.Mutex(fmt.Sprint("jobs:", i)).Lease(ctx); err == nil {
					assert.NoError(t, lease.Release(context.Background()))
				}
			})
		}
		for i := range n {
			l.UntilQueue(fmt.Sprint("jobs:", i), 1)
		}
		l.Link.Delay(250 * time.Millisecond)
		time.Sleep(3 * ttl)
		lost := 0
		for _, lease := range leases {
			if lease.Err() != nil {
				lost++
			}
		}
		require.Zero(t, lost, "leases were lost, though each trip takes half a second")
		l.Link.Delay(0)
		stop()
		waiters.Wait()
		for _, lease := range leases {
			require.NoError(t, lease.Release(t.Context()))
		}
	})
}

// Waiters say that they wait as often as they must, however many they are and however far. If not, they
// trust no grant when it comes, and it keeps the lock for a TTL.
func TestManyWaitersAtADistanceAreServedAtOnce(t *testing.T) {
	lab.InBubble(t, func(t *testing.T, l *lab.Lab) {
		const n, ttl, trip = 400, 1500 * time.Millisecond, 250 * time.Millisecond
		far, near := l.Far(holdfast.WithTTL(ttl)), l.Near(holdfast.WithTTL(ttl))
		l.Ready(far)
		var leases []*holdfast.Lease
		for i := range n {
			leases = append(leases, l.Lease(near, fmt.Sprint("jobs:", i)))
		}
		l.Link.Delay(trip / 2)
		var waiters sync.WaitGroup
		var served atomic.Int64
		for i := range n {
			waiters.Go(func() {
				if lease, err := far.Mutex(fmt.Sprint("jobs:", i)).Lease(context.Background()); err == nil {
					served.Add(1)
					assert.NoError(t, lease.Release(context.Background()))
				}
			})
		}
		time.Sleep(3 * ttl)
		for _, lease := range leases {
			require.NoError(t, lease.Release(t.Context()))
		}
		time.Sleep(ttl / 2)
		require.EqualValues(t, n, served.Load())
		waiters.Wait()
	})
}
