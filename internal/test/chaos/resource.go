package main

import (
	"net"
	"net/rpc"
	"sync"
)

// Resource is what the locks guard: for each lock two counters. Holders read them, and write
// them back one higher at the end of their hold. They do not look whether they still hold the
// lock, for a process that is suspended just before it writes cannot. One counter takes any
// write. The other refuses a fence that is smaller than one it has seen.
//
// Resource lives in the process that makes the faults, and knows nothing of locks.
type Resource struct {
	mu    sync.Mutex
	tally map[string]*tally
}

type tally struct {
	plain, plainWrites   int64
	fenced, fencedWrites int64
	refused              int64
	fence                int64 // the largest that was seen
}

// Access is a read or a write of the counters of a lock.
type Access struct {
	Lock          string
	Fence         int64
	Plain, Fenced int64
	Stale         bool // in a reply: the fence is too small
}

func newResource() *Resource {
	return &Resource{tally: map[string]*tally{}}
}

// Read returns both counters. From then on the fenced one refuses smaller fences.
func (r *Resource) Read(a Access, reply *Access) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.tally[a.Lock]
	if t == nil {
		t = &tally{}
		r.tally[a.Lock] = t
	}
	*reply = Access{Plain: t.plain, Fenced: t.fenced, Stale: t.stale(a.Fence)}
	return nil
}

// Write sets both counters.
func (r *Resource) Write(a Access, reply *Access) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.tally[a.Lock]
	t.plain, t.plainWrites = a.Plain, t.plainWrites+1
	if reply.Stale = t.stale(a.Fence); !reply.Stale && a.Fenced > 0 {
		t.fenced, t.fencedWrites = a.Fenced, t.fencedWrites+1
	}
	return nil
}

func (t *tally) stale(fence int64) bool {
	if fence < t.fence {
		t.refused++
		return true
	}
	t.fence = fence
	return false
}

// updates sums up all locks.
func (r *Resource) updates() (writes, lost, fencedLost, refused int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, t := range r.tally {
		writes += t.plainWrites
		lost += t.plainWrites - t.plain
		fencedLost += t.fencedWrites - t.fenced
		refused += t.refused
	}
	return writes, lost, fencedLost, refused
}

// serve lets workers call the resource, until the listener is closed.
func (r *Resource) serve(l net.Listener) error {
	s := rpc.NewServer()
	if err := s.Register(r); err != nil {
		return err
	}
	for {
		conn, err := l.Accept()
		if err != nil {
			return nil
		}
		go s.ServeConn(conn)
	}
}
