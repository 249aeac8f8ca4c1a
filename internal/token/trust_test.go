package token_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/test/behavior/lab"
)

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
