package holdfast_test

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver/redisdriver"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

// isRead checks that a lease is held alone, for reading or not.
func (l *lab) isRead(rw *holdfast.RWMutex, lease *holdfast.Lease, shared bool) {
	l.t.Helper()
	l.isHeldBy(rw, lease)
	assert.Equal(l.t, shared, l.look(rw).Holders[0].Shared, "held for reading")
}

func TestDowngradeLetsReadersInAndNoWriter(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		a, b := l.near().RWMutex("x"), l.near().RWMutex("x")
		lease := l.take(a.Lease)
		fence, token := lease.Fence(), lease.Token()
		var queue []*pending
		for i, ask := range []leasing{a.RLease, b.RLease, b.Lease, a.RLease} {
			queue = append(queue, l.ask(ask))
			l.untilWaiting(a, i+1)
		}
		require.NoError(t, lease.Downgrade(t.Context()))
		first, second := queue[0].granted(soon), queue[1].granted(soon)
		l.isHeldBy(a, lease, first, second)
		assert.Len(t, l.look(a).Queue, 2, "the writer waits, and who is behind it")
		assert.Equal(t, fence, lease.Fence())
		assert.Equal(t, token, lease.Token())
		require.NoError(t, lease.Context().Err())

		l.giveBack(first, second)
		l.isRead(a, lease, true)
		require.NoError(t, lease.Downgrade(t.Context())) // again
		l.isRead(a, lease, true)
		assert.Len(t, l.look(a).Queue, 2)
		l.giveBack(lease)
		writer := queue[2].granted(soon)
		l.isRead(a, writer, false)
		l.giveBack(writer)
		l.giveBack(queue[3].granted(soon))
		l.isClean("rwmutex", "x")
	})
}

// A writer at the head of the queue holds up the readers behind it, downgrade or not.
func TestDowngradeLetsNobodyOvertakeAWriter(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		a, b := l.near().RWMutex("x"), l.near().RWMutex("x")
		lease := l.take(a.Lease)
		writer := l.ask(b.Lease)
		l.untilWaiting(a, 1)
		reader := l.ask(a.RLease)
		l.untilWaiting(a, 2)
		require.NoError(t, lease.Downgrade(t.Context()))
		l.isRead(b, lease, true)
		assert.Len(t, l.look(a).Queue, 2)
		assert.False(t, b.TryRLock())
		l.giveBack(lease)
		next := writer.granted(soon)
		l.isRead(b, next, false)
		require.NoError(t, next.Downgrade(t.Context()))
		read := reader.granted(soon)
		l.isHeldBy(b, next, read)
		assert.False(t, a.TryLock())
		l.giveBack(next, read)
		l.isClean("rwmutex", "x")
	})
}

func TestDowngradeOfAFreeQueueLetsReadersTry(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		a, b := l.near().RWMutex("x"), l.near().RWMutex("x")
		lease := l.take(a.Lease)
		require.False(t, b.TryRLock())
		require.NoError(t, lease.Downgrade(t.Context()))
		assert.False(t, b.TryLock())
		_, err := b.TryLease(t.Context())
		require.ErrorIs(t, err, holdfast.ErrLocked)
		require.True(t, b.TryRLock())
		b.RUnlock()
		// It carries a lease still, also for the check of deadlocks.
		_, err = a.RLease(lease.Context())
		require.ErrorIs(t, err, holdfast.ErrDeadlock)
		l.giveBack(lease)
		require.True(t, b.TryLock())
		b.Unlock()
	})
}

func TestDowngradeOfAReadLeaseDoesNothing(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		rw := l.far().RWMutex("x")
		lease := l.take(rw.RLease)
		sent := l.count(l.on("rwmutex", "x"))
		require.NoError(t, lease.Downgrade(t.Context()))
		assert.Zero(t, sent.Load())
		l.isRead(rw, lease, true)
		l.giveBack(lease)
		require.ErrorIs(t, lease.Downgrade(t.Context()), holdfast.ErrNotHeld)
	})
}

func TestOnlyRWMutexesAreDowngraded(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		c := l.near()
		s := c.Semaphore("x", 3)
		for k, ask := range map[lock]leasing{c.Mutex("x"): c.Mutex("x").Lease, s: permits(s, 3)} {
			lease := l.take(ask)
			err := lease.Downgrade(t.Context())
			require.ErrorIs(t, err, errors.ErrUnsupported)
			var lockError *holdfast.LockError
			require.ErrorAs(t, err, &lockError)
			assert.Equal(t, "x", lockError.Name)
			l.isHeldBy(k, lease)
			l.giveBack(lease)
		}

		d := redisdriver.New(l.s.Client(t), redisdriver.WithPrefix(l.s.Prefix()), redisdriver.WithRetention(l.retention))
		unable := holdfast.Open(bare{d}, holdfast.WithTTL(ages))
		defer func() { assert.NoError(t, unable.Close()) }()
		rw := l.near().RWMutex("x")
		lease := l.take(unable.RWMutex("x").Lease)
		require.ErrorIs(t, lease.Downgrade(t.Context()), errors.ErrUnsupported)
		l.isRead(rw, lease, false)
		l.giveBack(lease)
		_, err := unable.RWMutex("x").Inspect(t.Context())
		require.ErrorIs(t, err, errors.ErrUnsupported)
		require.ErrorIs(t, unable.RWMutex("x").ForceUnlock(t.Context()), errors.ErrUnsupported)
		require.ErrorIs(t, unable.Semaphore("x", 3).Resize(t.Context(), 4), errors.ErrUnsupported)
	})
}

func TestDowngradeOfALostLeaseIsErrLost(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		far, near := l.far().RWMutex("x"), l.near().RWMutex("x")
		// It does not know yet: the next renewal is 10 s away.
		lease := l.take(far.Lease)
		require.NoError(t, near.ForceUnlock(t.Context()))
		reader := l.take(near.RLease)
		require.NoError(t, lease.Err())
		err := lease.Downgrade(t.Context())
		require.ErrorIs(t, err, holdfast.ErrLost)
		requireNoToken(t, err.Error())
		require.ErrorIs(t, context.Cause(lease.Context()), holdfast.ErrLost)
		// And now it does.
		require.ErrorIs(t, lease.Downgrade(t.Context()), holdfast.ErrLost)
		require.ErrorIs(t, lease.Release(t.Context()), holdfast.ErrLost)
		l.isHeldBy(near, reader)
		l.giveBack(reader)
	})
}

// knowsDowngrade lets Redis know the script, so that the next one is carried out at once.
func (l *lab) knowsDowngrade() {
	l.t.Helper()
	lease := l.take(l.near().RWMutex("knows").Lease)
	require.NoError(l.t, lease.Downgrade(l.t.Context()))
	l.giveBack(lease)
}

func TestDowngradeWhoseReplyIsLostIsRepeated(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		l.knowsDowngrade()
		far, near := l.far().RWMutex("x"), l.near().RWMutex("x")
		lease := l.take(far.Lease)
		reader, writer := l.ask(near.RLease), (*pending)(nil)
		l.untilWaiting(near, 1)
		writer = l.ask(near.Lease)
		l.untilWaiting(near, 2)
		lost := l.link.DropReply(l.on("rwmutex", "x"))
		require.NoError(t, promptly(t, soon, func() error { return lease.Downgrade(t.Context()) }))
		l.untilStruck(lost)
		read := reader.granted(soon)
		l.isHeldBy(near, lease, read)
		assert.Len(t, l.look(near).Queue, 1)
		l.giveBack(lease, read)
		l.giveBack(writer.granted(soon))
	})
}

func TestDowngradeEndsWithItsContextThoughTheLinkIsDead(t *testing.T) {
	t.Parallel()
	withPatience(t, func(t *testing.T, l *lab) {
		l.knowsDowngrade()
		far, near := l.far().RWMutex("x"), l.near().RWMutex("x")
		lease := l.take(far.Lease)
		gone := errors.New("gone")
		ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, gone)
		defer cancel()
		l.link.BlackHoleRequests(true)
		require.ErrorIs(t, promptly(t, 50*time.Millisecond+l.slack, func() error { return lease.Downgrade(ctx) }), gone)
		l.link.BlackHoleRequests(false)
		l.link.Cut()
		l.isRead(near, lease, false)
		assert.False(t, near.TryRLock())
		require.NoError(t, lease.Downgrade(t.Context()))
		l.isRead(near, lease, true)
		l.giveBack(lease)
		l.isClean("rwmutex", "x")
	})
}

func TestDowngradedLeaseIsRenewedAndLostAsAnyOther(t *testing.T) {
	t.Parallel()
	withPatience(t, func(t *testing.T, l *lab) {
		l.remember()
		const ttl = 1500 * time.Millisecond
		far, near := l.far(holdfast.WithTTL(ttl)).RWMutex("x"), l.near().RWMutex("x")
		lease := l.take(far.Lease)
		require.NoError(t, lease.Downgrade(t.Context()))
		writer := l.ask(near.Lease)
		select {
		case <-lease.Done():
			t.Fatalf("lost: %v", lease.Err())
		case <-time.After(2 * ttl):
		}
		l.isRead(near, lease, true)
		l.link.BlackHole(true)
		l.loses(lease, ttl+l.slack)
		next := writer.granted(ttl + l.slack)
		l.link.BlackHole(false)
		l.link.Cut()
		require.ErrorIs(t, lease.Downgrade(t.Context()), holdfast.ErrLost)
		require.ErrorIs(t, lease.Release(t.Context()), holdfast.ErrLost)
		l.isRead(near, next, false)
		l.giveBack(next)
	})
}

// endsNow is a context that ends between the first look at Err and the look at Done.
type endsNow struct {
	context.Context
	cancel context.CancelFunc
}

func (e endsNow) Done() <-chan struct{} {
	e.cancel()
	return e.Context.Done()
}

// lowerUnheard calls Downgrade, which returns before the command has been sent. With one
// processor the goroutine that sends it has not run by then.
func lowerUnheard(t *testing.T, lease *holdfast.Lease) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	require.ErrorIs(t, lease.Downgrade(endsNow{ctx, cancel}), context.Canceled)
}

// A command of Downgrade that is on its way when the lease is released must find no other
// writer under its token.
func TestDowngradeNeverLandsOnTheNextWriter(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	inBubble(t, func(t *testing.T, l *lab) {
		c, other := l.mates(), l.near()
		first := l.take(c.RWMutex("x").Lease)
		second := l.queue(1, c.RWMutex("x").Lease)[0]
		lowerUnheard(t, first)
		l.giveBack(first)
		writer := second.granted(soon)
		// Whatever was on its way has arrived when this has been answered.
		require.NoError(t, writer.Renew(t.Context()))
		l.isRead(c.RWMutex("x"), writer, false)
		require.False(t, other.RWMutex("x").TryRLock(), "a reader beside a writer")
		l.giveBack(writer)
	})
}

// The same term must not be kept for a while, either: nobody would give it up.
func TestDowngradedLeaseDoesNotLinger(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		l := newLab(t, s)
		l.remember()
		c := l.mates(holdfast.WithLinger(time.Hour))
		lease := l.take(c.RWMutex("x").Lease)
		lowerUnheard(t, lease)
		l.giveBack(lease)
		l.until("it is free for writing", l.near().RWMutex("x").TryLock)
	})
}

// A Downgrade that was refused has changed nothing, also for who has the lock next.
func TestRefusedDowngradeLeavesTheLeaseAsItWas(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		c := l.mates(holdfast.WithReentrancy())
		over, cancel := context.WithCancel(t.Context())
		cancel()
		for name, refused := range map[string]struct {
			lease leasing
			ctx   context.Context
			want  error
		}{
			"another kind": {c.Mutex("x").Lease, t.Context(), errors.ErrUnsupported},
			"an ended ctx": {c.RWMutex("x").Lease, over, context.Canceled},
			"an owner's":   {c.RWMutex("x", holdfast.WithOwner("o")).Lease, t.Context(), errors.ErrUnsupported},
		} {
			lease := l.take(refused.lease)
			require.ErrorIs(t, lease.Downgrade(refused.ctx), refused.want, name)
			nested, err := refused.lease(lease.Context())
			require.NoError(t, err, name)
			l.giveBack(nested, lease)
		}
	})
}

// A lease that has been released has nothing to lower, although its term may go on.
func TestReleasedLeaseIsNotDowngraded(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		c := l.mates(holdfast.WithLinger(time.Hour))
		lease := l.take(c.RWMutex("x").Lease)
		l.giveBack(lease)
		require.ErrorIs(t, lease.Downgrade(t.Context()), holdfast.ErrNotHeld)
		next := l.take(c.RWMutex("x").Lease)
		require.False(t, l.near().RWMutex("x").TryRLock())
		l.giveBack(next)
	})
}
