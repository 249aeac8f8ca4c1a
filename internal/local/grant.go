package local

import (
	"cmp"
	"context"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/keepalive"
	"github.com/holdfast-go/holdfast/internal/token"
)

// state is the state of a grant.
//
//	          granted                 last hold ends, kept         released
//	pending -----------> held <------------------------> idle ------------> released
//	  |                   | \        used again            |
//	  | taken away        |  \  last hold ends, not kept   |
//	  | by force          |   \-----------------------> released
//	  v                   v
//	 lost <-------------- + <----- idle
//	            taken away, or over by the clock
//
// A grant is idle while it lingers: it is kept although nobody holds it. Nothing leads out of
// released and lost.
type state uint8

const (
	pending  state = iota // the store has not granted it yet, or nobody has taken it
	held                  // a hold counts on it, or it is on its way from hand to hand
	idle                  // nobody holds it
	released              // the store is told, or another token has taken it over
	lost                  // the store no longer keeps it for us, or may no longer keep it
)

// Grant is what the store has granted, or is asked for. The store knows it by one token. In
// this process one hold after the other may count on it, or several that are nested. All
// that the store is told, and all that it tells, is about the grant.
type Grant struct {
	token  token.Token
	lock   *Lock
	lane   *lane // of those that it may pass to; nil for none
	opts   *Options
	entry  keepalive.Entry
	weight int64       // of what is asked for, or was granted
	shared bool        // the same
	waived atomic.Bool // Options.MinHold does not apply: no caller got the lease

	// The rest is guarded by Lock.mu.
	state   state
	lowered bool    // a writer goes on as a reader
	reason  *reason // of its loss; nil before
	turn    turn
	notes   *notes   // nil before the first
	holds   []*Hold  // those that count on it, or else the one that did last
	room    [1]*Hold // for most
	first   Hold     // the only one, mostly
}

// init makes the token of a grant, with which the store has not been asked yet. It returns why the caller
// has to wait, as far as that is known.
func (g *Grant) init(w *Want) (why error) {
	l := g.lock
	want := token.Want{
		ID: &l.id, From: w.From, Steal: w.Steal, Log: g.opts,
		Request: driver.Request{
			Shared: w.Shared, Wait: w.Wait, Weight: w.Weight, Limit: w.Limit, MaxWaiters: w.MaxWaiters, TTL: g.opts.TTL,
			Holder: l.holder(g.opts), Place: w.place,
		},
	}
	why = w.unconfirmed
	if g.lane != nil && !w.Shared {
		held, more := l.besides()
		why = cmp.Or(why, held)
		g.turn.noticed = g.opts.Linger > 0 || more && l.r.told.Load()
		want.Request.Notice, want.Request.Fences = g.turn.noticed, maxFences
	}
	g.shared, g.weight = w.Shared, w.Weight
	g.token.Init(l.r.Session, &want, g)
	return why
}

// anew returns a grant in place of one whose token is of no use any more.
func (g *Grant) anew() *Grant {
	next := &Grant{lock: g.lock, lane: g.lane, opts: g.opts}
	if ln := g.lane; ln != nil {
		g.lock.mu.Lock()
		defer g.lock.mu.Unlock()
		ln.atStore = next
	}
	return next
}

// besides returns what is in the way of one who asks the store although this process holds the lock, until
// the store has answered, nil if it does not hold it. more reports whether others here wait for the grant.
func (l *Lock) besides() (held error, more bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	ln := &l.writers
	if ln.grant != nil && ln.grant.intact() {
		held = l.busy(ln)
	}
	return held, ln.waiting.first != nil
}

// arrive notes that the goroutine at the store has come back with the grant. The caller holds Lock.mu.
func (g *Grant) arrive() {
	ln := g.lane
	if ln == nil || ln.atStore != g {
		return // it has ended since
	}
	ln.drop()
	ln.atStore, ln.before = nil, nil
	if g.state == held {
		ln.grant = g
	}
	g.lock.next(ln)
}

// adopt makes a hold the one that counts on a grant of the store. The caller holds Lock.mu.
func (g *Grant) adopt(h *Hold, trust keepalive.Trust) {
	g.holds = append(g.room[:0], h)
	if g.state == lost { // before anybody had it
		g.endHolds(g.reason.end)
		g.tellLoss(h)
		return
	}
	g.state = held
	g.lock.refs.Add(1)
	g.entry.Owner, g.entry.Fixed = g, g.opts.Fixed
	g.lock.r.Keeper.Add(&g.entry, g.token.Lease(h.tag()), trust)
}

// finish ends a grant that is held or idle, and reports whether it did. A caller that gets
// true tells the store. The caller holds Lock.mu.
func (g *Grant) finish(to state) bool {
	if g.state != held && g.state != idle {
		return false
	}
	g.state = to
	g.turn.stop()
	l := g.lock
	l.r.Keeper.Remove(&g.entry)
	if ln := g.lane; ln != nil && ln.atStore == g {
		ln.atStore = nil
		l.next(ln)
	} else if ln != nil && ln.grant == g {
		ln.drop()
		l.next(ln)
	}
	l.refs.Add(-1)
	return true
}

// endHolds ends all holds, and reports whether there were any. The caller holds Lock.mu.
func (g *Grant) endHolds(end error) (held bool) {
	for _, h := range g.holds {
		if h.end == nil {
			h.end = end
			h.endContext(causeOf(end))
			held = true
		}
	}
	return held
}

// Lost implements [keepalive.Owner] and [token.Listener]. It ends a grant that the store no
// longer keeps for us, or may no longer keep, and all holds on it. It must not block: it is
// called with locks of the driver held, and on the goroutines of the Keeper.
func (g *Grant) Lost(cause error) { g.lose(cause, nil) }

// lose is Lost, unless a hold has ended on which the loss depends.
func (g *Grant) lose(cause error, on *Hold) {
	l, why := g.lock, g.reasonOf(cause)
	l.mu.Lock()
	if g.state == released || g.state == lost || on != nil && on.end != nil {
		l.mu.Unlock()
		return
	}
	g.reason = why
	switch {
	case g.state == pending:
		g.state = lost // firstHold finds it so
	case g.state == idle:
		g.endHolds(ErrNotHeld) // nobody holds it, so nobody loses it
	case g.endHolds(why.end):
		g.tellLoss(g.oldest())
	}
	values := g.values()
	ours := g.finish(lost)
	l.mu.Unlock()
	if ours && l.r.Session.Begin() {
		g.forget(values)
	}
}

// lostEnding is how a grant ends that was lost. Only one that was held for too long is still kept by
// the store, for as long as by the clock.
func (g *Grant) lostEnding(tag string) token.Ending {
	g.lock.mu.Lock()
	kept := g.reason != nil && g.reason.cause == ErrHeldTooLong
	g.lock.mu.Unlock()
	return token.Ending{Tag: tag, Lost: !kept || !g.trusted()}
}

// FoundGone implements [token.LastHolder]. The last hold has ended by its release, so only the log tells.
func (g *Grant) FoundGone() bool {
	if !g.trusted() {
		return false
	}
	why := g.reasonOf(driver.ErrNotHeld)
	g.lock.mu.Lock()
	defer g.lock.mu.Unlock()
	g.reason = why
	g.tellLoss(g.oldest())
	return true
}

// trusted reports whether the lease would still be held by the clock.
func (g *Grant) trusted() bool { return g.trust().Left() > 0 }

func (g *Grant) trust() keepalive.Trust { return g.entry.Trust() }

// Subject implements [keepalive.Owner].
func (g *Grant) Subject() (driver.Kind, string) { return g.lock.id.Kind, g.lock.id.Name }

// Renewed notes that the lease was renewed by a request sent at that moment.
func (g *Grant) Renewed(sent time.Time) { g.lock.r.Keeper.Renewed(&g.entry, sent) }

// Oldest returns the oldest hold, or the last one that ended. It returns nil if nothing was
// granted yet.
func (g *Grant) Oldest() *Hold {
	g.lock.mu.Lock()
	defer g.lock.mu.Unlock()
	return g.oldest()
}

func (g *Grant) oldest() *Hold {
	if len(g.holds) == 0 {
		return nil
	}
	return g.holds[0]
}

// Leased returns the grant as the store is told of it in a renewal.
func (g *Grant) Leased() driver.Lease { return g.token.Lease(g.tag()) }

func (g *Grant) tag() (said string) {
	g.lock.mu.Lock()
	defer g.lock.mu.Unlock()
	if h := g.oldest(); h != nil {
		said = h.tag()
	}
	return g.withNotes(said)
}

// values returns a context with the values of the oldest hold's context, for commands. The
// caller holds Lock.mu.
func (g *Grant) values() context.Context {
	if h := g.oldest(); h != nil {
		return h.values
	}
	return context.Background()
}

// giveBack releases a grant in the background. With nil it does so only if nobody holds the grant, else
// all holds end so, also while Close waits. It returns nil if this goroutine did not release it.
func (g *Grant) giveBack(end error) <-chan error {
	s := g.lock.r.Session
	if end != nil {
		s.BeginWithin()
	} else if !s.Begin() {
		return nil // Close releases it
	}
	g.lock.mu.Lock()
	unused := g.state == idle
	ours := (unused || end != nil) && g.finish(released)
	if ours && !unused {
		g.endHolds(end)
	}
	g.lock.mu.Unlock()
	if !ours {
		s.Done()
		return nil
	}
	return g.tellStore(unused)
}

// tellStore releases a grant that was finished in this process, in the background. That ends the caller's
// operation. The next holder gets the tag of the last one. If nobody held it, it is
// nobody's loss if it was taken away.
func (g *Grant) tellStore(unused bool) <-chan error {
	ctx, tag := context.Background(), ""
	if h := g.Oldest(); h != nil {
		ctx, tag = h.values, h.tag()
	}
	e := g.ending(tag)
	if unused {
		e.Last = nil
	}
	r, _ := g.token.Release(ctx, e, false)
	return r.Told()
}

// Wanted implements [token.Listener].
func (g *Grant) Wanted() {
	g.lock.mu.Lock()
	g.want()
	g.turn.wanted = true
	unused := g.state == idle
	if ln := g.lane; !unused && ln != nil && ln.grant == g {
		g.lock.next(ln)
	}
	g.lock.mu.Unlock()
	if unused {
		g.giveBack(nil)
	}
}

// Busy implements [token.Listener]. Somebody is before us, so a reader that comes from now
// on comes after us, and must not join a lane that is open. A lane of readers that waits
// itself stays open.
func (g *Grant) Busy() {
	if g.lock.id.Kind != driver.RWMutex || g.shared && g.lane != nil {
		return
	}
	if base := g.lock.r.inUse(ID{Kind: g.lock.id.Kind, Name: g.lock.id.Name}); base != nil {
		base.mu.Lock()
		base.readers = nil
		base.mu.Unlock()
		base.unref()
	}
}
