package holdfast_test

import (
	"context"
	"errors"
	"fmt"
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
)

func TestStealTakesTheLockAndLeavesTheQueue(t *testing.T) {
	t.Parallel()
	lab.WithPatience(t, func(t *testing.T, l *lab.Lab) {
		holder, other, thief := l.Near(), l.Near(), l.Near(holdfast.WithHolder("the thief"))
		l.Wait(other, "ear").Granted(lab.Soon).Release(t.Context()) //nolint:errcheck // so that there is a connection
		lease := l.Lease(holder, "x")
		w := l.Wait(other, "x")
		l.UntilQueue("x", 1)
		stolen, err := thief.Mutex("x").Steal(t.Context())
		require.NoError(t, err)
		require.Greater(t, stolen.Fence(), lease.Fence(), "FOUL: fences went back")
		l.Holds(stolen)
		l.UntilQueue("x", 1)
		require.NoError(t, errors.Join(stolen.Err()))
		l.Loses(lease, lab.Ages)
		require.NoError(t, stolen.Release(t.Context()))
		require.NoError(t, w.Granted(lab.Soon).Release(t.Context()))
	})
}

// A victim that listens hears it at once, and from whom.
func TestVictimHearsWhoHasStolenTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memdriver.New()
		a, b := holdfast.Open(store), holdfast.Open(store, holdfast.WithHolder("the thief"))
		lease, err := a.RWMutex("x").RLease(t.Context())
		require.NoError(t, err)
		stolen, err := b.RWMutex("x").Steal(t.Context())
		require.NoError(t, err)
		require.ErrorIs(t, lease.Err(), holdfast.ErrLost)
		require.ErrorContains(t, lease.Err(), `stolen by "the thief"`)
		require.ErrorIs(t, context.Cause(lease.Context()), holdfast.ErrLost)
		require.NoError(t, stolen.Err())
		require.NoError(t, stolen.Release(t.Context()))
		require.NoError(t, a.Close())
		require.NoError(t, b.Close())
	})
}

// Leases of the thief's own client end, too, before Steal returns, though no news comes in.
func TestStealEndsLeasesOfItsOwnProcess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, opts := range map[string][]holdfast.LockOption{
			"mates": nil, "fixed": {holdfast.WithoutRenewal()}, "owned": {holdfast.WithOwner("A")},
		} {
			c := holdfast.Open(unwoken{memdriver.New()}, holdfast.WithStrictFIFO())
			lease, err := c.Mutex("x", opts...).Lease(t.Context())
			require.NoError(t, err)
			other, err := c.Mutex("y", opts...).Lease(t.Context())
			require.NoError(t, err)
			stolen, err := c.Mutex("x").Steal(t.Context())
			require.NoError(t, err)
			require.ErrorIs(t, lease.Err(), holdfast.ErrLost, name)
			require.NoError(t, other.Err())
			require.NoError(t, stolen.Err())
			again, err := c.Mutex("x").Steal(t.Context())
			require.NoError(t, err)
			require.ErrorIs(t, stolen.Err(), holdfast.ErrLost)
			require.NoError(t, again.Release(t.Context()))
			require.NoError(t, c.Close())
		}
	})
}

// A lock that passes from hand to hand passes no more, and the goroutines of the victim's process
// wait for it in the store.
func TestStolenLockPassesNoMoreInTheProcessOfItsVictim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memdriver.New()
		a, b := holdfast.Open(store, holdfast.WithLinger(time.Hour)), holdfast.Open(store)
		lease, err := a.Mutex("x").Lease(t.Context())
		require.NoError(t, err)
		var in atomic.Int32
		done := make(chan error)
		for range 3 {
			go func() {
				done <- a.Mutex("x").Do(t.Context(), func(context.Context) error { in.Add(1); return nil })
			}()
		}
		synctest.Wait()
		stolen, err := b.Mutex("x").Steal(t.Context())
		require.NoError(t, err)
		require.ErrorIs(t, lease.Release(t.Context()), holdfast.ErrLost)
		time.Sleep(time.Minute)
		require.Zero(t, in.Load())
		require.NoError(t, stolen.Err())
		require.NoError(t, stolen.Release(t.Context()))
		for range 3 {
			require.NoError(t, <-done)
		}
		require.NoError(t, a.Close())
		require.NoError(t, b.Close())
	})
}

// A repeat, since an answer was lost, does not steal from whoever has stolen it meanwhile.
func TestStealIsNotRepeatedAgainstTheNextHolder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &amnesiac{Driver: memdriver.New()}
		a, b := holdfast.Open(store), holdfast.Open(store)
		var other *holdfast.Lease
		store.lost = func() {
			var err error
			other, err = b.Mutex("x").Steal(t.Context())
			assert.NoError(t, err)
		}
		_, err := a.Mutex("x").Steal(t.Context())
		require.ErrorIs(t, err, holdfast.ErrLost)
		require.NoError(t, other.Err())
		require.NoError(t, other.Release(t.Context()))

		// Nobody has: then it is the same steal.
		store.lost = func() {}
		lease, err := a.Mutex("x").Steal(t.Context())
		require.NoError(t, err)
		require.NoError(t, lease.Release(t.Context()))
		require.NoError(t, a.Close())
		require.NoError(t, b.Close())
	})
}

// amnesiac is a store that loses the answer to a grant, once, after which it calls lost.
type amnesiac struct {
	driver.Driver
	lost func()
}

func (s *amnesiac) Unwrap() driver.Driver { return s.Driver }

func (s *amnesiac) Steal(ctx context.Context, r *driver.Request) (driver.Grant, error) {
	d, _ := driver.As[driver.Stealer](s.Driver)
	g, err := d.Steal(ctx, r)
	if lost := s.lost; lost != nil && err == nil {
		s.lost = nil
		lost()
		return driver.Grant{}, fmt.Errorf("cut off: %w", driver.ErrTransient)
	}
	return g, err
}

func TestStealIsAnAcquireForHooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := holdfast.Open(memdriver.New())
		var ops []bool
		c.AddHook(lab.Meddler{Acquire: func(next holdfast.AcquireFunc, ctx context.Context, op *holdfast.AcquireOp) (*holdfast.Lease, error) {
			ops = append(ops, op.Steal)
			return next(ctx, op)
		}})
		lease, err := c.Mutex("x").Lease(t.Context())
		require.NoError(t, err)
		stolen, err := c.Mutex("x").Steal(t.Context())
		require.NoError(t, err)
		require.Equal(t, []bool{false, true}, ops)
		require.ErrorIs(t, lease.Release(t.Context()), holdfast.ErrLost)
		require.NoError(t, stolen.Release(t.Context()))
		_, err = c.Mutex("x").Steal(lease.Context())
		require.ErrorIs(t, err, holdfast.ErrLost, "of a context that has ended")
		require.NoError(t, c.Close())
	})
}

func TestStoreThatCannotStealSaysSo(t *testing.T) {
	c := holdfast.Open(lab.Bare{Driver: memdriver.New()})
	defer func() { assert.NoError(t, c.Close()) }()
	_, err := c.Mutex("x").Steal(t.Context())
	require.ErrorIs(t, err, errors.ErrUnsupported)
	_, err = c.RWMutex("").Steal(t.Context())
	require.Error(t, err)
}

func (s *amnesiac) Acquire(ctx context.Context, r *driver.Request) (driver.Grant, error) {
	g, err := s.Driver.Acquire(ctx, r)
	if lost := s.lost; lost != nil && err == nil && g.Status == driver.Granted {
		s.lost = nil
		lost()
		return driver.Grant{}, fmt.Errorf("cut off: %w", driver.ErrTransient)
	}
	return g, err
}

// The first command of a client is carried out, its answer is lost, and the lock is taken away
// before the repeat. That is a lock that somebody else has, no misuse that a panic would tell.
func TestTryLockOfANewClientIsNotAPanicWhenTheLockIsTakenAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &amnesiac{Driver: memdriver.New()}
		a, b := holdfast.Open(store), holdfast.Open(store)
		store.lost = func() { assert.NoError(t, b.Mutex("x").ForceUnlock(t.Context())) }
		require.False(t, a.Mutex("x").TryLock())
		require.True(t, a.Mutex("x").TryLock())
		a.Mutex("x").Unlock()
		require.NoError(t, a.Close())
		require.NoError(t, b.Close())
	})
}

// Whoever steals a lock that it holds on behalf of an owner comes in beside itself, as with Lease.
func TestOwnerDoesNotStealFromItself(t *testing.T) {
	c := holdfast.Open(memdriver.New())
	mu := c.Mutex("x", holdfast.WithOwner("o"))
	outer, err := mu.Lease(t.Context())
	require.NoError(t, err)
	inner, err := mu.Steal(outer.Context())
	require.NoError(t, err)
	require.NoError(t, outer.Err())
	require.Equal(t, outer.Fence(), inner.Fence())
	require.NoError(t, inner.Release(t.Context()))
	require.NoError(t, outer.Release(t.Context()))
	require.NoError(t, c.Close())
}
