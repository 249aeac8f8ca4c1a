package holdfast_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver/memdriver"
	"github.com/holdfast-go/holdfast/internal/behavior/lab"
)

// The context of Lease bounds the waiting, not the holding.
func TestLeaseOutlivesTheContextItWasAcquiredWith(t *testing.T) {
	t.Parallel()
	lab.WithPatience(t, func(t *testing.T, l *lab.Lab) {
		const ttl = 300 * time.Millisecond
		type word struct{}
		ctx, cancel := context.WithCancel(context.WithValue(t.Context(), word{}, "value"))
		lease, err := l.Near(holdfast.WithTTL(ttl)).Mutex("x").Lease(ctx)
		require.NoError(t, err)
		with := lease.WithContext(ctx)
		cancel()
		select {
		case <-with.Done():
		case <-time.After(lab.Soon):
			t.Fatal("WithContext outlives its context")
		}
		assert.ErrorIs(t, context.Cause(with), context.Canceled)
		l.Keeps(lease, 2*ttl)
		assert.Equal(t, "value", lease.Context().Value(word{}))
		// Also when everything is over Release works.
		require.NoError(t, lease.Release(ctx))
		l.Free(l.Near(), "x")
	})
}

func TestWithContextForgetsContextsThatHaveEnded(t *testing.T) {
	c := holdfast.Open(lab.Instant{})
	defer c.Close()
	l, err := c.Mutex("x").Lease(t.Context())
	require.NoError(t, err)
	const n = 20_000
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	for range n {
		ctx, cancel := context.WithCancel(t.Context())
		request := l.WithContext(ctx)
		cancel()
		<-request.Done()
	}
	require.Eventually(t, func() bool { return heap() < before+n*100 }, 10*time.Second, 50*time.Millisecond)
	require.NoError(t, l.Release(t.Context()))
	require.ErrorIs(t, context.Cause(l.WithContext(t.Context())), context.Canceled, "over already")
}

func TestReleaseIsCountedOnce(t *testing.T) {
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		c := l.Near()
		lease := l.Lease(c, "x")
		var released atomic.Int64
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				switch err := lease.Release(context.Background()); {
				case err == nil:
					released.Add(1)
				default:
					assert.ErrorIs(t, err, holdfast.ErrNotHeld)
				}
			})
		}
		lab.Promptly(t, lab.Soon, func() error { wg.Wait(); return nil })
		assert.EqualValues(t, 1, released.Load())

		next := l.Lease(c, "x")
		require.ErrorIs(t, lease.Release(t.Context()), holdfast.ErrNotHeld)
		require.ErrorIs(t, lease.Renew(t.Context()), holdfast.ErrNotHeld)
		require.ErrorIs(t, lease.Err(), holdfast.ErrNotHeld)
		require.ErrorIs(t, context.Cause(lease.Context()), context.Canceled)
		l.Holds(next)
		require.NoError(t, next.Release(t.Context()))
	})
}

func TestAllTakesAllOrNone(t *testing.T) {
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		a, b := l.Near(), l.Near()
		type word struct{}
		both, err := holdfast.All(context.WithValue(t.Context(), word{}, "value"), a.Mutex("y"), a.Mutex("x"))
		require.NoError(t, err)
		require.NoError(t, both.Err())
		assert.Equal(t, "value", both.Context().Value(word{}))
		names := []string{both.Each()[0].Name(), both.Each()[1].Name()}
		assert.Equal(t, []string{"y", "x"}, names, "in the order of the arguments")
		assert.False(t, b.Mutex("x").TryLock())
		assert.False(t, b.Mutex("y").TryLock())
		_, err = a.Mutex("x").Lease(both.Context())
		require.ErrorIs(t, err, holdfast.ErrDeadlock, "the context comes from both")
		_, err = a.Mutex("y").Lease(both.Context())
		require.ErrorIs(t, err, holdfast.ErrDeadlock, "the context comes from both")
		require.NoError(t, both.Release(t.Context()))
		l.Ends(lab.Begin(func() { <-both.Context().Done() })) // in the background
		require.ErrorIs(t, context.Cause(both.Context()), context.Canceled)
		require.ErrorIs(t, both.Err(), holdfast.ErrNotHeld)
		l.Free(b, "x")
		l.Free(b, "y")

		held := l.Lease(b, "y")
		ctx, cancel := context.WithCancel(t.Context())
		failed := lab.Begin(func() {
			_, err := holdfast.All(ctx, a.Mutex("y"), a.Mutex("x"), a.Mutex("z"))
			assert.ErrorIs(t, err, context.Canceled)
		})
		l.UntilQueue("y", 1)
		assert.False(t, b.Mutex("x").TryLock(), "held while it waits")
		cancel()
		l.Ends(failed)
		l.SoonFree(b, "x")
		l.SoonFree(b, "z")
		require.NoError(t, held.Release(t.Context()))
		l.SoonFree(b, "y")
	})
}

func TestAllEndsWhenOneIsLost(t *testing.T) {
	t.Parallel()
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		const ttl = 900 * time.Millisecond
		a, b := l.Near(holdfast.WithTTL(ttl)), l.Near()
		both, err := holdfast.All(t.Context(), a.Mutex("x"), a.Mutex("y"))
		require.NoError(t, err)
		require.NoError(t, b.Mutex("x").ForceUnlock(t.Context()))
		select {
		case <-both.Context().Done():
		case <-time.After(lab.Soon):
			t.Fatal("it goes on")
		}
		require.ErrorIs(t, context.Cause(both.Context()), holdfast.ErrLost)
		require.ErrorIs(t, both.Err(), holdfast.ErrLost)
		require.NoError(t, both.Each()[1].Err())
		require.ErrorIs(t, both.Release(t.Context()), holdfast.ErrLost)
		l.Free(b, "y")

		// Also while it still waits for another.
		held := l.Lease(b, "y")
		failed := lab.Begin(func() {
			_, err := holdfast.All(t.Context(), a.Mutex("x"), a.Mutex("y"))
			assert.ErrorIs(t, err, holdfast.ErrLost)
		})
		l.UntilQueue("y", 1)
		require.NoError(t, b.Mutex("x").ForceUnlock(t.Context()))
		l.Ends(failed)
		require.NoError(t, held.Release(t.Context()))
		l.SoonFree(b, "y")
	})
}

func TestAllRefusesWhatHasNoOrder(t *testing.T) {
	a, b := holdfast.Open(memdriver.New()), holdfast.Open(memdriver.New())
	defer func() { _, _ = a.Close(), b.Close() }()
	_, err := holdfast.All(t.Context(), a.Mutex("x"), a.Mutex("y"), a.Mutex("x", holdfast.WithOwner("o")))
	require.ErrorIs(t, err, holdfast.ErrDeadlock)
	require.ErrorContains(t, err, `"x"`)
	require.True(t, a.Mutex("y").TryLock(), "it has taken some")
	assert.Panics(t, func() { _, _ = holdfast.All(t.Context(), a.Mutex("x"), b.Mutex("y")) })
	assert.Panics(t, func() { _, _ = holdfast.All(t.Context()) })
}

// Callers that want random sets of locks, in random orders, never wait in a circle. Whoever
// gives up leaves nothing locked.
func TestAllNeverDeadlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const clients, callers, rounds, names = 3, 8, 60, 5
		store := memdriver.New()
		var inside [names]atomic.Int32
		var wg sync.WaitGroup
		for range clients {
			c := holdfast.Open(store)
			t.Cleanup(func() { assert.NoError(t, c.Close()) })
			for range callers {
				wg.Go(func() {
					for range rounds {
						var locks []*holdfast.Mutex
						which := rand.Perm(names)[:1+rand.N(names)]
						for _, i := range which {
							locks = append(locks, c.Mutex(fmt.Sprint("lock ", i)))
						}
						impatient := rand.N(3) == 0
						patience := time.Hour
						if impatient {
							patience = rand.N(20 * time.Millisecond)
						}
						ctx, cancel := context.WithTimeout(t.Context(), patience)
						all, err := holdfast.All(ctx, locks...)
						cancel()
						if err != nil {
							assert.True(t, impatient, "it waited for an hour: %v", err)
							assert.ErrorIs(t, err, context.DeadlineExceeded)
							continue
						}
						for _, i := range which {
							assert.EqualValues(t, 1, inside[i].Add(1), "two hold lock %d", i)
						}
						time.Sleep(rand.N(2 * time.Millisecond))
						for _, i := range which {
							inside[i].Add(-1)
						}
						assert.NoError(t, all.Release(context.Background()))
					}
				})
			}
		}
		wg.Wait()
		c := holdfast.Open(store)
		defer c.Close()
		for i := range names {
			assert.True(t, c.Mutex(fmt.Sprint("lock ", i)).TryLock(), "lock %d stays locked", i)
		}
	})
}
