package redistest

import (
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"time"
)

// pipeEnd is the client's end of a pipe in a bubble. To a peer that has gone it
// reacts as a socket does, since client libraries judge by that whether to repeat
// a command: net.Pipe has an error of its own, and returns it from the deadlines,
// too.
//
// It has a buffer, as a socket has: a client that writes a pipeline before it reads
// the replies would wait for a server that writes them before it reads on.
type pipeEnd struct {
	net.Conn
	buf *sendBuffer
}

type sendBuffer struct {
	mu   sync.Mutex
	more *sync.Cond
	data []byte
	err  error
}

func newPipeEnd(conn net.Conn) pipeEnd {
	b := &sendBuffer{}
	b.more = sync.NewCond(&b.mu)
	go b.flush(conn)
	return pipeEnd{conn, b}
}

// flush sends what was written until the pipe is closed at either end.
func (b *sendBuffer) flush(conn net.Conn) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.err == nil {
		if len(b.data) == 0 {
			b.more.Wait()
			continue
		}
		data := b.data
		b.data = nil
		b.mu.Unlock()
		_, err := conn.Write(data)
		b.mu.Lock()
		if err != nil && b.err == nil {
			b.err = &net.OpError{Op: "write", Net: "pipe", Err: syscall.EPIPE}
		}
	}
}

func (e pipeEnd) Write(p []byte) (int, error) {
	e.buf.mu.Lock()
	defer e.buf.mu.Unlock()
	if e.buf.err != nil {
		return 0, e.buf.err
	}
	e.buf.data = append(e.buf.data, p...)
	e.buf.more.Signal()
	return len(p), nil
}

func (e pipeEnd) Close() error {
	e.buf.mu.Lock()
	if e.buf.err == nil {
		e.buf.err = net.ErrClosed
	}
	e.buf.more.Signal()
	e.buf.mu.Unlock()
	return e.Conn.Close()
}

func (e pipeEnd) SetDeadline(t time.Time) error     { return e.SetReadDeadline(t) }
func (e pipeEnd) SetReadDeadline(t time.Time) error { return unlessGone(e.Conn.SetReadDeadline(t)) }
func (e pipeEnd) SetWriteDeadline(time.Time) error  { return nil } // it never blocks

func unlessGone(err error) error {
	if errors.Is(err, io.ErrClosedPipe) {
		return nil
	}
	return err
}
