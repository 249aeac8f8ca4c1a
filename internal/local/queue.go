package local

import (
	"context"
	"time"
)

// waiter is a goroutine that wants the lock exclusively, in the queue of its process.
type waiter struct {
	opts      *Options
	anonymous bool
	news      chan news // has room for one; a waiter is told one thing

	queued     bool
	prev, next *waiter // in the queue
}

// queue is waiters, first in, first out. Any of them can leave at once, however many there are.
type queue struct{ first, last *waiter }

func (q *queue) push(w *waiter) {
	w.queued, w.prev, w.next = true, q.last, nil
	if q.last != nil {
		q.last.next = w
	} else {
		q.first = w
	}
	q.last = w
}

// remove takes a waiter out, and reports whether it was in.
func (q *queue) remove(w *waiter) bool {
	if !w.queued {
		return false
	}
	if w.prev != nil {
		w.prev.next = w.next
	} else {
		q.first = w.next
	}
	if w.next != nil {
		w.next.prev = w.prev
	} else {
		q.last = w.prev
	}
	w.queued, w.prev, w.next = false, nil, nil
	return true
}

// pop takes the first one out.
func (q *queue) pop() *waiter {
	w := q.first
	q.remove(w)
	return w
}

// news is what a waiter is told, once.
type news struct {
	// yours says that the grant is the waiter's. Otherwise the waiter has to go to the store
	// with it. Perhaps another waiter has asked for it, and left.
	yours bool
	grant *Grant
}

// mayPass reports whether the present grant may pass to a waiter. It must have been asked
// for with equal options, still be trusted, and its turn must not be over. The caller holds
// mu.
func (l *Lock) mayPass(o *Options, anonymous bool) bool {
	g := l.grant
	return g.opts.compatible(o) && g.intact() && g.enough(anonymous) && g.turn.goesOn(g.opts.TTL)
}

// intact reports whether a grant is still what was granted: not lost, not over by the
// clock, and not given up in part. The caller holds Lock.mu.
func (g *Grant) intact() bool {
	return (g.state == held || g.state == idle) && !g.lowered && g.trust().Left() > 0
}

// enough reports whether there is a fence for another hold. An anonymous one goes on with that of
// the anonymous one before. The caller holds Lock.mu.
func (g *Grant) enough(anonymous bool) bool {
	h := g.oldest()
	return g.turn.left > 0 || anonymous && h != nil && h.anonymous && h.end == nil
}

// handOn hands a grant on that nobody holds any more, and reports whether it goes on. If
// not, the caller tells the store. The caller holds mu.
func (l *Lock) handOn(g *Grant) bool {
	if l.passOn(g) {
		return true
	}
	g.finish(released)
	return false
}

// passOn hands a grant on whose last hold is ending, or keeps it for a while, and reports whether
// it did. The caller holds mu.
func (l *Lock) passOn(g *Grant) bool {
	// It does not pass, or is over already; or a waiter at the store has waited for longer.
	if l.grant != g || l.atStore != nil {
		return false
	}
	first := l.waiting.first
	switch {
	case first != nil && l.mayPass(first.opts, first.anonymous):
		l.pass()
		return true
	case first == nil && g.opts.Linger > 0 && g.turn.alone() && g.intact() && g.enough(true):
		g.state = idle
		g.turn.linger(g)
		return true
	}
	return false
}

// pass gives the grant to the first in the queue. The caller holds mu.
func (l *Lock) pass() {
	w := l.waiting.pop()
	next := l.waiting.first != nil && !l.waiting.first.opts.compatible(w.opts)
	l.grant.state = held
	l.grant.countPass()
	w.news <- news{yours: true, grant: l.grant} // from here on w is for its goroutine to use
	if next {
		l.advance()
	}
}

// countPass counts another hold of the turn. The caller holds Lock.mu.
func (g *Grant) countPass() {
	if g.turn.count() {
		g.ask()
	}
}

// lingered releases a grant that nobody has wanted for a while.
func (g *Grant) lingered() {
	g.lock.mu.Lock()
	over := g.turn.lingering != nil && g.turn.lingered(g.opts.Linger) && g.state == idle
	g.lock.mu.Unlock()
	if over {
		g.releaseIdle()
	}
}

// advance sends the first in the queue to the store if the present grant cannot pass to it.
// Its place in the store's queue should be as early as possible. The caller holds mu.
func (l *Lock) advance() {
	first := l.waiting.first
	if l.atStore != nil || first == nil {
		return
	}
	if l.grant == nil || !l.mayPass(first.opts, first.anonymous) {
		l.sendFirst(nil)
		return
	}
	if ends := l.grant.turn.until(l.grant.opts.TTL); l.alarm == nil && !ends.IsZero() {
		l.watch(l.grant, ends)
	}
}

// watch has advance called when the turn of the grant is over, since a hold may last long.
// The caller holds mu.
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

// sendFirst sends the first in the queue to the store, with g or, if that is nil, with a new grant.
// The caller holds mu.
func (l *Lock) sendFirst(g *Grant) {
	w := l.waiting.pop()
	if g == nil {
		g = &Grant{lock: l, opts: w.opts, passable: true}
	}
	l.atStore = g
	w.news <- news{grant: g}
}

// drop ends the passing of the present grant. The caller holds mu.
func (l *Lock) drop() {
	l.grant = nil
	if l.alarm != nil {
		l.alarm.Stop()
		l.alarm = nil
	}
}

// dequeue takes out a waiter that gives up. If it is too late, dequeue returns the news
// that the waiter was told, and the waiter must deal with it.
func (l *Lock) dequeue(w *waiter) (n news, told bool) {
	l.mu.Lock()
	if l.waiting.remove(w) {
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
	case n.yours:
		l.mu.Lock()
		on := n.grant.state != held || l.handOn(n.grant)
		l.mu.Unlock()
		if !on {
			l.r.Session.Grow()
			n.grant.tellStore(true)
		}
	case n.grant.token.Begun():
		l.abandon(ctx, n.grant)
	default:
		l.failed()
	}
}

// abandon leaves a grant that was asked for to the next in the queue. If there is none, it
// withdraws the grant. It is called within an operation.
func (l *Lock) abandon(ctx context.Context, g *Grant) {
	l.mu.Lock()
	first := l.waiting.first
	inherited := first != nil && l.atStore != nil && first.opts.compatible(l.atStore.opts)
	if inherited {
		l.sendFirst(g)
	}
	l.mu.Unlock()
	if !inherited {
		g.token.Withdraw(ctx)
		l.failed()
	}
}

// failed notes that the waiter at the store has given up.
func (l *Lock) failed() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.atStore = nil
	l.advance()
}
