package local

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/leasectx"
	"github.com/holdfast-go/holdfast/internal/session"
	"github.com/holdfast-go/holdfast/internal/token"
)

// releaseWait is how long a release waits for the store in any case.
const releaseWait = time.Second

// Hold is behind each lease: the right to a lock until it ends.
type Hold struct {
	grant     *Grant
	fence     int64
	values    context.Context      // which its context has, and what is done for it
	life      atomic.Pointer[life] // nil until there is need of a context; set under Lock.mu
	wanted    chan struct{}        // closed when another waits; nil until there is need of it; under Lock.mu
	sought    bool                 // wanted is closed
	anonymous bool                 // nobody sees it: it can serve another when its holder is done
	hooked    bool                 // values are those that hooks have made

	end error // nil while held, then one that matches ErrLost or ErrNotHeld; under Lock.mu
}

// start sets where a hold has its values from, and what hooks have to say.
func (h *Hold) start(ctx context.Context, w *Want) {
	h.values = ctx
	if w.Holding != nil {
		var tag string
		h.values, tag = w.Holding(context.WithoutCancel(ctx), h.fence)
		h.hooked = true
		life := h.newLife(leasectx.Of(ctx))
		life.tag = tag
		h.life.Store(life)
	}
	h.limit()
}

func (h *Hold) tag() string {
	if life := h.life.Load(); life != nil {
		return life.tag
	}
	return ""
}

// Err returns nil while the lease is held, and otherwise how it has ended. It looks at the
// clock itself: the lease may be over before anybody has noticed.
func (h *Hold) Err() error {
	end := h.ended()
	if end == nil {
		if trust := h.grant.trust(); trust.Left() <= 0 {
			h.grant.Lost(trust.Cause())
			end = h.ended()
		}
	}
	return end
}

// ended returns how the lease has ended, as far as anybody has noticed.
func (h *Hold) ended() error {
	h.grant.lock.mu.Lock()
	defer h.grant.lock.mu.Unlock()
	return h.end
}

// Over returns nil while the lease is held. Else what is done for it must be refused, and the
// error matches ErrLost, also after a release.
func (h *Hold) Over() error {
	err := h.Err()
	if errors.Is(err, ErrNotHeld) {
		return h.grant.lock.r.Wrap("guard", h.ID(), fmt.Errorf("%w: the lease was released", ErrLost))
	}
	return err
}

// Exclusive reports whether nobody else may hold the lock. A writer that is being downgraded
// must not rely on that.
func (h *Hold) Exclusive() bool {
	l := h.grant.lock
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.id.Kind != driver.Semaphore && !h.grant.shared && !h.grant.lowered
}

// Kind and Name are those of the lock.
func (h *Hold) Kind() driver.Kind { return h.grant.lock.id.Kind }
func (h *Hold) Name() string      { return h.grant.lock.id.Name }

// Same implements [leasectx.Lease].
func (h *Hold) Same(other leasectx.Lease) bool {
	o, ok := other.(*Hold)
	return ok && o.grant == h.grant
}

// Fence returns the fence of the hold. The other accessors return what their names say.
func (h *Hold) Fence() int64      { return h.fence }
func (h *Hold) ID() ID            { return h.grant.lock.id }
func (h *Hold) Token() string     { return h.grant.token.Value }
func (h *Hold) Shared() bool      { return h.grant.shared }
func (h *Hold) Fixed() bool       { return h.grant.opts.Fixed }
func (h *Hold) Options() *Options { return h.grant.opts }

// Values returns a context with the values of the lease's context.
func (h *Hold) Values() context.Context { return h.values }

// Deadline returns when the lease ends if it is not renewed until then.
func (h *Hold) Deadline() time.Time { return h.grant.trust().Deadline() }

// Client returns the client of the lock.
func (h *Hold) Client() any { return h.grant.lock.r.Client }

// Grant returns the grant that the hold counts on.
func (h *Hold) Grant() *Grant { return h.grant }

// Release ends the hold, and gives the lock up if it was the last one. It waits for the store
// until ctx or the lease ends, or for as long as it endures, but at least 1 s. If the store was brisk
// and falls silent just now, a cancellation is heard as late as [session.Session.InPlace] says.
func (h *Hold) Release(ctx context.Context) error {
	g, left := h.grant, h.grant.trust().Left()
	e, due, err := h.leave(ctx, left)
	if !due {
		return err
	}
	left = max(left, g.rest())
	began, endures, ttl := time.Now(), g.opts.Endure, g.opts.TTL
	e.Ends = began.Add(max(left+min(ttl/10, time.Second), releaseWait)) // the store adds its grace
	r, err := g.token.Release(ctx, e, endures == 0 && left >= session.MostInPlace && g.lock.r.Session.InPlace(ctx, ttl))
	if r == nil {
		return endedWith(ctx, err)
	}
	after := func(d time.Duration) <-chan time.Time { return time.After(time.Until(began.Add(d))) }
	var outage <-chan time.Time
	if endures > 0 {
		outage = after(endures)
	}
	select {
	case err := <-r.Told(): // also if another end is as near
		return endedWith(ctx, err)
	default:
	}
	select {
	case err := <-r.Told():
		return endedWith(ctx, err)
	case <-outage:
		err = &session.Outage{For: endures, Err: r.Trouble()}
	case <-ctx.Done():
		err = session.WithTrouble(EndOf(ctx), r.Trouble())
	}
	select {
	case err := <-r.Told():
		return endedWith(ctx, err)
	case <-after(releaseWait):
		return fmt.Errorf("%w: it goes on in the background", err)
	}
}

// endedWith is what came of a release for a caller with ctx.
func endedWith(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil && !errors.Is(err, driver.ErrNotHeld) {
		err = session.WithTrouble(EndOf(ctx), err)
	}
	return lossOf(err)
}

// ReleaseBriefly is Release for callers that cannot be told of an error, unlike hooks. It waits for
// the store at most 1 s, unless that was brisk and falls silent just now, and goes on in the background.
func (h *Hold) ReleaseBriefly(ctx context.Context) error {
	e, due, err := h.leave(ctx, h.grant.trust().Left())
	if due {
		err = briefly(h.grant.token.Release(ctx, e, h.grant.lock.r.Session.Brisk()))
	}
	return err
}

// briefly waits for a release, if there is one, for 1 s at most.
func briefly(r *token.Release, err error) error {
	if r == nil {
		return lossOf(err)
	}
	select {
	case err := <-r.Told():
		return lossOf(err)
	case <-time.After(releaseWait):
		return fmt.Errorf("%w: it goes on in the background", r.Trouble())
	}
}

func lossOf(err error) error {
	if errors.Is(err, driver.ErrNotHeld) {
		return ErrLost
	}
	return err
}

// EndOf returns why ctx has ended, as the error of another lease or of none. If a lease in
// ctx was lost, or its client closed, that says nothing of the lease in hand.
func EndOf(ctx context.Context) error {
	if cause := context.Cause(ctx); ofAnother(cause) {
		return fmt.Errorf("%w: %v", ctx.Err(), cause)
	}
	return session.EndOf(ctx)
}

// ofAnother reports whether a cause could be taken for news of the lease in hand.
func ofAnother(cause error) bool {
	return errors.Is(cause, ErrLost) || errors.Is(cause, driver.ErrNotHeld) || errors.Is(cause, session.ErrClosed)
}

// leave ends the hold in this process, of whose lease so much is left. If due, the store has still to
// be told, as e says, and the caller has an operation that ends with that. Otherwise err is the result.
func (h *Hold) leave(ctx context.Context, left time.Duration) (e token.Ending, due bool, err error) {
	g, l := h.grant, h.grant.lock
	if left <= 0 {
		_ = h.Err() // the lease may be lost without anybody having noticed yet
	}
	if !l.r.Session.Begin() { // Close releases it
		return e, false, cmp.Or(h.ended(), session.ErrClosed)
	}
	l.mu.Lock()
	if errors.Is(h.end, ErrLost) && h.life.Load() == nil {
		l.mu.Unlock()
		h.lives() // the cause of its context stays what it was
		l.mu.Lock()
	}
	before, goesOn := h.end, true
	var ended *life
	h.end = ErrNotHeld
	if before == nil {
		if life := h.life.Load(); life != nil && life.end(context.Canceled) { // before anybody else is told
			ended = life
		}
		if len(g.holds) > 1 {
			g.holds = slices.DeleteFunc(g.holds, func(other *Hold) bool { return other == h })
		} else {
			goesOn = l.passOrFinish(g)
		}
	}
	l.mu.Unlock()
	if ended != nil {
		ended.tell()
	}
	switch {
	case !goesOn:
		return g.ending(h.tag()), true, nil
	case errors.Is(before, ErrLost):
		// The store may still keep the lease for a moment. The next one need not wait
		// for that, and this one not for the store.
		_, _ = g.token.Release(ctx, g.lostEnding(h.tag()), false)
	default:
		l.r.Session.Done()
	}
	return e, false, before
}

// ReleasePart gives up all of the hold but left permits, for callers that cannot be told of
// an error.
func (h *Hold) ReleasePart(ctx context.Context, left int64) error {
	s := h.grant.lock.r.Session
	if s.Downgrader == nil || h.ended() != nil || !s.Begin() {
		return nil // it all goes when the rest does
	}
	part := func(ctx context.Context, to driver.Lease) error { return s.Downgrader.Downgrade(ctx, to, left) }
	return briefly(h.grant.token.Release(ctx, token.Ending{Part: part}, s.Brisk()))
}

// Lower notes, before the store is told, that a writer will only read from now on. From
// then on the grant does not pass to another writer: the store may carry the command out at
// any time.
//
// A hold that has ended cannot be lowered: its grant may be another goroutine's by now. The
// wrong version stopped the grant on the goroutine that sends the command, and a release in
// between passed it on.
func (h *Hold) Lower() error {
	l := h.grant.lock
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case h.end != nil:
		return h.end
	case len(h.grant.holds) > 1:
		return fmt.Errorf("%w: leases are nested with this one", token.ErrLocked)
	}
	h.grant.lowered = true
	if ln := h.grant.lane; ln != nil && ln.grant == h.grant {
		l.next(ln) // those behind us go to the store
	}
	return nil
}

// Unlower takes Lower back, after a refusal.
func (h *Hold) Unlower() {
	h.grant.lock.mu.Lock()
	defer h.grant.lock.mu.Unlock()
	h.grant.lowered = false
}

// Detach ends the only hold, and the renewal of its grant, which the store keeps.
func (h *Hold) Detach() error {
	g, l := h.grant, h.grant.lock
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case h.end != nil:
		return h.end
	case len(g.holds) > 1:
		return fmt.Errorf("%w: leases are nested with this one", token.ErrLocked)
	}
	h.end = ErrNotHeld
	h.endContext(context.Canceled)
	g.token.Cease()
	g.finish(released)
	return nil
}
