package exclusion_test

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
	"github.com/holdfast-go/holdfast/internal/test/behavior/lab"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

// isRead checks that a lease is held alone, for reading or not.
func isRead(l *lab.Lab, rw *holdfast.RWMutex, lease *holdfast.Lease, shared bool) {
	l.T.Helper()
	l.IsHeldBy(rw, lease)
	assert.Equal(l.T, shared, l.Look(rw).Holders[0].Shared, "held for reading")
}

func TestDowngradeLetsReadersInAndNoWriter(t *testing.T) {
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		a, b := l.Near().RWMutex("x"), l.Near().RWMutex("x")
		lease := l.Take(a.Lease)
		fence, token := lease.Fence(), lease.Token()
		var queue []*lab.Pending
		for i, ask := range []lab.Leasing{a.RLease, b.RLease, b.Lease, a.RLease} {
			queue = append(queue, l.Ask(ask))
			l.UntilWaiting(a, i+1)
		}
		require.NoError(t, lease.Downgrade(t.Context()))
		first, second := queue[0].Granted(lab.Soon), queue[1].Granted(lab.Soon)
		l.IsHeldBy(a, lease, first, second)
		assert.Len(t, l.Look(a).Queue, 2, "the writer waits, and who is behind it")
		assert.Equal(t, fence, lease.Fence())
		assert.Equal(t, token, lease.Token())
		require.NoError(t, lease.Context().Err())

		l.GiveBack(first, second)
		isRead(l, a, lease, true)
		require.NoError(t, lease.Downgrade(t.Context())) // again
		isRead(l, a, lease, true)
		assert.Len(t, l.Look(a).Queue, 2)
		l.GiveBack(lease)
		writer := queue[2].Granted(lab.Soon)
		isRead(l, a, writer, false)
		l.GiveBack(writer)
		l.GiveBack(queue[3].Granted(lab.Soon))
		l.IsClean("rwmutex", "x")
	})
}

// A writer at the head of the queue holds up the readers behind it, downgrade or not.
func TestDowngradeLetsNobodyOvertakeAWriter(t *testing.T) {
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		a, b := l.Near().RWMutex("x"), l.Near().RWMutex("x")
		lease := l.Take(a.Lease)
		writer := l.Ask(b.Lease)
		l.UntilWaiting(a, 1)
		reader := l.Ask(a.RLease)
		l.UntilWaiting(a, 2)
		require.NoError(t, lease.Downgrade(t.Context()))
		isRead(l, b, lease, true)
		assert.Len(t, l.Look(a).Queue, 2)
		assert.False(t, b.TryRLock())
		l.GiveBack(lease)
		next := writer.Granted(lab.Soon)
		isRead(l, b, next, false)
		require.NoError(t, next.Downgrade(t.Context()))
		read := reader.Granted(lab.Soon)
		l.IsHeldBy(b, next, read)
		assert.False(t, a.TryLock())
		l.GiveBack(next, read)
		l.IsClean("rwmutex", "x")
	})
}

func TestDowngradeOfAReadLeaseDoesNothing(t *testing.T) {
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		rw := l.Far().RWMutex("x")
		lease := l.Take(rw.RLease)
		sent := l.Count(l.On("rwmutex", "x"))
		require.NoError(t, lease.Downgrade(t.Context()))
		assert.Zero(t, sent.Load())
		isRead(l, rw, lease, true)
		l.GiveBack(lease)
		require.ErrorIs(t, lease.Downgrade(t.Context()), holdfast.ErrNotHeld)
	})
}

func TestOnlyRWMutexesAreDowngraded(t *testing.T) {
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		c := l.Near()
		s := c.Semaphore("x", 3)
		for k, ask := range map[lab.Lock]lab.Leasing{c.Mutex("x"): c.Mutex("x").Lease, s: lab.Permits(s, 3)} {
			lease := l.Take(ask)
			err := lease.Downgrade(t.Context())
			require.ErrorIs(t, err, errors.ErrUnsupported)
			var lockError *holdfast.LockError
			require.ErrorAs(t, err, &lockError)
			assert.Equal(t, "x", lockError.Name)
			l.IsHeldBy(k, lease)
			l.GiveBack(lease)
		}

		d := redisdriver.New(l.Server.Client(t), redisdriver.WithPrefix(l.Server.Prefix()), redisdriver.WithRetention(l.Retention))
		unable := holdfast.Open(lab.Bare{Driver: d}, holdfast.WithTTL(lab.Ages))
		defer func() { assert.NoError(t, unable.Close()) }()
		rw := l.Near().RWMutex("x")
		lease := l.Take(unable.RWMutex("x").Lease)
		require.ErrorIs(t, lease.Downgrade(t.Context()), errors.ErrUnsupported)
		isRead(l, rw, lease, false)
		l.GiveBack(lease)
		_, err := unable.RWMutex("x").Inspect(t.Context())
		require.ErrorIs(t, err, errors.ErrUnsupported)
		require.ErrorIs(t, unable.RWMutex("x").ForceUnlock(t.Context()), errors.ErrUnsupported)
		require.ErrorIs(t, unable.Semaphore("x", 3).Resize(t.Context(), 4), errors.ErrUnsupported)
	})
}

func TestDowngradeOfALostLeaseIsErrLost(t *testing.T) {
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		far, near := l.Far().RWMutex("x"), l.Near().RWMutex("x")
		// It does not know yet: the next renewal is 12 s away.
		lease := l.Take(far.Lease)
		require.NoError(t, near.ForceUnlock(t.Context()))
		reader := l.Take(near.RLease)
		require.NoError(t, lease.Err())
		err := lease.Downgrade(t.Context())
		require.ErrorIs(t, err, holdfast.ErrLost)
		lab.RequireNoToken(t, err.Error())
		require.ErrorIs(t, context.Cause(lease.Context()), holdfast.ErrLost)
		// And now it does.
		require.ErrorIs(t, lease.Downgrade(t.Context()), holdfast.ErrLost)
		require.ErrorIs(t, lease.Release(t.Context()), holdfast.ErrLost)
		l.IsHeldBy(near, reader)
		l.GiveBack(reader)
	})
}

// Nor does a caller that has the time wait for a store that is silent, to hear that it has nothing to downgrade.
func TestDowngradeEndsWithTheLease(t *testing.T) {
	lab.InBubble(t, func(t *testing.T, l *lab.Lab) {
		const ttl = 2 * time.Second
		lease := l.Take(l.Far(holdfast.WithTTL(ttl)).RWMutex("x").Lease)
		l.Link.BlackHole(true)
		downgraded := make(chan error, 1)
		go func() { downgraded <- lease.Downgrade(context.Background()) }()
		require.ErrorIs(t, lab.Promptly(t, lab.Ages, func() error { return <-downgraded }), holdfast.ErrLost)
		l.Heal()
	})
}

// knowsDowngrade lets Redis know the script, so that the next one is carried out at once.
func knowsDowngrade(l *lab.Lab) {
	l.T.Helper()
	lease := l.Take(l.Near().RWMutex("knows").Lease)
	require.NoError(l.T, lease.Downgrade(l.T.Context()))
	l.GiveBack(lease)
}

func TestDowngradeWhoseReplyIsLostIsRepeated(t *testing.T) {
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		knowsDowngrade(l)
		far, near := l.Far().RWMutex("x"), l.Near().RWMutex("x")
		lease := l.Take(far.Lease)
		reader, writer := l.Ask(near.RLease), (*lab.Pending)(nil)
		l.UntilWaiting(near, 1)
		writer = l.Ask(near.Lease)
		l.UntilWaiting(near, 2)
		lost := l.Link.DropReply(l.On("rwmutex", "x"))
		require.NoError(t, lab.Promptly(t, lab.Soon, func() error { return lease.Downgrade(t.Context()) }))
		l.UntilStruck(lost)
		read := reader.Granted(lab.Soon)
		l.IsHeldBy(near, lease, read)
		assert.Len(t, l.Look(near).Queue, 1)
		l.GiveBack(lease, read)
		l.GiveBack(writer.Granted(lab.Soon))
	})
}

func TestDowngradeEndsWithItsContextThoughTheLinkIsDead(t *testing.T) {
	t.Parallel()
	lab.WithPatience(t, func(t *testing.T, l *lab.Lab) {
		knowsDowngrade(l)
		far, near := l.Far().RWMutex("x"), l.Near().RWMutex("x")
		lease := l.Take(far.Lease)
		gone := errors.New("gone")
		ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, gone)
		defer cancel()
		l.Link.BlackHoleRequests(true)
		require.ErrorIs(t, lab.Promptly(t, 50*time.Millisecond+l.Slack, func() error { return lease.Downgrade(ctx) }), gone)
		l.Link.BlackHoleRequests(false)
		l.Link.Cut()
		isRead(l, near, lease, false)
		assert.False(t, near.TryRLock())
		require.NoError(t, lease.Downgrade(t.Context()))
		isRead(l, near, lease, true)
		l.GiveBack(lease)
		l.IsClean("rwmutex", "x")
	})
}

func TestDowngradedLeaseIsRenewedAndLostAsAnyOther(t *testing.T) {
	t.Parallel()
	lab.WithPatience(t, func(t *testing.T, l *lab.Lab) {
		l.Remember()
		const ttl = 1500 * time.Millisecond
		far, near := l.Far(holdfast.WithTTL(ttl)).RWMutex("x"), l.Near().RWMutex("x")
		lease := l.Take(far.Lease)
		require.NoError(t, lease.Downgrade(t.Context()))
		writer := l.Ask(near.Lease)
		select {
		case <-lease.Done():
			t.Fatalf("lost: %v", lease.Err())
		case <-time.After(2 * ttl):
		}
		isRead(l, near, lease, true)
		l.Link.BlackHole(true)
		l.Loses(lease, ttl+l.Slack)
		next := writer.Granted(ttl + l.Slack)
		l.Link.BlackHole(false)
		l.Link.Cut()
		require.ErrorIs(t, lease.Downgrade(t.Context()), holdfast.ErrLost)
		require.ErrorIs(t, lease.Release(t.Context()), holdfast.ErrLost)
		isRead(l, near, next, false)
		l.GiveBack(next)
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
	lab.InBubble(t, func(t *testing.T, l *lab.Lab) {
		c, other := l.Mates(), l.Near()
		known(l, other.RWMutex("x"))
		first := l.Take(c.RWMutex("x").Lease)
		second := l.Queue(1, c.RWMutex("x").Lease)[0]
		lowerUnheard(t, first)
		l.GiveBack(first)
		writer := second.Granted(lab.Soon)
		// All that was on its way has arrived when this has been answered.
		require.NoError(t, writer.Renew(t.Context()))
		isRead(l, c.RWMutex("x"), writer, false)
		require.False(t, other.RWMutex("x").TryRLock(), "FOUL: a reader beside a writer")
		l.GiveBack(writer)
	})
}

// known lets the store know a lock, and some time pass. One that it does not know has a fence for one hold: it
// passes to nobody, and does not linger.
func known(l *lab.Lab, rw *holdfast.RWMutex) {
	l.T.Helper()
	rw.Lock()
	rw.Unlock()
	time.Sleep(time.Millisecond)
}

// The same term must not be kept for a while, either: nobody would give it up.
func TestDowngradedLeaseDoesNotLinger(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		l := lab.New(t, s)
		l.Remember()
		c := l.Mates(holdfast.WithLinger(time.Hour))
		known(l, l.Near().RWMutex("x"))
		lease := l.Take(c.RWMutex("x").Lease)
		lowerUnheard(t, lease)
		l.GiveBack(lease)
		l.Until("it is free for writing", l.Near().RWMutex("x").TryLock)
	})
}

// A Downgrade that was refused has changed nothing, also for who has the lock next.
func TestRefusedDowngradeLeavesTheLeaseAsItWas(t *testing.T) {
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		c := l.Mates(holdfast.WithReentrancy())
		over, cancel := context.WithCancel(t.Context())
		cancel()
		for name, refused := range map[string]struct {
			lease lab.Leasing
			ctx   context.Context
			want  error
		}{
			"another kind": {c.Mutex("x").Lease, t.Context(), errors.ErrUnsupported},
			"an ended ctx": {c.RWMutex("x").Lease, over, context.Canceled},
			"an owner's":   {c.RWMutex("x", holdfast.WithOwner("o")).Lease, t.Context(), errors.ErrUnsupported},
		} {
			lease := l.Take(refused.lease)
			require.ErrorIs(t, lease.Downgrade(refused.ctx), refused.want, name)
			nested, err := refused.lease(lease.Context())
			require.NoError(t, err, name)
			l.GiveBack(nested, lease)
		}
	})
}

// A lease that has been released has nothing to lower, although its term may go on.
func TestReleasedLeaseIsNotDowngraded(t *testing.T) {
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		c := l.Mates(holdfast.WithLinger(time.Hour))
		lease := l.Take(c.RWMutex("x").Lease)
		l.GiveBack(lease)
		require.ErrorIs(t, lease.Downgrade(t.Context()), holdfast.ErrNotHeld)
		next := l.Take(c.RWMutex("x").Lease)
		require.False(t, l.Near().RWMutex("x").TryRLock())
		l.GiveBack(next)
	})
}
