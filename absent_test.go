package holdfast_test

import (
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

// Readers, writers and holders of permits who are cut off or forced out, and come back.

// untilLogged waits until the loss of a lock is in the log, once for each of n leases.
func (l *lab) untilLogged(name string, n int) {
	l.t.Helper()
	l.until("the loss is in the log", func() bool {
		return strings.Count(l.log.String(), "holdfast: lock lost") >= n && strings.Contains(l.log.String(), "lock="+name)
	})
}

func (l *lab) heal() { l.link.BlackHole(false); l.link.Cut() }

// A reader that is cut off stays locked in its process until it says RUnlock, which
// must not end the lease of anybody else, whatever that has got meanwhile.
func TestLateRUnlockOfAnExpiredReaderLetsNobodyIn(t *testing.T) {
	t.Parallel()
	withPatience(t, func(t *testing.T, l *lab) {
		l.remember()
		const ttl = 1500 * time.Millisecond
		c, near := l.far(holdfast.WithTTL(ttl)), l.near().RWMutex("x")
		rw := c.RWMutex("x")
		rw.RLock()
		rw.RLock()
		writer := l.ask(near.Lease)
		l.untilWaiting(near, 1)
		l.link.BlackHole(true)
		lease := writer.granted(ttl + ttl/20 + ttl/3 + l.slack)
		l.untilLogged("x", 2)
		l.heal()

		// Readers of the same process queue behind the writer.
		late := begin(rw.RLock)
		l.untilWaiting(near, 1)
		rw.RUnlock()
		l.isHeldBy(near, lease)
		rw.RUnlock()
		l.isHeldBy(near, lease)
		assert.False(t, rw.TryRLock())
		assert.False(t, near.TryRLock())
		l.stays(late)
		l.giveBack(lease)
		l.ends(late)
		rw.RUnlock()
		assert.Contains(t, panics(t, rw.RUnlock), "RUnlock of unlocked RWMutex")
		l.isClean("rwmutex", "x")
	})
}

// What is lost is locked in this process until it is unlocked, and by nobody elsewhere.
func TestLostRWMutexStaysLockedHere(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		c, near := l.near(holdfast.WithTTL(900*time.Millisecond)), l.near().RWMutex("x")
		rw := c.RWMutex("x")
		rw.Lock()
		require.NoError(t, near.ForceUnlock(t.Context()))
		l.untilLogged("x", 1)
		assert.False(t, rw.TryLock(), "written")
		assert.False(t, rw.TryRLock(), "written")
		require.True(t, near.TryLock())
		near.Unlock()
		rw.Unlock()

		rw.RLock()
		require.NoError(t, near.ForceUnlock(t.Context()))
		l.untilLogged("x", 2)
		assert.False(t, rw.TryLock(), "read")
		require.True(t, near.TryLock())
		near.Unlock()
		require.True(t, rw.TryRLock(), "others may read beside one whose lease is lost")
		rw.RUnlock()
		rw.RUnlock()
		require.True(t, rw.TryLock())
		rw.Unlock()
		l.isClean("rwmutex", "x")
	})
}

// One reader of two is lost, and the lease of the other one is good.
func TestRUnlockPrefersTheReaderThatWasLost(t *testing.T) {
	t.Parallel()
	withPatience(t, func(t *testing.T, l *lab) {
		const ttl = 300 * time.Millisecond
		for _, goodFirst := range []bool{true, false} {
			c, near := l.near(), l.near().RWMutex("x")
			doomed := c.RWMutex("x", holdfast.WithoutRenewal(), holdfast.WithTTL(ttl))
			good := c.RWMutex("x")
			if goodFirst {
				good.RLock()
				doomed.RLock()
			} else {
				doomed.RLock()
				good.RLock()
			}
			before := strings.Count(l.log.String(), "lock lost")
			l.untilLogged("x", before+1)
			l.untilHolding(near, 1)
			good.RUnlock() // whose ever it is
			l.untilHolding(near, 1)
			assert.False(t, near.TryLock(), "one still reads")
			good.RUnlock()
			l.until("nobody reads", near.TryLock) // what was lost may last a moment longer in the store
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
			p := &play{asks: make(chan *ask, 16)}
			c := holdfast.Open(p, holdfast.WithTTL(time.Hour), holdfast.WithLogger(slog.New(slog.DiscardHandler)))
			locked := begin(func() {
				c.RWMutex("x").RLock()
				c.RWMutex("x", holdfast.WithoutRenewal(), holdfast.WithTTL(ttl)).RLock()
			})
			good := <-p.asks
			good.granted(1)
			doomed := <-p.asks
			doomed.granted(2)
			require.Nil(t, <-locked)
			time.Sleep(ttl - ttl/100 - 2*time.Millisecond)
			c.RWMutex("x").RUnlock()
			synctest.Wait()
			first := p.released()[0]
			c.RWMutex("x").RUnlock()
			require.NoError(t, c.Close())
			require.Equal(t, doomed.Token, first.Token, "a good lease was given up for one that is over")
		})
	}
}

// released are the leases that were, so far.
func (p *play) released() []driver.Lease {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.lease)
}

// The dead are not carried along by the living.
func TestExpiryOfOneIsNotPutOffByRenewalOfOthers(t *testing.T) {
	t.Parallel()
	withPatience(t, func(t *testing.T, l *lab) {
		const ttl = 1500 * time.Millisecond
		l.remember()
		far, near := l.far(holdfast.WithTTL(ttl)), l.near(holdfast.WithTTL(ttl))
		s, rw := near.Semaphore("x", 4), near.RWMutex("x")
		dead := l.take(permits(far.Semaphore("x", 4), 2))
		deadReader := l.take(far.RWMutex("x").RLease)
		alive, reader := l.take(permits(s, 2)), l.take(rw.RLease)
		waits, writer := l.ask(permits(s, 2)), l.ask(rw.Lease)
		l.untilWaiting(s, 1)
		l.untilWaiting(rw, 1)
		l.link.BlackHole(true)
		next := waits.granted(ttl + ttl/20 + ttl/3 + l.slack)
		require.ErrorIs(t, dead.Err(), holdfast.ErrLost)
		l.isHeldBy(s, alive, next)
		l.loses(deadReader, l.slack)
		l.untilHolding(rw, 1)
		l.isHeldBy(rw, reader)
		l.giveBack(reader)
		l.giveBack(writer.granted(ttl/3+l.slack), alive, next)
		l.heal()
	})
}

// A writer that is cut off while it waits loses its place to those behind it. When it
// is back it waits again: it never has the lock beside others.
func TestExpiredWaitingWriterNeverGetsTheLock(t *testing.T) {
	t.Parallel()
	withPatience(t, func(t *testing.T, l *lab) {
		const ttl = 1500 * time.Millisecond
		l.remember()
		far, a := l.far(holdfast.WithTTL(ttl)).RWMutex("x"), l.near(holdfast.WithTTL(ttl)).RWMutex("x")
		held := l.take(a.RLease)
		cut := l.ask(far.Lease)
		l.untilWaiting(a, 1)
		behind := l.ask(a.RLease)
		l.untilWaiting(a, 2)
		l.link.BlackHole(true)
		reader := behind.granted(ttl + ttl/3 + l.slack)
		l.isHeldBy(a, held, reader)
		l.giveBack(held)
		l.isHeldBy(a, reader)
		l.heal()
		l.untilWaiting(a, 1) // it asks again
		select {
		case <-cut.done:
			t.Fatalf("the writer returned beside a reader: %v", cut.err)
		default:
		}
		l.giveBack(reader)
		l.giveBack(cut.granted(ttl/3 + l.slack))
		l.isClean("rwmutex", "x")
	})
}

func TestForceUnlockTakesTheLockFromAll(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		// Having had to wait once, they listen.
		near, c := l.near(), l.far()
		rw, s := near.RWMutex("x"), near.Semaphore("x", 4)
		held := l.take(near.RWMutex("x").Lease)
		readers := []*pending{l.ask(c.RWMutex("x").RLease), l.ask(c.RWMutex("x").RLease)}
		l.untilWaiting(rw, 2)
		l.giveBack(held)
		first, second := readers[0].granted(soon), readers[1].granted(soon)
		some, more := l.take(permits(c.Semaphore("x", 4), 3)), l.take(permits(c.Semaphore("x", 4), 1))
		c.RWMutex("x").RLock()
		writer, large := l.ask(rw.Lease), l.ask(permits(s, 4))
		l.untilWaiting(rw, 1)
		l.untilWaiting(s, 1)

		require.NoError(t, rw.ForceUnlock(t.Context()))
		lease := writer.granted(soon)
		l.isHeldBy(rw, lease)
		require.NoError(t, s.ForceUnlock(t.Context()))
		all := large.granted(soon)
		l.isHeldBy(s, all)
		for _, lost := range []*holdfast.Lease{first, second, some, more} { // the next renewal is 10 s away
			l.loses(lost, soon)
			require.ErrorIs(t, lost.Release(t.Context()), holdfast.ErrLost)
		}
		l.untilLogged("x", 5)
		c.RWMutex("x").RUnlock()
		l.isHeldBy(rw, lease)
		l.giveBack(lease, all)
		require.ErrorIs(t, rw.ForceUnlock(t.Context()), holdfast.ErrNotHeld)
		require.ErrorIs(t, s.ForceUnlock(t.Context()), holdfast.ErrNotHeld)

		// Also a writer.
		lease = l.take(c.RWMutex("x").Lease)
		queue := []*pending{l.ask(rw.RLease), l.ask(rw.RLease)}
		l.untilWaiting(rw, 2)
		require.NoError(t, rw.ForceUnlock(t.Context()))
		l.giveBack(queue[0].granted(soon), queue[1].granted(soon))
		l.loses(lease, soon)
		l.isClean("rwmutex", "x")
	})
}

// Who has permits by Acquire is not told, but has to release them nevertheless.
func TestLostPermitsMustBeReleasedNevertheless(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		c := l.near(holdfast.WithTTL(900 * time.Millisecond))
		s, other := c.Semaphore("x", 4), l.near().Semaphore("x", 4)
		require.NoError(t, s.Acquire(t.Context(), 3))
		require.NoError(t, other.ForceUnlock(t.Context()))
		l.untilLogged("x", 1)
		require.True(t, other.TryAcquire(4))
		panics(t, func() { s.Release(4) })
		s.Release(1)
		s.Release(2)
		panics(t, func() { s.Release(1) })
		assert.Equal(t, []int64{4}, l.weights(other))
		other.Release(4)
		l.isClean("semaphore", "x")
	})
}
