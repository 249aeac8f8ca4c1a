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
	Shared        bool
	Wait          bool // for others
	Weight, Limit int64
	MaxWaiters    int64 // 0: as many as there are
	Options       *Options
	Patience      time.Duration      // bounds the waiting; 0: as long as the context allows
	Endure        time.Duration      // gives up if the store owes an answer for so long; 0: never
	From          *driver.Lease      // the lease to take over; nil to acquire
	Steal         bool               // from whoever has it
	Sync          bool               // by Lock or its like, which returns no lease
	Said          *session.Complaint // of a caller that retries; nil for a new one

	// For hooks; nil if there are none.
	Holding Holding
	Report  *Report
	// Interrupt gives the waiting up with the error that it brings.
	Interrupt <-chan error

	began       time.Time // of one with a bound on outages
	group       *readGroup
	unconfirmed error        // why an earlier grant was given back
	place       driver.Place // of a token that lost the lock unheard
}

// Holding is called when the lock was granted, with the context that the lease's is made
// from. It returns the context to use instead, and the tag of the holder for waiters.
type Holding = func(ctx context.Context, fence int64) (values context.Context, tag string)

// Report is what hooks are told of an acquisition.
type Report struct {
	token.Stats
	Local     int   // how often another goroutine of this process ended the waiting, see AcquireOp in the root
	Reentrant bool  // the hold is nested in one of the context
	Shared    bool  // what was granted, as far as the request did not say: see Attach
	Weight    int64 // the same
}

// passable reports whether the grant for a request may pass to others in this process. A
// grant that is not renewed ends when it ends. An owner has no need to wait for itself.
// Holders of permits and readers share the lock with others, and have a grant each. A
// caller that attaches wants one certain lease, and a thief does not wait for others. With MinHold nobody may have the lock next.
func (l *Lock) passable(w *Want) bool {
	return l.id.Kind != driver.Semaphore && !w.Shared && !w.Options.Strict && !w.Options.Fixed && l.id.Owner == "" && w.From == nil && !w.Steal &&
		w.MaxWaiters == 0 && w.Options.MinHold == 0
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
// of the store is also for the goroutines that wait behind this one. The lock is in use
// until Acquire returns.
func (l *Lock) Acquire(ctx context.Context, w *Want) (*Hold, error) {
	s := l.r.Session
	if !s.Begin() {
		return nil, session.ErrClosed
	}
	defer s.Done()
	if h, err := l.nested(ctx, w); h != nil || err != nil {
		return h, err
	}
	if w.Options.confirmed() && s.Confirmer == nil {
		return nil, fmt.Errorf("the store does not know of replicas and disks: %w", errors.ErrUnsupported)
	}
	if w.Options.MinHold > 0 && s.Attacher == nil {
		return nil, fmt.Errorf("the store cannot keep a lock that was released: %w", errors.ErrUnsupported)
	}
	var asking *Grant
	defer func() {
		w.Said.Leave()
		if asking != nil { // a hook of go-redis panics, and the caller may recover, as net/http does
			asking.token.Withdraw(ctx)
			if asking.passable {
				l.failed()
			}
		}
	}()
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
		w.began = time.Now()
	}
	wait = leasectx.Exempt(wait)
	passable := l.passable(w)
	freed := l.blockedBy(w, w.Wait)
	for {
		w.Said.Leave() // from here on a holder is in the way, if anything
		if err := l.waitFreed(wait, w, freed); err != nil {
			return nil, err
		}
		var h *Hold
		var g *Grant
		var err error
		if passable {
			h, g, err = l.waitTurn(ctx, wait, w)
		} else {
			l.evict(wait, w)
			g = &Grant{lock: l, opts: w.Options, grouped: w.group != nil}
		}
		// At the store, until it has granted the lock, and the grant is where it has to be.
		for h == nil && err == nil {
			by := token.Caller{Interrupt: w.Interrupt, Said: w.Said, Endure: w.Endure, Began: w.began}
			if w.Report != nil {
				by.Stats = &w.Report.Stats
			}
			if !g.token.Begun() {
				by.Why = g.init(w)
			}
			asking = g
			trust, granted, failure := g.token.Wait(wait, by)
			asking = nil
			ours := failure == nil // but perhaps not confirmed
			for _, c := range [...]driver.Confirmation{w.Options.Replicas, w.Options.Fsync} {
				if failure == nil && c.Timeout > 0 {
					trust, failure = g.token.Confirm(wait, c)
				}
			}
			switch {
			case failure == nil:
				if w.Steal {
					l.robbed(g, granted.Fence)
				}
				h, err = l.firstHold(ctx, w, g, trust, granted)
			case l.mayRetry(wait, w, failure):
				g.token.Withdraw(ctx)
				g, w.MaxWaiters = g.anew(), 0 // it has been let in
			case passable && w.Wait && s.Open() && (wait.Err() != nil || g.token.GaveUp()):
				err = failure
				l.abandon(ctx, g) // it has a good place in the store's queue
			default:
				err = failure
				withdrawn := g.token.Withdraw(ctx)
				if ours && wait.Err() == nil && s.Open() { // a program may end, or try again, as soon as it is told
					select {
					case <-withdrawn:
					case <-wait.Done():
					case <-time.After(releaseWait):
					}
				}
				if passable {
					l.failed()
				}
			}
		}
		switch {
		case wait.Err() != nil && errors.Is(err, wait.Err()):
			if w.From != nil && ofAnother(err) {
				err = session.WithTrouble(EndOf(wait), driver.ErrTransient) // which is all that it waits for
			}
			return nil, err
		case errors.Is(err, driver.ErrNotHeld) && w.From == nil:
			return nil, ErrLost // taken away by force before we could make use of it
		case err != nil:
			return nil, err
		}
		// A hold of Lock may have been lost while we waited: then its Unlock comes first.
		if freed = l.blockedBy(w, false); freed == nil {
			return h, nil
		}
		_ = h.ReleaseBriefly(h.values)
	}
}

// mayRetry reports whether to start over, with a new token. Either the lock was taken away
// before we heard of the grant: then the new token has the old place if the store knows how. Or
// the grant was given back because it was not confirmed.
func (l *Lock) mayRetry(wait context.Context, w *Want, failure error) bool {
	unheard, _ := errors.AsType[driver.Unheard](failure)
	w.place = unheard.Place
	unconfirmed := errors.Is(failure, driver.ErrNotConfirmed)
	again := (unconfirmed || errors.Is(failure, driver.ErrNotHeld)) && w.Wait && w.From == nil && !w.Steal && wait.Err() == nil
	if again && unconfirmed {
		w.unconfirmed = failure
		if w.Said == nil {
			w.Said = l.r.Session.Complaint("acquire", l.id.Kind, l.id.Name, w.Options)
		}
		w.Said.Persist(failure)
	}
	return again
}

// firstHold makes a hold of what the store has granted.
func (l *Lock) firstHold(ctx context.Context, w *Want, g *Grant, trust keepalive.Trust, granted driver.Grant) (*Hold, error) {
	if w.From != nil {
		g.shared, g.weight = granted.Shared, granted.Weight
	}
	if w.Report != nil {
		w.Report.Shared, w.Report.Weight = g.shared, g.weight
	}
	h := &g.first
	h.grant, h.anonymous, h.fence = g, w.anonymous(), granted.Fence
	g.since = now()
	h.start(ctx, w)
	l.r.Keeper.Locate(&g.entry, l.id.Kind, l.id.Name)

	l.mu.Lock()
	g.turn.begin(granted, g.shared)
	g.turn.fence()    // is that of h
	before := g.state // lost, if it was taken away meanwhile
	g.adopt(h, trust)
	if g.passable {
		l.drop()
		l.atStore = nil
		if g.state == held {
			l.grant = g
		}
		l.advance()
	}
	l.mu.Unlock()
	g.token.Granted()
	s := l.r.Session
	switch {
	case before == lost:
		s.Grow()
		g.forget(h.values)
	case !s.Open():
		s.Grow()
		if g.revoke(errClosed) == nil {
			s.Done() // Close has
		}
		return nil, session.ErrClosed
	}
	return h, nil
}

// waitTurn waits in the queue of this process. It returns a hold, or the grant for which the store has
// to be asked. Another goroutine may have asked for it, and given up.
func (l *Lock) waitTurn(ctx, wait context.Context, w *Want) (*Hold, *Grant, error) {
	me := l.r.waiters.Get().(*waiter)
	defer l.r.waiters.Put(me)
	me.opts, me.anonymous = w.Options, w.anonymous()
	for {
		n, waits, err := l.enqueue(wait, w, me)
		if err != nil {
			return nil, nil, err
		}
		if waits {
			if n, err = l.await(ctx, wait, w, me); err != nil {
				return nil, nil, err
			}
			if w.Report != nil {
				w.Report.Local++
			}
		}
		if !n.yours {
			return nil, n.grant, nil
		}
		if h := l.succeed(ctx, w, n.grant); h != nil {
			return h, nil, nil
		}
		// It was lost on the way from hand to hand.
	}
}

// await waits in the queue for news, or for a reason to give up.
func (l *Lock) await(ctx, wait context.Context, w *Want, me *waiter) (n news, err error) {
	began, told := now(), false
	var outage <-chan time.Time
	if w.Endure > 0 {
		outage = time.After(w.Endure)
	}
	for !told && err == nil {
		select {
		case n = <-me.news:
			told = true
		case <-outage:
			if left := l.endures(w, began); left > 0 {
				outage = time.After(left)
				continue
			}
			err = &session.Outage{For: w.Endure, Err: l.obstacle(began)}
		case <-wait.Done():
			err = session.WithTrouble(w.endOf(wait), l.obstacle(began))
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
		err = session.WithTrouble(w.endOf(wait), l.obstacle(began))
	case !l.r.Session.Open():
		err = session.ErrClosed
	}
	if err != nil {
		l.mu.Lock()
		l.blame(w.Report) // Nobody may have known when the wait began.
		l.mu.Unlock()
	}
	if err != nil && told {
		l.reject(ctx, n)
	}
	return n, err
}

// endures returns for how much longer a waiter in the queue waits for the store to answer
// the one that is there.
func (l *Lock) endures(w *Want, began moment) time.Duration {
	l.mu.Lock()
	since := l.ahead().Since
	l.mu.Unlock()
	if since.IsZero() {
		return w.Endure
	}
	return w.Endure - time.Duration(now()-max(moment(since.Sub(start)), began))
}

// enqueue brings in a goroutine that wants the lock exclusively. Either there is news at
// once, or me waits in the queue.
func (l *Lock) enqueue(wait context.Context, w *Want, me *waiter) (n news, waits bool, err error) {
	l.mu.Lock()
	if g := l.grant; g != nil && g.state == idle && l.waiting.first == nil {
		if l.mayPass(w.Options, me.anonymous) {
			g.state = held
			g.countPass()
			l.mu.Unlock()
			return news{yours: true, grant: g}, false, nil
		}
		l.mu.Unlock()
		if done := g.releaseIdle(); done != nil && !w.Wait {
			select {
			case <-done:
			case <-wait.Done():
			}
		}
		l.mu.Lock()
	}
	defer l.mu.Unlock()
	if l.atStore == nil && l.grant == nil && l.waiting.first == nil {
		l.atStore = &Grant{lock: l, opts: w.Options, passable: true}
		return news{grant: l.atStore}, false, nil
	}
	if w.Report != nil {
		w.Report.Contended = true
		l.blame(w.Report)
	}
	if !w.Wait {
		return news{}, false, l.busy()
	}
	l.waiting.push(me)
	if l.grant != nil {
		l.grant.want()
	}
	if l.waiting.first == me || l.grant == nil || !l.grant.turn.alone() { // else nothing is new for the first
		l.advance()
	}
	return news{}, true, nil
}

// succeed makes a hold of a grant that has passed to this goroutine. It returns nil if the
// grant was lost on the way.
func (l *Lock) succeed(ctx context.Context, w *Want, g *Grant) *Hold {
	l.mu.Lock()
	before := g.oldest()
	if w.Report != nil {
		held := &token.Held{Holder: l.holder(g.opts), Fence: before.fence}
		if !w.Report.Contended { // A grant that lingered was in nobody's way.
			held = nil
		}
		w.Report.Behind(before.tag(), held)
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
		l.advance() // who comes next may have to ask the store
	}
	l.mu.Unlock()
	if same {
		return h
	}
	h.start(ctx, w)

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
func (l *Lock) blame(r *Report) {
	switch {
	case r == nil:
	case l.grant != nil:
		h := l.grant.oldest()
		r.Behind(h.tag(), &token.Held{Holder: l.holder(h.grant.opts), Fence: h.fence})
	default:
		ahead := l.ahead()
		r.Behind(ahead.Tag, ahead.Held)
	}
}

// ahead is what is in the way of the waiter at the store. The caller holds mu.
func (l *Lock) ahead() (o token.Obstacle) {
	if l.atStore != nil {
		o = l.atStore.token.Obstacle()
	}
	return o
}

// obstacle is what a caller has waited for that has waited since then.
func (l *Lock) obstacle(began moment) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	ahead := l.ahead()
	switch {
	case ahead.Trouble != nil:
		return ahead.Trouble
	case l.grant == nil && !ahead.Since.IsZero() && time.Since(ahead.Since) >= min(token.SilentAfter, time.Duration(now()-began)/2):
		return l.r.Session.Silent()
	}
	return l.busy()
}

// busy is ErrLocked, with what is known of the holder. The caller holds mu.
func (l *Lock) busy() error {
	if l.grant != nil {
		return &token.Held{Holder: l.holder(l.grant.opts), For: max(time.Duration(now()-l.grant.since), 1), At: time.Now()}
	}
	if held := l.ahead().Held; held != nil {
		return held.Now()
	}
	return token.ErrLocked
}

// holder is the text for people about a holder with these options.
func (l *Lock) holder(o *Options) string { return cmp.Or(o.Holder, l.r.Session.Holder) }

// evict releases a grant that lingers. It would be in the way of a request that goes to the
// store by itself. A request that does not wait would find it there.
func (l *Lock) evict(wait context.Context, w *Want) {
	base := l
	if l.id.Owner != "" {
		if base = l.r.inUse(ID{Kind: l.id.Kind, Name: l.id.Name}); base == nil {
			return
		}
		defer base.Unref()
	}
	base.mu.Lock()
	g := base.grant
	base.mu.Unlock()
	if g == nil {
		return
	}
	if done := g.releaseIdle(); done != nil && !w.Wait {
		select {
		case <-done:
		case <-wait.Done():
		}
	}
}
