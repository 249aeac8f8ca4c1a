package main

import (
	"bytes"
	"context"
	"net"
	"sync/atomic"
	"time"
)

// deafened is the trouble of a process whose subscription has ended, whatever the library made of
// that: it does not tell of one that did not count.
const deafened = "deafened"

// ear is a connection that notes when it ends, if it is one of a subscription. It is a *net.TCPConn,
// so go-redis finds out as ever whether one in its pool is dead.
type ear struct {
	*net.TCPConn
	w       *witness
	listens atomic.Bool
}

// dial connects as go-redis does by default.
func (w *witness) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	conn, err := (&net.Dialer{Timeout: 5 * time.Second, KeepAlive: 5 * time.Minute}).DialContext(ctx, network, addr)
	if tcp, is := conn.(*net.TCPConn); is {
		return &ear{TCPConn: tcp, w: w}, err
	}
	return conn, err
}

func (e *ear) Write(p []byte) (int, error) {
	if bytes.Contains(p, []byte("\r\nsubscribe\r\n")) {
		e.listens.Store(true)
	}
	return e.TCPConn.Write(p)
}

func (e *ear) Read(p []byte) (int, error) {
	n, err := e.TCPConn.Read(p)
	if err != nil {
		e.end()
	}
	return n, err
}

func (e *ear) Close() error {
	e.end()
	return e.TCPConn.Close()
}

func (e *ear) end() {
	if e.listens.CompareAndSwap(true, false) {
		e.w.note(deafened)
	}
}
