package etcdtest

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	etcddriver "github.com/holdfast-go/holdfast/driver/etcd"
)

func TestWhatEtcdCannotGiveIsRefused(t *testing.T) {
	t.Parallel()
	locks := holdfast.Open(etcddriver.New(connect(t, embedded(t))))
	defer func() { require.NoError(t, locks.Close()) }()
	err := locks.Semaphore("s", 2).Resize(t.Context(), 3)
	require.ErrorIs(t, err, errors.ErrUnsupported)
	_, err = locks.Mutex("m", holdfast.WithReplicas(1, time.Second)).Lease(t.Context())
	require.ErrorIs(t, err, errors.ErrUnsupported)
	_, err = locks.Mutex("m", holdfast.WithTTL(time.Second)).Lease(t.Context())
	require.ErrorIs(t, err, errors.ErrUnsupported)
	require.ErrorContains(t, err, "a TTL of 1s: on this store leases last at least 2s")
}
