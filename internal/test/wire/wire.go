// Package wire is what may happen to bytes on their way to a server, for tests that need not know what
// the bytes mean. Where a test has to tell commands from replies, there is redistest.Proxy.
package wire

import (
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// Way is one of the two ways through a wire.
type Way int

// The ways: what clients ask, and what the server answers.
const (
	Requests Way = iota
	Answers
)

// Wire is a way to a server. Its methods may be called from any goroutine.
type Wire struct {
	network, server string
	listener        net.Listener
	carrying        sync.WaitGroup

	mu    sync.Mutex // guards what follows, and what connections have of it
	freed *sync.Cond // something passes again, or a connection has ended
	held  [2]bool
	mute  bool
	over  bool
	conns map[*conn]bool
}

// conn is a connection through a wire.
type conn struct {
	ends   [2]net.Conn // where each way leads
	silent bool
	closed bool
}

// To returns a wire to the server at that address, which ends with the test. Its own address is [Wire.Addr],
// of TCP.
func To(tb testing.TB, network, server string) *Wire {
	tb.Helper()
	return At(tb, "tcp", "127.0.0.1:0", network, server)
}

// At is To with an address of its own, such as that of a socket in a folder where clients look for it.
func At(tb testing.TB, network, addr, serverNetwork, server string) *Wire {
	tb.Helper()
	l, err := net.Listen(network, addr)
	require.NoError(tb, err)
	w := &Wire{network: serverNetwork, server: server, listener: l, conns: map[*conn]bool{}}
	w.freed = sync.NewCond(&w.mu)
	w.carrying.Go(w.accept)
	tb.Cleanup(w.close)
	return w
}

// Addr is where the wire begins.
func (w *Wire) Addr() string { return w.listener.Addr().String() }

// Silence makes the connections there are silent for ever, and new ones while it is on, as when a host
// or a cable dies: all that is sent is lost, and nobody is told, not even of the end.
func (w *Wire) Silence(on bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.mute = on
	for c := range w.conns {
		c.silent = true
	}
}

// Hold holds up what is sent that way, or lets it pass again. It is not lost, and nobody is told.
func (w *Wire) Hold(way Way, on bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.held[way] = on
	w.freed.Broadcast()
}

// Cut ends the connections there are, and returns how many. What is held up is lost.
func (w *Wire) Cut() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := len(w.conns)
	for c := range w.conns {
		w.end(c)
	}
	return n
}

func (w *Wire) accept() {
	for {
		client, err := w.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial(w.network, w.server)
		if err != nil {
			_ = client.Close()
			continue
		}
		w.join(client, server)
	}
}

func (w *Wire) join(client, server net.Conn) {
	w.mu.Lock()
	defer w.mu.Unlock()
	c := &conn{ends: [2]net.Conn{Requests: server, Answers: client}, silent: w.mute}
	w.conns[c] = true
	if w.over {
		w.end(c)
	}
	w.carrying.Go(func() { w.carry(c, Requests) })
	w.carrying.Go(func() { w.carry(c, Answers) })
}

// carry passes on what comes from the other end, and then the end itself.
func (w *Wire) carry(c *conn, way Way) {
	buf := make([]byte, 32<<10)
	for {
		n, err := c.ends[1-way].Read(buf)
		if n > 0 && w.passes(c, way) {
			_, _ = c.ends[way].Write(buf[:n]) // If that end has gone, its reader knows.
		}
		if err != nil {
			w.mu.Lock()
			defer w.mu.Unlock()
			if !c.silent {
				w.end(c)
			}
			return
		}
	}
}

// passes waits while the way is held up, and reports whether what was read may pass.
func (w *Wire) passes(c *conn, way Way) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.held[way] && !c.closed {
		w.freed.Wait()
	}
	return !c.silent && !c.closed
}

// end ends a connection. The caller holds mu.
func (w *Wire) end(c *conn) {
	c.closed = true
	delete(w.conns, c)
	for _, end := range c.ends {
		_ = end.Close()
	}
	w.freed.Broadcast()
}

func (w *Wire) close() {
	_ = w.listener.Close()
	w.mu.Lock()
	w.over = true
	for c := range w.conns {
		w.end(c)
	}
	w.mu.Unlock()
	w.carrying.Wait()
}
