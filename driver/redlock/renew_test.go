package redlock_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
)

// The node says the truth when it says that we hold the lock. But our release of that vote may
// arrive at any time.
func TestVoteThatIsBeingGivenBackMakesNoMajority(t *testing.T) {
	for name, do := range map[string]func(context.Context, driver.Driver, driver.Lease) error{
		"renewal": func(ctx context.Context, d driver.Driver, l driver.Lease) error {
			return d.Renew(ctx, []driver.Lease{l})[0]
		},
		"downgrade": func(ctx context.Context, d driver.Driver, l driver.Lease) error {
			down, _ := driver.As[driver.Downgrader](d)
			return down.Downgrade(ctx, l, 1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			onLinks(t, func(t *testing.T, stores []driver.Driver, dial func() ([]*link, driver.Driver)) {
				links, d := dial()
				links[2].keepsGifts.Store(true)
				o := newOutset(t, stores, d)
				time.Sleep(500 * time.Millisecond) // it gives that vote back, and hears nothing
				o.wins()

				links[0].cut.Store(true)
				require.NoError(t, stores[2].Renew(t.Context(), []driver.Lease{o.lease("waiter")})[0], "the node still has the vote")
				err := do(t.Context(), d, o.lease("waiter"))
				require.ErrorIs(t, err, driver.ErrTransient, "one node has said yes, and one that may take it back")
				require.NotErrorIs(t, err, driver.ErrNotHeld, "the first node has not been heard")
				require.Positive(t, links[2].deliver())
				o.take(stores[2], "another")

				links[0].cut.Store(false)
				require.NoError(t, do(t.Context(), d, o.lease("waiter")))
				links[2].keepsGifts.Store(false)
				require.NoError(t, d.Release(t.Context(), o.lease("waiter")))
			})
		})
	}
}

// The release is on its way when we renew, arrives after the renewal, and is answered first.
func TestVoteThatWasGivenBackDuringARenewalMakesNoMajority(t *testing.T) {
	onLinks(t, func(t *testing.T, stores []driver.Driver, dial func() ([]*link, driver.Driver)) {
		links, d := dial()
		links[2].keepsGifts.Store(true)
		o := newOutset(t, stores, d)
		time.Sleep(10 * time.Millisecond)
		o.wins()
		links[0].cut.Store(true)
		links[2].delivers.Store(true)
		require.ErrorIs(t, d.Renew(t.Context(), []driver.Lease{o.lease("waiter")})[0], driver.ErrTransient)
		o.take(stores[2], "another")
		links[0].cut.Store(false)
		links[2].keepsGifts.Store(false)
		require.NoError(t, d.Release(t.Context(), o.lease("waiter")))
	})
}
