package local

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/internal/token"
)

// lane is the goroutines of this process that can hold a lock by one grant: all that want it
// exclusively, one after the other, or some readers together. Only one of them is at the store.
//
// Readers that show their lease to nobody need not have one each. That is safe because to the
// store they are one reader. No writer gets in before the lease is released or over. The last
// of them to leave releases it. All of them see its end by the same deadline as one reader alone
// would. Readers that join do not make it last longer.
//
// It is fair because a lane of readers does not stay open. A reader that joins a hold that is there
// goes ahead of the writers that wait in the store's queue. So the grant has a turn, like one
// that passes from hand to hand: maxPasses joins or a part of the TTL, and more only as long as
// nobody waits elsewhere. A reader that comes later asks the store, and queues there behind the
// writer, which has the lock when the readers have left. When the store makes another caller of
// this client wait, later readers must queue after that caller: they begin another lane.
type lane struct {
	waiting queue
	atStore *Grant          // for which one of them asks the store, or is about to; nil if none does
	before  *token.Obstacle // what the last one met there, until this one has asked; nil if that is not known
	grant   *Grant          // the present one, held or idle, for those that come; nil for none
	alarm   *time.Timer     // at the end of its turn; nil if nobody waits for that
}

// waiter is a goroutine that wants the lock, in a lane of its process.
type waiter struct {
	opts      *Options
	anonymous bool
	news      chan news // has room for one; a waiter is told one thing

	lane       *lane // that it waits in
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

// enqueue brings in a goroutine. Either there is news at once, or me waits.
func (l *Lock) enqueue(wait context.Context, w *Want, me *waiter) (n news, waits bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if w.Shared {
		n, waits = l.enqueueReader(w, me)
		return n, waits, nil
	}
	ln := &l.writers
	if g := ln.grant; g != nil && g.state == idle && ln.waiting.first == nil {
		if l.mayServe(ln, me) {
			l.serve(g)
			return news{yours: true, grant: g}, false, nil
		}
		l.mu.Unlock()
		g.evict(wait, w)
		l.mu.Lock()
	}
	if ln.atStore == nil && ln.grant == nil && ln.waiting.first == nil {
		return news{grant: l.newGrant(ln, w.Options)}, false, nil
	}
	if w.Report != nil {
		w.Report.Contended = true
		l.blame(ln, w.Report)
	}
	if !w.Wait {
		return news{}, false, l.busy(ln)
	}
	me.lane = ln
	ln.waiting.push(me)
	if ln.grant != nil {
		ln.grant.want()
	}
	if ln.waiting.first == me || ln.grant == nil || !ln.grant.turn.alone() { // else nothing is new for the first
		l.next(ln)
	}
	return news{}, true, nil
}

// enqueueReader is enqueue for a reader: it joins others, or begins a lane. The caller holds mu.
func (l *Lock) enqueueReader(w *Want, me *waiter) (n news, waits bool) {
	ln := l.readers
	asks := ln != nil && ln.atStore != nil
	switch {
	case ln != nil && l.mayServe(ln, me):
		l.serve(ln.grant)
		return news{yours: true, grant: ln.grant}, false
	case asks && !w.Wait:
		return news{grant: &Grant{lock: l, opts: w.Options}}, false
	case asks && ln.atStore.opts.compatible(w.Options):
		me.lane = ln
		ln.waiting.push(me)
		return news{}, true
	}
	l.readers = &lane{}
	return news{grant: l.newGrant(l.readers, w.Options)}, false
}

// newGrant returns a grant with which a goroutine of the lane goes to the store. The caller holds mu.
func (l *Lock) newGrant(ln *lane, o *Options) *Grant {
	ln.atStore = &Grant{lock: l, lane: ln, opts: o}
	return ln.atStore
}

// next is what decides how a lane goes on. Its first goroutine goes to the store, unless another is there, as
// early as it can be foreseen that the present grant will not do: it should have its place in the store's
// queue by then. The caller holds mu.
func (l *Lock) next(ln *lane) {
	for ln.atStore == nil && ln.waiting.first != nil {
		switch {
		case !l.mayServe(ln, ln.waiting.first):
			l.send(ln, nil)
		case ln.grant.shared:
			l.serve(ln.grant)
			ln.tellFirst(news{yours: true, grant: ln.grant})
		default: // when its holder is done, see passOn
			if ends := ln.grant.turn.until(ln.grant.opts.TTL); ln.alarm == nil && !ends.IsZero() {
				l.watch(ln, ends)
			}
			return
		}
	}
}

// mayServe reports whether the present grant may pass to a waiter, or be shared with it. It must
// have been asked for with equal options, still be trusted, and its turn must not be over. The caller
// holds mu.
func (l *Lock) mayServe(ln *lane, me *waiter) bool {
	g := ln.grant
	return g != nil && g.opts.compatible(me.opts) && g.intact() && g.enough(me.anonymous) && g.turn.goesOn(g.opts.TTL) &&
		(!g.shared || l.sync.index(g) >= 0)
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

// serve counts another hold of the grant's turn. A reader is in with that. The caller holds mu.
func (l *Lock) serve(g *Grant) {
	g.state = held
	if g.turn.count() {
		g.askIfWanted()
	}
	if g.shared {
		l.sync.share(g)
	}
}

// tellFirst takes the first waiter out, which is for its goroutine to use from here on.
func (ln *lane) tellFirst(n news) { ln.waiting.pop().news <- n }

// passOn hands a grant on whose last hold is ending, or keeps it for a while, and reports whether
// it did. The caller holds mu.
func (l *Lock) passOn(g *Grant) bool {
	ln := g.lane
	// It does not pass, or is over already; or a waiter at the store has waited for longer.
	if ln == nil || g.shared || ln.grant != g || ln.atStore != nil {
		return false
	}
	first := ln.waiting.first
	switch {
	case first != nil && l.mayServe(ln, first):
		l.serve(g)
		ln.tellFirst(news{yours: true, grant: g})
		if first = ln.waiting.first; first != nil && !first.opts.compatible(g.opts) {
			l.next(ln)
		}
		return true
	case first == nil && g.opts.Linger > 0 && g.turn.alone() && g.intact() && g.enough(true):
		g.state = idle
		g.turn.linger(g)
		return true
	}
	return false
}

// passOrFinish is passOn, or else ends the grant in this process: if it reports false the caller tells
// the store. The caller holds mu.
func (l *Lock) passOrFinish(g *Grant) bool {
	if l.passOn(g) {
		return true
	}
	g.finish(released)
	return false
}

// lingered releases a grant that nobody has wanted for a while.
func (g *Grant) lingered() {
	g.lock.mu.Lock()
	over := g.turn.lingering != nil && g.turn.lingered(g.opts.Linger) && g.state == idle
	g.lock.mu.Unlock()
	if over {
		g.giveBack(nil)
	}
}

// watch has next called when the turn of the present grant is over, since a hold may last long.
// The caller holds mu.
func (l *Lock) watch(ln *lane, ends time.Time) {
	g := ln.grant
	ln.alarm = time.AfterFunc(time.Until(ends), func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if ln.grant == g {
			ln.alarm = nil
			l.next(ln)
		}
	})
}

// send sends the first in a lane to the store, with g or, if that is nil, with a new grant. The caller
// holds mu.
func (l *Lock) send(ln *lane, g *Grant) {
	if g == nil {
		g = l.newGrant(ln, ln.waiting.first.opts)
	}
	ln.tellFirst(news{grant: g})
}

// drop ends the passing of the present grant. The caller holds mu.
func (ln *lane) drop() {
	ln.grant = nil
	if ln.alarm != nil {
		ln.alarm.Stop()
		ln.alarm = nil
	}
}

// dequeue takes out a waiter that gives up. If it is too late, dequeue returns the news
// that the waiter was told, and the waiter must deal with it.
func (l *Lock) dequeue(me *waiter) (n news, told bool) {
	l.mu.Lock()
	if me.lane.waiting.remove(me) {
		l.next(me.lane)
		l.mu.Unlock()
		return n, false
	}
	l.mu.Unlock()
	return <-me.news, true
}

// reject deals with news that came too late for a waiter.
func (l *Lock) reject(ctx context.Context, n news) {
	switch {
	case n.yours:
		l.mu.Lock()
		on := n.grant.state != held || l.passOrFinish(n.grant)
		l.mu.Unlock()
		if !on {
			l.r.Session.BeginWithin()
			n.grant.tellStore(true)
		}
	case n.grant.token.Begun():
		l.abandon(ctx, n.grant)
	default:
		l.failed(n.grant)
	}
}

// abandon leaves a grant that was asked for to the next in the lane. If there is none, it
// withdraws the grant. The caller needs an operation that goes on.
func (l *Lock) abandon(ctx context.Context, g *Grant) {
	l.mu.Lock()
	first := g.lane.waiting.first
	inherited := first != nil && g.lane.atStore == g && first.opts.compatible(g.opts)
	if inherited {
		l.send(g.lane, g)
	}
	l.mu.Unlock()
	if !inherited {
		g.token.Withdraw(ctx)
		l.failed(g)
	}
}

// withdraw gives up a grant that was asked for. If it was ours, the caller waits for that: a program may end,
// or try again, as soon as it is told.
func (l *Lock) withdraw(ctx, wait context.Context, g *Grant, ours bool) {
	withdrawn := g.token.Withdraw(ctx)
	if ours && wait.Err() == nil && l.r.Session.Open() {
		select {
		case <-withdrawn:
		case <-wait.Done():
		case <-time.After(releaseWait):
		}
	}
	l.failed(g)
}

// failed notes that the goroutine at the store has given up.
func (l *Lock) failed(g *Grant) {
	if ln := g.lane; ln != nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		if ln.atStore == g {
			if met, asked := g.token.Obstacle(); asked && ln.waiting.first != nil {
				ln.before = &met
			}
			ln.atStore = nil
			l.next(ln)
		}
	}
}
