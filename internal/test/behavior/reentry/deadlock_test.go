package reentry_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/test/behavior/lab"
)

func TestWaitingForOneselfIsRefused(t *testing.T) {
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		c := l.Near()
		mu := c.Mutex("x")
		lease := l.Lease(c, "x")
		type word struct{}
		child, cancel := context.WithCancel(context.WithValue(lease.Context(), word{}, 1))
		defer cancel()
		for _, ctx := range []context.Context{lease.Context(), child, lease.WithContext(t.Context())} {
			for what, err := range map[string]error{
				"Lease": lab.Promptly(t, lab.Soon, func() error { _, err := mu.Lease(ctx); return err }),
				"Do": lab.Promptly(t, lab.Soon, func() error {
					return mu.Do(ctx, func(context.Context) error { return nil })
				}),
				"another handle": lab.Promptly(t, lab.Soon, func() error { _, err := c.Mutex("x").Lease(ctx); return err }),
				"TryLease":       lab.Promptly(t, lab.Soon, func() error { _, err := mu.TryLease(ctx); return err }),
			} {
				require.ErrorIs(t, err, holdfast.ErrDeadlock, what)
			}
		}
		assert.Empty(t, l.Inspect("x").Queue)
		l.Holds(lease)

		// Another lock may be taken with it.
		other, err := c.Mutex("y").Lease(lease.Context())
		require.NoError(t, err)
		require.ErrorIs(t, lab.Promptly(t, lab.Soon, func() error { _, err := mu.Lease(other.Context()); return err }),
			holdfast.ErrDeadlock, "the context carries both")
		require.NoError(t, other.Release(t.Context()))

		// After the release it says nothing.
		with := context.WithoutCancel(lease.Context())
		require.NoError(t, lease.Release(t.Context()))
		again, err := mu.Lease(with)
		require.NoError(t, err)
		require.NoError(t, mu.ForceUnlock(t.Context()))
		require.ErrorIs(t, again.Release(t.Context()), holdfast.ErrLost)
		again, err = mu.Lease(context.WithoutCancel(again.Context()))
		require.NoError(t, err)
		require.NoError(t, again.Release(t.Context()))
	})
}

// How waiting for a part of a lock ends without it.

func TestWaitingForOneselfIsRefusedToReadersAndWriters(t *testing.T) {
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		c := l.Near()
		rw := c.RWMutex("x")
		called := func(context.Context) error { t.Error("called"); return nil }
		for _, ask := range []lab.Leasing{rw.RLease, rw.Lease} {
			lease := l.Take(ask)
			for _, ctx := range []context.Context{lease.Context(), lease.WithContext(t.Context())} {
				for what, call := range map[string]func() error{
					"Lease":     func() error { _, err := c.RWMutex("x").Lease(ctx); return err },
					"RLease":    func() error { _, err := c.RWMutex("x").RLease(ctx); return err },
					"TryLease":  func() error { _, err := rw.TryLease(ctx); return err },
					"TryRLease": func() error { _, err := rw.TryRLease(ctx); return err },
					"Do":        func() error { return rw.Do(ctx, called) },
					"RDo":       func() error { return rw.RDo(ctx, called) },
				} {
					err := lab.Promptly(t, lab.Soon, call)
					require.ErrorIs(t, err, holdfast.ErrDeadlock, what)
					assert.ErrorContains(t, err, `acquire rwmutex "x": already held by this context`, what)
				}
			}
			l.IsHeldBy(rw, lease)
			assert.Empty(t, l.Look(rw).Queue)
			// Another lock, and the same of another client, are no concern of it.
			other, err := c.RWMutex("y").RLease(lease.Context())
			require.NoError(t, err)
			_, err = l.Near().RWMutex("x").TryLease(lease.Context())
			require.ErrorIs(t, err, holdfast.ErrLocked)
			carried := context.WithoutCancel(other.Context())
			l.GiveBack(other, lease)
			again, err := rw.Lease(carried) // not after the release
			require.NoError(t, err)
			l.GiveBack(again)
		}
		require.NoError(t, rw.RDo(t.Context(), func(ctx context.Context) error {
			require.ErrorIs(t, rw.Do(ctx, called), holdfast.ErrDeadlock)
			return nil
		}))
		l.IsClean("rwmutex", "x")
	})
}

func TestHolderOfPermitsMayHaveMore(t *testing.T) {
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		s := l.Near().Semaphore("x", 3)
		require.NoError(t, s.Do(t.Context(), 1, func(ctx context.Context) error {
			lease, err := s.Lease(ctx, 1)
			require.NoError(t, err)
			require.NoError(t, s.Acquire(lease.Context(), 1))
			assert.Equal(t, []int64{1, 1, 1}, l.Weights(s))
			_, err = s.TryLease(ctx, 1)
			require.ErrorIs(t, err, holdfast.ErrLocked)
			s.Release(1)
			return lease.Release(ctx)
		}))
		l.IsClean("semaphore", "x")
	})
}
