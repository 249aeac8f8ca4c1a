package redistest

import (
	"errors"
	"io"
	"net"
	"syscall"
	"time"
)

// pipeEnd is the client's end of a pipe in a bubble. To a peer that has gone it
// reacts as a socket does, since client libraries judge by that whether to repeat
// a command: net.Pipe has an error of its own, and returns it from the deadlines,
// too.
type pipeEnd struct{ net.Conn }

func (e pipeEnd) Write(b []byte) (int, error) {
	n, err := e.Conn.Write(b)
	if errors.Is(err, io.ErrClosedPipe) {
		err = &net.OpError{Op: "write", Net: "pipe", Err: syscall.EPIPE}
	}
	return n, err
}

func (e pipeEnd) SetDeadline(t time.Time) error      { return unlessGone(e.Conn.SetDeadline(t)) }
func (e pipeEnd) SetReadDeadline(t time.Time) error  { return unlessGone(e.Conn.SetReadDeadline(t)) }
func (e pipeEnd) SetWriteDeadline(t time.Time) error { return unlessGone(e.Conn.SetWriteDeadline(t)) }

func unlessGone(err error) error {
	if errors.Is(err, io.ErrClosedPipe) {
		return nil
	}
	return err
}
