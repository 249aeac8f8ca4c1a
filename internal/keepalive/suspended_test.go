package keepalive_test

import (
	"context"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/memdriver"
	"github.com/holdfast-go/holdfast/internal/keepalive"
	"github.com/holdfast-go/holdfast/internal/test/behavior/lab"
)

// Rule 4. "Not renewed in time" would have people look for what is wrong with Redis.
func TestLeaseThatEndsByTheWallClockSaysSo(t *testing.T) {
	for name, end := range map[string]func(*holdfast.Lease){
		"to who asks":    func(*holdfast.Lease) {},
		"in its context": func(l *holdfast.Lease) { <-l.Done() },
	} {
		t.Run(name, func(t *testing.T) {
			lab.Stage(t, func(t *testing.T, p *lab.Play, c *holdfast.Client) {
				w := lab.Wait(t.Context(), c.Mutex("x"))
				(<-p.Asks).Granted(1)
				require.True(t, w.Returned())
				began := time.Now()
				keepalive.StepWallClock(t, lab.PlayTTL)
				end(w.Lease)
				require.LessOrEqual(t, time.Since(began), lab.PlayTTL/3)
				for _, err := range []error{w.Lease.Err(), context.Cause(w.Lease.Context()), w.Lease.Release(t.Context())} {
					require.ErrorIs(t, err, holdfast.ErrLost)
					require.ErrorContains(t, err, "the wall clock was set forward, or the machine was suspended")
					require.NotContains(t, err.Error(), "not renewed")
				}
			})
		})
	}
}

// A hold that a suspension of the machine has ended is in the log, although its Unlock does not
// look at the clock.
func TestLossBySuspensionIsLoggedThoughTheLockLingers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := new(lab.Log)
		c := holdfast.Open(memdriver.New(), holdfast.WithLinger(time.Hour),
			holdfast.WithLogger(slog.New(slog.NewTextHandler(log, nil))))
		mu := c.Mutex("x")
		for range 2 {
			mu.Lock()
			mu.Unlock()
		}
		mu.Lock()
		keepalive.StepWallClock(t, time.Hour)
		mu.Unlock()
		time.Sleep(10 * time.Second)
		require.Equal(t, 1, strings.Count(log.String(), "lock lost"), log.String())
		require.NoError(t, c.Close())
	})
}

// counted counts what a store is asked for.
type counted struct {
	*memdriver.Driver
	asked atomic.Int64
}

func (c *counted) Acquire(ctx context.Context, r *driver.Request) (driver.Grant, error) {
	c.asked.Add(1)
	return c.Driver.Acquire(ctx, r)
}

// A lease that is over by the clock is not locked again, however soon after it was unlocked.
func TestHandleLocksNothingAgainBeyondItsLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &counted{Driver: memdriver.New()}
		c := holdfast.Open(store, holdfast.WithLinger(time.Hour))
		mu := c.Mutex("x")
		for range 3 {
			mu.Lock()
			mu.Unlock()
		}
		asked := store.asked.Load()
		keepalive.StepWallClock(t, time.Hour) // as a suspended machine finds it
		mu.Lock()
		require.Equal(t, asked+1, store.asked.Load())
		mu.Unlock()
		require.NoError(t, c.Close())
	})
}

// Nor is one handed on in process that is over and of which nobody has been told yet. An Unlock does not
// look at the clock, but hands on only what is still trusted.
func TestNobodyIsHandedALeaseThatIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &counted{Driver: memdriver.New()}
		c := holdfast.Open(store, holdfast.WithLogger(slog.New(slog.DiscardHandler)))
		mu := c.Mutex("x")
		mu.Lock()
		waiter := lab.Begin(mu.Lock)
		synctest.Wait()
		asked := store.asked.Load()
		keepalive.StepWallClock(t, time.Hour)
		mu.Unlock()
		require.Nil(t, <-waiter)
		require.Equal(t, asked+1, store.asked.Load(), "the store was not asked whether the lock is free")
		mu.Unlock()
		require.NoError(t, c.Close())
	})
}
