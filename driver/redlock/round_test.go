package redlock_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
)

// taken reports whether another token holds the lock on one node.
func taken(t *testing.T, store driver.Driver) bool {
	t.Helper()
	g, err := store.Acquire(t.Context(), request("another"))
	require.NoError(t, err)
	if g.Status == driver.Granted {
		require.NoError(t, store.Release(t.Context(), lease("another")))
	}
	return g.Status != driver.Granted
}

// A release does not wait for the last node. Close does, or the vote would stay there for a TTL.
func TestCloseWaitsForReleasesThatWereLeftBehind(t *testing.T) {
	onLinks(t, func(t *testing.T, stores []driver.Driver, dial func() ([]*link, driver.Driver)) {
		links, d := dial()
		_, err := d.Acquire(t.Context(), request("token"))
		require.NoError(t, err)
		synctest.Wait()
		require.True(t, taken(t, stores[2]))
		links[2].keepsGifts.Store(true)
		at := time.Now()
		require.NoError(t, d.Release(t.Context(), lease("token")))
		require.Zero(t, time.Since(at), "a majority has released it")
		time.AfterFunc(10*time.Millisecond, func() { links[2].deliver() })
		require.NoError(t, d.Close())
		require.False(t, taken(t, stores[2]))
	})
}

// An ask that overtook the release before it would not get the vote of the node.
func TestAskComesAfterTheReleaseThatWasLeftBehind(t *testing.T) {
	onLinks(t, func(t *testing.T, stores []driver.Driver, dial func() ([]*link, driver.Driver)) {
		links, d := dial()
		before, after := request("before"), request("after")
		before.Fences, after.Fences = 1024, 1024 // memdriver counts, so its nodes have the same numbers only if asked for as many
		_, err := d.Acquire(t.Context(), before)
		require.NoError(t, err)
		synctest.Wait()
		links[2].keepsGifts.Store(true)
		require.NoError(t, d.Release(t.Context(), lease("before")))
		at := time.Now()
		g, err := d.Acquire(t.Context(), after)
		require.NoError(t, err)
		require.Equal(t, driver.Granted, g.Status)
		require.Zero(t, time.Since(at), "a majority has voted")
		require.Equal(t, 1, links[2].deliver())
		links[2].keepsGifts.Store(false)
		synctest.Wait()
		require.True(t, taken(t, stores[2]), "the last node has not voted for it")
		require.NoError(t, d.Release(t.Context(), lease("after")))
		synctest.Wait()
		require.False(t, taken(t, stores[2]))
	})
}

// Where others wait, the next ask has to come to all nodes at the same time, or it has another
// place at each of them.
func TestReleaseOfATokenThatWaitedWaitsForAllNodes(t *testing.T) {
	onLinks(t, func(t *testing.T, stores []driver.Driver, dial func() ([]*link, driver.Driver)) {
		links, d := dial()
		for _, s := range stores {
			_, err := s.Acquire(t.Context(), request("before"))
			require.NoError(t, err)
		}
		r, news := request("token"), make(chan driver.Grant, 1)
		r.Wait, r.Wake = true, func(g driver.Grant) { news <- g }
		g, err := d.Acquire(t.Context(), r)
		require.NoError(t, err)
		require.Equal(t, driver.Queued, g.Status)
		for _, s := range stores {
			require.NoError(t, s.Release(t.Context(), lease("before")))
		}
		require.Equal(t, driver.Granted, (<-news).Status)
		synctest.Wait()
		links[2].keepsGifts.Store(true)
		time.AfterFunc(10*time.Millisecond, func() { links[2].deliver() })
		require.NoError(t, d.Release(t.Context(), lease("token")))
		require.False(t, taken(t, stores[2]))
	})
}

// A call that has waited for the one before it would else be late, though the node is not.
func TestCallThatHadToWaitHasItsWholeTimeout(t *testing.T) {
	onLinks(t, func(t *testing.T, stores []driver.Driver, dial func() ([]*link, driver.Driver)) {
		links, d := dial()
		_, err := d.Acquire(t.Context(), request("before"))
		require.NoError(t, err)
		synctest.Wait()
		links[2].keepsGifts.Store(true)
		require.NoError(t, d.Release(t.Context(), lease("before")))
		time.AfterFunc(40*time.Millisecond, func() { links[2].deliver() })
		g, err := d.Acquire(t.Context(), request("after"))
		require.NoError(t, err)
		require.Equal(t, driver.Granted, g.Status)
		time.Sleep(45 * time.Millisecond)
		require.Equal(t, links[1].time.Load(), links[2].time.Load())
		require.True(t, taken(t, stores[2]))
	})
}
