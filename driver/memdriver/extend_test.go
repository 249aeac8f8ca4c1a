package memdriver_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
)

func TestExtensionHasFences(t *testing.T) {
	each(t, func(t *tester, r driver.Request) {
		_, err := t.Extend(t.Context(), lease(r, "t"), 10)
		require.ErrorIs(t, err, driver.ErrNotHeld)
		fence := t.granted(r, "t")
		time.Sleep(r.TTL / 2)
		first, err := t.Extend(t.Context(), lease(r, "t"), 10)
		require.NoError(t, err)
		require.Greater(t, first.Fence, fence)
		require.Equal(t, r.TTL, t.info(r).Holders[0].TimeLeft)
		second, err := t.Extend(t.Context(), lease(r, "t"), 1)
		require.NoError(t, err)
		require.GreaterOrEqual(t, second.Fence, first.Fence+10)

		t.ask(alone(r), "waiter", waiting)
		time.Sleep(r.TTL / 2)
		wanted, err := t.Extend(t.Context(), lease(r, "t"), 1)
		require.NoError(t, err)
		require.True(t, wanted.Wanted)
		require.Greater(t, wanted.Fence, second.Fence)
		require.Equal(t, r.TTL, t.info(r).Holders[0].TimeLeft, "it is renewed all the same")
		t.ask(alone(r), "waiter", waiting)
		require.NoError(t, t.Release(t.Context(), lease(r, "t")))
		require.Greater(t, t.granted(alone(r), "waiter", waiting), wanted.Fence)
	})
}
