package redlock_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
)

func TestLateAskDoesNotTakeAVoteThatWasGivenBack(t *testing.T) {
	onLinks(t, func(t *testing.T, stores []driver.Driver, dial func() ([]*link, driver.Driver)) {
		links, d := dial()
		o := newOutset(t, stores, d)
		links[2].keepsAsks.Store(true)
		o.r.Ask++
		_, err := d.Acquire(t.Context(), o.r) // returns when the vote has been given back
		require.NoError(t, err)
		links[2].keepsAsks.Store(false)
		o.take(stores[2], "before")
		require.NoError(t, stores[2].Release(t.Context(), o.lease("before")))

		require.Equal(t, 1, links[2].deliver())
		o.take(stores[2], "after")
		o.wins()
		require.NoError(t, d.Release(t.Context(), o.lease("waiter")))
	})
}

// A release that stays on its way may also be lost. Nobody else gives the vote back then.
func TestVoteIsGivenBackAgainIfNobodyHasHeardOfIt(t *testing.T) {
	onLinks(t, func(t *testing.T, stores []driver.Driver, dial func() ([]*link, driver.Driver)) {
		links, d := dial()
		links[2].keepsGifts.Store(true)
		o := newOutset(t, stores, d)
		time.Sleep(100 * time.Millisecond)
		links[2].keepsGifts.Store(false) // and never delivered
		time.Sleep(ttl / 4)
		o.take(stores[2], "another")
		o.wins()
		require.NoError(t, d.Release(t.Context(), o.lease("waiter")))
	})
}
