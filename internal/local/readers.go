package local

import "slices"

// Readers that show their lease to nobody need not have one each. Those of one client go in
// together, as a group: one of them is at the store, and the others count on its hold.
//
// That is safe because to the store they are one reader. No writer gets in before the lease is
// released, which is done by the last of them to leave, or over, which they know from the
// same deadline as one alone would. That others joined does not make it last longer.
//
// It is fair because a group does not stay open. A reader that joins a hold that is there goes
// ahead of the writers that wait in the store's queue. So the grant has a turn, like one that
// passes from hand to hand: maxPasses joins or a part of the TTL, and another turn only if the
// store says that nobody waits. A reader that comes later asks the store, and queues there
// behind the writer, which has the lock when those inside have left. And when the store makes
// anybody else of this client wait, whoever comes after them must queue after them: that
// begins another group.

// readGroup is readers of one client, with the same options, that go in together. It is guarded
// by Lock.mu.
type readGroup struct {
	opts    *Options
	hold    *Hold             // nil as long as one of them is at the store
	waiting []chan *readGroup // the others, first in, first out, that hear that they are in (nil), or to ask
}

// Readers joins a group of readers. It reports whether the caller is in; if not, w is changed so
// that the caller asks the store on behalf of a group, see Admit. A caller that is in uses the
// lock once less than it did.
func (l *Lock) Readers(w *Want) (in bool) {
	g, wait := l.enlist(w)
	if wait != nil {
		// When the client is closed whichever is at the store gives up, and then the next.
		g = <-wait
	}
	w.group = g
	return g == nil
}

func (l *Lock) enlist(w *Want) (g *readGroup, wait chan *readGroup) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.readers
	asks := now != nil && now.hold == nil
	switch {
	case now != nil && l.joins(now.hold, w.Options):
		l.refs.Add(-1)
		return nil, nil
	case asks && !w.Wait:
		return &readGroup{opts: w.Options}, nil // of one
	case asks && now.opts.compatible(w.Options):
		wait = make(chan *readGroup, 1)
		now.waiting = append(now.waiting, wait)
		return nil, wait
	}
	l.readers = &readGroup{opts: w.Options}
	return l.readers, nil
}

// joins lets a reader in on a hold. The caller holds mu.
func (l *Lock) joins(h *Hold, o *Options) bool {
	if h == nil {
		return false
	}
	i := slices.IndexFunc(l.sync.all, func(s syncHold) bool { return s.hold == h })
	if i < 0 || h.end != nil || !h.grant.opts.compatible(o) || !h.grant.keeps() || !h.grant.turn.goesOn(h.grant.TTL) {
		return false
	}
	h.grant.passed()
	l.sync.all[i].left++
	return true
}

// Admit lets those in who wait in the group of w, when the one at the store has left its hold
// with the lock, or has failed: then h is nil. Those that are too many go on as a group that is
// as open as theirs was.
func (l *Lock) Admit(w *Want, h *Hold) {
	l.mu.Lock()
	defer l.mu.Unlock()
	g := w.group
	g.hold = h
	for len(g.waiting) > 0 && l.joins(h, g.opts) {
		g.waiting[0] <- nil
		g.waiting = g.waiting[1:]
		l.refs.Add(-1)
	}
	var rest *readGroup
	if len(g.waiting) > 0 {
		rest = &readGroup{opts: g.opts, waiting: g.waiting[1:]}
		g.waiting[0] <- rest
		g.waiting = nil
	}
	if l.readers == g && (h == nil || rest != nil) {
		l.readers = rest
	}
}

// Join reports whether readers go in together. Those on a lease that is not renewed would have
// what is left of it; those that may count a lease again, or have it confirmed, have one to
// count.
func (o *Options) Join() bool {
	return !o.Strict && !o.Fixed && !o.Nested && o.Owner == "" && o.Replicas == 0
}
