package etcdtest

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/driver"
	etcddriver "github.com/holdfast-go/holdfast/driver/etcd"
)

// outrun is an etcd for a client that others outrun: the conditions of as many transactions do
// not hold.
type outrun struct {
	clientv3.KV
	times atomic.Int64
}

func (o *outrun) Txn(ctx context.Context) clientv3.Txn { return &outrunTxn{o.KV.Txn(ctx), o} }

type outrunTxn struct {
	clientv3.Txn
	*outrun
}

func (t *outrunTxn) If(cs ...clientv3.Cmp) clientv3.Txn {
	if t.times.Add(-1) >= 0 {
		cs = append(cs, clientv3.Compare(clientv3.CreateRevision("nothing"), "=", 1))
	}
	return t.Txn.If(cs...)
}

// A client that others outrun again and again tries again, however often.
func TestClientThatIsOutrunTriesAgain(t *testing.T) {
	t.Parallel()
	client := connect(t, embedded(t))
	others := &outrun{KV: client.KV}
	client.KV = others
	d := etcddriver.New(client)
	defer func() { require.NoError(t, d.Close()) }()
	r := request
	r.Kind, r.Weight, r.Limit, r.TTL = driver.Semaphore, 2, 2, time.Minute // which outlasts all attempts
	lease := driver.Lease{Kind: r.Kind, Name: r.Name, Token: r.Token, TTL: r.TTL}
	const often = 10

	others.times.Store(often)
	g, err := d.Acquire(t.Context(), &r)
	require.NoError(t, err)
	require.Equal(t, driver.Granted, g.Status)
	others.times.Store(often)
	require.NoError(t, d.Downgrade(t.Context(), lease, 1))
	require.Negative(t, others.times.Load(), "nobody outran it")
}
