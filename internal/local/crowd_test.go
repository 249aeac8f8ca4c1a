package local_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/memdriver"
	"github.com/holdfast-go/holdfast/internal/local"
)

// However many wait for a lock in this process, each of them leaves the queue at once. The
// bound is generous; in a queue that is searched for each, it is a hundred times as long at worst.
// The race detector bears some 8,000 goroutines. Other work of the machine can hold up one of the
// measurements, but not each of five.
func TestCrowdThatLeavesTogetherTakesTheTimeOfEach(t *testing.T) {
	for range 5 {
		small, large := crowdLeaves(t, 500), crowdLeaves(t, 5_000)
		t.Logf("500 leave in %v, 5,000 in %v", small, large)
		if large < 40*max(small, 10*time.Millisecond) {
			return
		}
	}
	require.Fail(t, "each time the crowd took longer")
}

// crowdLeaves returns how long it takes until so many goroutines that wait for a lock have
// left, when all are called off at once.
func crowdLeaves(t *testing.T, n int) time.Duration {
	c := holdfast.Open(memdriver.New())
	mu := c.Mutex("x")
	held, err := mu.Lease(t.Context())
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var leaving sync.WaitGroup
	for range n {
		leaving.Go(func() {
			_, err := mu.Lease(ctx)
			assert.ErrorIs(t, err, context.Canceled)
		})
	}
	locks := registry(c)
	// All but one, which may be at the store by now.
	require.Eventually(t, func() bool { return locks.Waiting(local.ID{Kind: driver.Mutex, Name: "x"}) >= n-1 }, time.Minute, 20*time.Millisecond)
	began := time.Now()
	cancel()
	leaving.Wait()
	took := time.Since(began)
	require.NoError(t, held.Release(t.Context()))
	require.NoError(t, c.Close())
	return took
}
