package local

import "slices"

// Readers that show their lease to nobody need not have one each. Those of one client go in
// together, as a group: one of them is at the store, and the others count on its hold.
//
// That is safe because to the store they are one reader. No writer gets in before the lease is
// released or over. The last of them to leave releases it. All of them see its end by the same
// deadline as one reader alone would. Readers that join do not make it last longer.
//
// It is fair because a group does not stay open. A reader that joins a hold that is there goes
// ahead of the writers that wait in the store's queue. So the grant has a turn, like a grant
// that passes from hand to hand: maxPasses joins or a part of the TTL, and more only as long as
// nobody waits elsewhere. A reader that comes later asks the store, and queues there behind the
// writer, which has the lock when the group has left. When the store makes another caller of this
// client wait, later readers must queue after that caller: they begin another group.

// readGroup is a group of readers of one client, with equal options, that go in together.
// It is guarded by Lock.mu.
type readGroup struct {
	opts    *Options
	hold    *Hold             // nil as long as one of them is at the store
	waiting []chan *readGroup // the others, first in, first out, that hear that they are in (nil), or to ask
}

// joinReaders joins a group of readers. It reports whether the caller is in. If so, its
// reference to the lock is given back. If not, w is changed so that the caller asks the
// store on behalf of a group, see admit.
func (l *Lock) joinReaders(w *Want) (in bool) {
	g, wait := l.join(w)
	if wait != nil {
		// When the client is closed whichever is at the store gives up, and then the next.
		g = <-wait
	}
	w.group = g
	return g == nil
}

// join is the part of joinReaders under mu. The caller is in if both results are nil. If
// wait is not nil, the result will arrive there.
func (l *Lock) join(w *Want) (g *readGroup, wait chan *readGroup) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.readers
	asks := now != nil && now.hold == nil
	switch {
	case now != nil && l.letIn(now.hold, w.Options):
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

// letIn lets a reader in on a hold, if that is possible. The caller holds mu.
func (l *Lock) letIn(h *Hold, o *Options) bool {
	if h == nil {
		return false
	}
	i := slices.IndexFunc(l.sync.all, func(s syncHold) bool { return s.hold == h })
	if i < 0 || h.end != nil || !h.grant.opts.compatible(o) || !h.grant.intact() || !h.grant.turn.goesOn(h.grant.opts.TTL) {
		return false
	}
	h.grant.countPass()
	l.sync.all[i].left++
	return true
}

// admit lets in the readers that wait in the group of w. The reader at the store has left
// its hold h with the lock, or has failed: then h is nil. Readers that are too many go on
// as a group that is as open as theirs was.
func (l *Lock) admit(w *Want, h *Hold) {
	l.mu.Lock()
	defer l.mu.Unlock()
	g := w.group
	g.hold = h
	for len(g.waiting) > 0 && l.letIn(h, g.opts) {
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

// grouped reports whether readers go in together. Readers on a lease that is not renewed
// would have only the rest of it. Readers whose leases are nested, owned, confirmed or
// bounded need a lease each.
func (o *Options) grouped() bool {
	return !o.Strict && !o.Fixed && !o.Nested && o.Owner == "" && !o.confirmed() && o.MaxHold == 0 && o.MinHold == 0
}
