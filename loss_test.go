package holdfast_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

func TestDeletedLockIsLost(t *testing.T) {
	t.Parallel()
	const ttl = 900 * time.Millisecond
	for name, destroy := range map[string]func(*lab) error{
		"DEL":      func(l *lab) error { return l.direct.Del(l.t.Context(), l.key("x")).Err() },
		"FLUSHALL": func(l *lab) error { return l.direct.FlushAll(l.t.Context()).Err() },
	} {
		body := func(t *testing.T, l *lab) {
			far, near := l.far(holdfast.WithTTL(ttl)), l.near()
			lease := l.lease(far, "x")
			require.NoError(t, destroy(l))
			l.loses(lease, ttl/3+l.slack)
			next := l.lease(near, "x")
			assert.Greater(t, next.Fence(), lease.Fence())
			require.ErrorIs(t, lease.Release(t.Context()), holdfast.ErrLost)
			l.holds(next)
			require.NoError(t, next.Release(t.Context()))
			l.free(near, "x")
		}
		t.Run(name, func(t *testing.T) {
			t.Run("redis", func(t *testing.T) { body(t, newLab(t, redistest.Real(t))) })
			inBubble(t, body)
		})
	}
}

func TestForceUnlockTellsAHolderThatListens(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		far, near := l.far(), l.near()
		// Having had to wait once, it listens.
		held := l.lease(near, "x")
		w := l.wait(far, "x")
		l.untilQueue("x", 1)
		l.untilListening(1)
		require.NoError(t, held.Release(t.Context()))
		lease := w.granted(soon)
		first := l.wait(near, "x")
		l.untilQueue("x", 1)

		require.NoError(t, near.Mutex("x").ForceUnlock(t.Context()))
		l.loses(lease, soon) // the next renewal is 10 s away
		next := first.granted(soon)
		assert.Greater(t, next.Fence(), lease.Fence())
		require.ErrorIs(t, lease.Release(t.Context()), holdfast.ErrLost)
		l.holds(next)
		require.NoError(t, next.Release(t.Context()))
		require.ErrorIs(t, near.Mutex("x").ForceUnlock(t.Context()), holdfast.ErrNotHeld)
		l.free(near, "x")
	})
}

func TestForceUnlockIsFoundByTheNextRenewal(t *testing.T) {
	t.Parallel()
	withPatience(t, func(t *testing.T, l *lab) {
		const ttl = 900 * time.Millisecond
		far, near := l.far(holdfast.WithTTL(ttl)), l.near()
		lease := l.lease(far, "x")
		first := l.wait(near, "x")
		l.untilQueue("x", 1)
		second := l.wait(near, "x")
		l.untilQueue("x", 2)

		require.NoError(t, near.Mutex("x").ForceUnlock(t.Context()))
		next := first.granted(soon)
		l.loses(lease, ttl/3+l.slack)
		require.ErrorIs(t, lease.Release(t.Context()), holdfast.ErrLost)
		require.ErrorIs(t, lease.Renew(t.Context()), holdfast.ErrNotHeld)
		l.holds(next)
		require.NoError(t, next.Release(t.Context()))
		require.NoError(t, second.granted(soon).Release(t.Context()))
		l.free(near, "x")
	})
}

// The clocks of client and server have nothing to do with each other.
func TestServerClockMayBeWrong(t *testing.T) {
	t.Parallel()
	const ttl = 600 * time.Millisecond
	for _, offset := range []time.Duration{time.Hour, -time.Hour} {
		t.Run(offset.String(), func(t *testing.T) {
			t.Parallel()
			s, clock := redistest.RealWithClock(t)
			clock.Set(offset)
			l := newLab(t, s)
			l.remember()
			a, b := l.near(holdfast.WithTTL(ttl)), l.near(holdfast.WithTTL(ttl))

			lease := l.lease(a, "x")
			assert.Less(t, time.Until(lease.Deadline()), ttl) // by the clock of this process
			w := l.wait(b, "x")
			l.untilQueue("x", 1)
			cancelled := l.wait(a, "x")
			l.untilQueue("x", 2)
			l.keeps(lease, 2*ttl)
			cancelled.cancel(nil)
			require.ErrorIs(t, cancelled.failed(soon), context.Canceled)
			l.untilQueue("x", 1)
			require.NoError(t, lease.Release(t.Context()))
			next := w.granted(soon)
			l.keeps(next, 2*ttl)
			require.NoError(t, next.Release(t.Context()))

			// Put right, by a little and by much, the fences nevertheless go on.
			last := next.Fence()
			for _, step := range []time.Duration{-time.Minute, -time.Hour} {
				clock.Set(offset + step)
				for range 3 {
					lease := l.lease(a, "x")
					assert.Greater(t, lease.Fence(), last)
					last = lease.Fence()
					w := l.wait(b, "x")
					l.untilQueue("x", 1)
					l.holds(lease)
					require.NoError(t, lease.Release(t.Context()))
					next := w.granted(soon)
					assert.Greater(t, next.Fence(), last)
					last = next.Fence()
					require.NoError(t, next.Release(t.Context()))
				}
			}
			l.free(a, "x")
		})
	}
}

func TestServerClockStepsBackWhileTheLockIsHeld(t *testing.T) {
	t.Parallel()
	const ttl = 600 * time.Millisecond
	for _, step := range []time.Duration{-time.Minute, -time.Hour} {
		t.Run(step.String(), func(t *testing.T) {
			t.Parallel()
			s, clock := redistest.RealWithClock(t)
			l := newLab(t, s)
			l.remember()
			far, near := l.far(holdfast.WithTTL(ttl)), l.near(holdfast.WithTTL(ttl))

			// A holder that lives goes on, and hands over to who waited all the time.
			lease := l.lease(far, "alive")
			w := l.wait(near, "alive")
			l.untilQueue("alive", 1)
			crashed := l.lease(far, "crashed")
			l.keeps(lease, ttl/2)
			clock.Set(step)
			l.keeps(lease, 2*ttl)
			require.NoError(t, lease.Release(t.Context()))
			next := w.granted(ttl/3 + l.slack)
			assert.Greater(t, next.Fence(), lease.Fence())
			require.NoError(t, next.Release(t.Context()))

			// The lock of one that dies is free when its lease has ended, and not when
			// the clock has caught up.
			require.NoError(t, crashed.Err())
			clock.Set(2 * step)
			l.link.BlackHole(true)
			defer func() { l.link.BlackHole(false); l.link.Cut() }()
			successor := l.wait(near, "crashed").granted(ttl + ttl/20 + ttl/3 + l.slack)
			assert.Greater(t, successor.Fence(), crashed.Fence())
			require.ErrorIs(t, crashed.Err(), holdfast.ErrLost)
			require.NoError(t, successor.Release(t.Context()))
		})
	}
}
