package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

// acquirers are the ways to ask for permits that can return an error.
func acquirers(s *holdfast.Semaphore, n int64) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"Lease":    func(ctx context.Context) error { _, err := s.Lease(ctx, n); return err },
		"TryLease": func(ctx context.Context) error { _, err := s.TryLease(ctx, n); return err },
		"Acquire":  func(ctx context.Context) error { return s.Acquire(ctx, n) },
		"Do": func(ctx context.Context) error {
			return s.Do(ctx, n, func(context.Context) error { return errors.New("called") })
		},
	}
}

// refuses checks that every way to ask for n permits fails at once.
func (l *lab) refuses(s *holdfast.Semaphore, n int64, want error, kind string, words ...string) {
	l.t.Helper()
	for what, call := range acquirers(s, n) {
		err := promptly(l.t, soon, func() error { return call(context.Background()) })
		require.ErrorIs(l.t, err, want, what)
		var lockError *holdfast.LockError
		require.ErrorAs(l.t, err, &lockError, what)
		assert.Equal(l.t, "x", lockError.Name, what)
		assert.Equal(l.t, "acquire semaphore", lockError.Op, what)
		assert.Equal(l.t, kind, lockError.ErrorType(), what)
		requireNoToken(l.t, err.Error())
		for _, word := range append(words, `holdfast: acquire semaphore "x": `) {
			assert.Contains(l.t, err.Error(), word, what)
		}
	}
}

func TestMoreThanTheLimitIsRefused(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		for _, fresh := range []bool{true, false} {
			s := l.near().Semaphore("x", 3)
			if !fresh {
				require.True(t, s.TryAcquire(2))
			}
			l.refuses(s, 4, holdfast.ErrLimitExceeded, "limit_exceeded", "more than the limit of the semaphore: 4 of 3")
			assert.False(t, l.near().Semaphore("x", 3).TryAcquire(4), "a fresh client does not panic, either")
			assert.False(t, s.TryAcquire(driver.MaxLimit))
			if !fresh {
				s.Release(2)
			}
		}
		// Nor does one queue that has waited before.
		s, held := l.near().Semaphore("x", 3), l.take(permits(l.near().Semaphore("x", 3), 2))
		waited := l.ask(permits(s, 2))
		l.untilWaiting(s, 1)
		l.giveBack(held)
		l.giveBack(waited.granted(soon))
		l.refuses(s, 4, holdfast.ErrLimitExceeded, "limit_exceeded", "4 of 3")
		l.isClean("semaphore", "x")
	})
}

func TestAnotherLimitIsRefusedWhileTheSemaphoreIsInUse(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		a := l.near().Semaphore("x", 3)
		require.True(t, a.TryAcquire(2))
		for _, limit := range []int64{2, 4} {
			l.refuses(l.near().Semaphore("x", limit), 1, holdfast.ErrLimitConflict, "limit_conflict",
				fmt.Sprintf("in use with another limit: 3, not %d", limit))
			// On a client that has never been of use it does not panic, either.
			logged := len(l.log.String())
			assert.False(t, l.near().Semaphore("x", limit).TryAcquire(1))
			said := l.log.String()[logged:]
			assert.Contains(t, said, "holdfast: cannot acquire")
			assert.Contains(t, said, fmt.Sprintf("another limit: 3, not %d", limit))
			assert.Contains(t, said, "lock=x")
		}
		logged := len(l.log.String())
		assert.False(t, a.TryAcquire(2), "too few are left")
		assert.False(t, a.TryAcquire(4), "more than the limit")
		assert.Len(t, l.log.String(), logged, "that is no news")
		assert.Equal(t, []int64{2}, l.weights(a))
		assert.EqualValues(t, 3, l.look(a).Limit)

		// Waiting is use, too.
		waits := l.ask(permits(a, 3))
		l.untilWaiting(a, 1)
		other := l.near().Semaphore("x", 5)
		l.refuses(other, 1, holdfast.ErrLimitConflict, "limit_conflict")
		a.Release(2)
		lease := waits.granted(soon)
		l.refuses(other, 1, holdfast.ErrLimitConflict, "limit_conflict")
		l.giveBack(lease)
		// Nobody uses it now.
		require.True(t, other.TryAcquire(5))
		l.refuses(a, 1, holdfast.ErrLimitConflict, "limit_conflict")
		other.Release(5)
	})
}

func TestLimitOfTheDeadBindsNobody(t *testing.T) {
	t.Parallel()
	withPatience(t, func(t *testing.T, l *lab) {
		const ttl = 1500 * time.Millisecond
		dead := l.take(permits(l.near().Semaphore("x", 3, holdfast.WithoutRenewal(), holdfast.WithTTL(ttl)), 1))
		other := l.near().Semaphore("x", 5)
		l.refuses(other, 1, holdfast.ErrLimitConflict, "limit_conflict")
		l.loses(dead, ttl+l.slack)
		l.until("the store has forgotten it", func() bool { return other.TryAcquire(5) })
		other.Release(5)
		require.ErrorIs(t, dead.Release(t.Context()), holdfast.ErrLost)
	})
}

func TestResizeLetsWaitersIn(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		l.remember()
		a, b := l.near().Semaphore("x", 2), l.near().Semaphore("x", 2)
		held := l.take(permits(a, 2))
		first := l.ask(permits(b, 2))
		l.untilWaiting(a, 1)
		second := l.ask(permits(a, 1))
		l.untilWaiting(a, 2)
		third := l.ask(permits(b, 1))
		l.untilWaiting(a, 3)
		require.NoError(t, b.Resize(t.Context(), 5))
		one, two := first.granted(soon), second.granted(soon)
		l.isHeldBy(a, held, one, two)
		assert.Len(t, l.look(a).Queue, 1)
		assert.EqualValues(t, 5, l.look(a).Limit)
		require.NoError(t, a.Resize(t.Context(), 6))
		l.giveBack(third.granted(soon), held, one, two)

		// It wins over what handles were made with, and over later ones.
		for _, limit := range []int64{2, 6, 100} {
			s := l.near().Semaphore("x", limit)
			require.True(t, s.TryAcquire(6))
			assert.False(t, s.TryAcquire(1))
			l.refuses(s, 7, holdfast.ErrLimitExceeded, "limit_exceeded", "7 of 6")
			s.Release(6)
		}
	})
}

func TestResizeRefusesWaitersThatAreTooLarge(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		l.remember()
		a, b := l.near().Semaphore("x", 5), l.near().Semaphore("x", 5)
		held := l.take(permits(a, 1))
		large := l.ask(permits(b, 5))
		l.untilWaiting(a, 1)
		acquiring := make(chan error, 1)
		go func() { acquiring <- a.Acquire(context.Background(), 4) }()
		l.untilWaiting(a, 2)
		small := l.ask(permits(b, 1))
		l.untilWaiting(a, 3)

		require.NoError(t, a.Resize(t.Context(), 2))
		require.ErrorIs(t, large.failed(soon), holdfast.ErrLimitExceeded)
		require.ErrorIs(t, promptly(t, soon, func() error { return <-acquiring }), holdfast.ErrLimitExceeded)
		l.isHeldBy(a, held, small.granted(soon))
		l.giveBack(held, small.lease)
		l.isClean("semaphore", "x")
		require.True(t, a.TryAcquire(2))
		assert.False(t, a.TryAcquire(1))
		a.Release(2)
	})
}

// More may be held than the new limit. Nothing is taken from anybody, and who waits for
// too much hears of it when it asks the next time.
func TestResizeBelowWhatIsHeldTakesNothing(t *testing.T) {
	t.Parallel()
	withPatience(t, func(t *testing.T, l *lab) {
		const ttl = 900 * time.Millisecond
		l.remember()
		a, b := l.near().Semaphore("x", 5), l.near(holdfast.WithTTL(ttl)).Semaphore("x", 5)
		held := l.take(permits(a, 3))
		large := l.ask(permits(b, 3))
		l.untilWaiting(a, 1)
		small := l.ask(permits(b, 1))
		l.untilWaiting(a, 2)
		require.NoError(t, a.Resize(t.Context(), 2))
		require.ErrorIs(t, large.failed(ttl/3+l.slack), holdfast.ErrLimitExceeded)
		l.isHeldBy(a, held)
		assert.EqualValues(t, 3, l.used(a))
		assert.Len(t, l.look(a).Queue, 1)
		l.giveBack(held)
		l.giveBack(small.granted(soon))
		l.isClean("semaphore", "x")
	})
}

func TestResizeCanBeCancelledAndRefused(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		c := l.far()
		l.ready(c)
		for _, name := range []string{"", strings.Repeat("n", 513)} {
			require.ErrorIs(t, c.Semaphore(name, 1).Resize(t.Context(), 1), holdfast.ErrInvalidName)
		}
		gone := errors.New("gone")
		ctx, cancel := context.WithCancelCause(t.Context())
		l.link.BlackHole(true)
		time.AfterFunc(20*time.Millisecond, func() { cancel(gone) })
		err := promptly(t, soon, func() error { return c.Semaphore("x", 1).Resize(ctx, 1) })
		require.ErrorIs(t, err, gone)
		assert.ErrorContains(t, err, `resize semaphore "x"`)
		l.link.BlackHole(false)
		l.link.Cut()
		require.NoError(t, c.Close())
		require.ErrorIs(t, c.Semaphore("x", 1).Resize(t.Context(), 1), holdfast.ErrClosed)
	})
}

func TestLimitsThatMakeNoSensePanic(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		c := l.near()
		s := c.Semaphore("x", 1)
		for _, limit := range []int64{0, -1, driver.MaxLimit + 1} {
			for _, f := range []func(){
				func() { c.Semaphore("x", limit) },
				func() { _ = s.Resize(t.Context(), limit) },
			} {
				assert.Contains(t, panics(t, f), fmt.Sprintf("semaphore with a limit of %d, must be 1 to 9007199254740991", limit))
			}
		}
		assert.Empty(t, l.s.Keys(t, l.s.Prefix()))
		most := c.Semaphore("most", driver.MaxLimit)
		require.True(t, most.TryAcquire(driver.MaxLimit-1))
		require.True(t, most.TryAcquire(1))
		assert.False(t, most.TryAcquire(1))
		most.Release(driver.MaxLimit)
		l.isClean("semaphore", "most")
	})
}
