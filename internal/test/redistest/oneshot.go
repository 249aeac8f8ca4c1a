package redistest

import (
	"slices"
	"sync"
)

// drop is a reply to be lost.
type drop struct {
	match   func(cmd []string) bool
	dropped chan struct{}
}

// hold is a request to be held back.
type hold struct {
	match    func(cmd []string) bool
	caught   chan struct{} // closed when there is one, under proxy.mu
	released chan struct{}
	settled  chan struct{} // closed when it was answered, or never will be
	settle   func()
}

// faults are those that befall one request.
type faults struct {
	drop *drop
	hold *hold
}

// DropReply lets the next command for which match returns true be executed, but
// swallows its reply and closes its connection. It strikes once; the channel is
// closed when it has.
//
// A script that the server does not know yet is first answered NOSCRIPT, and that
// is a reply as well: run it once before.
func (p *Proxy) DropReply(match func(cmd []string) bool) (dropped <-chan struct{}) {
	d := &drop{match: match, dropped: make(chan struct{})}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drops = append(p.drops, d)
	return d.dropped
}

// HoldRequest holds the next command for which match returns true on its way to the server.
// It also holds what the client sends after it on the same connection. The channel is
// closed when the command has been caught.
//
// release sends the command on, even if its client has given up and closed the connection,
// or [Proxy.Cut] has reset that: a straggler of the network. release returns when the
// server has answered. If nothing was caught yet, it only calls the fault off.
func (p *Proxy) HoldRequest(match func(cmd []string) bool) (caught <-chan struct{}, release func()) {
	h := &hold{
		match:    match,
		caught:   make(chan struct{}),
		released: make(chan struct{}),
		settled:  make(chan struct{}),
	}
	h.settle = sync.OnceFunc(func() { close(h.settled) })
	p.mu.Lock()
	defer p.mu.Unlock()
	p.holds = append(p.holds, h)
	return h.caught, sync.OnceFunc(func() { p.release(h) })
}

func (p *Proxy) release(h *hold) {
	p.mu.Lock()
	close(h.released)
	p.holds = slices.DeleteFunc(p.holds, func(other *hold) bool { return other == h })
	caught := isClosed(h.caught)
	p.mu.Unlock()
	if !caught {
		return
	}
	select {
	case <-h.settled:
	case <-p.closed:
	}
}

// judge finds the faults armed for a request, and disarms them.
func (p *Proxy) judge(l *link, cmd []string) faults {
	p.mu.Lock()
	defer p.mu.Unlock()
	var f faults
	if i := slices.IndexFunc(p.drops, func(d *drop) bool { return d.match(cmd) }); i >= 0 {
		f.drop = p.drops[i]
		p.drops = slices.Delete(p.drops, i, i+1)
	}
	if i := slices.IndexFunc(p.holds, func(h *hold) bool { return h.match(cmd) }); i >= 0 {
		f.hold = p.holds[i]
		p.holds = slices.Delete(p.holds, i, i+1)
		l.holding = true
		close(f.hold.caught)
	}
	return f
}

// wait returns when the request may go on, or false if its link has ended.
func (l *link) wait(h *hold) bool {
	select {
	case <-h.released:
	case <-l.closed:
	}
	l.proxy.mu.Lock()
	l.holding = false
	l.proxy.mu.Unlock()
	if isClosed(l.closed) {
		h.settle()
		return false
	}
	return true
}
