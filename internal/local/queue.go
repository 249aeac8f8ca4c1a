package local

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// waiter is a goroutine that wants the lock for itself alone, in the queue of its process.
type waiter struct {
	opts      *Options
	anonymous bool
	news      chan news // has room for one; a waiter is told one thing
}

// news is what a waiter is told, once.
type news struct {
	// take says that the grant is the waiter's. Else it has to go to the store, with the
	// grant that another one has asked for and not waited for, or with a new one if it is nil.
	take  bool
	grant *Grant
}

// suits reports whether a waiter may have the present grant after somebody else: it was asked
// for alike, it is still to be trusted, and its turn is not over. The caller holds mu.
func (l *Lock) suits(o *Options) bool {
	g := l.grant
	return g.opts.compatible(o) && g.keeps() && g.turn.goesOn(g.TTL)
}

// keeps reports whether a grant is still what was granted: not lost, not over by the clock, and
// not given up in part. The caller holds Lock.mu.
func (g *Grant) keeps() bool {
	return (g.state == held || g.state == idle) && !g.lowered && g.trust().Left() > 0
}

// enough reports whether there is a number for the hold of a waiter. One that nobody sees goes
// on with the number that is there. The caller holds Lock.mu.
func (g *Grant) enough(anonymous bool) bool {
	h := g.oldest()
	return anonymous && h != nil && h.anonymous && h.end == nil || g.turn.numbered()
}

// handOn says what follows when nobody holds the grant any more, and reports whether it goes
// on. If not, whoever asked tells the store. The caller holds mu.
func (l *Lock) handOn(g *Grant) bool {
	if l.grant != g { // it does not pass, or is over already
		g.finish(released)
		return false
	}
	// Whoever is at the store has been longer in the queue than those who are not.
	if l.asking == nil && len(l.waiting) > 0 && l.suits(l.waiting[0].opts) {
		if g.enough(l.waiting[0].anonymous) {
			l.pass()
			return true
		}
		if g.turn.extending {
			g.state = idle // until the store has said whether there are more numbers
			return true
		}
	}
	if l.asking == nil && len(l.waiting) == 0 && g.opts.Linger > 0 && g.keeps() {
		if g.turn.extend(!g.turn.numbered()) {
			g.extend() // whoever comes next will need a number
		}
		if g.turn.stays() {
			g.state = idle
			g.turn.linger(g)
			return true
		}
	}
	g.finish(released)
	return false
}

// pass makes the first in the queue the one that has the grant. The caller holds mu.
func (l *Lock) pass() {
	w := l.pop()
	next := len(l.waiting) > 0 && !l.waiting[0].opts.compatible(w.opts)
	l.grant.state = held
	l.grant.passed()
	w.news <- news{take: true, grant: l.grant} // from here on w is for its goroutine to use
	if next {
		l.advance()
	}
}

// passed notes another hold. The caller holds Lock.mu.
func (g *Grant) passed() {
	if g.turn.pass() {
		g.extend()
	}
}

// rested gives up a grant that nobody has wanted for a while.
func (g *Grant) rested() {
	g.lock.mu.Lock()
	over := g.turn.lingering != nil && g.turn.rested(g.opts.Linger) && g.state == idle
	g.lock.mu.Unlock()
	if over {
		g.giveUp()
	}
}

// advance sends the first in the queue to the store, if it cannot have the present grant later:
// then its place in the store's queue should be as early as can be. The caller holds mu.
func (l *Lock) advance() {
	if l.asking != nil || len(l.waiting) == 0 {
		return
	}
	if l.grant == nil || !l.suits(l.waiting[0].opts) {
		l.send(nil)
		return
	}
	if !l.grant.enough(l.waiting[0].anonymous) && l.grant.turn.extend(true) {
		l.grant.extend()
	}
	if ends := l.grant.turn.end(); l.alarm == nil && !ends.IsZero() {
		l.watch(l.grant, ends)
	}
}

// watch has advance called when the turn of the grant is over, since its holder may hold it
// for long. The caller holds mu.
func (l *Lock) watch(g *Grant, ends time.Time) {
	l.alarm = time.AfterFunc(time.Until(ends), func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.grant == g {
			l.alarm = nil
			l.advance()
		}
	})
}

// send makes the first in the queue the one that is at the store. The caller holds mu.
func (l *Lock) send(g *Grant) {
	w := l.pop()
	l.asking = w.opts
	w.news <- news{grant: g}
}

func (l *Lock) pop() *waiter {
	w := l.waiting[0]
	l.waiting[0] = nil
	l.waiting = l.waiting[1:]
	return w
}

// drop takes the present grant out of the queue's hands. The caller holds mu.
func (l *Lock) drop() {
	l.grant = nil
	if l.alarm != nil {
		l.alarm.Stop()
		l.alarm = nil
	}
}

// leave takes out a waiter that gives up. If it is too late for that, the news that it was told
// is returned, and the waiter must deal with it.
func (l *Lock) leave(w *waiter) (n news, told bool) {
	l.mu.Lock()
	if i := slices.Index(l.waiting, w); i >= 0 {
		l.waiting = slices.Delete(l.waiting, i, i+1)
		l.advance()
		l.mu.Unlock()
		return n, false
	}
	l.mu.Unlock()
	return <-w.news, true
}

// reject deals with news that came too late for a waiter.
func (l *Lock) reject(ctx context.Context, n news) {
	switch {
	case n.take:
		l.mu.Lock()
		on := n.grant.state != held || l.handOn(n.grant)
		l.mu.Unlock()
		if !on {
			l.r.Session.Grow()
			n.grant.tellStore()
		}
	case n.grant == nil:
		l.failed()
	default:
		l.abandon(ctx, n.grant)
	}
}

// abandon leaves a grant that was asked for to the next in the queue, which goes on with it, or
// withdraws it. It is called within an operation.
func (l *Lock) abandon(ctx context.Context, g *Grant) {
	g.Hurry() // perhaps the ask under way ends with our context
	l.mu.Lock()
	inherited := len(l.waiting) > 0 && l.asking != nil && l.waiting[0].opts.compatible(l.asking)
	if inherited {
		l.send(g)
	}
	l.mu.Unlock()
	if !inherited {
		g.Withdraw(ctx)
		l.failed()
	}
}

// failed notes that the one that was at the store has given up.
func (l *Lock) failed() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asking, l.ahead = nil, nil
	l.advance()
}

// extend asks the store, on another goroutine, whether anybody else waits, and if not, for
// another turn with more fences. The caller holds Lock.mu.
func (g *Grant) extend() {
	x, able := driver.As[driver.Extender](g.lock.r.Session.Driver)
	if !able || !g.lock.r.Session.Begin() {
		g.turn.extended(g.TTL, driver.Grant{}, errors.ErrUnsupported)
		return
	}
	go g.prolong(x)
}

func (g *Grant) prolong(x driver.Extender) {
	s := g.lock.r.Session
	defer s.Done()
	ctx, cancel := context.WithTimeout(s.Life(), g.TTL)
	defer cancel()
	sent := time.Now()
	granted, err := x.Extend(ctx, g.Leased(), maxAhead)
	switch {
	case err == nil:
		s.Answered()
		g.lock.r.Keeper.Renewed(&g.entry, sent)
	case errors.Is(err, driver.ErrNotHeld):
		g.Lost(err)
	}
	l := g.lock
	l.mu.Lock()
	g.turn.extended(g.TTL, granted, err)
	over := false
	if l.grant == g {
		if g.state == idle && (len(l.waiting) > 0 || g.turn.lingering == nil) {
			over = !l.handOn(g) // it was for this that it was kept
		} else {
			l.advance()
		}
	}
	l.mu.Unlock()
	if over {
		s.Grow()
		g.tellStore()
	}
}
