package exclusion_test

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver/redisdriver"
	"github.com/holdfast-go/holdfast/internal/test/behavior/lab"
)

func TestPartOfWhatWasAcquiredCanBeReleased(t *testing.T) {
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		c := l.Near()
		s, other := c.Semaphore("x", 5), l.Near().Semaphore("x", 5)
		require.NoError(t, s.Acquire(t.Context(), 5))
		assert.False(t, other.TryAcquire(1))
		s.Release(2)
		assert.Equal(t, []int64{3}, l.Weights(other))
		require.True(t, other.TryAcquire(2))
		assert.False(t, other.TryAcquire(1))
		other.Release(2)
		c.Semaphore("x", 5).Release(1) // another handle
		assert.Equal(t, []int64{2}, l.Weights(other))

		// A waiter is told.
		waited := lab.Begin(func() { assert.NoError(t, other.Acquire(t.Context(), 4)) })
		l.UntilWaiting(s, 1)
		s.Release(1)
		l.Ends(waited)
		assert.Equal(t, []int64{1, 4}, l.Weights(other))
		s.Release(1)
		assert.Equal(t, []int64{4}, l.Weights(other))
		other.Release(4)
		l.IsClean("semaphore", "x")
	})
}

func TestReleaseGoesAcrossAcquires(t *testing.T) {
	for name, scene := range map[string]struct {
		acquire, release []int64
		left             [][]int64 // after each release
	}{
		"one for all":            {[]int64{1, 2, 3}, []int64{6}, [][]int64{{}}},
		"all but one":            {[]int64{1, 2, 3}, []int64{5, 1}, [][]int64{{1}, {}}},
		"one by one":             {[]int64{2, 1}, []int64{1, 1, 1}, [][]int64{{2}, {1}, {}}},
		"what was got, as a one": {[]int64{1, 2, 3}, []int64{2, 3, 1}, [][]int64{{1, 3}, {1}, {}}},
		"more than any":          {[]int64{3, 3, 3}, []int64{4, 4, 1}, [][]int64{{2, 3}, {1}, {}}},
	} {
		t.Run(name, func(t *testing.T) {
			lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
				s, other := l.Near().Semaphore("x", 9), l.Near().Semaphore("x", 9)
				for _, n := range scene.acquire {
					require.NoError(t, s.Acquire(t.Context(), n))
				}
				for i, n := range scene.release {
					s.Release(n)
					assert.Equal(t, scene.left[i], l.Weights(other), "release %d", i)
				}
				lab.Panics(t, func() { s.Release(1) })
				require.True(t, other.TryAcquire(9))
				other.Release(9)
				l.IsClean("semaphore", "x")
			})
		})
	}
}

func TestPartsAreReleasedByManyAtOnce(t *testing.T) {
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		const limit = 30
		c := l.Near()
		for range 5 {
			s := c.Semaphore("x", limit)
			for _, n := range []int64{7, 3, 11, 9} {
				require.NoError(t, s.Acquire(t.Context(), n))
			}
			var wg sync.WaitGroup
			for range limit / 2 {
				wg.Go(func() { c.Semaphore("x", limit).Release(2) })
			}
			lab.Promptly(t, lab.Soon, func() error { wg.Wait(); return nil })
			lab.Panics(t, func() { s.Release(1) })
			l.IsClean("semaphore", "x")
		}
	})
}

// Permits that are acquired in portions, and given back in others, add up.
func TestPermitsAddUp(t *testing.T) {
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		const limit = 20
		s, other := l.Near().Semaphore("x", limit), l.Near().Semaphore("x", limit)
		held := int64(0)
		for range 60 {
			if n := 1 + rand.N(int64(6)); rand.N(2) == 0 {
				ok := s.TryAcquire(n)
				require.Equal(t, held+n <= limit, ok)
				if ok {
					held += n
				}
			} else if n <= held {
				s.Release(n)
				held -= n
			}
			require.Equal(t, held, l.Used(other))
		}
		s.Release(held)
		l.IsClean("semaphore", "x")
	})
}

// To give back a good lease for somebody whose permits are lost would let in a stranger
// beside its real owner.
func TestReleasePrefersPermitsThatWereLost(t *testing.T) {
	t.Parallel()
	lab.WithPatience(t, func(t *testing.T, l *lab.Lab) {
		const ttl = 300 * time.Millisecond
		c := l.Near()
		other := l.Near().Semaphore("x", 6)
		require.NoError(t, c.Semaphore("x", 6).Acquire(t.Context(), 2))
		require.NoError(t, c.Semaphore("x", 6, holdfast.WithoutRenewal(), holdfast.WithTTL(ttl)).Acquire(t.Context(), 3))
		require.NoError(t, c.Semaphore("x", 6).Acquire(t.Context(), 1))
		good := []int64{2, 1}
		l.Until("the loss is in the log", func() bool { return strings.Contains(l.Log.String(), "lock=x") })
		l.UntilHolding(other, 2)
		assert.Equal(t, good, l.Weights(other))

		c.Semaphore("x", 6).Release(2) // is as much as one that is good
		assert.Equal(t, good, l.Weights(other))
		c.Semaphore("x", 6).Release(1)
		assert.Equal(t, good, l.Weights(other))
		// Now all that is left is good.
		c.Semaphore("x", 6).Release(1)
		assert.Equal(t, []int64{2}, l.Weights(other))
		c.Semaphore("x", 6).Release(2)
		lab.Panics(t, func() { c.Semaphore("x", 6).Release(1) })
		// The release of what is lost does not wait for the store.
		l.Until("the lost ones are given up in the store, too", func() bool {
			return l.Used(other) == 0
		})
		l.IsClean("semaphore", "x")
	})
}

// A store that cannot take back a part keeps it until it gets the rest.
func TestPartStaysHeldIfTheStoreCannotTakeItBack(t *testing.T) {
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		d := redisdriver.New(l.Server.Client(t), redisdriver.WithPrefix(l.Server.Prefix()), redisdriver.WithRetention(l.Retention))
		c := holdfast.Open(lab.Bare{Driver: d}, holdfast.WithTTL(lab.Ages))
		defer func() { assert.NoError(t, c.Close()) }()
		s, other := c.Semaphore("x", 5), l.Near().Semaphore("x", 5)
		require.NoError(t, s.Acquire(t.Context(), 3))
		s.Release(1)
		s.Release(1)
		assert.Equal(t, []int64{3}, l.Weights(other))
		lab.Panics(t, func() { s.Release(2) })
		s.Release(1)
		assert.Empty(t, l.Weights(other))
		require.True(t, other.TryAcquire(5))
		other.Release(5)
	})
}

func TestPartIsReleasedThoughTheReplyIsLost(t *testing.T) {
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		s, other := l.Far().Semaphore("x", 5), l.Near().Semaphore("x", 5)
		require.NoError(t, other.Acquire(t.Context(), 2)) // lets Redis know the script
		other.Release(1)
		other.Release(1)
		require.NoError(t, s.Acquire(t.Context(), 5))
		lost := l.Link.DropReply(l.On("semaphore", "x"))
		lab.Promptly(t, lab.Soon, func() error { s.Release(2); return nil })
		l.UntilStruck(lost)
		assert.Equal(t, []int64{3}, l.Weights(other))
		lost = l.Link.DropReply(l.On("semaphore", "x"))
		lab.Promptly(t, lab.Soon, func() error { s.Release(3); return nil })
		l.UntilStruck(lost)
		assert.Empty(t, l.Weights(other))
		require.True(t, other.TryAcquire(5))
		other.Release(5)
	})
}

// A straggling part release, which says how much is left, changes nothing.
func TestPartReleaseThatComesLateTakesNothing(t *testing.T) {
	t.Parallel()
	lab.WithPatience(t, func(t *testing.T, l *lab.Lab) {
		l.Remember()
		s, other := l.Far().Semaphore("x", 5), l.Near().Semaphore("x", 5)
		require.NoError(t, other.Acquire(t.Context(), 2)) // lets Redis know the script
		other.Release(1)
		other.Release(1)
		require.NoError(t, s.Acquire(t.Context(), 5))
		caught, deliver := l.Link.HoldRequest(l.On("semaphore", "x"))
		first := lab.Begin(func() { s.Release(1) })
		l.UntilStruck(caught)
		s.Release(2)
		assert.Equal(t, []int64{2}, l.Weights(other))
		deliver()
		l.Ends(first)
		assert.Equal(t, []int64{2}, l.Weights(other))
		s.Release(2)

		require.NoError(t, s.Acquire(t.Context(), 3))
		caught, deliver = l.Link.HoldRequest(l.On("semaphore", "x"))
		first = lab.Begin(func() { s.Release(1) })
		l.UntilStruck(caught)
		s.Release(2)
		require.True(t, other.TryAcquire(5))
		deliver()
		l.Ends(first)
		assert.Equal(t, []int64{5}, l.Weights(other))
		other.Release(5)
	})
}

func TestPartsAreRenewed(t *testing.T) {
	t.Parallel()
	lab.WithPatience(t, func(t *testing.T, l *lab.Lab) {
		const ttl = 1500 * time.Millisecond
		s, other := l.Near(holdfast.WithTTL(ttl)).Semaphore("x", 5), l.Near().Semaphore("x", 5)
		require.NoError(t, s.Acquire(t.Context(), 4))
		s.Release(1)
		lease := l.Take(lab.Permits(s, 2))
		ctx, cancel := context.WithTimeout(t.Context(), 2*ttl)
		defer cancel()
		require.ErrorIs(t, other.Acquire(ctx, 1), holdfast.ErrLocked)
		assert.Equal(t, []int64{3, 2}, l.Weights(other))
		l.UntilWaiting(other, 0) // it withdraws in the background
		l.GiveBack(lease)
		s.Release(3)
		l.IsClean("semaphore", "x")
	})
}
