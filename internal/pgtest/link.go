package pgtest

import (
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
)

// Link is a way to a server that can go silent, as when a host or a cable dies: nothing comes
// through any more, and nobody is told.
type Link struct {
	tb       testing.TB
	server   *Server
	listener net.Listener

	mu     sync.Mutex
	dead   bool
	pipes  []*pipe
	closed bool
}

// pipe is a connection through a link. Both ends stay open while it is silent.
type pipe struct {
	mu             sync.Mutex
	silent         bool
	client, server net.Conn
}

// NewLink returns a link to s, by TCP, which ends with the test.
func NewLink(tb testing.TB, s *Server) *Link {
	tb.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	l := &Link{tb: tb, server: s, listener: listener}
	tb.Cleanup(l.close)
	go l.serve()
	return l
}

// DSN is [Server.DSN] by way of the link.
func (l *Link) DSN() string {
	return fmt.Sprintf("host=127.0.0.1 port=%d user=postgres dbname=%s sslmode=disable", l.listener.Addr().(*net.TCPAddr).Port, l.server.db)
}

// Silence makes the connections there are silent for ever, and new ones while on.
func (l *Link) Silence(on bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.dead = on
	for _, p := range l.pipes {
		p.hush()
	}
}

func (l *Link) serve() {
	for {
		client, err := l.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("unix", l.server.socket())
		if err != nil {
			_ = client.Close()
			continue
		}
		p := &pipe{client: client, server: server}
		l.mu.Lock()
		if l.dead {
			p.hush()
		}
		l.pipes = append(l.pipes, p)
		if l.closed {
			p.close()
		}
		l.mu.Unlock()
		go p.carry(client, server)
		go p.carry(server, client)
	}
}

func (l *Link) close() {
	_ = l.listener.Close()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	for _, p := range l.pipes {
		p.close()
	}
}

func (p *pipe) hush() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.silent = true
}

func (p *pipe) close() {
	_ = p.client.Close()
	_ = p.server.Close()
}

// carry passes on what comes, and then the end, unless the pipe is silent.
func (p *pipe) carry(from, to net.Conn) {
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		p.mu.Lock()
		silent := p.silent
		if !silent && n > 0 {
			_, _ = to.Write(buf[:n])
		}
		p.mu.Unlock()
		switch {
		case err == nil:
		case silent && err == io.EOF:
			return // The other side does not hear of it.
		default:
			p.close()
			return
		}
	}
}
