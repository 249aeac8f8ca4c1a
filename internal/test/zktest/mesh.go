package zktest

import (
	"testing"

	"github.com/holdfast-go/holdfast/internal/test/wire"
)

// Mesh is the wires between the members of an ensemble. Its Reach is for [Ensemble].
type Mesh struct {
	tb    testing.TB
	wires map[[2]int][]*wire.Wire // by the members that each is from and to
	off   map[int]bool            // members that are cut off
}

// NewMesh returns wires that end with the test. It has to be made before the ensemble.
func NewMesh(tb testing.TB) *Mesh {
	return &Mesh{tb: tb, wires: map[[2]int][]*wire.Wire{}, off: map[int]bool{}}
}

// CutOff has nothing pass between a member, counted from 0, and all others; or pass again. What is
// under way meanwhile waits. So nobody is told that a connection is dead, as where a cable is out.
func (m *Mesh) CutOff(member int, off bool) {
	m.off[member] = off
	for members, wires := range m.wires {
		for _, w := range wires {
			w.Hold(wire.Requests, m.off[members[0]] || m.off[members[1]])
			w.Hold(wire.Answers, m.off[members[0]] || m.off[members[1]])
		}
	}
}

// Reach is the way from one member to another.
func (m *Mesh) Reach(from, to int, at Peer) Peer {
	m.tb.Helper()
	quorum, election := wire.To(m.tb, "tcp", at.Quorum), wire.To(m.tb, "tcp", at.Election)
	m.wires[[2]int{from, to}] = []*wire.Wire{quorum, election}
	return Peer{quorum.Addr(), election.Addr()}
}
