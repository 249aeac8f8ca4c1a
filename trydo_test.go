package holdfast_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver/memdriver"
)

func TestTryDoRunsIfFreeElseSkips(t *testing.T) {
	c := holdfast.Open(memdriver.New())
	defer c.Close()
	failed := errors.New("mine")
	skipped := func(context.Context) error { t.Error("it ran"); return nil }
	for kind, try := range map[string]func(context.Context, func(context.Context) error) error{
		"mutex":   c.Mutex("x").TryDo,
		"rwmutex": c.RWMutex("x").TryDo,
		"semaphore": func(ctx context.Context, f func(context.Context) error) error {
			return c.Semaphore("x", 1).TryDo(ctx, 1, f)
		},
	} {
		t.Run(kind, func(t *testing.T) {
			ran := false
			require.Equal(t, failed, try(t.Context(), func(ctx context.Context) error {
				ran = true
				require.ErrorIs(t, try(context.Background(), skipped), holdfast.ErrLocked)
				return failed
			}))
			require.True(t, ran)
		})
	}
	require.NoError(t, c.RWMutex("x").TryRDo(t.Context(), func(context.Context) error {
		require.ErrorIs(t, c.RWMutex("x").TryDo(context.Background(), skipped), holdfast.ErrLocked)
		return c.RWMutex("x").TryRDo(context.Background(), func(context.Context) error { return nil })
	}), "readers come in beside each other")
}

func TestOpenWithPrefixPanics(t *testing.T) {
	require.PanicsWithValue(t, "holdfast: Open with WithPrefix: give the prefix to the driver", func() {
		holdfast.Open(memdriver.New(), holdfast.WithPrefix("shop"))
	})
}
