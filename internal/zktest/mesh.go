package zktest

import (
	"io"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// Mesh is the wires between the members of an ensemble. Its Reach is for [Ensemble].
type Mesh struct {
	tb testing.TB

	mu    sync.Mutex
	off   map[int]bool // members that are cut off
	turn  chan struct{}
	wires sync.WaitGroup
	ends  []io.Closer
	over  bool
}

// NewMesh returns wires that end with the test. It has to be made before the ensemble.
func NewMesh(tb testing.TB) *Mesh {
	m := &Mesh{tb: tb, off: map[int]bool{}, turn: make(chan struct{})}
	tb.Cleanup(m.close)
	return m
}

// CutOff has nothing pass between a member, counted from 0, and all others; or pass again. What is
// under way meanwhile waits. So nobody is told that a connection is dead, as where a cable is out.
func (m *Mesh) CutOff(member int, off bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.off[member] = off
	close(m.turn)
	m.turn = make(chan struct{})
}

// Reach is the way from one member to another.
func (m *Mesh) Reach(from, to int, at Peer) Peer {
	return Peer{m.wire(from, to, at.Quorum), m.wire(from, to, at.Election)}
}

// wire listens for connections to a member, and returns where.
func (m *Mesh) wire(from, to int, addr string) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(m.tb, err)
	m.keep(l)
	m.wires.Go(func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			m.wires.Go(func() { m.join(near, from, to, addr) })
		}
	})
	return l.Addr().String()
}

func (m *Mesh) join(near net.Conn, from, to int, addr string) {
	far, err := net.Dial("tcp", addr)
	if err != nil {
		_ = near.Close()
		return
	}
	m.keep(near)
	m.keep(far)
	m.wires.Go(func() { m.pass(near, far, from, to) })
	m.pass(far, near, from, to)
}

// pass carries bytes one way, while neither member is cut off.
func (m *Mesh) pass(dst, src net.Conn, from, to int) {
	defer dst.Close()
	defer src.Close()
	buf := make([]byte, 32<<10)
	for {
		n, err := src.Read(buf)
		if n > 0 && m.passable(from, to) {
			if _, err := dst.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// passable waits until neither is cut off. It reports false if the test has ended.
func (m *Mesh) passable(from, to int) bool {
	for {
		m.mu.Lock()
		off, over, turn := m.off[from] || m.off[to], m.over, m.turn
		m.mu.Unlock()
		if over || !off {
			return !over
		}
		<-turn
	}
}

func (m *Mesh) keep(c io.Closer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.over {
		_ = c.Close()
	}
	m.ends = append(m.ends, c)
}

func (m *Mesh) close() {
	m.mu.Lock()
	m.over = true
	close(m.turn)
	m.turn = make(chan struct{})
	for _, c := range m.ends {
		_ = c.Close()
	}
	m.mu.Unlock()
	m.wires.Wait()
}
