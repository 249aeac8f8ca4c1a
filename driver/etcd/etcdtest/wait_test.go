package etcdtest

import (
	"bytes"
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
	answers  atomic.Int64
	watches  atomic.Int64 // that have begun
	events   atomic.Int64 // that the server has told it of
	late     chan bool    // lets watches of claims begin, if not nil
	past     atomic.Int64 // watches of claims from a revision
}

// watched is a stream that counts what happens on it.
type watched struct {
	grpc.ClientStream
	w *waiting
}

func (s watched) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if resp, ok := m.(*pb.WatchResponse); ok && err == nil {
		s.w.events.Add(int64(len(resp.Events)))
		if resp.Created {
			s.w.watches.Add(1)
		}
	}
	return err
}

func (s watched) SendMsg(m any) error {
	if req, ok := m.(*pb.WatchRequest); ok && bytes.HasPrefix(req.GetCreateRequest().GetKey(), []byte("holdfast/lock/")) {
		if req.GetCreateRequest().StartRevision != 0 {
			s.w.past.Add(1)
		}
		if s.w.late != nil {
			select {
			case <-s.w.late:
			case <-s.Context().Done():
			}
		}
	}
	return s.ClientStream.SendMsg(m)
}

// client is one that wants that much of three.
func client(t *testing.T, endpoint, token string, weight int64) *waiting {
	w := &waiting{news: make(chan driver.Grant, 8)}
	count := grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		w.requests.Add(1)
		defer w.answers.Add(1)
		return invoke(ctx, method, req, reply, cc, opts...)
	})
	watch := grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, stream grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		s, err := stream(ctx, desc, cc, method, opts...)
		return watched{s, w}, err
	})
	w.d = etcddriver.New(connect(t, endpoint, count, watch))
	t.Cleanup(func() { require.NoError(t, w.d.Close()) })
	w.r = driver.Request{
		Kind: driver.Semaphore, Name: "s", Token: token, Ask: 1, TTL: time.Hour,
		Weight: weight, Limit: 3, Wait: true, Wake: func(g driver.Grant) { w.news <- g },
	}
	return w
}

func (w *waiting) acquire(t *testing.T, want driver.Status) {
	t.Helper()
	g, err := w.d.Acquire(t.Context(), &w.r)
	require.NoError(t, err)
	require.Equal(t, want, g.Status)
}

// line has a holder and n waiters of different clients, all of which want that much of three.
func line(t *testing.T, n int, weight int64) []*waiting {
	t.Helper()
	e := embedded(t)
	var all []*waiting
	for i := range n + 1 {
		w := client(t, e, fmt.Sprint("t", i), weight)
		if w.acquire(t, []driver.Status{driver.Granted, driver.Queued}[min(i, 1)]); i > 0 {
			w.watching(t)
		}
		w.requests.Store(0)
		all = append(all, w)
	}
	return all
}

// watching waits for the watch of the claim before, beside the one of locks taken by force.
func (w *waiting) watching(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool { return w.watches.Load() == 2 }, patience, time.Millisecond)
}

func (w *waiting) release(t *testing.T) {
	t.Helper()
	require.NoError(t, w.d.Release(t.Context(), driver.Lease{Kind: w.r.Kind, Name: w.r.Name, Token: w.r.Token, TTL: w.r.TTL}))
}

func (w *waiting) granted(t *testing.T) {
	t.Helper()
	w.hears(t, driver.Granted)
}

func (w *waiting) hears(t *testing.T, want driver.Status) {
	t.Helper()
	select {
	case g := <-w.news:
		require.Equal(t, want, g.Status)
	case <-time.After(patience):
		t.Fatalf("%s has not heard that it is %v", w.r.Token, want)
	}
}

// A release is one request by the next waiter, and none by the others.
func TestReleaseIsNewsForTheNextWaiterOnly(t *testing.T) {
	t.Parallel()
	for _, weight := range []int64{3, 2} { // alone by oneself, and alone because no two fit
		t.Run(fmt.Sprint(weight), func(t *testing.T) {
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
		})
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

// What happens before a watch begins is news, though the watch does not ask etcd for what is past: that
// would come up to 100 ms late.
func TestWhatHappensBeforeTheWatchIsNews(t *testing.T) {
	t.Parallel()
	for _, weight := range []int64{3, 1} { // one claim to watch, and all
		t.Run(fmt.Sprint(weight), func(t *testing.T) {
			e := embedded(t)
			var holders []*waiting
			for i := range 3 / weight {
				h := client(t, e, fmt.Sprint("h", i), weight)
				h.r.Notice, h.late = true, make(chan bool)
				h.acquire(t, driver.Granted)
				holders = append(holders, h)
			}
			w := client(t, e, "w", weight)
			w.late = make(chan bool)
			w.acquire(t, driver.Queued)
			for _, h := range holders {
				close(h.late)
				h.hears(t, driver.Wanted)
				require.Zero(t, h.past.Load())
			}
			holders[0].release(t)
			close(w.late)
			w.granted(t)
			require.Zero(t, w.past.Load())
		})
	}
}

// Others write to etcd all the time. A waiter looks once whether that was about the one before it.
func TestWaiterLooksOnceWhetherItMissedAnything(t *testing.T) {
	t.Parallel()
	e := embedded(t)
	h, w := client(t, e, "h", 3), client(t, e, "w", 3)
	h.acquire(t, driver.Granted)
	w.late = make(chan bool)
	w.acquire(t, driver.Queued)
	w.requests.Store(0)
	w.answers.Store(0)
	other := connect(t, e)
	for i := range 8 {
		_, err := other.Put(t.Context(), "other", fmt.Sprint(i))
		require.NoError(t, err)
		if i == 0 {
			close(w.late)
			w.watching(t)
		}
	}
	// Not only sent: if etcd released before it read, the look would find a free lock, and no other were needed.
	require.Eventually(t, func() bool { return w.answers.Load() == 1 }, patience, time.Millisecond)
	h.release(t)
	w.granted(t)
	require.EqualValues(t, 2, w.requests.Load())
	require.EqualValues(t, 1, w.events.Load())
	require.EqualValues(t, 2, w.watches.Load())
}
