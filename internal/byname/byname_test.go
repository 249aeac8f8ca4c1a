package byname_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver/memdriver"
	"github.com/holdfast-go/holdfast/internal/byname"
)

func TestLockIsHeldUntilAllHaveUnlocked(t *testing.T) {
	store := memdriver.New()
	ours, theirs := holdfast.Open(store), holdfast.Open(store)
	defer func() { require.NoError(t, ours.Close()); require.NoError(t, theirs.Close()) }()
	ctx := t.Context()
	var l byname.Leases

	require.ErrorIs(t, l.Release(ctx, "x"), holdfast.ErrNotHeld)
	require.ErrorIs(t, l.Keep(nil, holdfast.ErrLocked), holdfast.ErrLocked)
	for range 2 { // holders that lose it, and their successors
		require.NoError(t, l.Keep(ours.Mutex("x").Lease(ctx)))
		require.NoError(t, ours.Mutex("x").ForceUnlock(ctx))
	}
	require.NoError(t, l.Keep(ours.Mutex("x").Lease(ctx)))
	require.NoError(t, l.Keep(ours.Mutex("y").Lease(ctx)))
	for range 2 {
		require.ErrorIs(t, l.Err("x"), holdfast.ErrLost)
		require.ErrorIs(t, l.Release(ctx, "x"), holdfast.ErrLost)
		require.False(t, theirs.Mutex("x").TryLock(), "FOUL: an Unlock after a loss freed the next holder's lock")
	}
	require.NoError(t, l.Err("x"))
	require.NoError(t, l.Release(ctx, "x"))
	require.True(t, theirs.Mutex("x").TryLock(), "it is still locked")
	require.ErrorIs(t, l.Release(ctx, "x"), holdfast.ErrNotHeld)
	require.NoError(t, l.Release(ctx, "y"))
}
