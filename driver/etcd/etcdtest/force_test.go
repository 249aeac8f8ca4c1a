package etcdtest

import (
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-go/holdfast/driver"
	etcddriver "github.com/holdfast-go/holdfast/driver/etcd"
)

// A claim gets another lease when it is to last longer. Force finds it nevertheless.
func TestForceFindsAHolderWhoseClaimMoves(t *testing.T) {
	t.Parallel()
	d, lease := forced(t, 10*time.Second, func(other *etcddriver.Driver, lease driver.Lease) {
		lease.TTL = time.Minute
		require.NoError(t, other.Renew(t.Context(), []driver.Lease{lease})[0])
	})
	require.ErrorIs(t, d.ForceRelease(t.Context(), lease.Kind, lease.Name), driver.ErrNotHeld)
}

// Nor does it matter that a claim passes to another token just then.
func TestForceFindsAHolderThatIsTakenOver(t *testing.T) {
	t.Parallel()
	forced(t, time.Minute, func(other *etcddriver.Driver, lease driver.Lease) {
		_, err := other.Attach(t.Context(), lease, &driver.Request{Kind: driver.Mutex, Name: "m", Token: "heir", Ask: 1, TTL: time.Minute})
		require.NoError(t, err)
	})
}

// forced takes a lock from the holder of a lease, to which something happens before the transaction that ends
// it, and requires that nobody holds the lock then.
func forced(t *testing.T, ttl time.Duration, happens func(other *etcddriver.Driver, lease driver.Lease)) (*etcddriver.Driver, driver.Lease) {
	endpoint := embedded(t)
	var seen calls
	d, other := etcddriver.New(connect(t, endpoint, seen.dial())), etcddriver.New(connect(t, endpoint))
	for _, d := range []*etcddriver.Driver{d, other} {
		t.Cleanup(func() { require.NoError(t, d.Close()) })
	}
	lease := take(t, other, "m", "t", ttl)
	seen.intervene(func(_ string, req any, carry func() error) error {
		if txn, ok := req.(*pb.TxnRequest); ok && len(txn.Compare) > 0 {
			seen.intervene(nil)
			happens(other, lease)
		}
		return carry()
	})
	require.NoError(t, d.ForceRelease(t.Context(), lease.Kind, lease.Name))
	info, err := d.Inspect(t.Context(), lease.Kind, lease.Name)
	require.NoError(t, err)
	require.Empty(t, info.Holders)
	return d, lease
}

// What has happened in part has happened.
func TestForceThatFailsHalfWayDoesNotSayThatNothingHappened(t *testing.T) {
	t.Parallel()
	var seen calls
	d := etcddriver.New(connect(t, embedded(t), seen.dial()))
	defer func() { require.NoError(t, d.Close()) }()
	for _, token := range []string{"a", "b"} {
		r := driver.Request{Kind: driver.Semaphore, Name: "s", Token: token, Ask: 1, TTL: time.Minute, Weight: 1, Limit: 2}
		_, err := d.Acquire(t.Context(), &r)
		require.NoError(t, err)
	}
	for i, executed := range []bool{false, true} {
		var txns atomic.Int32
		seen.intervene(func(_ string, req any, carry func() error) error {
			if txn, ok := req.(*pb.TxnRequest); ok && len(txn.Compare) > 0 && int(txns.Add(1)) == i+1 {
				return status.Error(codes.PermissionDenied, "etcdserver: permission denied")
			}
			return carry()
		})
		err := d.ForceRelease(t.Context(), driver.Semaphore, "s")
		seen.intervene(nil)
		require.ErrorIs(t, err, driver.ErrDenied)
		require.Equal(t, !executed, errors.Is(err, driver.ErrNotExecuted), err)
	}
}

// The lock has been taken over, and only the answer to that is missing.
func TestAttachThatFailsHalfWayDoesNotSayThatNothingHappened(t *testing.T) {
	t.Parallel()
	var seen calls
	d := etcddriver.New(connect(t, embedded(t), seen.dial()))
	defer func() { require.NoError(t, d.Close()) }()
	old := take(t, d, "m", "old", time.Minute)
	var over atomic.Bool
	seen.intervene(func(_ string, req any, carry func() error) error {
		if over.Load() {
			return status.Error(codes.PermissionDenied, "etcdserver: permission denied")
		}
		err := carry()
		if txn, ok := req.(*pb.TxnRequest); ok && len(txn.Compare) > 0 {
			over.Store(true)
		}
		return err
	})
	r := driver.Request{Kind: driver.Mutex, Name: "m", Token: "new", Ask: 1, TTL: time.Minute}
	_, err := d.Attach(t.Context(), old, &r)
	seen.intervene(nil)
	require.ErrorIs(t, err, driver.ErrDenied)
	require.NotErrorIs(t, err, driver.ErrNotExecuted)
	require.NoError(t, d.Release(t.Context(), heldBy(&r)))
}
