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

// renewals is the part of a connection that renews leases, under the control of a test.
type renewals struct {
	streams, sent atomic.Int64
	answer        func(ctx context.Context, stream int64, resp *pb.LeaseKeepAliveResponse) // changes an answer, or delays it
}

func (r *renewals) dial() grpc.DialOption {
	return grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, stream grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		s, err := stream(ctx, desc, cc, method, opts...)
		if err != nil || method != "/etcdserverpb.Lease/LeaseKeepAlive" {
			return s, err
		}
		return renewing{s, r, r.streams.Add(1)}, nil
	})
}

type renewing struct {
	grpc.ClientStream
	r      *renewals
	number int64
}

func (s renewing) SendMsg(m any) error {
	s.r.sent.Add(1)
	return s.ClientStream.SendMsg(m)
}

func (s renewing) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	if resp, ok := m.(*pb.LeaseKeepAliveResponse); ok && err == nil {
		s.r.answer(s.Context(), s.number, resp)
		err = s.Context().Err()
	}
	return err
}

// hold acquires a lock of a new driver, whose renewals are under control.
func (r *renewals) hold(t *testing.T, ttl time.Duration) (*etcddriver.Driver, []driver.Lease) {
	t.Helper()
	d := etcddriver.New(connect(t, embedded(t), r.dial()))
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	req := request
	req.TTL = ttl
	_, err := d.Acquire(t.Context(), &req)
	require.NoError(t, err)
	return d, []driver.Lease{{Kind: req.Kind, Name: req.Name, Token: req.Token, TTL: ttl}}
}

// A leader that has been replaced, and has not heard of it, answers a renewal that its successor does not
// know of. Here an answer is made to come from an earlier term.
func TestRenewalByADeposedLeaderDoesNotCount(t *testing.T) {
	t.Parallel()
	var deposed atomic.Bool
	controlled := &renewals{answer: func(_ context.Context, _ int64, resp *pb.LeaseKeepAliveResponse) {
		if deposed.Load() {
			resp.Header.RaftTerm--
		}
	}}
	client := connect(t, embedded(t), controlled.dial())
	d, other := etcddriver.New(client), etcddriver.New(client)
	defer d.Close()
	defer other.Close()
	lease := []driver.Lease{take(t, d, "m", "t", time.Hour)}
	r := driver.Request{Kind: driver.Mutex, Name: "m", Token: "t", Ask: 1, TTL: time.Hour}
	for _, wrong := range []bool{true, false} {
		deposed.Store(wrong)
		for _, d := range []driver.Driver{d, other} { // which know the lease, and have to look
			err := d.Renew(t.Context(), lease)[0]
			r.Ask++
			g, again := d.Acquire(t.Context(), &r)
			if !wrong {
				require.NoError(t, err)
				require.NoError(t, again)
				require.Equal(t, r.Ask, g.Ask)
				continue
			}
			require.ErrorIs(t, err, driver.ErrTransient, "FOUL: it is told to be renewed")
			require.NotErrorIs(t, err, driver.ErrNotHeld)
			require.ErrorIs(t, again, driver.ErrTransient, "FOUL: it is told to be held")
		}
	}
}

// A stream on which nothing comes any more is replaced while the leases still last.
func TestSilentStreamIsReplacedBeforeALeaseIsLost(t *testing.T) {
	t.Parallel()
	silent := make(chan struct{})
	r := &renewals{answer: func(ctx context.Context, stream int64, _ *pb.LeaseKeepAliveResponse) {
		select {
		case <-silent:
			if stream == 1 {
				<-ctx.Done()
			}
		default:
		}
	}}
	d, leases := r.hold(t, time.Hour)
	require.NoError(t, d.Renew(t.Context(), leases)[0])
	close(silent)
	require.NoError(t, d.Renew(t.Context(), leases)[0])
	require.EqualValues(t, 2, r.streams.Load())
	require.NoError(t, d.Renew(t.Context(), leases)[0])
	require.EqualValues(t, 2, r.streams.Load())
}

// An answer to a request whose caller has given up is not taken for one to a later request for
// the same lease. Here the later one is answered by a leader that was replaced.
func TestAnswerProvesNoLaterRequest(t *testing.T) {
	t.Parallel()
	answers := make(chan struct{})
	var answered atomic.Int64
	r := &renewals{answer: func(ctx context.Context, _ int64, resp *pb.LeaseKeepAliveResponse) {
		<-answers
		if answered.Add(1) == 2 {
			resp.Header.RaftTerm--
		}
	}}
	d, leases := r.hold(t, time.Hour)
	ctx, cancel := context.WithCancel(t.Context())
	first, second := make(chan error, 1), make(chan error, 1)
	go func() { first <- d.Renew(ctx, leases)[0] }()
	require.Eventually(t, func() bool { return r.sent.Load() == 1 }, patience, time.Millisecond)
	cancel()
	require.ErrorIs(t, <-first, context.Canceled)
	go func() { second <- d.Renew(t.Context(), leases)[0] }()
	require.Eventually(t, func() bool { return r.sent.Load() == 2 }, patience, time.Millisecond)
	close(answers)
	require.ErrorIs(t, <-second, driver.ErrTransient)
	require.EqualValues(t, 1, r.streams.Load())
	require.NoError(t, d.Renew(t.Context(), leases)[0])
}

// Requests that are under way when the driver is closed end with it, and so does the stream.
func TestCloseEndsRenewalsUnderWay(t *testing.T) {
	t.Parallel()
	r := &renewals{answer: func(ctx context.Context, _ int64, _ *pb.LeaseKeepAliveResponse) { <-ctx.Done() }}
	d, leases := r.hold(t, time.Hour)
	failed := make(chan error, 1)
	go func() { failed <- d.Renew(t.Context(), leases)[0] }()
	require.Eventually(t, func() bool { return r.sent.Load() == 1 }, patience, time.Millisecond)
	require.NoError(t, d.Close())
	require.ErrorIs(t, <-failed, driver.ErrNotExecuted)
	require.ErrorIs(t, d.Renew(t.Context(), leases)[0], driver.ErrNotExecuted)
}
