package loss_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/test/behavior/lab"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

// Its holder does not listen, and finds that by its next renewal.
func TestDeletedLockIsLost(t *testing.T) {
	t.Parallel()
	for name, destroy := range map[string]func(*lab.Lab) error{
		"DEL":      func(l *lab.Lab) error { return l.Direct.Del(l.T.Context(), l.Key("x")).Err() },
		"FLUSHALL": func(l *lab.Lab) error { return l.Direct.FlushAll(l.T.Context()).Err() },
		"by force": func(l *lab.Lab) error { return l.Near().Mutex("x").ForceUnlock(l.T.Context()) },
	} {
		body := func(t *testing.T, l *lab.Lab) {
			ttl := l.Time(300 * time.Millisecond)
			far, near := l.Far(holdfast.WithTTL(ttl)), l.Near()
			lease := l.Lease(far, "x")
			require.NoError(t, destroy(l))
			l.Loses(lease, ttl/3+l.Slack)
			next := l.Lease(near, "x")
			assert.Greater(t, next.Fence(), lease.Fence(), "FOUL: fences went back")
			require.ErrorIs(t, lease.Release(t.Context()), holdfast.ErrLost)
			l.Holds(next)
			require.NoError(t, next.Release(t.Context()))
			l.Free(near, "x")
		}
		t.Run(name, func(t *testing.T) {
			t.Run("redis", func(t *testing.T) { body(t, lab.New(t, redistest.Real(t))) })
			lab.InBubble(t, body)
		})
	}
}

func TestForceUnlockTellsAHolderThatListens(t *testing.T) {
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		far, near := l.Far(), l.Near()
		// Having had to wait once, it listens.
		held := l.Lease(near, "x")
		w := l.Wait(far, "x")
		l.UntilQueue("x", 1)
		l.UntilListening(1)
		require.NoError(t, held.Release(t.Context()))
		lease := w.Granted(lab.Soon)
		first := l.Wait(near, "x")
		l.UntilQueue("x", 1)

		require.NoError(t, near.Mutex("x").ForceUnlock(t.Context()))
		l.Loses(lease, lab.Soon) // the next renewal is 12 s away
		assert.ErrorContains(t, lease.Err(), "taken away by ForceUnlock")
		next := first.Granted(lab.Soon)
		assert.Greater(t, next.Fence(), lease.Fence(), "FOUL: fences went back")
		require.ErrorIs(t, lease.Release(t.Context()), holdfast.ErrLost)
		l.Holds(next)
		require.NoError(t, next.Release(t.Context()))
		require.ErrorIs(t, near.Mutex("x").ForceUnlock(t.Context()), holdfast.ErrNotHeld)
		l.Free(near, "x")
	})
}

// The clocks of client and server have nothing to do with each other.
func TestServerClockMayBeWrong(t *testing.T) {
	t.Parallel()
	const ttl = 3 * time.Second
	for _, offset := range []time.Duration{time.Hour, -time.Hour} {
		t.Run(offset.String(), func(t *testing.T) {
			t.Parallel()
			s, clock := redistest.RealWithClock(t)
			clock.Set(offset)
			l := lab.New(t, s)
			l.Remember()
			a, b := l.Near(holdfast.WithTTL(ttl)), l.Near(holdfast.WithTTL(ttl))

			lease := l.Lease(a, "x")
			assert.Less(t, time.Until(lease.Deadline()), ttl) // by the clock of this process
			w := l.Wait(b, "x")
			l.UntilQueue("x", 1)
			cancelled := l.Wait(a, "x")
			l.UntilQueue("x", 2)
			l.Keeps(lease, ttl+ttl/3)
			cancelled.Cancel(nil)
			require.ErrorIs(t, cancelled.Failed(lab.Soon), context.Canceled)
			l.UntilQueue("x", 1)
			require.NoError(t, lease.Release(t.Context()))
			next := w.Granted(lab.Soon)
			l.Keeps(next, ttl+ttl/3)
			require.NoError(t, next.Release(t.Context()))

			// Put right, by a little and by much, the fences nevertheless go on.
			last := next.Fence()
			for _, step := range []time.Duration{-time.Minute, -time.Hour} {
				clock.Set(offset + step)
				for range 3 {
					lease := l.Lease(a, "x")
					assert.Greater(t, lease.Fence(), last, "FOUL: fences went back")
					last = lease.Fence()
					w := l.Wait(b, "x")
					l.UntilQueue("x", 1)
					l.Holds(lease)
					require.NoError(t, lease.Release(t.Context()))
					next := w.Granted(lab.Soon)
					assert.Greater(t, next.Fence(), last, "FOUL: fences went back")
					last = next.Fence()
					require.NoError(t, next.Release(t.Context()))
				}
			}
			l.Free(a, "x")
		})
	}
}

func TestServerClockStepsBackWhileTheLockIsHeld(t *testing.T) {
	t.Parallel()
	const ttl = 3 * time.Second
	for _, step := range []time.Duration{-time.Minute, -time.Hour} {
		t.Run(step.String(), func(t *testing.T) {
			t.Parallel()
			s, clock := redistest.RealWithClock(t)
			l := lab.New(t, s)
			l.Remember()
			far, near := l.Far(holdfast.WithTTL(ttl)), l.Near(holdfast.WithTTL(ttl))

			// A holder that lives goes on, and hands over to who waited all the time.
			lease := l.Lease(far, "alive")
			w := l.Wait(near, "alive")
			l.UntilQueue("alive", 1)
			crashed := l.Lease(far, "crashed")
			l.Keeps(lease, ttl/2)
			clock.Set(step)
			l.Keeps(lease, ttl+ttl/3)
			require.NoError(t, lease.Release(t.Context()))
			next := w.Granted(ttl/3 + l.Slack)
			assert.Greater(t, next.Fence(), lease.Fence(), "FOUL: fences went back")
			require.NoError(t, next.Release(t.Context()))

			// The lock of one that dies is free when its lease has ended, and not when
			// the clock has caught up.
			require.NoError(t, crashed.Err())
			clock.Set(2 * step)
			l.Link.BlackHole(true)
			defer func() { l.Link.BlackHole(false); l.Link.Cut() }()
			successor := l.Wait(near, "crashed").Granted(ttl + ttl/20 + ttl/3 + l.Slack)
			assert.Greater(t, successor.Fence(), crashed.Fence(), "FOUL: fences went back")
			require.ErrorIs(t, crashed.Err(), holdfast.ErrLost)
			require.NoError(t, successor.Release(t.Context()))
		})
	}
}
