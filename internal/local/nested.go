package local

import (
	"context"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/leasectx"
	"github.com/holdfast-go/holdfast/internal/session"
)

// outerHold returns the hold on the lock that ctx comes from, if it is still held.
func (l *Lock) outerHold(ctx context.Context) *Hold {
	for c := leasectx.Of(ctx); c != nil; c = c.Outer {
		h, ours := c.Lease.(*Hold)
		if !ours || h.grant.lock.r != l.r {
			continue
		}
		if id := h.grant.lock.id; id.Kind == l.id.Kind && id.Name == l.id.Name && h.Err() == nil {
			return h
		}
	}
	return nil
}

// nested serves a request whose context comes from a lease on the lock. If it waited, it
// would wait for itself. nested returns a nested hold, or nil if there is no such lease.
func (l *Lock) nested(ctx context.Context, w *Want) (*Hold, error) {
	if l.id.Kind == driver.Semaphore || w.From != nil { // there may be room for more
		return nil, nil
	}
	for outer := l.outerHold(ctx); outer != nil; outer = l.outerHold(ctx) {
		nested := w.Options.Nested
		switch {
		case l.id.Owner != "" && l.id.Owner == outer.grant.token.Owner && !nested:
			w.Steal = false // it would rob itself
			return nil, nil // the store lets it in
		case !nested || !outer.grant.covers(w, l.id.Owner):
			return nil, ErrDeadlock
		case ctx.Err() != nil:
			return nil, session.EndOf(ctx)
		}
		if w.Report != nil {
			w.Report.Reentrant = true
		}
		h := &Hold{grant: outer.grant, fence: outer.fence}
		h.start(ctx, w)
		if outer.grant.enter(outer, h, w.Shared) {
			return h, nil
		}
		if w.Report != nil {
			w.Report.Reentrant = false
		}
		l.mu.Lock()
		h.endContext(ErrNotHeld) // nobody has it, but the timer of MaxHold may run
		l.mu.Unlock()
		// The outer one has just ended, or become less. There may be another further out.
	}
	return nil, nil
}

// covers reports whether the grant is enough for a request. For writing, nobody else may
// read, and the owner must be the same.
func (g *Grant) covers(w *Want, owner string) bool {
	g.lock.mu.Lock()
	defer g.lock.mu.Unlock()
	return w.Shared || !g.shared && !g.lowered && owner == g.token.Owner
}

// enter adds h beside outer, and reports whether outer was still held.
func (g *Grant) enter(outer, h *Hold, shared bool) bool {
	g.lock.mu.Lock()
	defer g.lock.mu.Unlock()
	if outer.end != nil || !shared && g.lowered {
		return false
	}
	g.holds = append(g.holds, h)
	return true
}
