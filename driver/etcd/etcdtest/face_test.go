package etcdtest

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/holdfast-go/holdfast"
	etcddriver "github.com/holdfast-go/holdfast/driver/etcd"
)

// counting returns locks, and how often their client has asked the server.
func counting(t *testing.T, endpoint string, opts ...holdfast.Option) (*holdfast.Client, *atomic.Int64) {
	var requests atomic.Int64
	count := grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		requests.Add(1)
		return invoke(ctx, method, req, reply, cc, opts...)
	})
	locks := holdfast.Open(etcddriver.New(connect(t, endpoint, count)), opts...)
	t.Cleanup(func() { require.NoError(t, locks.Close()) })
	return locks, &requests
}

// The goroutines of a process hand a lock on among themselves, and each has a larger fence.
func TestGoroutinesOfAProcessNeedFewRequests(t *testing.T) {
	t.Parallel()
	locks, requests := counting(t, embedded(t))
	var fence atomic.Int64
	var crew sync.WaitGroup
	for range 32 {
		crew.Go(func() {
			for range 32 {
				l, err := locks.Mutex("m").Lease(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				if last := fence.Swap(l.Fence()); last >= l.Fence() {
					t.Errorf("FOUL: fence %d after %d", l.Fence(), last)
				}
				if err := l.Release(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	crew.Wait()
	require.Less(t, requests.Load(), int64(32*32/2))
}

// A lock that lingers costs nothing until somebody else wants it, who gets it soon.
func TestLingeringLockIsGivenToWhoWaits(t *testing.T) {
	t.Parallel()
	e := embedded(t)
	locks, requests := counting(t, e, holdfast.WithLinger(time.Hour), holdfast.WithTTL(time.Hour))
	other, _ := counting(t, e)
	mu := locks.Mutex("m")
	for range 1000 {
		mu.Lock()
		mu.Unlock()
	}
	require.Less(t, requests.Load(), int64(20))
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	l, err := other.Mutex("m").Lease(ctx)
	require.NoError(t, err)
	require.NoError(t, l.Release(t.Context()))
}

// An owner enters from another process, and a lease goes to another process.
func TestHoldGoesFromOneProcessToAnother(t *testing.T) {
	t.Parallel()
	e := embedded(t)
	a, _ := counting(t, e)
	b, _ := counting(t, e)
	owner := holdfast.WithOwner("transfer-4711")
	first, err := a.Mutex("owned", owner).Lease(t.Context())
	require.NoError(t, err)
	second, err := b.Mutex("owned", owner).Lease(t.Context())
	require.NoError(t, err)
	require.Equal(t, first.Fence(), second.Fence())
	require.NoError(t, first.Release(t.Context()))
	_, err = a.Mutex("owned").TryLease(t.Context())
	require.ErrorIs(t, err, holdfast.ErrLocked)
	require.NoError(t, second.Release(t.Context()))

	first, err = a.Mutex("attached").Lease(t.Context())
	require.NoError(t, err)
	token, err := first.Detach(t.Context())
	require.NoError(t, err)
	second, err = b.Attach(t.Context(), token)
	require.NoError(t, err)
	require.Greater(t, second.Fence(), first.Fence())
	_, err = a.Attach(t.Context(), token)
	require.ErrorIs(t, err, holdfast.ErrNotHeld)
	require.NoError(t, second.Release(t.Context()))
}

func TestWhatEtcdCannotGiveIsRefused(t *testing.T) {
	t.Parallel()
	locks, _ := counting(t, embedded(t))
	err := locks.Semaphore("s", 2).Resize(t.Context(), 3)
	require.ErrorIs(t, err, errors.ErrUnsupported)
	_, err = locks.Mutex("m", holdfast.WithReplicas(1, time.Second)).Lease(t.Context())
	require.ErrorIs(t, err, errors.ErrUnsupported)
	_, err = locks.Mutex("m", holdfast.WithTTL(time.Second)).Lease(t.Context())
	require.ErrorIs(t, err, errors.ErrUnsupported)
	require.ErrorContains(t, err, "a TTL of 1s: on this store leases last at least 2s")
}
