package etcdtest

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-go/holdfast/driver"
	etcddriver "github.com/holdfast-go/holdfast/driver/etcd"
)

// calls are the requests of a client, by method. A test may have a part in one.
type calls struct {
	mu     sync.Mutex
	counts map[string]int
	around func(method string, req any, carry func() error) error // nil if it has none
}

func (c *calls) dial() grpc.DialOption {
	c.counts = map[string]int{}
	return grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		c.mu.Lock()
		c.counts[method]++
		around := c.around
		c.mu.Unlock()
		carry := func() error { return invoke(ctx, method, req, reply, cc, opts...) }
		if around == nil {
			return carry()
		}
		return around(method, req, carry)
	})
}

func (c *calls) intervene(f func(method string, req any, carry func() error) error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.around = f
}

// take acquires a lock, and returns how to release it.
func take(t *testing.T, d *etcddriver.Driver, name, token string, ttl time.Duration) driver.Lease {
	t.Helper()
	r := driver.Request{Kind: driver.Mutex, Name: name, Token: token, Ask: 1, TTL: ttl, Wait: true, Wake: func(driver.Grant) {}}
	g, err := d.Acquire(t.Context(), &r)
	require.NoError(t, err)
	require.Equal(t, driver.Granted, g.Status)
	return driver.Lease{Kind: r.Kind, Name: name, Token: token, TTL: ttl}
}

func leases(t *testing.T, client *clientv3.Client) (all []clientv3.LeaseID) {
	t.Helper()
	r, err := client.Leases(t.Context())
	require.NoError(t, err)
	for _, l := range r.Leases {
		all = append(all, l.ID)
	}
	return all
}

// leaseOf returns the lease of the only claim on a lock.
func leaseOf(t *testing.T, client *clientv3.Client, name string) clientv3.LeaseID {
	t.Helper()
	r, err := client.Get(t.Context(), "holdfast/lock/mutex/"+name+"/", clientv3.WithPrefix())
	require.NoError(t, err)
	require.Len(t, r.Kvs, 1)
	return clientv3.LeaseID(r.Kvs[0].Lease)
}

func TestCycleIsTwoWritesOnceThereIsALease(t *testing.T) {
	t.Parallel()
	var c calls
	client := connect(t, embedded(t), c.dial())
	d := etcddriver.New(client)
	const cycles = 10
	for i := range cycles {
		require.NoError(t, d.Release(t.Context(), take(t, d, "m", fmt.Sprint("t", i), time.Minute)))
	}
	require.Equal(t, map[string]int{"/etcdserverpb.Lease/LeaseGrant": 1, "/etcdserverpb.KV/Txn": 2 * cycles}, c.counts)
	require.Len(t, leases(t, client), 1)
	require.NoError(t, d.Close())
	require.Empty(t, leases(t, client))
}

// A lease that has served another claim begins anew.
func TestLeaseThatWasUsedHasItsWholeTTL(t *testing.T) {
	t.Parallel()
	client := connect(t, embedded(t))
	d := etcddriver.New(client)
	require.NoError(t, d.Release(t.Context(), take(t, d, "m", "a", time.Minute)))
	spare := leases(t, client)[0]
	left := func() int64 {
		r, err := client.TimeToLive(t.Context(), spare)
		require.NoError(t, err)
		return r.TTL
	}
	require.Eventually(t, func() bool { return left() <= 55 }, patience, 10*time.Millisecond)
	before := left()
	take(t, d, "m", "b", time.Minute)
	require.Equal(t, spare, leaseOf(t, client, "m"))
	require.Greater(t, left(), before)
	require.NoError(t, d.Close())
}

// A renewal by a leader that was replaced does not count for the next claim either.
func TestLeaseThatWasUsedIsRenewedByTheLeaderOfTheClaim(t *testing.T) {
	t.Parallel()
	deposed := true
	r := &renewals{answer: func(_ context.Context, _ int64, resp *pb.LeaseKeepAliveResponse) {
		if deposed {
			resp.Header.RaftTerm--
			deposed = false
		}
	}}
	d := etcddriver.New(connect(t, embedded(t), r.dial()))
	require.NoError(t, d.Release(t.Context(), take(t, d, "m", "a", time.Minute)))
	require.Zero(t, r.sent.Load())
	take(t, d, "m", "b", time.Minute)
	require.EqualValues(t, 2, r.sent.Load())
	require.NoError(t, d.Close())
}

// A lease that etcd has not, such as after the machine has slept, costs one more request.
func TestLeaseThatHasGoneIsReplaced(t *testing.T) {
	t.Parallel()
	client := connect(t, embedded(t))
	d := etcddriver.New(client)
	require.NoError(t, d.Release(t.Context(), take(t, d, "m", "a", time.Minute)))
	_, err := client.Revoke(t.Context(), leases(t, client)[0])
	require.NoError(t, err)
	require.NoError(t, d.Release(t.Context(), take(t, d, "m", "b", time.Minute)))
	require.NoError(t, d.Close())
	require.Empty(t, leases(t, client))
}

func TestClaimsOfDifferentTTLsShareNoLease(t *testing.T) {
	t.Parallel()
	client := connect(t, embedded(t))
	d := etcddriver.New(client)
	require.NoError(t, d.Release(t.Context(), take(t, d, "m", "a", time.Hour)))
	take(t, d, "m", "b", time.Minute)
	r, err := client.TimeToLive(t.Context(), leaseOf(t, client, "m"))
	require.NoError(t, err)
	require.EqualValues(t, 60, r.GrantedTTL)
	require.NoError(t, d.Close())
}

// An ask that was never answered may still make its claim, once its tombstone has gone. Its lease
// must have gone, too.
func TestLeaseOfAnUnsettledTokenIsNotUsedAgain(t *testing.T) {
	t.Parallel()
	client := connect(t, embedded(t))
	d := etcddriver.New(client)
	lease := take(t, d, "m", "a", time.Minute)
	own := leaseOf(t, client, "m")
	lease.Unsettled = true
	require.NoError(t, d.Release(t.Context(), lease))
	take(t, d, "other", "b", time.Minute)
	require.NotEqual(t, own, leaseOf(t, client, "other"))
	_, err := client.Put(t.Context(), "straggler", "", clientv3.WithLease(own))
	require.ErrorContains(t, err, "lease not found")
	require.NoError(t, d.Close())
}

// Nobody knows what has become of a claim if the answer to its release was lost.
func TestLeaseOfAClaimThatMayBeThereIsNotUsedAgain(t *testing.T) {
	t.Parallel()
	e := embedded(t)
	var c calls
	watch := connect(t, e)
	d := etcddriver.New(connect(t, e, c.dial()))
	lease := take(t, d, "m", "a", time.Minute)
	own := leaseOf(t, watch, "m")
	c.intervene(func(_ string, _ any, carry func() error) error {
		_ = carry()
		return status.Error(codes.Unknown, "lost")
	})
	require.Error(t, d.Release(t.Context(), lease))
	c.intervene(nil)
	require.ErrorIs(t, d.Release(t.Context(), lease), driver.ErrNotHeld)
	take(t, d, "other", "b", time.Minute)
	require.NotEqual(t, own, leaseOf(t, watch, "other"))
	require.NoError(t, d.Close())
}

// Whoever takes a lock by force may see a claim that has gone when the force comes, and whose
// lease serves another.
func TestForceHitsNoOtherClaimOfTheLease(t *testing.T) {
	t.Parallel()
	e := embedded(t)
	a := etcddriver.New(connect(t, e))
	lease := take(t, a, "m", "a", time.Minute)
	var c calls
	var other driver.Lease
	b := etcddriver.New(connect(t, e, c.dial()))
	var once sync.Once
	c.intervene(func(_ string, _ any, carry func() error) error {
		err := carry() // It has looked.
		once.Do(func() {
			require.NoError(t, a.Release(t.Context(), lease))
			other = take(t, a, "other", "b", time.Minute)
		})
		return err
	})
	require.NoError(t, b.ForceRelease(t.Context(), driver.Mutex, "m"))
	require.NoError(t, a.Renew(t.Context(), []driver.Lease{other})[0])
	require.NoError(t, a.Release(t.Context(), other))
	require.NoError(t, a.Close())
	require.NoError(t, b.Close())
}

// A process that ends without a word leaves leases that are not renewed.
func TestLeasesWithoutAClaimEndByThemselves(t *testing.T) {
	t.Parallel()
	client := connect(t, embedded(t))
	d := etcddriver.New(client)
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	for range 2 {
		require.NoError(t, d.Release(t.Context(), take(t, d, "m", "a", ttl)))
	}
	require.Len(t, leases(t, client), 1)
	require.Eventually(t, func() bool { return len(leases(t, client)) == 0 }, patience, 10*time.Millisecond)
}

// More leases than it may want soon a driver does not keep.
func TestFewLeasesWithoutAClaimAreKept(t *testing.T) {
	t.Parallel()
	client := connect(t, embedded(t))
	d := etcddriver.New(client)
	const most = 64
	var all []driver.Lease
	for i := range most + 8 {
		all = append(all, take(t, d, fmt.Sprint("m", i), "t", time.Hour))
	}
	for _, l := range all {
		require.NoError(t, d.Release(t.Context(), l))
	}
	require.Len(t, leases(t, client), most)
	require.NoError(t, d.Close())
	require.Empty(t, leases(t, client))
}
