package holdfast_test

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
)

// Release knows numbers, the store knows leases: what is given back need not be what
// was got.

// weights are what the store says is held, in the order of the grants.
func (l *lab) weights(s *holdfast.Semaphore) []int64 {
	l.t.Helper()
	all := []int64{}
	for _, h := range l.look(s).Holders {
		all = append(all, h.Weight)
	}
	return all
}

func TestPartOfWhatWasAcquiredCanBeReleased(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		c := l.near()
		s, other := c.Semaphore("x", 5), l.near().Semaphore("x", 5)
		require.NoError(t, s.Acquire(t.Context(), 5))
		assert.False(t, other.TryAcquire(1))
		s.Release(2)
		assert.Equal(t, []int64{3}, l.weights(other))
		require.True(t, other.TryAcquire(2))
		assert.False(t, other.TryAcquire(1))
		other.Release(2)
		c.Semaphore("x", 5).Release(1) // another handle
		assert.Equal(t, []int64{2}, l.weights(other))

		// Who waits is told.
		waited := begin(func() { assert.NoError(t, other.Acquire(t.Context(), 4)) })
		l.untilWaiting(s, 1)
		s.Release(1)
		l.ends(waited)
		assert.Equal(t, []int64{1, 4}, l.weights(other))
		s.Release(1)
		assert.Equal(t, []int64{4}, l.weights(other))
		other.Release(4)
		l.isClean("semaphore", "x")
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
			everywhere(t, func(t *testing.T, l *lab) {
				s, other := l.near().Semaphore("x", 9), l.near().Semaphore("x", 9)
				for _, n := range scene.acquire {
					require.NoError(t, s.Acquire(t.Context(), n))
				}
				for i, n := range scene.release {
					s.Release(n)
					assert.Equal(t, scene.left[i], l.weights(other), "release %d", i)
				}
				panics(t, func() { s.Release(1) })
				require.True(t, other.TryAcquire(9))
				other.Release(9)
				l.isClean("semaphore", "x")
			})
		})
	}
}

func TestPartsAreReleasedByManyAtOnce(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		const limit = 30
		c := l.near()
		for range 5 {
			s := c.Semaphore("x", limit)
			for _, n := range []int64{7, 3, 11, 9} {
				require.NoError(t, s.Acquire(t.Context(), n))
			}
			var wg sync.WaitGroup
			for range limit / 2 {
				wg.Go(func() { c.Semaphore("x", limit).Release(2) })
			}
			promptly(t, soon, func() error { wg.Wait(); return nil })
			panics(t, func() { s.Release(1) })
			l.isClean("semaphore", "x")
		}
	})
}

// What is acquired in portions, and given back in others, adds up.
func TestPermitsAddUp(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		const limit = 20
		s, other := l.near().Semaphore("x", limit), l.near().Semaphore("x", limit)
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
			require.Equal(t, held, l.used(other))
		}
		s.Release(held)
		l.isClean("semaphore", "x")
	})
}

// To give back a good lease for somebody whose permits are lost would let in a stranger
// beside its real owner.
func TestReleasePrefersPermitsThatWereLost(t *testing.T) {
	t.Parallel()
	withPatience(t, func(t *testing.T, l *lab) {
		const ttl = 300 * time.Millisecond
		c := l.near()
		other := l.near().Semaphore("x", 6)
		require.NoError(t, c.Semaphore("x", 6).Acquire(t.Context(), 2))
		require.NoError(t, c.Semaphore("x", 6, holdfast.WithoutRenewal(), holdfast.WithTTL(ttl)).Acquire(t.Context(), 3))
		require.NoError(t, c.Semaphore("x", 6).Acquire(t.Context(), 1))
		good := []int64{2, 1}
		l.until("the loss is in the log", func() bool { return strings.Contains(l.log.String(), "lock=x") })
		l.untilHolding(other, 2)
		assert.Equal(t, good, l.weights(other))

		c.Semaphore("x", 6).Release(2) // is as much as one that is good
		assert.Equal(t, good, l.weights(other))
		c.Semaphore("x", 6).Release(1)
		assert.Equal(t, good, l.weights(other))
		// Now all that is left is good.
		c.Semaphore("x", 6).Release(1)
		assert.Equal(t, []int64{2}, l.weights(other))
		c.Semaphore("x", 6).Release(2)
		panics(t, func() { c.Semaphore("x", 6).Release(1) })
		// Who releases what is lost does not wait for the store.
		l.until("the lost ones are given up in the store, too", func() bool {
			return !l.direct.HExists(t.Context(), l.keyOf("semaphore", "x"), "used").Val()
		})
		l.isClean("semaphore", "x")
	})
}

// A store that cannot take back a part keeps it until it gets the rest.
func TestPartStaysHeldIfTheStoreCannotTakeItBack(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		d := redisdriver.New(l.s.Client(t), redisdriver.WithPrefix(l.s.Prefix()), redisdriver.WithRetention(l.retention))
		c := holdfast.Open(bare{d}, holdfast.WithTTL(ages))
		defer func() { assert.NoError(t, c.Close()) }()
		s, other := c.Semaphore("x", 5), l.near().Semaphore("x", 5)
		require.NoError(t, s.Acquire(t.Context(), 3))
		s.Release(1)
		s.Release(1)
		assert.Equal(t, []int64{3}, l.weights(other))
		panics(t, func() { s.Release(2) })
		s.Release(1)
		assert.Empty(t, l.weights(other))
		require.True(t, other.TryAcquire(5))
		other.Release(5)
	})
}

func TestPartIsReleasedThoughTheReplyIsLost(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		s, other := l.far().Semaphore("x", 5), l.near().Semaphore("x", 5)
		require.NoError(t, other.Acquire(t.Context(), 2)) // lets Redis know the script
		other.Release(1)
		other.Release(1)
		require.NoError(t, s.Acquire(t.Context(), 5))
		lost := l.link.DropReply(l.on("semaphore", "x"))
		promptly(t, soon, func() error { s.Release(2); return nil })
		l.untilStruck(lost)
		assert.Equal(t, []int64{3}, l.weights(other))
		lost = l.link.DropReply(l.on("semaphore", "x"))
		promptly(t, soon, func() error { s.Release(3); return nil })
		l.untilStruck(lost)
		assert.Empty(t, l.weights(other))
		require.True(t, other.TryAcquire(5))
		other.Release(5)
	})
}

// A straggling part release, which says how much is left, changes nothing.
func TestPartReleaseThatComesLateTakesNothing(t *testing.T) {
	t.Parallel()
	withPatience(t, func(t *testing.T, l *lab) {
		l.remember()
		s, other := l.far().Semaphore("x", 5), l.near().Semaphore("x", 5)
		require.NoError(t, other.Acquire(t.Context(), 2)) // lets Redis know the script
		other.Release(1)
		other.Release(1)
		require.NoError(t, s.Acquire(t.Context(), 5))
		caught, deliver := l.link.HoldRequest(l.on("semaphore", "x"))
		first := begin(func() { s.Release(1) })
		l.untilStruck(caught)
		s.Release(2)
		assert.Equal(t, []int64{2}, l.weights(other))
		deliver()
		l.ends(first)
		assert.Equal(t, []int64{2}, l.weights(other))
		s.Release(2)

		require.NoError(t, s.Acquire(t.Context(), 3))
		caught, deliver = l.link.HoldRequest(l.on("semaphore", "x"))
		first = begin(func() { s.Release(1) })
		l.untilStruck(caught)
		s.Release(2)
		require.True(t, other.TryAcquire(5))
		deliver()
		l.ends(first)
		assert.Equal(t, []int64{5}, l.weights(other))
		other.Release(5)
	})
}

func TestPartsAreRenewed(t *testing.T) {
	t.Parallel()
	withPatience(t, func(t *testing.T, l *lab) {
		const ttl = 1500 * time.Millisecond
		s, other := l.near(holdfast.WithTTL(ttl)).Semaphore("x", 5), l.near().Semaphore("x", 5)
		require.NoError(t, s.Acquire(t.Context(), 4))
		s.Release(1)
		lease := l.take(permits(s, 2))
		ctx, cancel := context.WithTimeout(t.Context(), 2*ttl)
		defer cancel()
		require.ErrorIs(t, other.Acquire(ctx, 1), holdfast.ErrLocked)
		assert.Equal(t, []int64{3, 2}, l.weights(other))
		l.untilWaiting(other, 0) // it withdraws in the background
		l.giveBack(lease)
		s.Release(3)
		l.isClean("semaphore", "x")
	})
}
