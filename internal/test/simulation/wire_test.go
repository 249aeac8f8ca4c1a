package simulation_test

import (
	"bytes"
	"context"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

// link is a connection between a client and the server, without goroutines: what is written
// stands in a queue until it is due, and the reader waits for that.
//
// As with TCP, what is sent before a close arrives, though its sender no longer waits for an
// answer, and nothing comes out of a stream after a gap.
type link struct {
	proc    int
	number  int          // of the process's connections
	dead    *atomic.Bool // the process has crashed
	weather *weather
	news    bool        // it is for a subscription
	begun   atomic.Bool // which was asked for
	ways    [2]stream
}

func newLink(w *weather, proc int, dead *atomic.Bool, news bool) (client, server net.Conn) {
	l := &link{proc: proc, number: w.connected(proc), dead: dead, weather: w, news: news}
	for i := range l.ways {
		l.ways[i].wake = make(chan struct{}, 1)
	}
	return &end{link: l, out: toServer, in: toClient}, &end{link: l, out: toClient, in: toServer}
}

// stream is one direction.
type stream struct {
	wake chan struct{}

	mu      sync.Mutex
	partial []byte // of a frame
	queue   []parcel
	gap     bool  // nothing more is put into the queue
	ended   bool  // by the sender
	broken  error // nothing more comes out of it
}

type parcel struct {
	due time.Time
	raw []byte // nil for the end
}

func (s *stream) stir() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// write sends what there is of frames, one by one.
func (l *link) write(way direction, p []byte) {
	s := &l.ways[way]
	s.mu.Lock()
	defer s.mu.Unlock()
	s.partial = append(s.partial, p...)
	for {
		n := redistest.FrameLen(s.partial)
		if n == 0 {
			return
		}
		raw := bytes.Clone(s.partial[:n])
		s.partial = s.partial[n:]
		if l.news && way == toServer && bytes.Contains(bytes.ToLower(raw[:min(n, 24)]), []byte("\nsubscribe\r")) {
			l.begun.Store(true)
		}
		if l.news && !l.begun.Load() {
			s.put(0, raw)
			continue
		}
		f := l.weather.judge(l.proc, l.number, l.news, way)
		if l.dead.Load() {
			s.gap = true
		}
		if f.lost && !f.reset {
			s.gap = true
		}
		if !f.lost {
			s.put(f.late, raw)
		}
		if f.reset {
			s.put(0, nil)
			s.gap = true
			go l.reset(way) // which needs the other direction
		}
	}
}

// put adds to the queue. The caller holds mu.
func (s *stream) put(late time.Duration, raw []byte) {
	if s.gap {
		return
	}
	due := time.Now().Add(late)
	if n := len(s.queue); n > 0 && s.queue[n-1].due.After(due) {
		due = s.queue[n-1].due
	}
	s.queue = append(s.queue, parcel{due, raw})
	s.stir()
}

// reset breaks the connection: the client hears at once, and the server after what is under
// way in the direction in which the frame went.
func (l *link) reset(way direction) {
	client, server := &l.ways[toClient], &l.ways[toServer]
	client.mu.Lock()
	if way == toServer || len(client.queue) == 0 {
		client.broken = syscall.ECONNRESET
	}
	client.gap = true
	client.stir()
	client.mu.Unlock()
	server.mu.Lock()
	server.put(0, nil)
	server.gap = true
	server.mu.Unlock()
}

func (s *stream) read(p []byte, deadline *atomic.Pointer[time.Time]) (int, error) {
	for {
		now, wait := time.Now(), time.Duration(-1)
		s.mu.Lock()
		switch {
		case s.broken != nil:
			err := s.broken
			s.mu.Unlock()
			return 0, err
		case len(s.queue) == 0:
		case s.queue[0].due.After(now):
			wait = s.queue[0].due.Sub(now)
		case s.queue[0].raw == nil:
			s.mu.Unlock()
			return 0, io.EOF
		default:
			head := &s.queue[0]
			n := copy(p, head.raw)
			if head.raw = head.raw[n:]; len(head.raw) == 0 {
				s.queue = s.queue[1:]
			}
			s.mu.Unlock()
			return n, nil
		}
		s.mu.Unlock()
		if d := deadline.Load(); d != nil && !d.IsZero() {
			left := d.Sub(now)
			if left <= 0 {
				return 0, os.ErrDeadlineExceeded
			}
			if wait < 0 || left < wait {
				wait = left
			}
		}
		if wait < 0 {
			<-s.wake
			continue
		}
		timer := time.NewTimer(wait)
		select {
		case <-s.wake:
		case <-timer.C:
		}
		timer.Stop()
	}
}

// end is one end of a link.
type end struct {
	*link
	out, in  direction
	deadline atomic.Pointer[time.Time]
}

func (e *end) Read(p []byte) (int, error) { return e.ways[e.in].read(p, &e.deadline) }

func (e *end) Write(p []byte) (int, error) {
	out := &e.ways[e.out]
	out.mu.Lock()
	ended := out.ended
	out.mu.Unlock()
	if ended {
		return 0, net.ErrClosed
	}
	if in := &e.ways[e.in]; e.out == toServer {
		in.mu.Lock()
		broken := in.broken
		in.mu.Unlock()
		if broken != nil {
			return 0, &net.OpError{Op: "write", Net: "sim", Err: syscall.EPIPE}
		}
	}
	e.write(e.out, p)
	return len(p), nil
}

func (e *end) Close() error {
	out, in := &e.ways[e.out], &e.ways[e.in]
	out.mu.Lock()
	if !out.ended {
		out.ended = true
		out.put(100*time.Microsecond, nil)
	}
	out.mu.Unlock()
	in.mu.Lock()
	in.broken = net.ErrClosed
	in.gap = true
	in.stir()
	in.mu.Unlock()
	return nil
}

func (e *end) SetReadDeadline(t time.Time) error {
	e.deadline.Store(&t)
	e.ways[e.in].stir()
	return nil
}

func (e *end) SetDeadline(t time.Time) error    { return e.SetReadDeadline(t) }
func (e *end) SetWriteDeadline(time.Time) error { return nil } // it never blocks
func (e *end) LocalAddr() net.Addr              { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }
func (e *end) RemoteAddr() net.Addr             { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 6379} }

// dial makes a connection when the weather allows, and serve has the server's end of it.
//
// go-redis connects a subscription with a mutex held that closing it needs, too. In a bubble
// that would be the end: time stands still as long as anybody waits for a mutex. So a
// connection for news is made at once or not at all, with all that comes before SUBSCRIBE.
func dial(ctx context.Context, w *weather, proc int, dead *atomic.Bool, serve func(net.Conn)) (net.Conn, error) {
	news := subscribing()
	for {
		ok, refused := w.dials(proc)
		switch {
		case refused || dead.Load() || !ok && news:
			return nil, &net.OpError{Op: "dial", Net: "sim", Err: syscall.ECONNREFUSED}
		case ok:
			client, server := newLink(w, proc, dead, news)
			serve(server)
			return client, nil
		}
		select {
		case <-ctx.Done():
			return nil, &net.OpError{Op: "dial", Net: "sim", Err: os.ErrDeadlineExceeded}
		case <-time.After(50 * millisecond):
		}
	}
}

// subscribing reports whether the caller of dial connects a subscription.
func subscribing() bool {
	pcs := make([]uintptr, 16)
	frames := runtime.CallersFrames(pcs[:runtime.Callers(2, pcs)])
	for {
		f, more := frames.Next()
		if strings.Contains(f.Function, "(*PubSubPool).NewConn") {
			return true
		}
		if !more {
			return false
		}
	}
}
