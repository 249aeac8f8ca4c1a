package redlock_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/redlock"
)

func TestWaiterKeepsItsPlacesWhenNothingCanBeDialed(t *testing.T) {
	onLinks(t, func(t *testing.T, stores []driver.Driver, dial func() ([]*link, driver.Driver)) {
		const ttl = 30 * time.Second
		var wg sync.WaitGroup
		order := make(chan string, 2)
		open := func() (*holdfast.Mutex, []*link) {
			links, d := dial()
			c := holdfast.Open(d, holdfast.WithTTL(ttl))
			t.Cleanup(func() { assert.NoError(t, c.Close()) })
			return c.Mutex("orders"), links
		}
		wait := func(name string, mu *holdfast.Mutex) {
			wg.Go(func() {
				l, err := mu.Lease(context.Background())
				order <- name
				if assert.NoError(t, err) {
					assert.NoError(t, l.Release(context.Background()))
				}
			})
			time.Sleep(time.Second)
		}
		holder, _ := open()
		held, err := holder.Lease(t.Context())
		require.NoError(t, err)
		first, links := open()
		wait("first", first)
		second, _ := open()
		wait("second", second)

		time.Sleep(ttl/3 - 3*time.Second)
		for _, l := range links {
			l.cut.Store(true)
		}
		time.Sleep(4 * time.Second) // the heartbeat of the first is due, and fails several times
		for _, l := range links {
			l.cut.Store(false)
		}
		time.Sleep(2 * time.Second)
		require.NoError(t, held.Release(t.Context()))
		wg.Wait()
		require.Equal(t, "first", <-order)
	})
}

// An ask that has come to no node leaves nothing, so the caller need not release.
func TestAskThatReachesNobodyLeavesNothing(t *testing.T) {
	onLinks(t, func(t *testing.T, stores []driver.Driver, dial func() ([]*link, driver.Driver)) {
		links, d := dial()
		for _, l := range links {
			l.cut.Store(true)
		}
		for _, wait := range []bool{true, false} {
			r := request("nobody")
			r.Wait = wait
			_, err := d.Acquire(t.Context(), r)
			require.ErrorIs(t, err, driver.ErrNotExecuted)
			require.ErrorIs(t, err, driver.ErrTransient)
			require.NotErrorIs(t, err, driver.ErrNotHeld)
			require.Zero(t, redlock.Ballots(d))
		}
	})
}
