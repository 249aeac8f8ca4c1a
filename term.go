package holdfast

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/cohort"
	"github.com/holdfast-go/holdfast/internal/keepalive"
)

// An acquisition that was granted is a term: the store knows it by one token, and in this
// process one lease after the other may be held under it. Each has a fence of its own,
// from the numbers that the store has given. What the store is told, and what it tells, is
// about the term; who holds a lease is told only of that.

// begin puts the term in the care of the client. There is a lease under it already.
func (a *acquisition) begin(trust keepalive.Trust) error {
	a.entry.Owner, a.entry.Fixed = a, a.cfg.fixed
	a.c.keeper.Add(&a.entry, a.driverLease(), trust)
	a.c.mu.Lock()
	closed := a.c.closed
	if !closed {
		a.c.terms = append(a.c.terms, a)
		a.place = int32(len(a.c.terms))
		if a.at != nil {
			a.at.users++
		}
	}
	a.c.mu.Unlock()
	if closed {
		a.c.keeper.Remove(&a.entry)
		return ErrClosed
	}
	if a.fate.Load() != nil { // lost before Close could have known of it
		a.abandon()
	}
	return nil
}

// hold makes a lease that is held under the term, or returns the one that is there, if it
// is a plain one and that will do.
func (a *acquisition) hold(ctx context.Context, op *AcquireOp, plain bool) *Lease {
	before := a.lease()
	if before != nil && before.ended() == nil {
		if plain {
			return before
		}
		a.dismiss(ErrNotHeld)
	}
	l := &a.initial
	if before != nil {
		l = new(Lease)
	}
	*l = Lease{a: a, fence: a.turn.fence(), plain: plain}
	l.live(ctx, op)
	a.mu.Lock()
	a.leases = append(a.room[:0], l)
	a.mu.Unlock()
	if before != nil && l.carrier() != "" {
		a.c.keeper.Announce(&a.entry)
	}
	switch cause := a.fate.Load(); { // as it was before the lease was there to hear it
	case cause != nil:
		l.lose(*cause)
	case a.ceased.Load():
		a.dismiss(ErrClosed)
	}
	return l
}

// Subject implements [keepalive.Owner].
func (a *acquisition) Subject() (driver.Kind, string) { return a.req.Kind, a.req.Name }

// Lost implements [keepalive.Owner]: it ends a term that the store does not keep for us any
// more, or may not, and the lease that is held under it. It must not block: it is called
// with locks of the driver held, and on the timer goroutine.
func (a *acquisition) Lost(cause error) {
	a.fate.CompareAndSwap(nil, &cause)
	// Also if somebody else was first: they may not have come to this, and who calls us must
	// find the lease lost.
	if a.at != nil && a.at.line.Over(a, true) {
		a.dismiss(ErrNotHeld) // nobody holds it, so nobody loses it
	} else if l := a.lease(); l != nil {
		l.lose(*a.fate.Load())
	}
	a.abandon()
}

// abandon ends the care for a term that is lost.
func (a *acquisition) abandon() {
	if a.cease() && a.c.begin() {
		go a.tidy()
	}
}

// tidy lets the driver forget a lost term that nobody may ever release. There is no
// hurry: who works under the lease has just been told to stop, and as long as the store
// keeps it nobody else begins.
func (a *acquisition) tidy() {
	defer a.c.wg.Done()
	select {
	case <-a.c.closing.Done():
	case <-time.After(releaseWait):
	}
	s := a.settlement(a.lease().values)
	_, _ = s.try()
}

// cease ends the care for the term, and reports whether there was any. It does not pass
// to anybody any more.
func (a *acquisition) cease() bool {
	a.ceased.Store(true)
	a.c.mu.Lock()
	cared := a.place > 0
	if cared {
		last := len(a.c.terms) - 1
		other := a.c.terms[last]
		a.c.terms[a.place-1], a.c.terms[last] = other, nil
		a.c.terms, other.place, a.place = a.c.terms[:last], a.place, 0
	}
	a.c.mu.Unlock()
	if !cared {
		return false
	}
	a.turn.stop()
	a.c.keeper.Remove(&a.entry)
	if a.at != nil {
		a.at.line.Over(a, false)
		a.c.withdraw(a.at)
	}
	return true
}

// passOn is called when nobody holds a lease under the term any more, by who held the last
// one. It reports whether the term goes on without them.
func (a *acquisition) passOn() bool {
	if a.at == nil {
		return false
	}
	switch a.at.line.Next(a) {
	case cohort.Passed:
		return true
	case cohort.Kept:
		a.turn.linger(a)
		a.provide()
		return true
	}
	return false
}

// idled gives up a term that nobody has wanted for a while.
func (a *acquisition) idled() {
	if a.turn.rested(a.cfg.linger) && a.at.line.Over(a, true) {
		a.giveBack()
	}
}

// giveBack releases a term under which nobody holds a lease, in the background.
func (a *acquisition) giveBack() <-chan error {
	if !a.c.begin() {
		return nil // Close releases it
	}
	return a.close()
}

// close releases the term, as part of an operation, whoever holds it.
func (a *acquisition) close() <-chan error {
	if !a.cease() { // it was lost, or released, meanwhile
		a.c.wg.Done()
		return nil
	}
	a.dismiss(ErrNotHeld)
	return a.settlement(a.lease().values).background()
}

// wanted notes that somebody else waits for the lock.
func (a *acquisition) wanted() {
	a.turn.want()
	if a.at == nil {
		return
	}
	if a.at.line.Over(a, true) {
		a.giveBack()
		return
	}
	a.at.line.Review()
}

// Suits implements [cohort.Term].
func (a *acquisition) Suits(key *config) bool {
	return (key == a.cfg || *key == *a.cfg) && a.mayBeKept() && a.turn.goesOn()
}

// mayBeKept reports whether the term is still what was granted: not lost, not over by the
// clock, and not given up in part.
func (a *acquisition) mayBeKept() bool {
	return a.fate.Load() == nil && !a.lowered.Load() && a.c.keeper.Trust(&a.entry).Left() > 0
}

// Pass implements [cohort.Term].
func (a *acquisition) Pass() {
	if a.turn.pass() {
		a.prolong()
	}
}

// provide asks for another turn if there are no numbers left and somebody here will need one.
func (a *acquisition) provide() {
	if a != nil && a.turn.awaited() {
		a.prolong()
	}
}

// prolong asks for another turn.
func (a *acquisition) prolong() {
	if x, able := driver.As[driver.Extender](a.c.d); able {
		go a.extend(x)
	} else {
		a.turn.extended(driver.Grant{}, errors.ErrUnsupported)
	}
}

// Stays implements [cohort.Term].
func (a *acquisition) Stays() bool { return a.cfg.linger > 0 && a.mayBeKept() && a.turn.stays() }

// Ends implements [cohort.Term].
func (a *acquisition) Ends() time.Time { return a.turn.end() }

// extend asks the store whether anybody else waits, and if not, for more fences and another
// turn.
func (a *acquisition) extend(x driver.Extender) {
	if !a.c.begin() {
		return
	}
	defer a.c.wg.Done()
	ctx, cancel := context.WithTimeout(a.c.life, a.cfg.ttl)
	defer cancel()
	sent := time.Now()
	g, err := x.Extend(ctx, a.driverLease(), maxAhead)
	switch {
	case err == nil:
		a.c.answer()
		a.c.keeper.Renewed(&a.entry, sent)
	case errors.Is(err, driver.ErrNotHeld):
		a.Lost(err)
	}
	a.turn.extended(g, err)
	if a.at != nil {
		a.at.line.Review()
	}
}
