package holdfast

import (
	"context"
	"fmt"
	"slices"

	"github.com/holdfast-go/holdfast/driver"
)

// again deals with a request whose context comes from a lease on the lock. To wait would
// be to wait for oneself. It returns a nested lease, or nothing if there is no such lease.
func (c *Client) again(ctx context.Context, want driver.Request, cfg config, op *AcquireOp) (*Lease, error) {
	if want.Kind == driver.Semaphore || cfg.from != nil { // there may be room for more
		return nil, nil
	}
	for outer := c.holds(ctx, want); outer != nil; outer = c.holds(ctx, want) {
		switch {
		case want.Owner != "" && want.Owner == outer.a.req.Owner && !cfg.nested:
			return nil, nil // the store lets it in
		case !cfg.nested || !outer.a.covers(want):
			return nil, ErrDeadlock
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		}
		if l, err := outer.nest(ctx, want, op); l != nil || err != nil {
			return l, err
		}
		// The outer one has just ended, or become less. There may be another further out.
	}
	return nil, nil
}

// nest returns a lease on what l holds, or nothing if that is not there any more.
func (l *Lease) nest(ctx context.Context, want driver.Request, op *AcquireOp) (*Lease, error) {
	n := &Lease{a: l.a, fence: l.fence}
	if op != nil {
		op.Reentrant = true
	}
	n.live(ctx, op)
	if !l.a.enter(l, n, want) {
		if op != nil {
			op.Reentrant = false
		}
		n.die(ErrNotHeld)
		return nil, nil
	}
	return n, nil
}

// What follows keeps the leases of an acquisition.

// lease returns the oldest that is held, or that was held last; nil if nothing was
// granted yet.
func (a *acquisition) lease() *Lease {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.leases) == 0 {
		return nil
	}
	return a.leases[0]
}

// covers reports whether what is held is enough for a request: for writing, nobody else
// may read, and it must be on the same behalf.
func (a *acquisition) covers(want driver.Request) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return want.Shared || !a.req.Shared && !a.lowered.Load() && want.Owner == a.req.Owner
}

// lower notes, before the store is told, that a writer will only read from now on. From
// then on the term does not pass to another writer, see Suits and Stays: the store may
// carry the command out at any time. A lease that has ended cannot be lowered: its term
// may be somebody else's by now. The wrong version stopped the term on the goroutine that
// sends the command, and a release in between passed it on.
func (a *acquisition) lower(l *Lease) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case l.end != nil:
		return l.end
	case len(a.leases) > 1:
		return fmt.Errorf("%w: leases are nested with this one", ErrLocked)
	}
	a.lowered.Store(true)
	return nil
}

// enter adds a lease beside one that is held, if that is still so.
func (a *acquisition) enter(outer, l *Lease, want driver.Request) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if outer.end != nil || !want.Shared && a.lowered.Load() {
		return false
	}
	a.leases = append(a.leases, l)
	return true
}

// leave ends a lease by its release, if the operation has begun that this is part of. It
// returns how the lease had ended before, if it had, and whether others are still held.
func (a *acquisition) leave(l *Lease, begun bool) (before error, others bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	before = l.end
	if !begun {
		return before, false
	}
	l.end = ErrNotHeld
	if others = before == nil && len(a.leases) > 1; others {
		a.leases = slices.DeleteFunc(a.leases, func(other *Lease) bool { return other == l })
	}
	return before, others
}

// detach ends the only lease, if it is held, and leaves the rest to others.
func (a *acquisition) detach(l *Lease) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case l.end != nil:
		return l.end
	case len(a.leases) > 1:
		return fmt.Errorf("%w: leases are nested with this one", ErrLocked)
	}
	l.end = ErrNotHeld
	return nil
}

// dismiss ends all leases, and reports whether any was held.
func (a *acquisition) dismiss(end error) bool {
	a.mu.Lock()
	var held []*Lease
	for _, l := range a.leases {
		if l.end == nil {
			l.end = end
			held = append(held, l)
		}
	}
	a.mu.Unlock()
	for _, l := range held {
		l.die(causeOf(end))
	}
	return len(held) > 0
}
