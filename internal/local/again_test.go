package local_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/memdriver"
	"github.com/holdfast-go/holdfast/internal/test/behavior/lab"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

// counted counts what a store is asked for.
type counted struct {
	*memdriver.Driver
	asked, released, extended atomic.Int64
}

func (c *counted) Acquire(ctx context.Context, r *driver.Request) (driver.Grant, error) {
	c.asked.Add(1)
	return c.Driver.Acquire(ctx, r)
}

func (c *counted) Release(ctx context.Context, l driver.Lease) error {
	c.released.Add(1)
	return c.Driver.Release(ctx, l)
}

func (c *counted) Extend(ctx context.Context, l driver.Lease, fences int64) (driver.Grant, error) {
	c.extended.Add(1)
	return c.Driver.Extend(ctx, l, fences)
}

// A handle that had the lock before locks it again by a way of its own, while it lingers. A
// handle that is new goes the general way. Whatever happens, nobody sees a difference.
func TestHandleThatLocksAgainDoesAsANewOneWould(t *testing.T) {
	for seed := range uint64(redistest.Rounds(300)) {
		var histories [2][]string
		for way := range histories {
			synctest.Test(t, func(t *testing.T) { histories[way] = lockAgain(t, seed, way == 0) })
		}
		require.Equal(t, histories[1], histories[0], "seed %d", seed)
	}
}

// lockAgain plays a random history, with one handle or a new one for each call, and tells it.
func lockAgain(t *testing.T, seed uint64, same bool) (history []string) {
	rng := rand.New(rand.NewPCG(seed, 0))
	store := &counted{Driver: memdriver.New()}
	here := holdfast.Open(store, holdfast.WithLinger(time.Hour))
	there := holdfast.Open(&counted{Driver: store.Driver})
	one := here.RWMutex("x")
	mu := func() *holdfast.RWMutex {
		if same {
			return one
		}
		return here.RWMutex("x")
	}
	if rng.IntN(2) == 0 { // so that what is an answer to whom does not depend on the clock
		mu().Lock()
		mu().Unlock()
	}
	locked := false
	var waiting chan *holdfast.Lease
	for range 60 {
		did := ""
		switch n := rng.IntN(12); {
		case n < 4 && !locked && waiting == nil:
			mu().Lock()
			did, locked = "Lock", true
		case n < 6 && !locked:
			locked = mu().TryLock()
			did = fmt.Sprint("TryLock ", locked)
		case n < 9 && locked:
			mu().Unlock()
			did, locked = "Unlock", false
		case n == 9:
			time.Sleep(time.Duration(rng.IntN(30)) * time.Minute)
			did = "time passes"
		case n == 10 && waiting == nil:
			w := make(chan *holdfast.Lease, 1)
			go func() {
				lease, err := there.RWMutex("x").Lease(t.Context())
				assert.NoError(t, err)
				w <- lease
			}()
			did, waiting = "another waits", w
		case n == 11 && waiting != nil && !locked:
			lease := <-waiting
			assert.NoError(t, lease.Release(t.Context()))
			did, waiting = "another had it", nil
		case n == 11 && waiting == nil && !locked:
			lease, err := mu().TryLease(t.Context())
			if err == nil {
				assert.NoError(t, lease.Release(t.Context()))
			}
			did = fmt.Sprint("TryLease ", err)
		case n == 9 && locked:
			assert.Panics(t, func() { mu().RUnlock() })
		}
		synctest.Wait()
		info, err := one.Inspect(t.Context())
		assert.NoError(t, err)
		history = append(history, fmt.Sprint(did, ": ", store.asked.Load(), " ", store.released.Load(), " ", store.extended.Load(),
			" ", len(info.Holders), " ", len(info.Queue), " ", inUse(here)))
	}
	if locked {
		mu().Unlock()
	}
	if waiting != nil {
		assert.NoError(t, (<-waiting).Release(t.Context()))
	}
	assert.NoError(t, here.Close())
	assert.NoError(t, there.Close())
	return history
}

// A lock is kept for no longer than it may linger, however it was locked the last time.
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
