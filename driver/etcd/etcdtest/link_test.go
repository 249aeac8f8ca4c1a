package etcdtest

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-go/holdfast"
	etcddriver "github.com/holdfast-go/holdfast/driver/etcd"
	"github.com/holdfast-go/holdfast/internal/test/contend"
	"github.com/holdfast-go/holdfast/internal/test/referee"
	"github.com/holdfast-go/holdfast/internal/test/wire"
)

// If nobody hears that etcd has done something, it is done once nevertheless, and leaves nobody
// in the queue.
func TestLostAnswersMakeNoSecondHolderAndNoGhost(t *testing.T) {
	t.Parallel()
	e := embedded(t)
	var lost atomic.Int64
	forgetful := grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		err := invoke(ctx, method, req, reply, cc, opts...)
		if err == nil && rand.IntN(4) == 0 {
			lost.Add(1)
			return status.Error(codes.Unavailable, "the answer was lost")
		}
		return err
	})
	hammer(t, func() *clientv3.Client { return connect(t, e, forgetful) }, func() bool { return lost.Load() > 50 })
	requireNothingLeft(t, e)
}

// A connection that ends may have carried a request to the server, or an answer half-way.
func TestCutConnectionsMakeNoSecondHolderAndNoGhost(t *testing.T) {
	t.Parallel()
	e := embedded(t)
	w := wire.To(t, "tcp", e)
	var cuts atomic.Int64
	done := make(chan struct{})
	var cutting sync.WaitGroup
	cutting.Go(func() {
		for {
			select {
			case <-done:
				return
			case <-time.After(20*time.Millisecond + rand.N(100*time.Millisecond)):
				cuts.Add(int64(w.Cut()))
			}
		}
	})
	hammer(t, func() *clientv3.Client { return connect(t, w.Addr()) }, func() bool { return cuts.Load() > 50 })
	close(done)
	cutting.Wait()
	requireNothingLeft(t, e)
}

// hammer has four clients lock for a hundred times in all, or more until that is enough, and requires that
// one is alone when it holds the lock, and has a larger fence than all before it.
func hammer(t *testing.T, open func() *clientv3.Client, enough func() bool) {
	t.Helper()
	r := referee.Referee{Limit: 1}
	var cycles atomic.Int64
	var work sync.WaitGroup
	for range 4 {
		locks := holdfast.Open(etcddriver.New(open()), holdfast.WithTTL(30*time.Second))
		work.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
			defer cancel()
			for cycles.Add(1) <= 100 || !enough() {
				l, err := locks.Mutex("contended").Lease(ctx)
				if err != nil {
					t.Errorf("lease: %v", err)
					break
				}
				r.EnterWith(1, l.Fence())
				r.Leave(1)
				if err := l.Release(ctx); err != nil {
					t.Errorf("release: %v", err)
				}
			}
			if err := locks.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
		})
	}
	work.Wait()
	r.RequireFair(t, r.Entries())
}

// requireNothingLeft requires that nobody holds the lock, or waits.
func requireNothingLeft(t *testing.T, endpoint string) {
	t.Helper()
	info := contend.Inspector(t, contend.Kinds[0], endpoint)()
	require.Empty(t, info.Holders)
	require.Empty(t, info.Queue)
}
