package holdfast_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/test/behavior/lab"
	"github.com/holdfast-go/holdfast/internal/test/referee"
)

// These are the tests of golang.org/x/sync/semaphore, over several clients.

func TestSemaphoreNeverGivesMoreThanItsLimit(t *testing.T) {
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		const limit, loops = 5, 10
		clients := []*holdfast.Client{l.Near(), l.Near(), l.Near()}
		r := &referee.Referee{Limit: limit}
		var wg sync.WaitGroup
		for i := range 3 * limit {
			s, n := clients[i%3].Semaphore("x", limit), int64(i%limit+1)
			wg.Go(func() {
				for range loops {
					if !assert.NoError(t, s.Acquire(t.Context(), n)) {
						return
					}
					r.Enter(n)
					time.Sleep(rand.N(time.Millisecond))
					r.Leave(n)
					s.Release(n)
				}
			})
		}
		lab.Promptly(t, 6*lab.Soon, func() error { wg.Wait(); return nil })
		r.RequireFair(t, 3*limit*loops)
		assert.Equal(t, int64(limit), r.Peak(), "they never had it all")
		l.IsClean("semaphore", "x")
	})
}

func TestReleaseOfMoreThanIsHeldPanicsAndChangesNothing(t *testing.T) {
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		a, b := l.Near().Semaphore("x", 10), l.Near().Semaphore("x", 10)
		tooMuch := func(n int64) {
			t.Helper()
			assert.Equal(t, `holdfast: semaphore "x": released more than held`, lab.Panics(t, func() { a.Release(n) }))
		}
		tooMuch(1)
		require.NoError(t, b.Acquire(t.Context(), 3)) // that of another client does not count
		tooMuch(1)
		require.NoError(t, a.Acquire(t.Context(), 2))
		require.NoError(t, a.Acquire(t.Context(), 4))
		lease := l.Take(lab.Permits(a, 1)) // nor does a lease
		before := l.Look(a).Holders
		tooMuch(7)
		for i, h := range l.Look(a).Holders {
			assert.Equal(t, before[i].Fence, h.Fence)
			assert.Equal(t, before[i].Weight, h.Weight)
		}
		assert.EqualValues(t, 10, l.Used(a))
		a.Release(6) // all are still there
		tooMuch(1)
		assert.EqualValues(t, 4, l.Used(a))
		require.NoError(t, lease.Err())
		l.GiveBack(lease)
		b.Release(3)
		l.IsClean("semaphore", "x")
	})
}

func TestNegativeNumberOfPermitsPanics(t *testing.T) {
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		s := l.Near().Semaphore("x", 2)
		require.NoError(t, s.Acquire(t.Context(), 1))
		for _, f := range []func(){
			func() { _ = s.Acquire(t.Context(), -1) },
			func() { s.TryAcquire(-1) },
			func() { s.Release(-1) },
			func() { _, _ = s.Lease(t.Context(), -1) },
			func() { _, _ = s.TryLease(t.Context(), -1) },
			func() { _, _ = s.Lease(t.Context(), 0) },
			func() { _, _ = s.TryLease(t.Context(), 0) },
			func() { _ = s.Do(t.Context(), 0, func(context.Context) error { return nil }) },
		} {
			lab.Panics(t, f)
		}
		assert.EqualValues(t, 1, l.Used(s))
		s.Release(1)
	})
}

func TestNoPermitsAreAlwaysToBeHad(t *testing.T) {
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		s := l.Near().Semaphore("x", 2)
		require.NoError(t, s.Acquire(t.Context(), 0))
		assert.True(t, s.TryAcquire(0))
		s.Release(0)
		assert.Empty(t, l.Server.Keys(t, l.Server.Prefix()), "that is nothing to tell Redis")
		require.True(t, s.TryAcquire(2))
		require.NoError(t, s.Acquire(t.Context(), 0))
		assert.True(t, s.TryAcquire(0))
		s.Release(0)
		assert.EqualValues(t, 2, l.Used(s))
		s.Release(2)

		gone := errors.New("gone")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(gone)
		require.ErrorIs(t, s.Acquire(ctx, 0), gone)
	})
}

func acquireWithin(t *testing.T, s *holdfast.Semaphore, n int64, d time.Duration) error {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	return s.Acquire(ctx, n)
}

// A request that can never be granted holds up nobody, and is refused at once.
func TestRequestForMoreThanTheLimitBlocksNobody(t *testing.T) {
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		const n = 2
		a, b := l.Near().Semaphore("x", n), l.Near().Semaphore("x", n)
		var wg sync.WaitGroup
		for range n * 3 {
			wg.Go(func() {
				assert.NoError(t, a.Acquire(t.Context(), 1))
				assert.ErrorIs(t, b.Acquire(context.Background(), n+1), holdfast.ErrLimitExceeded)
				a.Release(1)
			})
		}
		lab.Promptly(t, lab.Soon, func() error { wg.Wait(); return nil })
		l.IsClean("semaphore", "x")
	})
}

func TestLargeAcquireDoesNotStarve(t *testing.T) {
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		const n = 4
		clients := []*holdfast.Client{l.Near(), l.Near()}
		var stop atomic.Bool
		var wg sync.WaitGroup
		for i := range n {
			s := clients[i%2].Semaphore("x", n)
			require.NoError(t, s.Acquire(t.Context(), 1))
			wg.Go(func() {
				defer s.Release(1)
				for !stop.Load() {
					time.Sleep(time.Millisecond)
					s.Release(1)
					assert.NoError(t, s.Acquire(context.Background(), 1))
				}
			})
		}
		large := clients[0].Semaphore("x", n)
		err := acquireWithin(t, large, n, 2*lab.Soon)
		stop.Store(true)
		require.NoError(t, err)
		large.Release(n)
		lab.Promptly(t, lab.Soon, func() error { wg.Wait(); return nil })
		l.IsClean("semaphore", "x")
	})
}

// Waiters give up at the time when their turn comes. Either may win, but no permit is lost.
func TestCancelledAcquiresLosePermitsToNobody(t *testing.T) {
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		l.Remember()
		const limit, loops = 4, 15
		clients := []*holdfast.Client{l.Near(), l.Near(), l.Near()}
		r := &referee.Referee{Limit: limit}
		var got, gone atomic.Int64
		var wg sync.WaitGroup
		for i := range 12 {
			s, n := clients[i%3].Semaphore("x", limit), int64(i%limit+1)
			wg.Go(func() {
				for range loops {
					err := acquireWithin(t, s, n, rand.N(20*time.Millisecond))
					if err != nil {
						assert.ErrorIs(t, err, context.DeadlineExceeded)
						gone.Add(1)
						continue
					}
					got.Add(1)
					r.Enter(n)
					time.Sleep(rand.N(time.Millisecond))
					r.Leave(n)
					s.Release(n)
				}
			})
		}
		lab.Promptly(t, 6*lab.Soon, func() error { wg.Wait(); return nil })
		r.RequireFair(t, got.Load())
		t.Logf("%d acquired, %d gave up", got.Load(), gone.Load())
		s := clients[0].Semaphore("x", limit)
		l.Until("all are free", func() bool { return s.TryAcquire(limit) })
		s.Release(limit)
		l.UntilWaiting(s, 0)
		l.IsClean("semaphore", "x")
	})
}
