package holdfast_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

// How waiting for a part of a lock ends without it.

func TestWaitingForOneselfIsRefusedToReadersAndWriters(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		c := l.near()
		rw := c.RWMutex("x")
		called := func(context.Context) error { t.Error("called"); return nil }
		for _, ask := range []leasing{rw.RLease, rw.Lease} {
			lease := l.take(ask)
			for _, ctx := range []context.Context{lease.Context(), lease.WithContext(t.Context())} {
				for what, call := range map[string]func() error{
					"Lease":     func() error { _, err := c.RWMutex("x").Lease(ctx); return err },
					"RLease":    func() error { _, err := c.RWMutex("x").RLease(ctx); return err },
					"TryLease":  func() error { _, err := rw.TryLease(ctx); return err },
					"TryRLease": func() error { _, err := rw.TryRLease(ctx); return err },
					"Do":        func() error { return rw.Do(ctx, called) },
					"RDo":       func() error { return rw.RDo(ctx, called) },
				} {
					err := promptly(t, soon, call)
					require.ErrorIs(t, err, holdfast.ErrDeadlock, what)
					assert.ErrorContains(t, err, `acquire rwmutex "x": already held by this context`, what)
				}
			}
			l.isHeldBy(rw, lease)
			assert.Empty(t, l.look(rw).Queue)
			// Another lock, and the same of another client, are no concern of it.
			other, err := c.RWMutex("y").RLease(lease.Context())
			require.NoError(t, err)
			_, err = l.near().RWMutex("x").TryLease(lease.Context())
			require.ErrorIs(t, err, holdfast.ErrLocked)
			carried := context.WithoutCancel(other.Context())
			l.giveBack(other, lease)
			again, err := rw.Lease(carried) // not after the release
			require.NoError(t, err)
			l.giveBack(again)
		}
		require.NoError(t, rw.RDo(t.Context(), func(ctx context.Context) error {
			require.ErrorIs(t, rw.Do(ctx, called), holdfast.ErrDeadlock)
			return nil
		}))
		l.isClean("rwmutex", "x")
	})
}

func TestHolderOfPermitsMayHaveMore(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		s := l.near().Semaphore("x", 3)
		require.NoError(t, s.Do(t.Context(), 1, func(ctx context.Context) error {
			lease, err := s.Lease(ctx, 1)
			require.NoError(t, err)
			require.NoError(t, s.Acquire(lease.Context(), 1))
			assert.Equal(t, []int64{1, 1, 1}, l.weights(s))
			_, err = s.TryLease(ctx, 1)
			require.ErrorIs(t, err, holdfast.ErrLocked)
			s.Release(1)
			return lease.Release(ctx)
		}))
		l.isClean("semaphore", "x")
	})
}

func TestCancelledWaitersOfAnyKindLeaveNothing(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		l.remember()
		a, b := l.near(), l.near()
		rw, s := a.RWMutex("x"), a.Semaphore("x", 3)
		gone := errors.New("gone")
		write, some := l.take(rw.Lease), l.take(permits(s, 3))
		waiters := []*pending{l.ask(b.RWMutex("x").RLease), l.ask(b.RWMutex("x").Lease), l.ask(permits(b.Semaphore("x", 3), 2))}
		acquiring := l.ask(func(ctx context.Context) (*holdfast.Lease, error) {
			return nil, b.Semaphore("x", 3).Acquire(ctx, 1)
		})
		l.untilWaiting(rw, 2)
		l.untilWaiting(s, 2)
		for _, w := range append(waiters, acquiring) {
			w.cancel(gone)
			require.ErrorIs(t, w.failed(soon), gone)
		}
		l.untilWaiting(rw, 0)
		l.untilWaiting(s, 0)
		l.isHeldBy(rw, write)
		l.isHeldBy(s, some)
		l.giveBack(write, some)
		l.isClean("rwmutex", "x")
		l.isClean("semaphore", "x")
		for _, kind := range []driver.Kind{driver.RWMutex, driver.Semaphore} {
			require.Len(t, l.s.Keys(t, l.keyOf(kind, "")), 1)
		}
	})
}

// Who waited only because of the one before it goes on when that gives up.
func TestCancelledWriterLetsTheReadersBehindItIn(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		a, b := l.near().RWMutex("x"), l.near().RWMutex("x")
		held := l.take(a.RLease)
		writer := l.ask(b.Lease)
		l.untilWaiting(a, 1)
		behind := []*pending{l.ask(a.RLease), l.ask(b.RLease)}
		l.untilWaiting(a, 3)
		writer.cancel(nil)
		require.ErrorIs(t, writer.failed(soon), context.Canceled)
		first, second := behind[0].granted(soon), behind[1].granted(soon)
		l.isHeldBy(a, held, first, second)
		l.giveBack(held, first, second)
		l.isClean("rwmutex", "x")
	})
}
