package holdfast_test

import (
	"context"
	"log/slog"
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
	"github.com/holdfast-go/holdfast/internal/redistest"
)

// Locks that are kept for a while after they were unlocked.

// Only the store can say when its turn is over. In a bubble, time stands still for as long
// as anybody looks at the clock again and again.
func TestWhoWaitsForALingeringLockThatIsHeldForLongDoesNotSpin(t *testing.T) {
	inBubble(t, func(t *testing.T, l *lab) {
		c := l.mates(holdfast.WithLinger(time.Hour))
		held := l.lease(c, "x")
		w := l.wait(c, "x")
		l.keeps(held, 2*ages)
		require.NoError(t, held.Release(t.Context()))
		require.NoError(t, w.granted(soon).Release(t.Context()))
	})
}

func TestLockThatLingersCostsNoCommand(t *testing.T) {
	inBubble(t, func(t *testing.T, l *lab) {
		c, other := l.farMates(holdfast.WithLinger(time.Hour)), l.near()
		l.known(other.Mutex("x").Lease)
		l.known(other.RWMutex("x").Lease)
		for what, in := range map[string]sync.Locker{"mutex": c.Mutex("x"), "rwmutex": c.RWMutex("x")} {
			in.Lock()
			in.Unlock()
			l.settle()
			n := l.count(everything)
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
		n := l.count(everything)
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
			lease := l.lease(c, "x")
			require.Greater(t, lease.Fence(), last)
			last = lease.Fence()
			require.NoError(t, lease.Release(t.Context()))
		}
		assert.Less(t, n.Load(), int64(30), "commands for a hundred fences")
	})
}

func TestLockThatLingersCostsNoMemory(t *testing.T) {
	l := newLab(t, redistest.Shared(t))
	for what, mu := range map[string]*holdfast.Mutex{
		"by an option of the client": l.mates(holdfast.WithLinger(time.Hour)).Mutex("x"),
		"by an option of the lock":   l.mates().Mutex("y", holdfast.WithLinger(time.Hour)),
	} {
		assert.Zero(t, testing.AllocsPerRun(1000, func() {
			mu.Lock()
			mu.Unlock()
		}), what)
	}
}

func TestLockLingersForAsLongAsNobodyWantsIt(t *testing.T) {
	inBubble(t, func(t *testing.T, l *lab) {
		const d = 2 * ages
		c, other := l.mates(holdfast.WithLinger(d)), l.near()
		mu := c.Mutex("x")
		mu.Lock()
		mu.Unlock()
		time.Sleep(d / 2)
		mu.Lock()
		time.Sleep(d)
		mu.Unlock() // it is from now on that nobody wants it
		time.Sleep(d - time.Second)
		require.Len(t, l.inspect("x").Holders, 1, "it is renewed")
		require.Equal(t, 1, c.Doors())
		time.Sleep(2 * time.Second)
		require.Empty(t, l.inspect("x").Holders)
		require.Zero(t, c.Doors())
		l.free(other, "x")
	})
}

// distant is a client that has heard its news before, so that it listens.
func (l *lab) distant(opts ...holdfast.Option) *holdfast.Client {
	l.t.Helper()
	c, near := l.farMates(opts...), l.near()
	held := l.lease(near, "distant")
	w := l.wait(c, "distant", holdfast.WithStrictFIFO())
	l.untilQueue("distant", 1)
	time.Sleep(time.Second)
	require.NoError(l.t, held.Release(l.t.Context()))
	require.NoError(l.t, w.granted(soon).Release(l.t.Context()))
	return c
}

func TestLockThatLingersIsGivenUpWhenAnotherProcessWaits(t *testing.T) {
	inBubble(t, func(t *testing.T, l *lab) {
		const trip = 200 * time.Millisecond // to Redis and back
		c, other := l.distant(holdfast.WithLinger(time.Hour)), l.distant()
		l.link.Delay(trip / 2)
		c.Mutex("x").Lock()
		c.Mutex("x").Unlock()
		time.Sleep(ages / 2)
		began := time.Now()
		lease := l.wait(other, "x").granted(soon)
		assert.LessOrEqual(t, lease.Deadline().Sub(began), ages)
		assert.LessOrEqual(t, time.Since(began), 2*trip+trip/2)
		l.link.Delay(0)
		require.NoError(t, lease.Release(t.Context()))
		time.Sleep(time.Second)
		assert.Zero(t, c.Doors())
	})
}

func TestLockThatLingersIsGivenUpThoughTheNoticeIsLost(t *testing.T) {
	inBubble(t, func(t *testing.T, l *lab) {
		const ttl = time.Second
		c, other := l.distant(holdfast.WithLinger(time.Hour), holdfast.WithTTL(ttl)), l.near()
		c.Mutex("x").Lock()
		c.Mutex("x").Unlock()
		l.link.DropPush(func(_, payload string) bool { return strings.HasPrefix(payload, "wanted") })
		// Also if it is wanted here all the time.
		var stop atomic.Bool
		done := begin(func() {
			for !stop.Load() {
				c.Mutex("x").Lock()
				time.Sleep(time.Millisecond)
				c.Mutex("x").Unlock()
			}
		})
		time.Sleep(ttl)
		w := l.wait(other, "x")
		began := time.Now()
		lease := w.granted(soon)
		assert.Less(t, time.Since(began), ttl/3+l.slack)
		require.NoError(t, lease.Release(t.Context()))
		stop.Store(true)
		l.ends(done)
	})
}

// Those of its own process wait, too: they are served, in their turn.
func TestOthersGetTheirTurnOfALockThatLingers(t *testing.T) {
	inBubble(t, func(t *testing.T, l *lab) {
		a, b := l.distant(holdfast.WithLinger(time.Hour)), l.near()
		held := l.lease(a, "x")
		ws := l.queue(100, a.Mutex("x").Lease)
		other := l.wait(b, "x")
		l.untilQueue("x", 1)
		n := l.turns(held, ws, other, 0)
		assert.Positive(t, n)
		assert.LessOrEqual(t, n, 32)
		require.NoError(t, other.granted(soon).Release(t.Context()))
		for _, w := range ws[n:] {
			require.NoError(t, w.granted(soon).Release(t.Context()))
		}
		l.settle()
		require.Len(t, l.inspect("x").Holders, 1, "it is kept again")
	})
}

func TestNewcomerThatALingeringLockDoesNotSuitGetsIt(t *testing.T) {
	inBubble(t, func(t *testing.T, l *lab) {
		c := l.mates(holdfast.WithLinger(time.Hour))
		c.Mutex("x").Lock()
		c.Mutex("x").Unlock()
		lease := l.lease(c, "x", holdfast.WithTTL(2*ages))
		l.holds(lease)
		require.NoError(t, lease.Release(t.Context()))
	})
}

func TestStrictAndFixedLocksDoNotLinger(t *testing.T) {
	inBubble(t, func(t *testing.T, l *lab) {
		c := l.mates(holdfast.WithLinger(time.Hour))
		for _, opt := range []holdfast.LockOption{holdfast.WithStrictFIFO(), holdfast.WithoutRenewal()} {
			require.NoError(t, l.lease(c, "x", opt).Release(t.Context()))
			c.Mutex("x", opt).Lock()
			c.Mutex("x", opt).Unlock()
			l.free(l.near(), "x")
		}
	})
}

func TestCrashWhileALockLingersFreesItAfterItsTTL(t *testing.T) {
	inBubble(t, func(t *testing.T, l *lab) {
		c, other := l.farMates(holdfast.WithLinger(time.Hour)), l.near()
		c.Mutex("x").Lock()
		c.Mutex("x").Unlock()
		l.link.BlackHole(true)
		began := time.Now()
		lease := l.wait(other, "x").granted(2 * ages)
		assert.Less(t, time.Since(began), ages+time.Second)
		// It knows that by itself.
		require.False(t, c.Mutex("x").TryLock())
		require.Equal(t, 0, c.Doors())
		l.link.BlackHole(false)
		l.link.Cut()
		require.NoError(t, lease.Release(t.Context()))
		c.Mutex("x").Lock()
		c.Mutex("x").Unlock()
	})
}

func TestLossWhileALockLingersIsNobodysLoss(t *testing.T) {
	inBubble(t, func(t *testing.T, l *lab) {
		c, other := l.distant(holdfast.WithLinger(time.Hour)), l.near()
		for _, unlock := range []func() int64{
			func() int64 { c.Mutex("x").Lock(); c.Mutex("x").Unlock(); return 0 },
			func() int64 {
				lease := l.lease(c, "x")
				require.NoError(t, lease.Release(t.Context()))
				return lease.Fence()
			},
		} {
			fence := unlock()
			require.NoError(t, other.Mutex("x").ForceUnlock(t.Context()))
			l.settle()
			require.Zero(t, c.Doors())
			held := l.lease(other, "x")
			require.Greater(t, held.Fence(), fence)
			w := l.wait(c, "x")
			l.untilQueue("x", 1)
			require.NoError(t, held.Release(t.Context()))
			require.NoError(t, w.granted(soon).Release(t.Context()))
			require.NoError(t, other.Mutex("x").ForceUnlock(t.Context()))
			l.settle()
		}
		assert.NotContains(t, l.log.String(), "lock lost")
	})
}

func TestCloseReleasesLocksThatLinger(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		c, other := l.mates(holdfast.WithLinger(time.Hour)), l.near()
		c.Mutex("x").Lock()
		c.Mutex("x").Unlock()
		require.NoError(t, l.lease(c, "y").Release(t.Context()))
		require.False(t, other.Mutex("y").TryLock())
		require.NoError(t, promptly(t, soon, c.Close))
		l.free(other, "x")
		l.free(other, "y")
		assert.Zero(t, c.Doors())
	})
}

// A hold that was lost is in the log, also when its Unlock is the first to look at the clock:
// the lock must not be kept for the next one as if it were still there.
func TestLossThatUnlockFindsIsLoggedThoughTheLockLingers(t *testing.T) {
	const ttl = time.Second
	for range 50 { // who is first of those that wait for the same moment is left to chance
		synctest.Test(t, func(t *testing.T) {
			log := new(labLog)
			c := holdfast.Open(unrenewed{memdriver.New()}, holdfast.WithTTL(ttl), holdfast.WithLinger(time.Hour),
				holdfast.WithLogger(slog.New(slog.NewTextHandler(log, nil))))
			mu := c.Mutex("x")
			over := time.Now().Add(ttl - ttl/100 - 2*time.Millisecond)
			mu.Lock()
			time.Sleep(time.Until(over))
			mu.Unlock()
			synctest.Wait()
			require.Equal(t, 1, strings.Count(log.String(), "lock lost"), log.String())
			require.NoError(t, c.Close())
		})
	}
}

// unrenewed is a store that cannot be reached by renewals.
type unrenewed struct{ *memdriver.Driver }

func (unrenewed) Renew(_ context.Context, leases []driver.Lease) []error {
	return slices.Repeat([]error{driver.ErrTransient}, len(leases))
}
