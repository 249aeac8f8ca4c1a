package zkdriver

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/go-zookeeper/zk"
)

// link is one connection of a session to a server.
type link struct {
	net.Conn
	s     *session
	began time.Time // before it was dialed
	seen  []byte    // of the answer to the handshake, nil once that is read
	shook bool      // the handshake was answered; only the reader of the connection knows
}

// setWatches is the request by which the client tells a server what it watches, and where a
// request has its number.
const (
	setWatches = 101
	atRequest  = 8
)

// Where the answer to a handshake has the timeout and the number of the session: behind a length
// and a version.
const (
	atTimeout = 8
	atSession = 12
	answer    = 20
)

var errHandshake = errors.New("zkdriver: the handshake was refused")

// dial opens the next connection. A session that is over gets none: its client would go on with
// another session, and there carry out what was asked of this one.
func (s *session) dial(network, address string, patience time.Duration) (net.Conn, error) {
	if s.isOver() {
		return nil, errExpired
	}
	began := time.Now()
	conn, err := s.d.dial(network, address, patience)
	if err != nil {
		s.fail(err)
		return nil, err
	}
	l := &link{Conn: conn, s: s, began: began}
	_ = l.SetReadDeadline(began.Add(2 * s.silence()))
	if !s.open(l) {
		_ = conn.Close()
		return nil, errExpired
	}
	return l, nil
}

// Read notes what the server says of the session before the client hears of it, and so before
// the client sends a request.
func (l *link) Read(p []byte) (int, error) {
	n, err := l.Conn.Read(p)
	if l.shook {
		return n, err
	}
	if err != nil && !errors.Is(err, net.ErrClosed) {
		l.s.fail(fmt.Errorf("the handshake with %s: %w", l.RemoteAddr(), err))
	}
	if l.seen = append(l.seen, p[:n]...); len(l.seen) >= answer {
		l.shook = true
		timeout := time.Duration(binary.BigEndian.Uint32(l.seen[atTimeout:])) * time.Millisecond
		id := int64(binary.BigEndian.Uint64(l.seen[atSession:]))
		l.seen = nil
		if !l.s.shake(l, id, timeout) {
			_ = l.Close()
			return 0, errHandshake
		}
	}
	return n, err
}

// Write notes that the client has told the server what it watches. Until then no other request
// may be answered: the client asks for the news since the last answer that it got.
//
// The client passes on why it could not write a request. That is a lost connection, as is one that
// ends before the answer.
func (l *link) Write(p []byte) (int, error) {
	n, err := l.Conn.Write(p)
	if err != nil {
		return n, fmt.Errorf("%w: %w", zk.ErrConnectionClosed, err)
	}
	if len(p) >= atRequest+4 && binary.BigEndian.Uint32(p[atRequest:]) == setWatches {
		l.s.ready(l)
	}
	return n, err
}

// SetReadDeadline lets no server take its time for the handshake: the client would give it almost
// seven times the timeout of the session.
func (l *link) SetReadDeadline(t time.Time) error {
	if last := l.began.Add(2 * l.s.silence()); !l.shook && (t.IsZero() || t.After(last)) {
		t = last
	}
	return l.Conn.SetReadDeadline(t)
}

// members are the servers that a session connects to, in turn. It is a zk.HostProvider. That of
// the client itself pauses for a second before it connects to an only server again.
type members struct {
	s       *session
	servers []string
	at      int
	failed  int // connections since the last one that worked
}

// Init implements zk.HostProvider.
func (m *members) Init(servers []string) error {
	m.servers = servers
	return nil
}

// Len implements zk.HostProvider.
func (m *members) Len() int { return len(m.servers) }

// Next implements zk.HostProvider.
func (m *members) Next() (server string, pause bool) {
	if m.s.again() {
		return m.servers[m.at], false
	}
	m.at = (m.at + 1) % len(m.servers)
	m.failed++
	exhausted := m.failed > len(m.servers)
	if exhausted {
		m.s.exhaust()
	}
	return m.servers[m.at], exhausted || m.s.isOver()
}

// Connected implements zk.HostProvider.
func (m *members) Connected() { m.failed = 0 }
