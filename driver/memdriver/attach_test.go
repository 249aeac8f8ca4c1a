package memdriver_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
)

func (t *tester) attach(r driver.Request, old, token string) (driver.Grant, error) {
	r.Token = token
	if r.Kind == driver.Semaphore { // A caller that attaches need not know.
		r.Weight, r.Limit = 0, 0
	}
	r.Shared = false
	return t.Attach(t.Context(), lease(r, old), &r)
}

func TestAttachPutsATokenInThePlaceOfAnother(t *testing.T) {
	each(t, func(t *tester, r driver.Request) {
		first := t.granted(r, "old")
		writer := alone(r)
		require.Equal(t, driver.Queued, t.ask(writer, "waiter", waiting).Status)
		time.Sleep(r.TTL / 2)
		t.ask(writer, "waiter", waiting)
		before := t.info(r)

		g, err := t.attach(r, "old", "new")
		require.NoError(t, err)
		require.Equal(t, driver.Granted, g.Status)
		require.Greater(t, g.Fence, first)
		time.Sleep(time.Second)
		again, err := t.attach(r, "old", "new")
		require.NoError(t, err)
		require.Equal(t, g, again)
		_, err = t.attach(r, "old", "late")
		require.ErrorIs(t, err, driver.ErrNotHeld)

		after := t.info(r)
		require.Len(t, after.Holders, 1)
		require.Equal(t, before.Holders[0].Shared, after.Holders[0].Shared)
		require.Equal(t, before.Holders[0].Weight, after.Holders[0].Weight)
		require.Equal(t, r.TTL, after.Holders[0].TimeLeft)
		require.Len(t, after.Queue, 1, "nobody was in between")

		old := r
		old.Token = "old" // an ask that was on its way
		_, err = t.Acquire(t.Context(), &old)
		require.ErrorIs(t, err, driver.ErrNotHeld)
		require.ErrorIs(t, t.Release(t.Context(), lease(r, "old")), driver.ErrNotHeld)
		require.Equal(t, driver.Queued, t.ask(writer, "waiter", waiting).Status)
		require.NoError(t, t.Release(t.Context(), lease(r, "new")))
		t.granted(writer, "waiter", waiting)
	})
}
