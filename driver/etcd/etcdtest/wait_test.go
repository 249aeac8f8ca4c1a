package etcdtest

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	"github.com/holdfast-go/holdfast/driver"
	etcddriver "github.com/holdfast-go/holdfast/driver/etcd"
)

// waiting is a token that waits, and what its client asks of the server.
type waiting struct {
	d        *etcddriver.Driver
	r        driver.Request
	news     chan driver.Grant
	requests atomic.Int64
	events   atomic.Int64 // that the server has told it of
}

// watched is a stream that counts events.
type watched struct {
	grpc.ClientStream
	w *waiting
}

func (s watched) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if resp, ok := m.(*pb.WatchResponse); ok && err == nil {
		s.w.events.Add(int64(len(resp.Events)))
	}
	return err
}

// line has a holder and n waiters of different clients, all of which want that much of three.
func line(t *testing.T, n int, weight int64) []*waiting {
	t.Helper()
	e := embedded(t)
	var all []*waiting
	for i := range n + 1 {
		w := &waiting{news: make(chan driver.Grant, 8)}
		count := grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			w.requests.Add(1)
			return invoke(ctx, method, req, reply, cc, opts...)
		})
		watch := grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, stream grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
			s, err := stream(ctx, desc, cc, method, opts...)
			return watched{s, w}, err
		})
		w.d = etcddriver.New(connect(t, e, count, watch))
		t.Cleanup(func() { require.NoError(t, w.d.Close()) })
		w.r = driver.Request{
			Kind: driver.Semaphore, Name: "s", Token: fmt.Sprint("t", i), Ask: 1, TTL: time.Hour,
			Weight: weight, Limit: 3, Wait: true, Wake: func(g driver.Grant) { w.news <- g },
		}
		g, err := w.d.Acquire(t.Context(), &w.r)
		require.NoError(t, err)
		if i > 0 {
			require.Equal(t, driver.Queued, g.Status)
		}
		w.requests.Store(0)
		all = append(all, w)
	}
	return all
}

func (w *waiting) release(t *testing.T) {
	t.Helper()
	require.NoError(t, w.d.Release(t.Context(), driver.Lease{Kind: w.r.Kind, Name: w.r.Name, Token: w.r.Token, TTL: w.r.TTL}))
}

func (w *waiting) granted(t *testing.T) {
	t.Helper()
	select {
	case g := <-w.news:
		require.Equal(t, driver.Granted, g.Status)
	case <-time.After(patience):
		t.Fatalf("%s was not granted the lock", w.r.Token)
	}
}

// A release is one request by the next waiter, and none by the others.
func TestReleaseIsNewsForTheNextWaiterOnly(t *testing.T) {
	t.Parallel()
	for _, weight := range []int64{3, 2} { // alone by oneself, and alone because no two fit
		all := line(t, 5, weight)
		for i, w := range all[1:] {
			all[i].release(t)
			w.granted(t)
			require.EqualValues(t, 1, w.requests.Load())
			require.EqualValues(t, 1, w.events.Load())
			for _, later := range all[i+2:] {
				require.Zero(t, later.requests.Load(), "%s asked although it is not its turn", later.r.Token)
				require.Zero(t, later.events.Load(), "%s heard of it although it is not its turn", later.r.Token)
			}
		}
	}
}

// A waiter in the middle that leaves has the one behind it look, and watch the one before.
func TestWaiterBehindOneThatLeftIsServed(t *testing.T) {
	t.Parallel()
	all := line(t, 3, 3)
	all[2].release(t)
	require.Eventually(t, func() bool { return all[3].requests.Load() > 0 }, patience, time.Millisecond)
	all[3].r.Ask++
	g, err := all[3].d.Acquire(t.Context(), &all[3].r)
	require.NoError(t, err)
	require.Equal(t, driver.Queued, g.Status)
	all[0].release(t)
	all[1].granted(t)
	require.Empty(t, all[3].news)
	all[1].release(t)
	all[3].granted(t)
}
