package local

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/keepalive"
	"github.com/holdfast-go/holdfast/internal/leasectx"
	"github.com/holdfast-go/holdfast/internal/session"
	"github.com/holdfast-go/holdfast/internal/token"
)

// Want is a request for a lock.
type Want struct {
	token.Caller  // which Acquire completes
	Shared        bool
	Wait          bool // for others
	Weight, Limit int64
	MaxWaiters    int64 // 0: as many as there are
	Options       *Options
	Patience      time.Duration // bounds the waiting; 0: as long as the context allows
	From          *driver.Lease // the lease to take over; nil to acquire
	Steal         bool          // from whoever has it
	Sync          bool          // by Lock or its like, which returns no lease

	// For hooks; nil if there are none. Holding is called when the lock was granted, with the context that the
	// lease's is made from. It returns the context to use instead, and the tag of the holder for waiters.
	Holding func(ctx context.Context, fence int64) (values context.Context, tag string)
	Report  *Report

	passed      *Grant       // to this goroutine, and hooks are making a hold of it
	unconfirmed error        // why an earlier grant was given back
	place       driver.Place // of a token that lost the lock unheard
}

// Report is what hooks are told of an acquisition.
type Report struct {
	token.Stats
	Local     int   // how often another goroutine of this process ended the waiting, see AcquireOp in the root
	Reentrant bool  // the hold is nested in one of the context
	Shared    bool  // what was granted, as far as the request did not say: see Attach
	Weight    int64 // as Shared
}

// passable reports whether the grant for a request may pass to others in this process, or be shared
// with them. A grant that is not renewed ends when it ends. An owner has no need to wait for itself.
// Holders of permits share the lock with others, and have a grant each. A caller that attaches wants one
// certain lease, and a thief does not wait for others. With MinHold nobody may have the lock next.
// Readers share only what nobody sees, and what none of them has to have confirmed or may nest.
func (l *Lock) passable(w *Want) bool {
	o := w.Options
	return l.id.Kind != driver.Semaphore && !o.Strict && !o.Fixed && o.Owner == "" && w.From == nil && !w.Steal &&
		w.MaxWaiters == 0 && o.MinHold == 0 && (!w.Shared || w.anonymous() && !o.Nested && !o.confirmed())
}

// anonymous reports whether nobody will see the hold, so that another hold will do.
func (w *Want) anonymous() bool { return w.Sync && w.Report == nil && w.Options.MaxHold == 0 }

// endOf returns why a request ends with wait. Whoever takes a lease over must not take the end of
// another one for its end.
func (w *Want) endOf(wait context.Context) error {
	if w.From != nil {
		return EndOf(wait)
	}
	return session.EndOf(wait)
}

// Acquire gets a hold: from another goroutine of this process, or from the store. A grant
// of the store is also for the goroutines that wait behind this one. A hold of Lock or its like is
// left with the lock, where TakeBack finds it, unless hooks have to see it first: see Keep.
func (r *Registry) Acquire(ctx context.Context, id ID, cached *Cached, w *Want) (*Hold, error) {
	s := r.Session
	if !s.Begin() {
		return nil, session.ErrClosed
	}
	l := r.ref(id, cached)
	var asking *Grant
	defer func() {
		w.Complaint.Leave()
		if asking != nil { // a hook panics, and the caller may recover, as net/http does
			asking.token.Withdraw(ctx)
			l.failed(asking)
		}
		if w.passed != nil {
			l.reject(ctx, news{yours: true, grant: w.passed})
		}
		l.unref()
		s.Done()
	}()
	if h, err := l.nested(ctx, w); h != nil || err != nil {
		return h, err
	}
	if err := w.able(s); err != nil {
		return nil, err
	}
	wait := ctx
	if w.Patience > 0 {
		var cancel context.CancelFunc
		wait, cancel = context.WithTimeout(ctx, w.Patience)
		defer cancel()
	}
	if wait.Err() != nil {
		return nil, w.endOf(wait)
	}
	if w.Endure > 0 {
		w.Began = time.Now()
	}
	if w.Report != nil {
		w.Stats = &w.Report.Stats
	}
	wait = leasectx.Exempt(wait)
	passable := l.passable(w)
	freed := l.blockedBy(w, w.Wait)
	for {
		w.Complaint.Leave() // from here on a holder is in the way, if anything
		if err := l.waitFreed(wait, w, freed); err != nil {
			return nil, err
		}
		var h *Hold
		var g *Grant
		var err error
		if passable {
			h, g, err = l.waitTurn(ctx, wait, w)
			if h != nil && w.Shared {
				return h, nil // which others have left with the lock
			}
		} else {
			g = &Grant{lock: l, opts: w.Options}
		}
		if g != nil && g.lane != &l.writers && !g.token.Begun() {
			// A writer's hold may have been lost since. It is in the way of a whole lane: not each need go and see.
			if err := l.waitFreed(wait, w, l.blockedBy(w, w.Wait)); err != nil {
				l.failed(g)
				return nil, err
			}
			l.evict(wait, w)
		}
		// At the store, until it has granted the lock, and the grant is where it has to be.
		for h == nil && err == nil {
			if w.Why = nil; !g.token.Begun() {
				w.Why = g.init(w)
			}
			asking = g
			trust, granted, failure := g.token.Wait(wait, &w.Caller)
			ours := failure == nil // but perhaps not confirmed
			if ours && w.Options.confirmed() {
				failure = g.confirm(wait, &trust)
			}
			if failure == nil && w.Steal {
				l.endRobbed(g, granted.Fence)
			}
			if failure == nil {
				h, err = l.firstHold(ctx, w, g, trust, &granted)
			}
			asking = nil // no hook is called any more
			switch {
			case failure == nil:
			case l.retries(wait, w, failure):
				g.token.Withdraw(ctx)
				g, w.MaxWaiters = g.anew(), 0 // it has been let in
			case g.lane != nil && w.Wait && s.Open() && (wait.Err() != nil || g.token.GaveUp()):
				err = failure
				l.abandon(ctx, g) // it has a good place in the store's queue
			default:
				err = failure
				l.withdraw(ctx, wait, g, ours)
			}
		}
		if err != nil {
			return nil, w.failure(wait, err)
		}
		// A hold of Lock may have been lost while we waited: then its Unlock comes first.
		if w.Sync && w.Report == nil {
			freed, err = l.keep(w, h)
		} else {
			freed = l.blockedBy(w, false)
		}
		if freed == nil {
			return h, err
		}
		_ = h.ReleaseBriefly(h.values)
	}
}

// confirm has the store confirm what it has granted.
func (g *Grant) confirm(wait context.Context, trust *keepalive.Trust) (err error) {
	for _, c := range [...]driver.Confirmation{g.opts.Replicas, g.opts.Fsync} {
		if err == nil && c.Timeout > 0 {
			*trust, err = g.token.Confirm(wait, c)
		}
	}
	return err
}

// able is why the store cannot do what is wanted of it, nil if it can.
func (w *Want) able(s *session.Session) error {
	if w.Options.confirmed() && s.Confirmer == nil {
		return fmt.Errorf("the store does not know of replicas and disks: %w", errors.ErrUnsupported)
	}
	if w.Options.MinHold > 0 && s.Attacher == nil {
		return fmt.Errorf("the store cannot keep a lock that was released: %w", errors.ErrUnsupported)
	}
	return nil
}

// failure is the error of a request that has failed so.
func (w *Want) failure(wait context.Context, err error) error {
	switch {
	case wait.Err() != nil && errors.Is(err, wait.Err()):
		if w.From != nil && ofAnother(err) {
			return session.WithTrouble(EndOf(wait), driver.ErrTransient) // which is all that it waits for
		}
	case errors.Is(err, driver.ErrNotHeld) && w.From == nil:
		return ErrLost // taken away by force before we could make use of it
	}
	return err
}

// retries reports whether to start over, with a new token, and notes in w what that one needs. Either the
// lock was taken away before we heard of the grant: then the new token has the old place if the store knows
// how. Or the grant was given back because it was not confirmed.
func (l *Lock) retries(wait context.Context, w *Want, failure error) bool {
	unheard, _ := errors.AsType[driver.Unheard](failure)
	w.place = unheard.Place
	unconfirmed := errors.Is(failure, driver.ErrNotConfirmed)
	again := (unconfirmed || errors.Is(failure, driver.ErrNotHeld)) && w.Wait && w.From == nil && !w.Steal && wait.Err() == nil
	if again && unconfirmed {
		w.unconfirmed = failure
		if w.Complaint == nil {
			w.Complaint = l.r.Session.Complaint("acquire", l.id.Kind, l.id.Name, w.Options)
		}
		w.Complaint.Persist(failure)
	}
	return again
}

// firstHold makes a hold of what the store has granted.
func (l *Lock) firstHold(ctx context.Context, w *Want, g *Grant, trust keepalive.Trust, granted *driver.Grant) (*Hold, error) {
	if w.From != nil {
		g.shared, g.weight = granted.Shared, granted.Weight
	}
	if w.Report != nil {
		w.Report.Shared, w.Report.Weight = g.shared, g.weight
	}
	h := &g.first
	h.grant, h.anonymous, h.fence = g, w.anonymous(), granted.Fence
	h.start(ctx, w)
	if trust.Left() <= 0 { // a hook took so long
		g.Lost(trust.Cause())
	}
	l.r.Keeper.Locate(&g.entry, l.id.Kind, l.id.Name)

	l.mu.Lock()
	g.turn.begin(granted, g.shared)
	g.turn.fence()    // is that of h
	before := g.state // lost, if it was taken away meanwhile
	g.adopt(h, trust)
	if !g.shared || before == lost { // else keep does that
		g.arrive()
	}
	l.mu.Unlock()
	g.token.Granted()
	s := l.r.Session
	switch {
	case before == lost:
		s.BeginWithin()
		g.forget(h.values)
	case !s.Open():
		g.giveBack(errClosed) // unless Close has
		return nil, session.ErrClosed
	}
	return h, nil
}

// waitTurn waits in a lane of this process. It returns a hold, or the grant for which the store has
// to be asked. Another goroutine may have asked for it, and given up.
func (l *Lock) waitTurn(ctx, wait context.Context, w *Want) (*Hold, *Grant, error) {
	me := l.r.waiters.Get().(*waiter)
	defer l.r.waiters.Put(me)
	me.opts, me.anonymous = w.Options, w.anonymous()
	for {
		n, waits, err := l.enqueue(wait, w, me)
		if waits {
			n, err = l.await(ctx, wait, w, me)
			if err == nil && w.Report != nil {
				w.Report.Local++
			}
		}
		switch {
		case err != nil:
			return nil, nil, err
		case !n.yours:
			return nil, n.grant, nil
		case w.Shared:
			return &n.grant.first, nil, nil
		}
		if h := l.succeed(ctx, w, n.grant); h != nil {
			return h, nil, nil
		}
		// It was lost on the way from hand to hand.
	}
}

// await waits in the lane for news, or for a reason to give up.
func (l *Lock) await(ctx, wait context.Context, w *Want, me *waiter) (n news, err error) {
	began, told := time.Now(), false
	var outage <-chan time.Time
	if w.Endure > 0 {
		outage = time.After(w.Endure)
	}
	for !told && err == nil {
		select {
		case n = <-me.news:
			told = true
		case <-outage:
			outage, err = l.outage(me.lane, w, began)
		case <-wait.Done():
			err = session.WithTrouble(w.endOf(wait), l.obstacle(me.lane, began))
		case why := <-w.Interrupt:
			err = cmp.Or(why, token.ErrLocked)
		case <-l.r.Session.Closing():
			err = session.ErrClosed
		}
	}
	switch {
	case err != nil:
		n, told = l.dequeue(me)
	case wait.Err() != nil:
		err = session.WithTrouble(w.endOf(wait), l.obstacle(me.lane, began))
	case !l.r.Session.Open():
		err = session.ErrClosed
	}
	if told && n.yours && w.Shared {
		return n, nil // it is in
	}
	if err != nil {
		l.mu.Lock()
		l.blame(me.lane, w.Report) // Nobody may have known when the wait began.
		l.mu.Unlock()
	}
	if err != nil && told {
		l.reject(ctx, n)
	}
	return n, err
}

// outage is the end of a wait if the store has owed an answer to the one that is there for as long as a
// waiter in the lane endures, or else a channel for the next look.
func (l *Lock) outage(ln *lane, w *Want, began time.Time) (<-chan time.Time, error) {
	l.mu.Lock()
	ahead := ln.obstacle()
	l.mu.Unlock()
	left := w.Endure
	if !ahead.Since.IsZero() {
		left -= min(time.Since(ahead.Since), time.Since(began))
	}
	if left > 0 {
		return time.After(left), nil
	}
	return nil, &session.Outage{For: w.Endure, Err: ahead.Trouble}
}

// succeed makes a hold of a grant that has passed to this goroutine. It returns nil if the
// grant was lost on the way.
func (l *Lock) succeed(ctx context.Context, w *Want, g *Grant) *Hold {
	l.mu.Lock()
	before := g.oldest()
	if w.Report != nil {
		by := &token.Held{Holder: l.holder(g.opts), Fence: before.fence}
		if !w.Report.Contended { // A grant that lingered was in nobody's way.
			by = nil
		}
		w.Report.InTheWay(before.tag(), by)
	}
	if g.state != held {
		l.mu.Unlock()
		return nil
	}
	h, same := before, before.end == nil && w.anonymous() && before.anonymous
	if !same {
		g.endHolds(ErrNotHeld)
		h = &Hold{grant: g, anonymous: w.anonymous(), fence: g.turn.fence()}
	}
	if g.turn.left == 0 {
		l.next(g.lane) // who comes next may have to ask the store
	}
	l.mu.Unlock()
	if same {
		return h
	}
	w.passed = g
	h.start(ctx, w)
	w.passed = nil

	l.mu.Lock()
	defer l.mu.Unlock()
	if g.state != held {
		h.end = ErrNotHeld
		h.endContext(context.Canceled)
		return nil
	}
	g.holds = append(g.room[:0], h)
	if h.tag() != "" || g.notes != nil {
		l.r.Keeper.Announce(&g.entry)
	}
	return h
}

// blame notes in a report, if there is one, who is in the way as far as is known. The caller holds mu.
func (l *Lock) blame(ln *lane, r *Report) {
	switch {
	case r == nil:
	case ln.grant != nil:
		h := ln.grant.oldest()
		r.InTheWay(h.tag(), &token.Held{Holder: l.holder(h.grant.opts), Fence: h.fence})
	default:
		ahead := ln.obstacle()
		r.InTheWay(ahead.Tag, ahead.Held)
	}
}

// obstacle is what is in the way of the goroutine at the store. The caller holds Lock.mu.
func (ln *lane) obstacle() (o token.Obstacle) {
	if ln.atStore == nil {
		return o
	}
	o, asks := ln.atStore.token.Obstacle()
	if !asks && ln.before != nil {
		o = *ln.before
	}
	return o
}

// obstacle is what a caller has waited for that has waited since then.
func (l *Lock) obstacle(ln *lane, began time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	ahead := ln.obstacle()
	switch {
	case ahead.Trouble != nil:
		return ahead.Trouble
	case ln.grant == nil && !ahead.Since.IsZero() && time.Since(ahead.Since) >= min(token.SilentAfter, time.Since(began)/2):
		return l.r.Session.Silent()
	}
	return l.busy(ln)
}

// busy is ErrLocked, with what is known of the holder. The caller holds mu.
func (l *Lock) busy(ln *lane) error {
	if ln.grant != nil {
		return &token.Held{Holder: l.holder(ln.grant.opts), For: max(time.Duration(now()-ln.grant.turn.began), 1), At: time.Now()}
	}
	if by := ln.obstacle().Held; by != nil {
		return by.Now()
	}
	return token.ErrLocked
}

// holder is the text for people about a holder with these options.
func (l *Lock) holder(o *Options) string { return cmp.Or(o.Holder, l.r.Session.Holder) }

// evict gives back a grant that lingers. It would be in the way of a request that goes to the
// store by itself.
func (l *Lock) evict(wait context.Context, w *Want) {
	base := l
	if l.id.Owner != "" {
		if base = l.r.inUse(ID{Kind: l.id.Kind, Name: l.id.Name}); base == nil {
			return
		}
		defer base.unref()
	}
	base.mu.Lock()
	g := base.writers.grant
	base.mu.Unlock()
	if g != nil {
		g.evict(wait, w)
	}
}

// evict gives the grant back if it lingers. A request that does not wait would find it at the store.
func (g *Grant) evict(wait context.Context, w *Want) {
	if done := g.giveBack(nil); done != nil && !w.Wait {
		select {
		case <-done:
		case <-wait.Done():
		}
	}
}
