package etcdtest

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"

	"github.com/holdfast-go/holdfast/driver"
	etcddriver "github.com/holdfast-go/holdfast/driver/etcd"
)

// Leases that are held here are renewed on one stream, and a read for a hundred of them shows that
// this counts.
func TestLeasesAreRenewedTogether(t *testing.T) {
	t.Parallel()
	var requests, streams atomic.Int64
	client := connect(t, embedded(t),
		grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			requests.Add(1)
			return invoke(ctx, method, req, reply, cc, opts...)
		}),
		grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, stream grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			streams.Add(1)
			return stream(ctx, desc, cc, method, opts...)
		}))
	d := etcddriver.New(client)
	var leases []driver.Lease
	for i := range 150 {
		r := request
		r.Name, r.TTL = fmt.Sprint("m", i), time.Hour
		_, err := d.Acquire(t.Context(), &r)
		require.NoError(t, err)
		leases = append(leases, driver.Lease{Kind: r.Kind, Name: r.Name, Token: r.Token, TTL: r.TTL})
	}
	requests.Store(0)
	streams.Store(0)
	for _, err := range d.Renew(t.Context(), leases) {
		require.NoError(t, err)
	}
	require.EqualValues(t, 2, requests.Load())
	require.EqualValues(t, 1, streams.Load())
	require.NoError(t, d.Close())
}
