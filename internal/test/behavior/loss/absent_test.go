package loss_test

import (
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/test/behavior/lab"
)

// A lost lock stays locked in this process until its Unlock, and others elsewhere can have it.
func TestLostRWMutexStaysLockedHere(t *testing.T) {
	t.Parallel()
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		c, near := l.Near(holdfast.WithTTL(l.Time(300*time.Millisecond))), l.Near().RWMutex("x")
		rw := c.RWMutex("x")
		rw.Lock()
		require.NoError(t, near.ForceUnlock(t.Context()))
		l.UntilLogged("x", 1)
		assert.False(t, rw.TryLock(), "written")
		assert.False(t, rw.TryRLock(), "written")
		require.True(t, near.TryLock())
		near.Unlock()
		rw.Unlock()

		rw.RLock()
		require.NoError(t, near.ForceUnlock(t.Context()))
		l.UntilLogged("x", 2)
		assert.False(t, rw.TryLock(), "read")
		require.True(t, near.TryLock())
		near.Unlock()
		require.True(t, rw.TryRLock(), "others may read beside one whose lease is lost")
		rw.RUnlock()
		rw.RUnlock()
		require.True(t, rw.TryLock())
		rw.Unlock()
		l.IsClean("rwmutex", "x")
	})
}

// One reader of two is lost, and the lease of the other one is good.
func TestRUnlockPrefersTheReaderThatWasLost(t *testing.T) {
	t.Parallel()
	lab.WithPatience(t, func(t *testing.T, l *lab.Lab) {
		const ttl = 300 * time.Millisecond
		for _, goodFirst := range []bool{true, false} {
			c, near := l.Near(), l.Near().RWMutex("x")
			doomed := c.RWMutex("x", holdfast.WithoutRenewal(), holdfast.WithTTL(ttl))
			good := c.RWMutex("x")
			if goodFirst {
				good.RLock()
				doomed.RLock()
			} else {
				doomed.RLock()
				good.RLock()
			}
			before := strings.Count(l.Log.String(), "lock lost")
			l.UntilLogged("x", before+1)
			l.UntilHolding(near, 1)
			good.RUnlock() // whose ever it is
			l.UntilHolding(near, 1)
			assert.False(t, near.TryLock(), "one still reads")
			good.RUnlock()
			l.Until("nobody reads", near.TryLock) // what was lost may last a moment longer in the store
			near.Unlock()
		}
	})
}

// Just after a suspension nothing is known to be lost, but the clock shows what is.
// In virtual time that moment can be met: the reader's deadline.
func TestRUnlockLooksAtTheClock(t *testing.T) {
	const ttl = time.Second
	for range 50 { // who is first of those that wait for the same moment is left to chance
		synctest.Test(t, func(t *testing.T) {
			p := lab.NewPlay()
			c := holdfast.Open(p, holdfast.WithTTL(time.Hour), holdfast.WithLogger(slog.New(slog.DiscardHandler)))
			locked := lab.Begin(func() {
				c.RWMutex("x").RLock()
				c.RWMutex("x", holdfast.WithoutRenewal(), holdfast.WithTTL(ttl)).RLock()
			})
			good := <-p.Asks
			good.Granted(1)
			doomed := <-p.Asks
			doomed.Granted(2)
			require.Nil(t, <-locked)
			time.Sleep(ttl - ttl/100 - 2*time.Millisecond)
			c.RWMutex("x").RUnlock()
			synctest.Wait()
			first := p.Released()[0]
			c.RWMutex("x").RUnlock()
			require.NoError(t, c.Close())
			require.Equal(t, doomed.Token, first.Token, "a good lease was given up for one that is over")
		})
	}
}

// The dead are not carried along by the living.
func TestExpiryOfOneIsNotPutOffByRenewalOfOthers(t *testing.T) {
	t.Parallel()
	lab.WithPatience(t, func(t *testing.T, l *lab.Lab) {
		const ttl = 1500 * time.Millisecond
		l.Remember()
		far, near := l.Far(holdfast.WithTTL(ttl)), l.Near(holdfast.WithTTL(ttl))
		s, rw := near.Semaphore("x", 4), near.RWMutex("x")
		dead := l.Take(lab.Permits(far.Semaphore("x", 4), 2))
		deadReader := l.Take(far.RWMutex("x").RLease)
		alive, reader := l.Take(lab.Permits(s, 2)), l.Take(rw.RLease)
		waits, writer := l.Ask(lab.Permits(s, 2)), l.Ask(rw.Lease)
		l.UntilWaiting(s, 1)
		l.UntilWaiting(rw, 1)
		l.Link.BlackHole(true)
		next := waits.Granted(ttl + ttl/20 + ttl/3 + l.Slack)
		require.ErrorIs(t, dead.Err(), holdfast.ErrLost)
		l.IsHeldBy(s, alive, next)
		l.Loses(deadReader, l.Slack)
		l.UntilHolding(rw, 1)
		l.IsHeldBy(rw, reader)
		l.GiveBack(reader)
		l.GiveBack(writer.Granted(ttl/3+l.Slack), alive, next)
		l.Heal()
	})
}

func TestForceUnlockTakesTheLockFromAll(t *testing.T) {
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		// Having had to wait once, they listen.
		near, c := l.Near(), l.Far()
		rw, s := near.RWMutex("x"), near.Semaphore("x", 4)
		held := l.Take(near.RWMutex("x").Lease)
		readers := []*lab.Pending{l.Ask(c.RWMutex("x").RLease), l.Ask(c.RWMutex("x").RLease)}
		l.UntilWaiting(rw, 2)
		l.GiveBack(held)
		first, second := readers[0].Granted(lab.Soon), readers[1].Granted(lab.Soon)
		some, more := l.Take(lab.Permits(c.Semaphore("x", 4), 3)), l.Take(lab.Permits(c.Semaphore("x", 4), 1))
		c.RWMutex("x").RLock()
		writer, large := l.Ask(rw.Lease), l.Ask(lab.Permits(s, 4))
		l.UntilWaiting(rw, 1)
		l.UntilWaiting(s, 1)

		require.NoError(t, rw.ForceUnlock(t.Context()))
		lease := writer.Granted(lab.Soon)
		l.IsHeldBy(rw, lease)
		require.NoError(t, s.ForceUnlock(t.Context()))
		all := large.Granted(lab.Soon)
		l.IsHeldBy(s, all)
		for _, lost := range []*holdfast.Lease{first, second, some, more} { // the next renewal is 12 s away
			l.Loses(lost, lab.Soon)
			require.ErrorIs(t, lost.Release(t.Context()), holdfast.ErrLost)
		}
		l.UntilLogged("x", 5)
		c.RWMutex("x").RUnlock()
		l.IsHeldBy(rw, lease)
		l.GiveBack(lease, all)
		require.ErrorIs(t, rw.ForceUnlock(t.Context()), holdfast.ErrNotHeld)
		require.ErrorIs(t, s.ForceUnlock(t.Context()), holdfast.ErrNotHeld)

		// Also a writer.
		lease = l.Take(c.RWMutex("x").Lease)
		queue := []*lab.Pending{l.Ask(rw.RLease), l.Ask(rw.RLease)}
		l.UntilWaiting(rw, 2)
		require.NoError(t, rw.ForceUnlock(t.Context()))
		l.GiveBack(queue[0].Granted(lab.Soon), queue[1].Granted(lab.Soon))
		l.Loses(lease, lab.Soon)
		l.IsClean("rwmutex", "x")
	})
}

// A caller with permits by Acquire is not told, but has to release them nevertheless.
func TestLostPermitsMustBeReleasedNevertheless(t *testing.T) {
	t.Parallel()
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		c := l.Near(holdfast.WithTTL(l.Time(300 * time.Millisecond)))
		s, other := c.Semaphore("x", 4), l.Near().Semaphore("x", 4)
		require.NoError(t, s.Acquire(t.Context(), 3))
		require.NoError(t, other.ForceUnlock(t.Context()))
		l.UntilLogged("x", 1)
		require.True(t, other.TryAcquire(4))
		lab.Panics(t, func() { s.Release(4) })
		s.Release(1)
		s.Release(2)
		lab.Panics(t, func() { s.Release(1) })
		assert.Equal(t, []int64{4}, l.Weights(other))
		other.Release(4)
		l.IsClean("semaphore", "x")
	})
}
