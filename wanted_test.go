package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
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

// heard waits for a channel of Wanted.
func heard(t *testing.T, wanted <-chan struct{}) {
	t.Helper()
	select {
	case <-wanted:
	case <-time.After(lab.Soon):
		t.Fatal("nobody has heard that another waits")
	}
}

// unheard checks that nobody is wanted now.
func unheard(t *testing.T, wanted <-chan struct{}) {
	t.Helper()
	select {
	case <-wanted:
		t.Fatal("heard of a waiter that is not there")
	default:
	}
}

func TestHolderHearsThatAnotherProcessWaits(t *testing.T) {
	t.Parallel()
	lab.WithPatience(t, func(t *testing.T, l *lab.Lab) {
		for what, opts := range map[string][]holdfast.Option{
			"alone": nil, "linger": {holdfast.WithLinger(time.Hour)}, "fixed": {holdfast.WithoutRenewal()}, "owned": {holdfast.WithOwner("A")},
		} {
			for _, before := range []bool{true, false} {
				name := fmt.Sprint(what, before)
				client := l.Near
				if what == "linger" {
					client = l.Mates
				}
				holder, other := client(opts...), l.Near()
				lease := l.Lease(holder, name)
				deadline := lease.Deadline()
				if before {
					wanted := lease.Wanted()
					time.Sleep(10 * time.Millisecond) // mostly the store is asked before
					_, err := other.Mutex(name).TryLease(t.Context())
					require.ErrorIs(t, err, holdfast.ErrLocked)
					unheard(t, wanted)
				}
				w := l.Wait(other, name)
				if !before {
					l.UntilQueue(name, 1)
				}
				began := time.Now()
				heard(t, lease.Wanted())
				assert.Less(t, time.Since(began), lab.Ages/4, "%s: long before a renewal", name)
				if what == "fixed" {
					assert.Equal(t, deadline, lease.Deadline(), "it is not renewed")
				}
				require.NoError(t, lease.Release(t.Context()))
				require.NoError(t, w.Granted(lab.Soon).Release(t.Context()))
				heard(t, lease.Wanted()) // stays as it is
			}
		}
	})
}

// All that the store is told is as without Wanted, until somebody calls it; and then there is
// one question for each lease.
func TestHolderThatNeverLooksCostsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &teller{Driver: memdriver.New()}
		c, other := holdfast.Open(store), holdfast.Open(store)
		lease, err := c.Mutex("x").Lease(t.Context())
		require.NoError(t, err)
		done := make(chan error)
		go func() { done <- other.Mutex("x").Do(t.Context(), func(context.Context) error { return nil }) }()
		time.Sleep(time.Hour)
		require.Zero(t, store.notices.Load())
		require.Zero(t, store.asked.Load())
		for range 3 {
			heard(t, lease.Wanted())
		}
		require.EqualValues(t, 1, store.asked.Load())
		require.NoError(t, lease.Release(t.Context()))
		require.NoError(t, <-done)
		require.NoError(t, c.Close())
		require.NoError(t, other.Close())
	})
}

// teller counts who wants notices, and fails as often as it is told to.
type teller struct {
	driver.Driver
	notices, asked, fails atomic.Int64
}

func (s *teller) Unwrap() driver.Driver { return s.Driver }

func (s *teller) Acquire(ctx context.Context, r *driver.Request) (driver.Grant, error) {
	if r.Notice {
		s.notices.Add(1)
	}
	return s.Driver.Acquire(ctx, r)
}

func (s *teller) Notices() bool { return true }

func (s *teller) Notice(ctx context.Context, l driver.Lease) (bool, error) {
	s.asked.Add(1)
	if s.fails.Add(-1) >= 0 {
		return false, fmt.Errorf("cut off: %w", driver.ErrTransient)
	}
	n, _ := driver.As[driver.Notifier](s.Driver)
	return n.Notice(ctx, l)
}

func TestQuestionWhetherAnybodyWaitsIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &teller{Driver: memdriver.New()}
		c, other := holdfast.Open(store), holdfast.Open(store)
		store.fails.Store(5)
		lease, err := c.Mutex("x", holdfast.WithoutRenewal(), holdfast.WithTTL(time.Hour)).Lease(t.Context())
		require.NoError(t, err)
		done := make(chan error)
		go func() { done <- other.Mutex("x").Do(t.Context(), func(context.Context) error { return nil }) }()
		synctest.Wait()
		heard(t, lease.Wanted())
		require.NoError(t, lease.Release(t.Context()))
		require.NoError(t, <-done)

		// Nobody asks on for a lease that is over, nor for a client.
		store.fails.Store(1 << 40)
		lease, err = c.Mutex("x").Lease(t.Context())
		require.NoError(t, err)
		lease.Wanted()
		time.Sleep(time.Second)
		require.NoError(t, lease.Release(t.Context()))
		time.Sleep(time.Second)
		before := store.asked.Load()
		time.Sleep(time.Hour)
		require.Equal(t, before, store.asked.Load())
		unheard(t, lease.Wanted())
		lease, err = c.Mutex("x").Lease(t.Context())
		require.NoError(t, err)
		lease.Wanted()
		time.Sleep(time.Second)
		require.NoError(t, c.Close())
		require.NoError(t, other.Close())
	})
}

// The store knows that the lease is over: then the holder learns that instead.
func TestQuestionOfAHolderThatHasLostTheLockTellsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memdriver.New()
		c := holdfast.Open(unwoken{store})
		lease, err := c.Mutex("x", holdfast.WithoutRenewal()).Lease(t.Context())
		require.NoError(t, err)
		require.NoError(t, store.ForceRelease(t.Context(), driver.Mutex, "x"))
		require.NoError(t, lease.Err())
		lease.Wanted()
		synctest.Wait()
		require.ErrorIs(t, lease.Err(), holdfast.ErrLost)
		require.NoError(t, c.Close())
	})
}

// unwoken is a store that tells no news.
type unwoken struct{ *memdriver.Driver }

func (s unwoken) Acquire(ctx context.Context, r *driver.Request) (driver.Grant, error) {
	deaf := *r
	deaf.Wake = nil
	return s.Driver.Acquire(ctx, &deaf)
}

// Goroutines of the holder's client that wait are heard, too, without the store: those in the
// queue of this process before Wanted is called, and those that come later. Each of the holders
// that the lock passes to hears of those behind it.
func TestHolderHearsThatAGoroutineOfItsProcessWaits(t *testing.T) {
	for name, open := range map[string]func() *holdfast.Client{
		"memory": func() *holdfast.Client { return holdfast.Open(memdriver.New()) },
		"bare": func() *holdfast.Client {
			return holdfast.Open(lab.Bare{Driver: memdriver.New()}, holdfast.WithLogger(slog.New(slog.DiscardHandler)))
		},
		"strict": func() *holdfast.Client { return holdfast.Open(memdriver.New(), holdfast.WithStrictFIFO()) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := open()
				lease, err := c.Mutex("x").Lease(t.Context())
				require.NoError(t, err)
				wanted := lease.Wanted()
				synctest.Wait()
				unheard(t, wanted)
				leases := make(chan *holdfast.Lease)
				for range 3 {
					go func() {
						l, err := c.Mutex("x").Lease(t.Context())
						assert.NoError(t, err)
						leases <- l
					}()
				}
				heard(t, wanted)
				for left := range 4 {
					if left > 0 {
						lease = <-leases
						synctest.Wait()
					}
					wanted := lease.Wanted()
					synctest.Wait()
					if left < 3 {
						heard(t, wanted)
					} else {
						unheard(t, wanted)
					}
					require.NoError(t, lease.Release(t.Context()))
				}
				require.NoError(t, c.Close())
			})
		})
	}
}

func TestAllReadersHearThatAWriterWaits(t *testing.T) {
	t.Parallel()
	lab.WithPatience(t, func(t *testing.T, l *lab.Lab) {
		ctx, cancel := context.WithCancel(t.Context())
		a, b := l.Mates(), l.Near()
		var leases []*holdfast.Lease
		for _, c := range []*holdfast.Client{a, a, b, b, l.Near()} {
			lease, err := c.RWMutex("x").RLease(ctx)
			require.NoError(t, err)
			leases = append(leases, lease)
			lease.Wanted()
		}
		time.Sleep(10 * time.Millisecond)
		for _, lease := range leases {
			unheard(t, lease.Wanted())
		}
		done := make(chan error)
		go func() { done <- a.RWMutex("x").Do(ctx, func(context.Context) error { return nil }) }()
		for _, lease := range leases {
			heard(t, lease.Wanted())
		}
		cancel()
		require.ErrorIs(t, <-done, context.Canceled)
		for _, lease := range leases {
			require.NoError(t, lease.Release(t.Context()))
		}
	})
}

func TestHoldersOfPermitsHearThatOthersWait(t *testing.T) {
	t.Parallel()
	lab.WithPatience(t, func(t *testing.T, l *lab.Lab) {
		a, b := l.Near(), l.Near()
		one, err := a.Semaphore("x", 3).Lease(t.Context(), 1)
		require.NoError(t, err)
		two, err := b.Semaphore("x", 3).Lease(t.Context(), 1)
		require.NoError(t, err)
		one.Wanted()
		time.Sleep(10 * time.Millisecond)
		three, err := b.Semaphore("x", 3).Lease(t.Context(), 1)
		require.NoError(t, err)
		unheard(t, one.Wanted())
		done := make(chan error)
		go func() {
			lease, err := b.Semaphore("x", 3).Lease(t.Context(), 2)
			done <- errors.Join(err, lease.Release(t.Context()))
		}()
		heard(t, one.Wanted())
		heard(t, two.Wanted())
		for _, lease := range []*holdfast.Lease{one, two, three} {
			require.NoError(t, lease.Release(t.Context()))
		}
		require.NoError(t, <-done)
	})
}

// A nested lease hears it as the outer one does.
func TestNestedHoldersHearThatAnotherWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memdriver.New()
		c, other := holdfast.Open(store, holdfast.WithReentrancy()), holdfast.Open(store)
		outer, err := c.Mutex("x").Lease(t.Context())
		require.NoError(t, err)
		inner, err := c.Mutex("x").Lease(outer.Context())
		require.NoError(t, err)
		a, b := outer.Wanted(), inner.Wanted()
		synctest.Wait()
		done := make(chan error)
		go func() { done <- other.Mutex("x").Do(t.Context(), func(context.Context) error { return nil }) }()
		heard(t, a)
		heard(t, b)
		require.NoError(t, inner.Release(t.Context()))
		require.NoError(t, outer.Release(t.Context()))
		require.NoError(t, <-done)
		require.NoError(t, c.Close())
		require.NoError(t, other.Close())
	})
}

func TestWantedSaysOnceThatTheStoreDoesNotTell(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		c := holdfast.Open(lab.Bare{Driver: memdriver.New()}, holdfast.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
		for range 3 {
			lease, err := c.Mutex("x").Lease(t.Context())
			require.NoError(t, err)
			unheard(t, lease.Wanted())
			require.NoError(t, lease.Release(t.Context()))
		}
		require.Equal(t, 1, strings.Count(log.String(), "does not tell who waits"))
		require.NoError(t, c.Close())
	})
}
