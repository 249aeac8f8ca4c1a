package redlock_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/memdriver"
	"github.com/holdfast-go/holdfast/driver/redlock"
)

// mumbler carries out releases, but does not say so while it mumbles.
type mumbler struct {
	driver.Driver
	mumbles atomic.Bool
	heard   chan struct{}
}

type cutOff struct{ error }

func (cutOff) Is(target error) bool { return target == driver.ErrTransient }

func (m *mumbler) Unwrap() driver.Driver { return m.Driver }

func (m *mumbler) Release(ctx context.Context, l driver.Lease) error {
	err := m.Driver.Release(ctx, l)
	if m.mumbles.Load() {
		m.mumbles.Store(false)
		close(m.heard)
		return cutOff{errors.New("the answer was lost")}
	}
	return err
}

// A waiter that gave votes back without hearing what became of them cannot count on these
// nodes again. When they are too many it goes on under another token.
func TestWaiterWhoseVotesAreSpoiledStillGetsTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var nodes []driver.Driver
		var mumblers []*mumbler
		var taken []driver.Request
		for range 3 {
			m := &mumbler{Driver: memdriver.New(), heard: make(chan struct{})}
			mumblers, nodes = append(mumblers, m), append(nodes, m)
			taken = append(taken, driver.Request{Kind: driver.Mutex, Name: "x", Token: "other", Ask: 1, TTL: time.Hour})
		}
		take := func(i int) {
			g, err := mumblers[i].Driver.Acquire(t.Context(), &taken[i])
			require.NoError(t, err)
			require.Equal(t, driver.Granted, g.Status)
		}
		give := func(i int) {
			l := driver.Lease{Kind: driver.Mutex, Name: "x", Token: taken[i].Token, TTL: time.Hour}
			require.NoError(t, mumblers[i].Driver.Release(t.Context(), l))
			taken[i].Token += "'"
		}
		for i := range 3 {
			take(i)
		}
		locks := holdfast.Open(redlock.New(nodes, redlock.WithDelayedRestart(0)), holdfast.WithTTL(10*time.Second))
		done := make(chan error, 1)
		go func() {
			lease, err := locks.Mutex("x").Lease(t.Context())
			if err == nil {
				err = lease.Release(t.Context())
			}
			done <- err
		}()
		synctest.Wait()
		for _, i := range []int{1, 2} { // the waiter has a minority there, and gives it back
			mumblers[i].mumbles.Store(true)
			give(i)
			<-mumblers[i].heard
			take(i)
		}
		for i := range 3 {
			give(i)
		}
		began := time.Now()
		require.NoError(t, <-done)
		require.Less(t, time.Since(began), time.Second)
		require.NoError(t, locks.Close())
	})
}
