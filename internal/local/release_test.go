package local_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/local"
	"github.com/holdfast-go/holdfast/internal/test/behavior/lab"
)

// reluctant does not answer a release before the test does.
type reluctant struct {
	*lab.Play
	answer chan error
}

func (r reluctant) Release(context.Context, driver.Lease) error { return <-r.answer }

// Unlock has no error to return, and waits no longer than a second. The store has answered too
// long ago to be counted on.
func TestBriefReleaseWaitsASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := reluctant{lab.NewPlay(), make(chan error)}
		c := holdfast.Open(s, holdfast.WithTTL(lab.PlayTTL))
		go func() { (<-s.Asks).Granted(1) }()
		m := c.Mutex("x")
		m.Lock()
		time.Sleep(lab.Lull)
		began := time.Now()
		m.Unlock()
		require.Equal(t, time.Second, time.Since(began))
		close(s.answer)
		require.NoError(t, c.Close())
	})
}

// An ask that was granted after its token was given up has the release repeated. That takes as long as it takes:
// the store has answered, and the caller hears no more of its silence.
func TestReleaseThatIsRepeatedHasBeenAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := reluctant{lab.NewPlay(), make(chan error)}
		c := holdfast.Open(s, holdfast.WithTTL(lab.PlayTTL))
		w := lab.Wait(t.Context(), c.Mutex("x"))
		first := <-s.Asks
		first.Queued()
		heartbeat := <-s.Asks
		first.Wake(driver.Grant{Status: driver.Granted, Ask: 1, Fence: 1})
		require.True(t, w.Returned())
		require.NoError(t, w.Err)
		time.Sleep(lab.Lull) // in place it would be told nothing else
		released := make(chan error, 1)
		go func() { released <- w.Lease.Release(context.Background()) }()
		synctest.Wait()
		heartbeat.Granted(2)
		synctest.Wait()
		s.answer <- nil
		time.Sleep(2 * lab.PlayTTL)
		require.Empty(t, released)
		s.answer <- nil // to the one that is repeated
		require.NoError(t, <-released)
		require.NoError(t, c.Close())
	})
}

// Close has shut the client, and has not come to this lease yet.
func TestReleaseThatCloseOvertakesLeavesTheLeaseToIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := lab.NewPlay()
		go func() { (<-p.Asks).Granted(1) }()
		lease, err := holdfast.Open(p, holdfast.WithTTL(lab.PlayTTL)).Mutex("x").Lease(t.Context())
		require.NoError(t, err)
		require.True(t, (*local.Hold)(lease).Overtaken(func() {
			require.ErrorIs(t, lease.Release(t.Context()), holdfast.ErrClosed)
		}))
		require.Equal(t, []string{"acquire", "release"}, p.Calls())
		require.ErrorIs(t, lease.Err(), holdfast.ErrNotHeld)
	})
}
