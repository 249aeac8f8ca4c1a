package claim_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/test/behavior/lab"
)

// Rule 1. The waiter was granted the lock after its first ask and cut off. The lease
// ran out, another holds the lock. When the network heals, the waiter's newest ask is
// answered "queued", and then the old push comes in.
func TestStalePushIsNotBelieved(t *testing.T) {
	lab.Stage(t, func(t *testing.T, p *lab.Play, c *holdfast.Client) {
		ctx, cancel := context.WithCancel(t.Context())
		w := lab.Wait(ctx, c.Mutex("x"))
		first := <-p.Asks
		first.Queued()
		for range 4 { // heartbeats of 12 s
			(<-p.Asks).Queued()
		}
		require.False(t, w.Returned())
		first.Wake(driver.Grant{Status: driver.Granted, Ask: first.Ask, Fence: 1})
		require.False(t, w.Returned(), "the push tells of a lease that is over")
		next := <-p.Asks // it asks instead of believing
		next.Granted(2)
		require.True(t, w.Returned())
		require.EqualValues(t, 2, w.Lease.Fence())
		cancel()
	})
}

// Rule 1. Trust is counted from the ask that the push names, not from a later one.
func TestTrustCountsFromTheAskThatThePushNames(t *testing.T) {
	lab.Stage(t, func(t *testing.T, p *lab.Play, c *holdfast.Client) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		began := time.Now()
		w := lab.Wait(ctx, c.Mutex("x"))
		first := <-p.Asks
		first.Queued()
		second := <-p.Asks // not answered yet
		p.RenewErr = errors.New("cut off")
		first.Wake(driver.Grant{Status: driver.Granted, Ask: first.Ask, Fence: 1})
		require.True(t, w.Returned())
		require.Equal(t, began.Add(lab.PlayTTL-lab.PlayTTL/100-2*time.Millisecond), w.Lease.Deadline())
		<-w.Lease.Done()
		require.Equal(t, w.Lease.Deadline(), time.Now())
		require.ErrorIs(t, context.Cause(w.Lease.Context()), holdfast.ErrLost)
		second.Queued()
		require.ErrorIs(t, w.Lease.Release(context.Background()), holdfast.ErrLost)
	})
}

// Rule 5. A heartbeat is on its way when the push comes. It may arrive after the lock
// was released, so the release must tell the store.
func TestReleaseSaysThatAnAskMayStillArrive(t *testing.T) {
	for _, answered := range []bool{false, true} {
		lab.Stage(t, func(t *testing.T, p *lab.Play, c *holdfast.Client) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			w := lab.Wait(ctx, c.Mutex("x"))
			first := <-p.Asks
			first.Queued()
			heartbeat := <-p.Asks
			first.Wake(driver.Grant{Status: driver.Granted, Ask: first.Ask, Fence: 1})
			require.True(t, w.Returned())
			if answered {
				heartbeat.Granted(1)
				synctest.Wait()
			}
			require.NoError(t, w.Lease.Release(context.Background()))
			require.Equal(t, !answered, p.Released()[0].Unsettled)
			if !answered {
				heartbeat.Queued()
			}
		})
	}
}

// Rule 5. An ask that failed without a known outcome may have been carried out, or may
// still be.
func TestFailedAskIsUnsettledUnlessItWasNotExecuted(t *testing.T) {
	for _, c := range []struct {
		err       error
		unsettled bool
	}{
		{driver.ErrTransient, true},
		{errors.Join(driver.ErrTransient, driver.ErrNotExecuted), false},
	} {
		lab.Stage(t, func(t *testing.T, p *lab.Play, client *holdfast.Client) {
			w := lab.Wait(t.Context(), client.Mutex("x"))
			(<-p.Asks).Answer <- lab.Result{Err: c.err}
			(<-p.Asks).Granted(1)
			require.True(t, w.Returned())
			require.NoError(t, w.Lease.Release(context.Background()))
			require.Equal(t, c.unsettled, p.Released()[0].Unsettled)
		})
	}
}

// Rule 6. A token identifies one acquisition, also in a clone of the process.
func TestTokensAreFreshForEveryAcquisition(t *testing.T) {
	lab.Stage(t, func(t *testing.T, p *lab.Play, c *holdfast.Client) {
		seen := map[string]bool{}
		for range 100 {
			w := lab.Wait(t.Context(), c.Mutex("x"))
			a := <-p.Asks
			_, stamped, _ := strings.Cut(a.Token, ".") // client-counter.stamp
			require.Len(t, stamped, 16, "32 bits of time, 64 random ones")
			random := stamped[6:] // from its 36th bit on
			require.False(t, seen[random], "drawn afresh, not once per client")
			seen[random] = true
			a.Granted(1)
			require.True(t, w.Returned())
			require.NoError(t, w.Lease.Release(context.Background()))
		}
	})
}

// Rule 13. Without news a waiter asks every third of its TTL; that is how a lost push
// is found.
func TestWaiterAsksEveryThirdOfItsTTL(t *testing.T) {
	lab.Stage(t, func(t *testing.T, p *lab.Play, c *holdfast.Client) {
		ctx, cancel := context.WithCancel(t.Context())
		w := lab.Wait(ctx, c.Mutex("x"))
		(<-p.Asks).Queued()
		for range 10 {
			before := time.Now()
			(<-p.Asks).Queued()
			require.Equal(t, lab.PlayTTL/3, time.Since(before))
		}
		cancel()
		<-w.Done
		require.ErrorIs(t, w.Err, context.Canceled)
		require.ErrorIs(t, w.Err, holdfast.ErrLocked)
	})
}

// An ask that hangs does not keep the waiter from asking again, nor from leaving.
func TestHangingAskHoldsUpNothing(t *testing.T) {
	lab.Stage(t, func(t *testing.T, p *lab.Play, c *holdfast.Client) {
		ctx, cancel := context.WithCancel(t.Context())
		w := lab.Wait(ctx, c.Mutex("x"))
		hanging := []*lab.Ask{<-p.Asks, <-p.Asks, <-p.Asks}
		time.Sleep(10 * lab.PlayTTL)
		require.Empty(t, p.Asks, "no more than three at a time")
		hanging[0].Queued()
		fourth := <-p.Asks
		cancel()
		require.True(t, w.Returned())
		require.ErrorIs(t, w.Err, context.Canceled)
		synctest.Wait()
		require.True(t, p.Released()[0].Unsettled)
		for _, a := range append(hanging[1:], fourth) {
			a.Queued()
		}
	})
}

// Rule 14. A waiter withdraws, with a context of its own, however it ends; and Close
// lets all do so before it closes the driver.
func TestWaitersWithdrawBeforeTheDriverIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := lab.NewPlay()
		c := holdfast.Open(p, holdfast.WithTTL(lab.PlayTTL), holdfast.WithStrictFIFO())
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var waiters []*lab.Waiter
		for range 3 {
			waiters = append(waiters, lab.Wait(ctx, c.Mutex("x")))
			(<-p.Asks).Queued()
		}
		synctest.Wait()
		require.NoError(t, c.Close())
		for _, w := range waiters {
			<-w.Done
			require.ErrorIs(t, w.Err, holdfast.ErrClosed)
		}
		require.Equal(t, []string{"acquire", "acquire", "acquire", "release", "release", "release", "close"}, p.Calls())
	})
}

// A release whose answer was lost is repeated, and "not held" is what it hears then.
func TestReleaseThatHadToBeRepeatedIsNoLoss(t *testing.T) {
	for _, lost := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			p := &flakyRelease{Play: lab.NewPlay(), first: driver.ErrNotHeld}
			if lost {
				p.first = driver.ErrTransient
			}
			c := holdfast.Open(p, holdfast.WithTTL(lab.PlayTTL))
			w := lab.Wait(t.Context(), c.Mutex("x"))
			(<-p.Asks).Granted(1)
			require.True(t, w.Returned())
			err := w.Lease.Release(context.Background())
			if lost {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, holdfast.ErrLost, "somebody took it without a word")
			}
			require.NoError(t, c.Close())
		})
	}
}

// flakyRelease answers first to the first release and ErrNotHeld to the others.
type flakyRelease struct {
	*lab.Play
	first error
}

func (f *flakyRelease) Release(context.Context, driver.Lease) error {
	err := f.first
	f.first = driver.ErrNotHeld
	return err
}
