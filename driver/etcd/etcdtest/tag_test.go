package etcdtest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-go/holdfast/driver"
	etcddriver "github.com/holdfast-go/holdfast/driver/etcd"
)

// saying renews a lease with a tag.
func saying(t *testing.T, d *etcddriver.Driver, lease driver.Lease, tag string) error {
	t.Helper()
	lease.HolderTag = tag
	return d.Renew(t.Context(), []driver.Lease{lease})[0]
}

// A renewal is no write, unless the holder has something new to say.
func TestTagIsWrittenOnce(t *testing.T) {
	t.Parallel()
	endpoint := embedded(t)
	var seen calls
	client, d := connect(t, endpoint), etcddriver.New(connect(t, endpoint, seen.dial()))
	defer func() { require.NoError(t, d.Close()) }()
	lease := take(t, d, "m", "t", time.Minute)
	revision := func() int64 {
		resp, err := client.Get(t.Context(), "nothing")
		require.NoError(t, err)
		return resp.Header.Revision
	}
	for _, tag := range []string{"a", "b"} {
		before := revision()
		require.NoError(t, saying(t, d, lease, tag))
		asked := seen.counts["/etcdserverpb.KV/Txn"]
		for _, again := range []string{"", tag} {
			require.NoError(t, saying(t, d, lease, again))
			asked++ // which looks whether the renewal counts
		}
		require.Equal(t, before+1, revision())
		require.Equal(t, asked, seen.counts["/etcdserverpb.KV/Txn"])
	}
}

// An etcd without space takes no writes, but keeps leases.
func TestRenewalCountsThoughItsTagCannotBeSaid(t *testing.T) {
	t.Parallel()
	var seen calls
	d := etcddriver.New(connect(t, embedded(t), seen.dial()))
	defer func() { require.NoError(t, d.Close()) }()
	lease := take(t, d, "m", "t", time.Minute)
	seen.intervene(func(_ string, req any, carry func() error) error {
		if txn, ok := req.(*pb.TxnRequest); ok && len(txn.Compare) > 0 {
			return status.Error(codes.ResourceExhausted, "etcdserver: mvcc: database space exceeded")
		}
		return carry()
	})
	require.NoError(t, saying(t, d, lease, "a"))
	seen.intervene(nil)
	require.NoError(t, saying(t, d, lease, "a"))
	info, err := d.Inspect(t.Context(), lease.Kind, lease.Name)
	require.NoError(t, err)
	require.Equal(t, "a", info.Holders[0].Tag, "said with the next renewal")
}

// A tag and another change of a claim undo nothing of each other.
func TestTagAndDowngradeKeepEachOther(t *testing.T) {
	t.Parallel()
	endpoint := embedded(t)
	var seen calls
	d := etcddriver.New(connect(t, endpoint, seen.dial()))
	defer func() { require.NoError(t, d.Close()) }()
	r := &driver.Request{Kind: driver.Semaphore, Name: "s", Token: "t", Ask: 1, TTL: time.Minute, Weight: 3, Limit: 3}
	_, err := d.Acquire(t.Context(), r)
	require.NoError(t, err)
	lease := driver.Lease{Kind: r.Kind, Name: r.Name, Token: r.Token, TTL: r.TTL}
	seen.intervene(func(_ string, req any, carry func() error) error {
		if txn, ok := req.(*pb.TxnRequest); ok && len(txn.Compare) > 0 {
			seen.intervene(nil)
			require.NoError(t, d.Downgrade(t.Context(), lease, 1))
		}
		return carry()
	})
	require.NoError(t, saying(t, d, lease, "a"))
	info, err := d.Inspect(t.Context(), lease.Kind, lease.Name)
	require.NoError(t, err)
	require.Equal(t, "a", info.Holders[0].Tag)
	require.EqualValues(t, 1, info.Holders[0].Weight)
}

func TestWaitersAreToldTheTagOfTheHolder(t *testing.T) {
	t.Parallel()
	endpoint := embedded(t)
	a, b := etcddriver.New(connect(t, endpoint)), etcddriver.New(connect(t, endpoint))
	for _, d := range []*etcddriver.Driver{a, b} {
		defer func() { require.NoError(t, d.Close()) }()
	}
	lease := take(t, a, "m", "t", time.Minute)
	require.NoError(t, saying(t, a, lease, "a"))
	news := make(chan driver.Grant, 8)
	r := driver.Request{Kind: driver.Mutex, Name: "m", Token: "w", Ask: 1, TTL: time.Minute, Wake: func(g driver.Grant) { news <- g }}
	g, err := b.Acquire(t.Context(), &r)
	require.NoError(t, err)
	fence := g.HolderFence
	require.Positive(t, fence)
	require.Equal(t, driver.Grant{Status: driver.Busy, HolderTag: "a", HolderFence: fence}, g)
	r.Token, r.Wait = "v", true
	g, err = b.Acquire(t.Context(), &r)
	require.NoError(t, err)
	require.Equal(t, driver.Grant{Status: driver.Queued, HolderTag: "a", HolderFence: fence}, g)
	require.NoError(t, a.Release(t.Context(), lease))
	select {
	case g = <-news:
	case <-time.After(patience):
		require.Fail(t, "nobody wakes the waiter")
	}
	require.Equal(t, driver.Granted, g.Status)
	require.Equal(t, "a", g.HolderTag)
	require.NoError(t, b.Release(t.Context(), driver.Lease{Kind: r.Kind, Name: r.Name, Token: r.Token, TTL: r.TTL}))
	last := take(t, a, "m", "u", time.Minute)
	resp, err := connect(t, endpoint).Get(t.Context(), "holdfast/lock/", clientv3.WithPrefix())
	require.NoError(t, err)
	require.Len(t, resp.Kvs, 1)
	require.NotContains(t, string(resp.Kvs[0].Value), "tag", "most have none")
	require.NoError(t, a.Release(t.Context(), last))
}
