package token_test

import (
	"bytes"
	"context"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/test/behavior/lab"
	"github.com/holdfast-go/holdfast/internal/token"
)

// A try whose first ask hung. Both answers arrive; whichever is read first, what was
// granted is used or given back.
func TestTryThatWasAnsweredBusyAndGrantedGivesBack(t *testing.T) {
	lab.Stage(t, func(t *testing.T, p *lab.Play, c *holdfast.Client) {
		for i := range 300 {
			time.Sleep(lab.Lull) // it does not ask in place
			w := &lab.Waiter{Done: make(chan struct{})}
			go func() {
				defer close(w.Done)
				w.Lease, w.Err = c.Mutex("x").TryLease(t.Context())
			}()
			first, second := <-p.Asks, <-p.Asks
			if i%2 == 0 { // the scheduler likes to run first who was woken last
				first, second = second, first
			}
			first.Answer <- lab.Result{Grant: driver.Grant{Status: driver.Granted, Ask: 2, Fence: 1}}
			second.Answer <- lab.Result{Grant: driver.Grant{Status: driver.Busy}}
			require.True(t, w.Returned())
			if w.Err == nil {
				require.NoError(t, w.Lease.Release(t.Context()))
			} else {
				require.ErrorIs(t, w.Err, holdfast.ErrLocked)
			}
			synctest.Wait()
			require.Equal(t, first.Token, p.Released()[len(p.Released())-1].Token, "given back")
		}
	})
}

// ForceUnlock can hit a waiter that does not know yet that it was granted the lock.
func TestWaiterThatWasForcedOutUnawaresQueuesAgain(t *testing.T) {
	lab.Stage(t, func(t *testing.T, p *lab.Play, c *holdfast.Client) {
		w := lab.Wait(t.Context(), c.Mutex("x"))
		first := <-p.Asks
		stood := driver.Place{Birth: 7, Number: 3}
		first.Answer <- lab.Result{Err: driver.Unheard{Place: stood}}
		again := <-p.Asks
		require.NotEqual(t, first.Token, again.Token)
		require.Equal(t, stood, again.Place)
		again.Granted(1)
		require.True(t, w.Returned())
		require.NoError(t, w.Err)
		require.Equal(t, time.Now().Add(ttl-margin), w.Lease.Deadline())
		require.NoError(t, w.Lease.Release(t.Context()))
	})
}

// slowly answers what is asked with a grant, later than a lease lasts for as long as slow says.
func slowly(p *lab.Play, t *testing.T, slow func() bool) (asked *atomic.Int64) {
	asked, stop := new(atomic.Int64), make(chan struct{})
	t.Cleanup(func() { close(stop) })
	go func() {
		for {
			select {
			case a := <-p.Asks:
				asked.Add(1)
				if slow() {
					time.AfterFunc(lab.PlayTTL, func() { a.Granted(1) })
				} else {
					a.Granted(1)
				}
			case <-stop:
				return
			}
		}
	}()
	return asked
}

// Latency passes. Until then each grant keeps the lock from the others for a TTL, and nobody
// has it, so the others must get their turn.
func TestWaiterOutlastsAStoreThatIsTooSlowForTheTTL(t *testing.T) {
	lab.Stage(t, func(t *testing.T, p *lab.Play, c *holdfast.Client) {
		began := time.Now()
		asked := slowly(p, t, func() bool { return time.Since(began) < time.Minute })
		w := lab.Wait(t.Context(), c.Mutex("x"))
		<-w.Done
		require.NoError(t, w.Err)
		require.NoError(t, w.Lease.Err())
		require.Less(t, time.Since(began), time.Minute+10*max(lab.PlayTTL, time.Second))
		const once = 3 // that which is sent at once, and those while it is not answered
		require.Less(t, asked.Load()-once, int64(time.Minute/max(lab.PlayTTL, time.Second)*2))
		require.NoError(t, w.Lease.Release(t.Context()))
	})
}

// An ask lay at a store that stood still, and was granted a whole lease when that went on. Nobody else can have
// the lock for that long, so the caller finds out at once that it has it.
func TestGrantThatCameTooLateOnceIsAskedForAtOnce(t *testing.T) {
	for _, several := range []bool{false, true} { // asks lay there, and not those that came later
		alone(t, true, func(t *testing.T, s *store, c *contender) {
			w := c.wait(t.Context())
			lay := []*lab.Ask{<-s.Asks}
			if several {
				lay = append(lay, <-s.Asks, <-s.Asks)
			}
			var stalled atomic.Bool
			stalled.Store(true)
			go func() {
				for a := range s.Asks {
					if stalled.Load() {
						a.Answer <- lab.Result{Err: driver.ErrTransient}
					} else {
						a.Granted(1)
					}
				}
			}()
			defer close(s.Asks)
			time.Sleep(2 * ttl)
			stalled.Store(false)
			began := time.Now()
			for _, a := range lay {
				a.Granted(1)
				synctest.Wait()
			}
			for !w.returned() {
				time.Sleep(time.Millisecond)
			}
			require.NoError(t, w.err)
			require.Less(t, time.Since(began), ttl/6)
		})
	}
}

// The first answer of a store that is far comes after some connections were made. What is left of the lease
// would not last until it is renewed.
func TestGrantOfWhichLittleIsLeftIsRenewedFirst(t *testing.T) {
	for _, wait := range []bool{true, false} {
		alone(t, wait, func(t *testing.T, s *store, c *contender) {
			w := c.wait(t.Context())
			asks := []*lab.Ask{<-s.Asks, <-s.Asks, <-s.Asks}
			time.Sleep(ttl / 5)
			asks[0].Granted(1)
			require.False(t, w.returned(), "less than half of its time is left")
			again := <-s.Asks
			require.EqualValues(t, 4, again.Ask)
			asks[1].Granted(1)
			require.False(t, w.returned(), "nor was much more left of this one")
			again.Granted(1)
			require.True(t, w.returned())
			require.NoError(t, w.err)
			require.Equal(t, ttl-margin, w.trust.Left())
			asks[2].Granted(1)
		})
	}
	// Where no answer is better, one such as this will do.
	alone(t, true, func(t *testing.T, s *store, c *contender) {
		w := c.wait(t.Context())
		go func() {
			for a := range s.Asks {
				time.AfterFunc(ttl*3/4, func() { a.Granted(1) })
			}
		}()
		time.Sleep(ttl*3/2 + ttl/100)
		require.True(t, w.returned())
		require.NoError(t, w.err)
		require.Positive(t, w.trust.Left())
		time.Sleep(ttl)
		close(s.Asks)
	})
}

func TestStoreThatIsTooSlowForTheTTLIsWhyAWaitEnds(t *testing.T) {
	lab.Stage(t, func(t *testing.T, p *lab.Play, c *holdfast.Client) {
		slowly(p, t, func() bool { return true })
		ctx, cancel := context.WithTimeout(t.Context(), 20*lab.PlayTTL)
		defer cancel()
		w := lab.Wait(ctx, c.Mutex("x"))
		<-w.Done
		require.ErrorIs(t, w.Err, context.DeadlineExceeded)
		require.ErrorIs(t, w.Err, driver.ErrTransient)
		require.ErrorContains(t, w.Err, "longer to answer than a lease lasts")

		_, err := c.Mutex("x").TryLease(t.Context())
		require.ErrorIs(t, err, driver.ErrTransient)
		time.Sleep(2 * lab.PlayTTL)
	})
}

// It was slow once, and now somebody has the lock. A reader of the log must not be sent to the store.
func TestStoreThatWasTooSlowForAGrantIsNotBlamedForAHolder(t *testing.T) {
	lab.Stage(t, func(t *testing.T, p *lab.Play, _ *holdfast.Client) {
		var log bytes.Buffer
		c := holdfast.Open(p, holdfast.WithTTL(lab.PlayTTL), holdfast.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
		w := lab.Wait(t.Context(), c.Mutex("x"))
		first := <-p.Asks
		time.Sleep(lab.PlayTTL)
		first.Granted(1)
		time.Sleep(3 * time.Second) // in which the log tells
		for range 100 {
			(<-p.Asks).Queued()
		}
		synctest.Wait() // Whoever tells has told.
		require.NotContains(t, log.String(), "waited=2m", log.String())
		require.Contains(t, log.String(), "longer to answer than a lease lasts")
		(<-p.Asks).Granted(2)
		<-w.Done
		require.NoError(t, w.Lease.Release(t.Context()))
		require.NoError(t, c.Close())
	})
}

// Asks of a try that were held up, and came to the store the wrong way round: the last one found
// the lock taken, the others were granted it, too late to be of use. The store has counted that
// lease from later on. So the last answer is no reason to leave the lock to nobody.
func TestLateGrantIsGivenBackThoughAnotherAskWasBusy(t *testing.T) {
	alone(t, false, func(t *testing.T, s *store, c *contender) {
		w := c.wait(t.Context())
		for range 2 {
			ask := <-s.Asks
			time.AfterFunc(ttl, func() { ask.Granted(7) })
		}
		last := <-s.Asks
		time.Sleep(ttl*2/3 + time.Millisecond) // until the second of them is answered
		require.False(t, w.returned())
		last.Answer <- lab.Result{Grant: driver.Grant{Status: driver.Busy}}
		require.True(t, w.returned())
		require.ErrorIs(t, w.err, token.ErrLocked)
		c.Withdraw(context.Background())
		synctest.Wait()
		require.Len(t, s.Released(), 1)
	})
}
