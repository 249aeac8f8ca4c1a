package local_test

import (
	"context"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/memdriver"
	"github.com/holdfast-go/holdfast/internal/local"
	"github.com/holdfast-go/holdfast/internal/test/behavior/lab"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

// A lock that lingers without a number for the next lease is in nobody's way.
func TestLockThatLingersWithoutANumberIsHadAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := holdfast.Open(single{memdriver.New()}, holdfast.WithLinger(time.Hour))
		began := time.Now()
		for range 3 {
			lease, err := c.Mutex("x").Lease(t.Context())
			require.NoError(t, err)
			require.NoError(t, lease.Release(t.Context()))
			lease, err = c.Mutex("x").TryLease(t.Context())
			require.NoError(t, err)
			require.NoError(t, lease.Release(t.Context()))
		}
		require.Zero(t, time.Since(began))
		require.NoError(t, c.Close())
	})
}

// quiet is a store that does not tell a holder when somebody waits.
type quiet struct{ driver.Driver }

func (q quiet) Acquire(ctx context.Context, r *driver.Request) (driver.Grant, error) {
	quietly := *r
	quietly.Notice = false
	return q.Driver.Acquire(ctx, &quietly)
}

func TestNobodyLingersWhereTheStoreWouldNotTell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memdriver.New()
		here := holdfast.Open(quiet{store}, holdfast.WithLinger(time.Hour))
		there := holdfast.Open(quiet{store})
		here.Mutex("x").Lock()
		here.Mutex("x").Unlock()
		began := time.Now()
		there.Mutex("x").Lock()
		require.Less(t, time.Since(began), time.Second)
		there.Mutex("x").Unlock()
		require.NoError(t, here.Close())
		require.NoError(t, there.Close())
	})
}

// A lock that lingers is free for this process, whatever is asked of it.
func TestWhatLingersIsNotInTheWayOfTheSameProcess(t *testing.T) {
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		c := l.Mates(holdfast.WithLinger(time.Hour))
		rw := c.RWMutex("x")
		linger := func() {
			rw.Lock()
			rw.Unlock()
			require.Len(t, l.Look(rw).Holders, 1, "it is kept")
		}
		linger()
		require.True(t, rw.TryRLock())
		rw.RUnlock()
		linger()
		other := c.RWMutex("x", holdfast.WithTTL(lab.Ages/2))
		require.True(t, other.TryLock())
		other.Unlock()
		linger()
		l.Ends(lab.Begin(other.Lock)) // nor in that of one that would wait
		other.Unlock()
		linger()
		strict := c.RWMutex("x", holdfast.WithStrictFIFO())
		require.True(t, strict.TryLock())
		strict.Unlock()
	})
}

// Locks that are kept for a while after they were unlocked.

// Only the store can say when its turn is over. In a bubble, time stands still for as long
// as anybody looks at the clock again and again.
func TestWhoWaitsForALingeringLockThatIsHeldForLongDoesNotSpin(t *testing.T) {
	lab.InBubble(t, func(t *testing.T, l *lab.Lab) {
		c := l.Mates(holdfast.WithLinger(time.Hour))
		held := l.Lease(c, "x")
		w := l.Wait(c, "x")
		l.Keeps(held, 2*lab.Ages)
		require.NoError(t, held.Release(t.Context()))
		require.NoError(t, w.Granted(lab.Soon).Release(t.Context()))
	})
}

func TestLockThatLingersCostsNoCommand(t *testing.T) {
	lab.InBubble(t, func(t *testing.T, l *lab.Lab) {
		c, other := l.FarMates(holdfast.WithLinger(time.Hour)), l.Near()
		known(l, other.Mutex("x").Lease)
		known(l, other.RWMutex("x").Lease)
		known(l, other.Mutex("y").Lease)
		for what, in := range map[string]sync.Locker{
			"mutex": c.Mutex("x"), "rwmutex": c.RWMutex("x"), "the queue of which is bounded for others": c.Mutex("y", holdfast.WithMaxWaiters(1)),
		} {
			in.Lock()
			in.Unlock()
			l.Settle()
			n := l.Count(everything)
			for range 100 {
				in.Lock()
				in.Unlock()
			}
			require.True(t, in.(interface{ TryLock() bool }).TryLock())
			in.Unlock()
			require.Zero(t, n.Load(), what)
		}
		// Those who see the fence have each their own.
		last := int64(0)
		n := l.Count(everything)
		for range 10 {
			lease, err := c.Mutex("x").TryLease(t.Context())
			require.NoError(t, err)
			require.Greater(t, lease.Fence(), last)
			last = lease.Fence()
			require.NoError(t, lease.Release(t.Context()))
			require.ErrorIs(t, lease.Err(), holdfast.ErrNotHeld)
		}
		assert.Zero(t, n.Load())
		for range 100 {
			lease := l.Lease(c, "x")
			require.Greater(t, lease.Fence(), last)
			last = lease.Fence()
			require.NoError(t, lease.Release(t.Context()))
		}
		assert.Less(t, n.Load(), int64(30), "commands for a hundred fences")
	})
}

func TestLockThatLingersCostsNoMemory(t *testing.T) {
	l := lab.New(t, redistest.Shared(t))
	for what, mu := range map[string]*holdfast.Mutex{
		"by an option of the client": l.Mates(holdfast.WithLinger(time.Hour)).Mutex("x"),
		"by an option of the lock":   l.Mates().Mutex("y", holdfast.WithLinger(time.Hour)),
	} {
		least := math.Inf(1) // others of the process allocate, too, but not each time
		for n := 0; n < 5 && least > 0; n++ {
			least = min(least, testing.AllocsPerRun(1000, func() {
				mu.Lock()
				mu.Unlock()
			}))
		}
		assert.Zero(t, least, what)
	}
}

func TestLockLingersForAsLongAsNobodyWantsIt(t *testing.T) {
	lab.InBubble(t, func(t *testing.T, l *lab.Lab) {
		const d = 2 * lab.Ages
		c, other := l.Mates(holdfast.WithLinger(d)), l.Near()
		mu := c.Mutex("x")
		mu.Lock()
		mu.Unlock()
		time.Sleep(d / 2)
		mu.Lock()
		time.Sleep(d)
		mu.Unlock() // it is from now on that nobody wants it
		time.Sleep(d - time.Second)
		require.Len(t, l.Inspect("x").Holders, 1, "it is renewed")
		require.Equal(t, 1, inUse(c))
		time.Sleep(2 * time.Second)
		require.Empty(t, l.Inspect("x").Holders)
		require.Zero(t, inUse(c))
		l.Free(other, "x")
	})
}

// distant is a client that has heard its news before, so that it listens.
func distant(l *lab.Lab, opts ...holdfast.Option) *holdfast.Client {
	l.T.Helper()
	c, near := l.FarMates(opts...), l.Near()
	held := l.Lease(near, "distant")
	w := l.Wait(c, "distant", holdfast.WithStrictFIFO())
	l.UntilQueue("distant", 1)
	time.Sleep(time.Second)
	require.NoError(l.T, held.Release(l.T.Context()))
	require.NoError(l.T, w.Granted(lab.Soon).Release(l.T.Context()))
	return c
}

func TestLockThatLingersIsGivenUpWhenAnotherProcessWaits(t *testing.T) {
	lab.InBubble(t, func(t *testing.T, l *lab.Lab) {
		const trip = 200 * time.Millisecond // to Redis and back
		c, other := distant(l, holdfast.WithLinger(time.Hour)), distant(l)
		l.Link.Delay(trip / 2)
		c.Mutex("x").Lock()
		c.Mutex("x").Unlock()
		time.Sleep(lab.Ages / 2)
		began := time.Now()
		lease := l.Wait(other, "x").Granted(lab.Soon)
		assert.LessOrEqual(t, lease.Deadline().Sub(began), lab.Ages)
		assert.LessOrEqual(t, time.Since(began), 2*trip+trip/2)
		l.Link.Delay(0)
		require.NoError(t, lease.Release(t.Context()))
		time.Sleep(time.Second)
		assert.Zero(t, inUse(c))
	})
}

func TestLockThatLingersIsGivenUpThoughTheNoticeIsLost(t *testing.T) {
	lab.InBubble(t, func(t *testing.T, l *lab.Lab) {
		const ttl = time.Second
		c, other := distant(l, holdfast.WithLinger(time.Hour), holdfast.WithTTL(ttl)), l.Near()
		c.Mutex("x").Lock()
		c.Mutex("x").Unlock()
		l.Link.DropPush(func(_, payload string) bool { return strings.HasPrefix(payload, "wanted") })
		// Also if it is wanted here all the time.
		var stop atomic.Bool
		done := lab.Begin(func() {
			for !stop.Load() {
				c.Mutex("x").Lock()
				time.Sleep(time.Millisecond)
				c.Mutex("x").Unlock()
			}
		})
		time.Sleep(ttl)
		w := l.Wait(other, "x")
		began := time.Now()
		lease := w.Granted(lab.Soon)
		assert.Less(t, time.Since(began), ttl/3+l.Slack)
		require.NoError(t, lease.Release(t.Context()))
		stop.Store(true)
		l.Ends(done)
	})
}

// The store has some thousand holds to say whether anybody waits. Then the lock is given up.
func TestLockThatLingersIsGivenUpThoughTheStoreDoesNotSayWhoWaits(t *testing.T) {
	lab.InBubble(t, func(t *testing.T, l *lab.Lab) {
		c, other := distant(l, holdfast.WithLinger(time.Hour), holdfast.WithTTL(24*time.Hour)), l.Near()
		c.Mutex("x").Lock()
		c.Mutex("x").Unlock()
		l.Link.DropPush(func(_, payload string) bool { return strings.HasPrefix(payload, "wanted") })
		w := l.Wait(other, "x")
		l.UntilQueue("x", 1)
		_, release := l.Link.HoldRequest(func(cmd []string) bool { return len(cmd) == 7 && cmd[0] == "evalsha" })
		defer release()
		for range 2 * local.MaxUnasked {
			c.Mutex("x").Lock()
			c.Mutex("x").Unlock()
		}
		require.NoError(t, w.Granted(lab.Soon).Release(t.Context()))
	})
}

func TestStrictAndFixedLocksDoNotLinger(t *testing.T) {
	lab.InBubble(t, func(t *testing.T, l *lab.Lab) {
		c := l.Mates(holdfast.WithLinger(time.Hour))
		for _, opt := range []holdfast.LockOption{holdfast.WithStrictFIFO(), holdfast.WithoutRenewal()} {
			require.NoError(t, l.Lease(c, "x", opt).Release(t.Context()))
			c.Mutex("x", opt).Lock()
			c.Mutex("x", opt).Unlock()
			l.Free(l.Near(), "x")
		}
	})
}

func TestCrashWhileALockLingersFreesItAfterItsTTL(t *testing.T) {
	lab.InBubble(t, func(t *testing.T, l *lab.Lab) {
		c, other := l.FarMates(holdfast.WithLinger(time.Hour)), l.Near()
		c.Mutex("x").Lock()
		c.Mutex("x").Unlock()
		l.Link.BlackHole(true)
		began := time.Now()
		lease := l.Wait(other, "x").Granted(2 * lab.Ages)
		assert.Less(t, time.Since(began), lab.Ages+time.Second)
		// It knows that by itself.
		require.False(t, c.Mutex("x").TryLock())
		require.Equal(t, 0, inUse(c))
		l.Link.BlackHole(false)
		l.Link.Cut()
		require.NoError(t, lease.Release(t.Context()))
		c.Mutex("x").Lock()
		c.Mutex("x").Unlock()
	})
}

func TestLossWhileALockLingersIsNobodysLoss(t *testing.T) {
	lab.InBubble(t, func(t *testing.T, l *lab.Lab) {
		c, other := distant(l, holdfast.WithLinger(time.Hour)), l.Near()
		for _, unlock := range []func() int64{
			func() int64 { c.Mutex("x").Lock(); c.Mutex("x").Unlock(); return 0 },
			func() int64 {
				lease := l.Lease(c, "x")
				require.NoError(t, lease.Release(t.Context()))
				return lease.Fence()
			},
		} {
			time.Sleep(time.Millisecond) // in which the clock shows fences
			fence := unlock()
			require.NoError(t, other.Mutex("x").ForceUnlock(t.Context()))
			l.Settle()
			require.Zero(t, inUse(c))
			held := l.Lease(other, "x")
			require.Greater(t, held.Fence(), fence)
			w := l.Wait(c, "x")
			l.UntilQueue("x", 1)
			time.Sleep(time.Millisecond)
			require.NoError(t, held.Release(t.Context()))
			require.NoError(t, w.Granted(lab.Soon).Release(t.Context()))
			require.NoError(t, other.Mutex("x").ForceUnlock(t.Context()))
			l.Settle()
		}
		assert.NotContains(t, l.Log.String(), "lock lost")
	})
}

func TestCloseReleasesLocksThatLinger(t *testing.T) {
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		c, other := l.Mates(holdfast.WithLinger(time.Hour)), l.Near()
		c.Mutex("x").Lock()
		c.Mutex("x").Unlock()
		known(l, other.Mutex("y").Lease)
		require.NoError(t, l.Lease(c, "y").Release(t.Context()))
		require.False(t, other.Mutex("y").TryLock())
		require.NoError(t, lab.Promptly(t, lab.Soon, c.Close))
		l.Free(other, "x")
		l.Free(other, "y")
		assert.Zero(t, inUse(c))
	})
}

// Nor if it is heard of only when the lock is given up.
func TestLossOfALingeringLockThatGoesUnheardIsNobodysLoss(t *testing.T) {
	lab.InBubble(t, func(t *testing.T, l *lab.Lab) {
		c := distant(l, holdfast.WithLinger(time.Minute))
		c.Mutex("x").Lock()
		c.Mutex("x").Unlock()
		l.Link.DropPush(everyPush)
		require.NoError(t, l.Near().Mutex("x").ForceUnlock(t.Context()))
		require.Equal(t, 1, inUse(c))
		require.NoError(t, c.Close())
		assert.NotContains(t, l.Log.String(), "lock lost")
	})
}

func everyPush(string, string) bool { return true }

// A hold that was lost is in the log, also when its Unlock is the first to look at the clock:
// the lock must not be kept for the next one as if it were still there.
func TestLossThatUnlockFindsIsLoggedThoughTheLockLingers(t *testing.T) {
	const ttl = time.Second
	for range 50 { // who is first of those that wait for the same moment is left to chance
		synctest.Test(t, func(t *testing.T) {
			log := new(lab.Log)
			c := holdfast.Open(unrenewed{memdriver.New()}, holdfast.WithTTL(ttl), holdfast.WithLinger(time.Hour),
				holdfast.WithLogger(slog.New(slog.NewTextHandler(log, nil))))
			mu := c.Mutex("x")
			over := time.Now().Add(ttl - ttl/100 - 2*time.Millisecond)
			mu.Lock()
			time.Sleep(time.Until(over))
			mu.Unlock()
			require.NoError(t, c.Close())
			require.Equal(t, 1, strings.Count(log.String(), "lock lost"), log.String())
		})
	}
}

// unrenewed is a store that cannot be reached by renewals.
type unrenewed struct{ *memdriver.Driver }

func (unrenewed) Renew(_ context.Context, leases []driver.Lease) []error {
	return slices.Repeat([]error{driver.ErrTransient}, len(leases))
}
