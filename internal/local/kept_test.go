package local_test

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/memdriver"
	"github.com/holdfast-go/holdfast/internal/test/behavior/lab"
)

// counted counts what a store is asked for.
type counted struct {
	*memdriver.Driver
	asked, released atomic.Int64
}

func (c *counted) Acquire(ctx context.Context, r *driver.Request) (driver.Grant, error) {
	c.asked.Add(1)
	return c.Driver.Acquire(ctx, r)
}

func (c *counted) Release(ctx context.Context, l driver.Lease) error {
	c.released.Add(1)
	return c.Driver.Release(ctx, l)
}

// A lock is kept for no longer than it may linger.
func TestLockLingersForNoLongerThanItMay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const linger = time.Second
		store := &counted{Driver: memdriver.New()}
		c := holdfast.Open(store, holdfast.WithLinger(linger))
		mu := c.Mutex("x")
		for _, hold := range []time.Duration{0, linger / 3, 2 * linger} {
			for range 3 {
				mu.Lock()
				time.Sleep(hold)
				mu.Unlock()
				time.Sleep(linger / 4)
			}
			asked, released := store.asked.Load(), store.released.Load()
			mu.Lock()
			mu.Unlock()
			require.Equal(t, asked, store.asked.Load(), "it is still here after a hold of %v", hold)
			time.Sleep(linger)
			synctest.Wait()
			require.Equal(t, released+1, store.released.Load(), "after a hold of %v", hold)
		}
		require.NoError(t, c.Close())
	})
}

// A handle may outlive what the client remembers of its lock. Then it finds what other handles
// do, and they find what it does.
func TestHandleFindsItsLockAfterItWasForgotten(t *testing.T) {
	c := holdfast.Open(lab.Instant{})
	old := c.Mutex("x")
	old.Lock()
	old.Unlock()
	for i := range 1000 { // until the client has forgotten it
		c.Mutex(fmt.Sprint(i)).Lock()
		c.Mutex(fmt.Sprint(i)).Unlock()
	}
	c.Mutex("x").Lock()
	require.False(t, old.TryLock())
	old.Unlock()
	old.Lock()
	require.False(t, c.Mutex("x").TryLock())
	c.Mutex("x").Unlock()
	require.Panics(t, old.Unlock)
	require.NoError(t, c.Close())
}

// Names that nobody uses any more cost no memory, once their handles are gone.
func TestNamesWithoutHandlesLeaveNothing(t *testing.T) {
	c := holdfast.Open(lab.Instant{})
	const names = 10_000
	use := func() {
		for i := range names {
			mu := c.Mutex(fmt.Sprint("a name of some length, number ", i))
			mu.Lock()
			mu.Unlock()
		}
	}
	use()
	for n := 1; ; n++ { // others have a share in the heap, but not each time
		before := heap()
		use()
		require.Zero(t, inUse(c))
		if after := heap(); after < before+names*50 {
			break
		} else if n == 5 {
			require.Less(t, after, before+names*50, "a lock alone takes more than 100 bytes")
		}
	}
	require.NoError(t, c.Close())
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
