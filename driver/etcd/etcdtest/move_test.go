package etcdtest

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	etcddriver "github.com/holdfast-go/holdfast/driver/etcd"
	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/fence/redisfence"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

// Fences of Redis are times, those of etcd revisions. docs/migration.md says what to do.
func TestGuardFollowsLocksToAnotherStoreOnceItHasForgottenTheOldOne(t *testing.T) {
	t.Parallel()
	s := redistest.Mini(t)
	plain, guarded := s.Client(t), s.Client(t)
	guarded.AddHook(redisfence.Hook())
	inRedis := holdfast.New(plain)
	inEtcd := holdfast.Open(etcddriver.New(connect(t, embedded(t))))
	write := func(locks *holdfast.Client) error {
		return locks.Mutex("order").Do(t.Context(), func(ctx context.Context) error { return guarded.Set(ctx, "order", "paid", 0).Err() })
	}
	forget := func() {
		keys, err := plain.Keys(t.Context(), "holdfast:fence:*").Result()
		require.NoError(t, err)
		require.NotEmpty(t, keys)
		require.NoError(t, plain.Del(t.Context(), keys...).Err())
	}
	require.NoError(t, write(inRedis))
	require.ErrorIs(t, write(inEtcd), fence.ErrStale)
	forget()
	require.NoError(t, write(inEtcd))
	require.NoError(t, write(inEtcd))
	forget()
	require.NoError(t, write(inRedis))
	require.NoError(t, inRedis.Close())
	require.NoError(t, inEtcd.Close())
}
