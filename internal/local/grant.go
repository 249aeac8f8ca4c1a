package local

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/claim"
	"github.com/holdfast-go/holdfast/internal/keepalive"
)

// state is what a grant can be.
//
//	          granted                 last hold ends, kept         released
//	asking ------------> held <------------------------> idle ------------> released
//	  |                   | \        taken again           |
//	  | taken away        |  \  last hold ends, not kept   |
//	  | by force          |   \-----------------------> released
//	  v                   v
//	 lost <-------------- + <----- idle
//	            taken away, or over by the clock
//
// A grant is idle while nobody has it and it is kept: because it lingers, or until the store
// has given it more numbers. Nothing leads out of released and lost.
type state uint8

const (
	asking   state = iota // the store has not granted it yet, or nobody has taken it
	held                  // a lease counts on it, or it is on its way from hand to hand
	idle                  // nobody has it
	released              // the store is told, or another token has taken it over
	lost                  // the store does not keep it for us any more, or may not
)

// Why a lease was lost, as far as this process knows.
var (
	ErrExpired   = errors.New("not renewed in time")
	errTakenAway = errors.New("the store does not know it any more")
)

// byClock is an ErrExpired for which a clock is to blame.
type byClock struct{ error }

func (byClock) Is(target error) bool { return target == ErrExpired }

// Grant is what the store has granted, or is asked for: it knows it by one token, and in this
// process one hold after the other may count on it, or several that are nested. What the
// store is told, and what it tells, is about the grant.
type Grant struct {
	claim.Claim
	lock  *Lock
	opts  *Options
	entry keepalive.Entry

	// The rest is guarded by Lock.mu.
	state   state
	passes  bool   // from hand to hand
	lowered bool   // a writer goes on as a reader
	grouped bool   // readers that go in together
	cause   *error // of its loss; points to nil for none in particular
	turn    turn
	holds   []*Hold  // those that count on it, or else the one that did last
	room    [1]*Hold // for most
	first   Hold     // the only one, mostly
}

// newGrant makes one that has still to be asked for.
func (l *Lock) newGrant(w *Want, passes bool) *Grant {
	g := &Grant{lock: l, opts: w.Options, passes: passes, grouped: w.group != nil}
	want := claim.Want{
		ID: &l.id, Shared: w.Shared, Wait: w.Wait, Weight: w.Weight, Limit: w.Limit,
		TTL: w.Options.TTL, From: w.From,
	}
	if g.passes || g.grouped {
		want.Fences = maxPasses
	}
	want.Notice = g.passes && w.Options.Linger > 0
	g.Init(l.r.Session, &want, g)
	g.Because(w.unconfirmed, w.Said)
	return g
}

// take makes a hold the one that counts on a grant of the store. The caller holds Lock.mu.
func (g *Grant) take(h *Hold, trust keepalive.Trust) {
	g.holds = append(g.room[:0], h)
	if g.state == lost { // before anybody had it
		g.dismiss(g.loss())
		go g.opts.Log().Warn("holdfast: lock lost",
			"kind", string(g.ID.Kind), "lock", g.ID.Name, "fence", h.fence, "cause", g.why())
		return
	}
	g.state = held
	g.turn.notice = g.passes && g.opts.Linger > 0
	g.lock.refs.Add(1)
	g.entry.Owner, g.entry.Fixed = g, g.opts.Fixed
	g.lock.r.Keeper.Add(&g.entry, g.Claim.Lease(h.tag()), trust)
}

// finish ends a grant that is held or idle, and reports whether it did. Whoever it was that did
// tells the store. The caller holds Lock.mu.
func (g *Grant) finish(to state) bool {
	if g.state != held && g.state != idle {
		if to == lost && g.state == asking {
			g.state = lost
		}
		return false
	}
	g.state = to
	g.turn.stop()
	l := g.lock
	l.r.Keeper.Remove(&g.entry)
	if l.grant == g {
		l.drop()
		l.advance()
	}
	l.refs.Add(-1)
	return true
}

// dismiss ends all holds. The caller holds Lock.mu.
func (g *Grant) dismiss(end error) (held bool) {
	for _, h := range g.holds {
		if h.end == nil {
			h.end = end
			h.die(causeOf(end))
			held = true
		}
	}
	return held
}

// why says why a grant was lost. The caller holds Lock.mu.
func (g *Grant) why() error {
	var cause error
	if g.cause != nil {
		cause = *g.cause
	}
	switch {
	case errors.Is(cause, driver.ErrNotHeld):
		return errTakenAway
	case errors.Is(cause, keepalive.ErrClock):
		return byClock{cause}
	case cause == nil:
		return ErrExpired
	}
	return fmt.Errorf("%w: %w", ErrExpired, cause)
}

// loss is how a hold ends whose grant is lost. The caller holds Lock.mu.
func (g *Grant) loss() error {
	return g.lock.r.Wrap("hold", g.lock.id, fmt.Errorf("%w: %w", ErrLost, g.why()))
}

// Lost implements [keepalive.Owner] and [claim.Listener]: it ends a grant that the store does
// not keep for us any more, or may not, and what is held under it. It must not block: it is
// called with locks of the driver held, and on the timer goroutine.
func (g *Grant) Lost(cause error) {
	l := g.lock
	l.mu.Lock()
	if g.state == released || g.state == lost {
		l.mu.Unlock()
		return
	}
	g.cause = &cause
	if g.state == idle {
		g.dismiss(ErrNotHeld) // nobody holds it, so nobody loses it
	} else if g.dismiss(g.loss()) {
		go g.opts.Log().Warn("holdfast: lock lost",
			"kind", string(g.ID.Kind), "lock", g.ID.Name, "fence", g.oldest().fence, "cause", g.why())
	}
	values := g.values()
	ours := g.finish(lost)
	l.mu.Unlock()
	if ours && l.r.Session.Begin() {
		go g.forget(values)
	}
}

// forget lets the driver forget a lost token that nobody may ever release. There is no hurry:
// whoever works under the lease has just been told to stop, and as long as the store keeps it
// nobody else begins.
func (g *Grant) forget(values context.Context) {
	select {
	case <-g.lock.r.Session.Closing():
	case <-time.After(releaseWait):
	}
	r := g.Release(values, "", nil)
	r.Forget()
}

// Trusted reports whether the lease would still be held by the clock.
func (g *Grant) Trusted() bool { return g.trust().Left() > 0 }

func (g *Grant) trust() keepalive.Trust { return g.lock.r.Keeper.Trust(&g.entry) }

// Subject implements [keepalive.Owner].
func (g *Grant) Subject() (driver.Kind, string) { return g.ID.Kind, g.ID.Name }

// Renewed notes that the lease was renewed by a request sent at that moment.
func (g *Grant) Renewed(sent time.Time) { g.lock.r.Keeper.Renewed(&g.entry, sent) }

// Oldest returns the oldest hold, or that which was held last; nil if nothing was granted yet.
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

// Leased is what the store is told of when the grant is renewed.
func (g *Grant) Leased() driver.Lease { return g.Claim.Lease(g.tag()) }

func (g *Grant) tag() string {
	if h := g.Oldest(); h != nil {
		return h.tag()
	}
	return ""
}

// values are those of the context of the oldest hold, for commands. The caller holds Lock.mu.
func (g *Grant) values() context.Context {
	if h := g.oldest(); h != nil {
		return h.values
	}
	return context.Background()
}

// giveBack releases a grant in the background, within an operation that has begun, whoever holds
// it. It returns nil if somebody else does that, or it was lost.
func (g *Grant) giveBack(end error) <-chan error {
	g.lock.mu.Lock()
	ours := g.finish(released)
	if ours {
		g.dismiss(end)
	}
	g.lock.mu.Unlock()
	if !ours {
		return nil
	}
	return g.tellStore()
}

// giveUp is giveBack of one that nobody has, if that is still so.
func (g *Grant) giveUp() <-chan error {
	s := g.lock.r.Session
	if !s.Begin() {
		return nil // Close releases it
	}
	g.lock.mu.Lock()
	ours := g.state == idle && g.finish(released)
	g.lock.mu.Unlock()
	if !ours {
		s.Done()
		return nil
	}
	return g.tellStore()
}

// tellStore releases, in the background and within an operation, a grant that was finished here.
// It tells the next holder what the last one has said of itself.
func (g *Grant) tellStore() <-chan error {
	ctx, tag := context.Background(), ""
	if h := g.Oldest(); h != nil {
		ctx, tag = h.values, h.tag()
	}
	return g.Release(ctx, tag, g).Background()
}

// Wanted implements [claim.Listener].
func (g *Grant) Wanted() {
	g.lock.mu.Lock()
	g.turn.wanted = true
	unused := g.state == idle
	if !unused && g.lock.grant == g {
		g.lock.advance()
	}
	g.lock.mu.Unlock()
	if unused {
		g.giveUp()
	}
}

// Busy implements [claim.Listener]. If somebody is before us, whoever comes to read from now
// on comes after us, and no group of readers is open to them, unless it is the one that waits.
func (g *Grant) Busy() {
	if g.ID.Kind != driver.RWMutex || g.grouped {
		return
	}
	if base := g.lock.r.inUse(ID{Kind: g.ID.Kind, Name: g.ID.Name}); base != nil {
		base.mu.Lock()
		base.readers = nil
		base.mu.Unlock()
		base.Unref()
	}
}

// Behind implements [claim.Listener].
func (g *Grant) Behind(tag string) {
	if g.passes {
		g.lock.mu.Lock()
		g.lock.ahead = &ahead{tag: tag}
		g.lock.mu.Unlock()
	}
}

// Log implements [claim.Listener].
func (g *Grant) Log() *slog.Logger { return g.opts.Log() }

// Trouble implements [claim.Listener].
func (g *Grant) Trouble(err error) {
	if g.passes {
		g.lock.mu.Lock()
		if a := g.lock.ahead; err != nil {
			g.lock.ahead = &ahead{trouble: err}
		} else if a != nil && a.trouble != nil {
			g.lock.ahead = nil
		}
		g.lock.mu.Unlock()
	}
}
