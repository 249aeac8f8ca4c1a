package local

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/claim"
	"github.com/holdfast-go/holdfast/internal/keepalive"
	"github.com/holdfast-go/holdfast/internal/leasectx"
	"github.com/holdfast-go/holdfast/internal/session"
)

// Want is a request for a lock.
type Want struct {
	Shared        bool
	Wait          bool // for others
	Weight, Limit int64
	MaxWaiters    int64 // 0: as many as there are
	Options       *Options
	Patience      time.Duration      // bounds the waiting; 0: as long as the context allows
	From          *driver.Lease      // the lease to take over; nil to acquire
	Sync          bool               // by Lock or its like, which returns no lease
	Within        bool               // by Do: nobody sees the lease, and its context may end with that of the caller
	Said          *session.Complaint // of a caller that retries; nil for a new one

	// For hooks; nil if there are none.
	Holding Holding
	Report  *Report

	group       *readGroup
	unconfirmed error // why an earlier grant was given back
}

// Holding is called when the lock was granted, with the context that the lease's is made
// from. It returns the context to use instead, and the tag of the holder for waiters.
type Holding = func(ctx context.Context, fence int64) (values context.Context, tag string)

// Report is what hooks are told of an acquisition.
type Report struct {
	claim.Stats
	Reentrant bool  // the hold is nested in one of the context
	Shared    bool  // what was granted, as far as the request did not say: see Attach
	Weight    int64 // the same
}

// block notes a holder that was in the way, once.
func (r *Report) block(tag string) {
	if tag != "" && len(r.Tags) < claim.MaxTags && !slices.Contains(r.Tags, tag) {
		r.Tags = append(r.Tags, tag)
	}
}

// add adds what has happened to a claim.
func (r *Report) add(g *Grant) {
	if r == nil {
		return
	}
	of := g.Claim.Stats()
	r.Contended = r.Contended || of.Contended
	r.Asked += of.Asked
	r.Notify += of.Notify
	r.Poll += of.Poll
	r.Reconnect += of.Reconnect
	for _, tag := range of.Tags {
		r.block(tag)
	}
}

// passable reports whether the grant for a request may pass to others in this process. A
// grant that is not renewed ends when it ends. An owner has no need to wait for itself.
// Holders of permits and readers share the lock with others, and have a grant each. A
// caller that attaches wants one certain lease. With MinHold nobody may have the lock next.
func (l *Lock) passable(w *Want) bool {
	return l.id.Kind != driver.Semaphore && !w.Shared && !w.Options.Strict && !w.Options.Fixed && l.id.Owner == "" && w.From == nil &&
		w.Options.MinHold == 0
}

// anonymous reports whether nobody will see the hold, so that another hold will do.
func (w *Want) anonymous() bool { return w.Sync && w.Report == nil && w.Options.MaxHold == 0 }

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
	if _, able := driver.As[driver.Confirmer](s.Driver); w.Options.Replicas > 0 && !able {
		return nil, fmt.Errorf("the store does not know of replicas: %w", errors.ErrUnsupported)
	}
	if _, able := driver.As[driver.Attacher](s.Driver); w.Options.MinHold > 0 && !able {
		return nil, fmt.Errorf("the store cannot keep a lock that was released: %w", errors.ErrUnsupported)
	}
	wait := ctx
	if w.Patience > 0 {
		var cancel context.CancelFunc
		wait, cancel = context.WithTimeout(ctx, w.Patience)
		defer cancel()
	}
	if wait.Err() != nil {
		return nil, context.Cause(wait)
	}
	wait = leasectx.Exempt(wait)
	passable := l.passable(w)
	freed := l.blockedBy(w, w.Wait)
	for {
		if err := l.waitFreed(w, freed); err != nil {
			return nil, err
		}
		var h *Hold
		var g *Grant
		var err error
		if passable {
			h, g, err = l.waitTurn(ctx, wait, w)
		} else {
			l.evict(wait, w)
		}
		// At the store, until it has granted the lock and the replicas that are asked for
		// have it.
		for h == nil && err == nil {
			if g == nil {
				g = l.newGrant(w, passable)
			} else {
				g.Explain(nil, w.Said)
			}
			trust, granted, failure := g.Wait(wait)
			if failure == nil && w.Options.Replicas > 0 {
				trust, failure = g.Confirm(wait, w.Options.Replicas, w.Options.ReplicaTimeout)
			}
			w.Report.add(g)
			switch {
			case failure == nil:
				h, err = l.firstHold(ctx, w, g, trust, granted)
			case l.startsOver(wait, w, failure):
				g.Withdraw(ctx)
				g, w.MaxWaiters = nil, 0 // it has been let in
			case passable && wait.Err() != nil && w.Wait && s.Open():
				err = failure
				l.abandon(ctx, g) // it has a good place in the store's queue
			default:
				err = failure
				g.Withdraw(ctx)
				if passable {
					l.failed()
				}
			}
		}
		if err != nil && w.Said != nil && !w.Sync { // Lock tries again
			w.Said.Leave(s)
		}
		switch {
		case errors.Is(err, driver.ErrNotHeld) && w.From == nil:
			return nil, ErrLost // taken away by force before we could make use of it
		case err != nil:
			return nil, err
		}
		// A hold of Lock may have been lost while we waited: then its Unlock comes first.
		if freed = l.blockedBy(w, false); freed == nil {
			if w.Said != nil {
				w.Said.Leave(s)
			}
			return h, nil
		}
		_ = h.ReleaseBriefly(h.values)
	}
}

// startsOver reports whether to start over, with a new token at the end of the store's
// queue. Either the lock was taken away by force before we heard of the grant, or the grant
// was given back for lack of replicas.
func (l *Lock) startsOver(wait context.Context, w *Want, failure error) bool {
	unconfirmed := errors.Is(failure, driver.ErrNotReplicated)
	if unconfirmed {
		w.unconfirmed = failure
		if w.Said == nil {
			w.Said = &session.Complaint{Op: "acquire", Kind: l.id.Kind, Name: l.id.Name, Log: w.Options}
		}
		w.Said.Persist(failure)
		w.Said.Tell(l.r.Session)
	}
	return (unconfirmed || errors.Is(failure, driver.ErrNotHeld)) && w.Wait && w.From == nil && wait.Err() == nil
}

// firstHold makes a hold of what the store has granted.
func (l *Lock) firstHold(ctx context.Context, w *Want, g *Grant, trust keepalive.Trust, granted driver.Grant) (*Hold, error) {
	if w.Report != nil {
		w.Report.Shared, w.Report.Weight = g.Shared, g.Weight
	}
	h := &g.first
	h.grant, h.anonymous, h.fence = g, w.anonymous(), granted.Fence
	g.since = now()
	h.start(ctx, w)
	l.r.Keeper.Locate(&g.entry, l.id.Kind, l.id.Name)

	l.mu.Lock()
	g.turn.begin(g.opts.TTL, granted, g.Shared)
	g.turn.fence()    // is that of h
	before := g.state // lost, if it was taken away meanwhile
	g.adopt(h, trust)
	if g.passable {
		l.drop()
		l.atStore, l.ahead = nil, nil
		if g.state == held {
			l.grant = g
		}
		l.advance()
	}
	l.mu.Unlock()
	g.Held()
	s := l.r.Session
	switch {
	case before == lost:
		s.Grow()
		go g.forget(h.values)
	case !s.Open():
		s.Grow()
		if g.revoke(errClosed) == nil {
			s.Done() // Close has
		}
		return nil, session.ErrClosed
	}
	return h, nil
}

// waitTurn waits in the queue of this process. It returns a hold, or nil if the store has
// to be asked. Then the grant, if there is one, was asked for by another goroutine that
// gave up.
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
			told := true
			select {
			case n = <-me.news:
			case <-wait.Done():
				n, told = l.dequeue(me)
			case <-l.r.Session.Closing():
				n, told = l.dequeue(me)
			}
			if late := wait.Err() != nil; late || !l.r.Session.Open() {
				if told {
					l.reject(ctx, n)
				}
				if !late {
					return nil, nil, session.ErrClosed
				}
				return nil, nil, l.withTrouble(context.Cause(wait))
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

// enqueue brings in a goroutine that wants the lock exclusively. Either there is news at
// once, or me waits in the queue.
func (l *Lock) enqueue(wait context.Context, w *Want, me *waiter) (n news, waits bool, err error) {
	l.mu.Lock()
	if g := l.grant; g != nil && g.state == idle && l.waiting.first == nil {
		mayPass := l.mayPass(w.Options)
		if mayPass && g.enough(me.anonymous) {
			g.state = held
			g.turn.unstamp()
			g.countPass()
			l.mu.Unlock()
			return news{yours: true, grant: g}, false, nil
		}
		if !mayPass || !w.Wait { // else there will be a number soon
			l.mu.Unlock()
			if done := g.releaseIdle(); done != nil && !w.Wait {
				select {
				case <-done:
				case <-wait.Done():
				}
			}
			l.mu.Lock()
		}
	}
	defer l.mu.Unlock()
	if l.atStore == nil && l.grant == nil && l.waiting.first == nil {
		l.atStore = w.Options
		return news{}, false, nil
	}
	if w.Report != nil {
		w.Report.Contended = true
		if l.grant != nil {
			w.Report.block(l.grant.oldest().tag())
		} else if l.ahead != nil {
			w.Report.block(l.ahead.tag)
		}
	}
	if !w.Wait {
		return news{}, false, l.busy()
	}
	l.waiting.push(me)
	l.advance()
	return news{}, true, nil
}

// succeed makes a hold of a grant that has passed to this goroutine. It returns nil if the
// grant was lost on the way.
func (l *Lock) succeed(ctx context.Context, w *Want, g *Grant) *Hold {
	l.mu.Lock()
	before := g.oldest()
	if w.Report != nil {
		w.Report.block(before.tag())
	}
	if g.state != held {
		l.mu.Unlock()
		return nil
	}
	if before.end == nil && w.anonymous() && before.anonymous {
		l.mu.Unlock()
		return before
	}
	g.endHolds(ErrNotHeld)
	h := &Hold{grant: g, anonymous: w.anonymous(), fence: g.turn.fence()}
	l.mu.Unlock()
	h.start(ctx, w)

	l.mu.Lock()
	defer l.mu.Unlock()
	if g.state != held {
		h.end = ErrNotHeld
		h.endContext(context.Canceled)
		return nil
	}
	g.holds = append(g.room[:0], h)
	if h.tag() != "" {
		l.r.Keeper.Announce(&g.entry)
	}
	return h
}

// withTrouble adds to the end of a context what the caller has waited for.
func (l *Lock) withTrouble(cause error) error {
	l.mu.Lock()
	trouble := l.busy()
	if l.ahead != nil && l.ahead.trouble != nil {
		trouble = l.ahead.trouble
	}
	l.mu.Unlock()
	return session.WithTrouble(cause, trouble)
}

// busy is ErrLocked, with what is known of the holder. The caller holds mu.
func (l *Lock) busy() error {
	switch {
	case l.grant != nil:
		return &claim.Held{Holder: l.holder(l.grant.opts), For: max(time.Duration(now()-l.grant.since), 1), At: time.Now()}
	case l.ahead != nil && l.ahead.held != nil:
		return l.ahead.held.Now()
	}
	return claim.ErrLocked
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
