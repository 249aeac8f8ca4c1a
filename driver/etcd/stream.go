package etcddriver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/driver"
)

// silence is how long a request to renew may go unanswered before its stream is given up: half
// of the least TTL, so that another stream can still save the lease. To open one may take twice
// as long, since etcd first checks a password. Both double, up to timeout, as long as nothing is
// answered, or a slow etcd would be asked for a stream again and again.
const silence = time.Second

var (
	errSilent   = fmt.Errorf("etcddriver: renewals were not answered in time: %w", driver.ErrTransient)
	errDisorder = fmt.Errorf("etcddriver: a renewal was answered that is not the next, as by a proxy: %w", driver.ErrTransient)
)

// renewal is a request to renew leases.
type renewal struct {
	leases []clientv3.LeaseID
	all    []lifetime  // of the first of these leases, which were answered
	late   *time.Timer // ends the stream
	reused bool        // It met a stream that was there before.
	done   chan error  // gets one, when all is answered or the stream has ended
}

// stream is a LeaseKeepAlive stream. etcd answers what is asked on it one by one, in order.
type stream struct {
	mu sync.Mutex

	// asked has the request of each lease that was not answered yet. It stays in line when its
	// caller has given up, or that answer would prove a later request of the same lease.
	asked    []*renewal
	answered bool // anything
}

// send renews leases. All calls share one stream: a client with a password authenticates for
// each that it opens, which costs etcd 65 ms and a write. A stream that was there before may
// have been over, such as when its token has expired or its member was stopped. So what it
// failed to do is tried once more.
func (d *Driver) send(ctx context.Context, leases []clientv3.LeaseID) ([]lifetime, error) {
	if err := d.startRenewing(); err != nil {
		return nil, err
	}
	for again := true; ; again = false {
		r := &renewal{leases: leases, done: make(chan error, 1)}
		select {
		case d.renewals <- r:
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-d.ctx.Done():
			return nil, errClosed
		}
		select {
		case err := <-r.done:
			if err == nil || !r.reused || !again {
				return r.all, err
			}
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// startRenewing has renewals carried out, until the driver is closed.
func (d *Driver) startRenewing() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.ctx.Err() != nil:
		return errClosed
	case d.renewals == nil:
		d.renewals = make(chan *renewal)
		d.tasks.Go(d.renewAll)
	}
	return nil
}

// renewAll carries out what is to be renewed, on one stream after the other.
func (d *Driver) renewAll() {
	silent := 0 // streams, the last ones
	for pause := time.Duration(0); ; {
		select {
		case r := <-d.renewals:
			answered, err := d.carry(r, silence<<silent)
			if answered {
				silent, pause = 0, 0
			} else {
				pause = longer(pause)
			}
			if errors.Is(err, errSilent) {
				silent = min(silent+1, 3)
			}
		case <-d.ctx.Done():
			return
		}
		rest(d.ctx, pause)
	}
}

// carry opens a stream for a request, and sends it and those that follow, until the stream ends.
// It reports whether anything was answered, and why the stream has ended.
func (d *Driver) carry(first *renewal, patience time.Duration) (answered bool, err error) {
	ctx, end := context.WithCancelCause(d.ctx)
	give := func(limit time.Duration) *time.Timer {
		return time.AfterFunc(min(limit, timeout), func() { end(errSilent) })
	}
	s := &stream{}
	late := give(2 * patience)
	opened := make(chan pb.Lease_LeaseKeepAliveClient, 1)
	var receiver sync.WaitGroup
	receiver.Go(func() {
		conn, err := d.leases.LeaseKeepAlive(ctx)
		if err == nil {
			opened <- conn
			err = s.receive(conn)
		}
		end(err)
	})
	var conn pb.Lease_LeaseKeepAliveClient // nil until it is open
	for unsent := []*renewal{first}; ; {
		select {
		case r := <-d.renewals:
			r.reused = conn != nil
			unsent = append(unsent, r)
		case conn = <-opened:
			late.Stop()
		case <-ctx.Done():
			late.Stop()
			receiver.Wait()
			err := clientv3.ContextError(d.ctx, context.Cause(ctx))
			if d.ctx.Err() != nil {
				err = errClosed
			}
			s.end(err, unsent)
			return s.answered, err
		}
		if conn != nil {
			for _, r := range unsent {
				r.late = give(patience)
				s.ask(conn, r)
			}
			unsent = nil
		}
	}
}

// ask sends a request. If that fails, receive finds out why.
func (s *stream) ask(conn pb.Lease_LeaseKeepAliveClient, r *renewal) {
	s.mu.Lock()
	for range r.leases {
		s.asked = append(s.asked, r)
	}
	s.mu.Unlock()
	for _, id := range r.leases {
		if conn.Send(&pb.LeaseKeepAliveRequest{ID: int64(id)}) != nil {
			return
		}
	}
}

// receive notes answers, until the stream ends.
func (s *stream) receive(conn pb.Lease_LeaseKeepAliveClient) error {
	for {
		resp, err := conn.Recv()
		if err != nil {
			return err
		}
		s.mu.Lock()
		if len(s.asked) == 0 || s.asked[0].next() != clientv3.LeaseID(resp.ID) {
			s.mu.Unlock()
			return errDisorder
		}
		r := s.asked[0]
		s.asked, s.answered = s.asked[1:], true
		s.mu.Unlock()
		r.all = append(r.all, lifetime{time.Duration(resp.TTL) * time.Second, resp.Header.RaftTerm})
		if len(r.all) == len(r.leases) {
			r.late.Stop()
			r.done <- nil
		}
	}
}

// next is the lease that is to be answered next.
func (r *renewal) next() clientv3.LeaseID { return r.leases[len(r.all)] }

// end tells all that was not answered why. An error that does not pass is one of the request that
// etcd has come to. The others only stood behind it, unless there was no stream at all.
func (s *stream) end(err error, unsent []*renewal) {
	own := err
	for _, r := range slices.Compact(s.asked) {
		r.late.Stop()
		r.done <- own
		own = fmt.Errorf("%w: %w", driver.ErrTransient, err)
	}
	for _, r := range unsent {
		r.done <- own
	}
}
