package local

import (
	"cmp"
	"context"
	"slices"

	"github.com/holdfast-go/holdfast/internal/session"
	"github.com/holdfast-go/holdfast/internal/token"
)

// The forms of package sync return nothing to release. So their holds stay with the lock until
// a caller that knows only the name undoes one.

// syncHold is what is left of a hold, in permits. A lock has one, or one for each reader of
// a group.
type syncHold struct {
	hold *Hold
	left int64
}

// syncHolds are the sync holds of a lock, in the order of their grants.
type syncHolds struct {
	all   []syncHold
	room  [1]syncHold   // for most
	freed chan struct{} // closed when one of them goes; nil if nobody waits for that
}

// blockedBy returns nil if no sync hold keeps the request out, and otherwise a channel that
// is closed when a sync hold goes. A hold with a good lease keeps others out at the store.
// It matters here if the lease is lost, for a sync hold lasts until it is undone. So with
// lostOnly only lost ones count.
func (l *Lock) blockedBy(w *Want, lostOnly bool) <-chan struct{} {
	if !w.Sync || l.id.Owner != "" || l.deposited.Load() == 0 { // the store lets an owner in beside itself
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, h := range l.sync.all {
		together := w.Shared && h.hold.grant.shared
		if !together && (!lostOnly || h.hold.end != nil) {
			if l.sync.freed == nil {
				l.sync.freed = make(chan struct{})
			}
			return l.sync.freed
		}
	}
	return nil
}

// waitFreed waits until the sync hold in the way is undone. If freed is nil, none is.
func (l *Lock) waitFreed(wait context.Context, w *Want, freed <-chan struct{}) error {
	if freed == nil {
		return nil
	}
	if w.Report != nil {
		w.Report.Contended = true
	}
	if !w.Wait {
		return token.ErrLocked
	}
	select {
	case <-freed:
		return nil
	case <-wait.Done(): // of a hook
		return session.WithTrouble(w.endOf(wait), token.ErrLocked)
	case why := <-w.Interrupt:
		return cmp.Or(why, token.ErrLocked)
	case <-l.r.Session.Closing():
		return session.ErrClosed
	}
}

// Enter is the first step of a lock without a lease, Acquire the second and Keep the third. It returns
// nil if the caller is in already: readers go in together, unless each is to be seen.
func (r *Registry) Enter(id ID, cached *Cached, w *Want, seen bool) *Lock {
	l := r.Ref(id, cached)
	w.group = nil
	if w.Shared && !seen && w.Options.grouped() && l.joinReaders(w) {
		return nil
	}
	return l
}

// Keep leaves the hold that was acquired with the lock, where TakeBack finds it. If that cannot
// be or there is none, since err says why, the lock is given back.
func (l *Lock) Keep(w *Want, h *Hold, err error) error {
	if err == nil && !l.deposit(h) {
		h, err = nil, session.ErrClosed // which has released it
	}
	if w.group != nil {
		l.admit(w, h)
	}
	if err != nil {
		l.Unref()
	}
	return err
}

// Deposit leaves a hold with its lock, where TakeBackSome finds it. It reports false if Close has
// released the hold.
func (r *Registry) Deposit(id ID, cached *Cached, h *Hold) bool {
	l := r.Ref(id, cached)
	if !l.deposit(h) {
		l.Unref()
		return false
	}
	return true
}

// deposit leaves a hold with the lock, which is in use from then on. It reports false if Close has
// released the hold.
func (l *Lock) deposit(h *Hold) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.r.Session.Open() {
		return false
	}
	if l.sync == nil {
		l.sync = &syncHolds{}
		l.sync.all = l.sync.room[:0]
	}
	l.sync.all = append(l.sync.all, syncHold{h, max(1, h.grant.weight)})
	l.deposited.Add(1)
	return true
}

// TakeBack undoes one sync hold, shared or not, and reports whether there is one. If it
// returns a hold, the caller must release that.
func (r *Registry) TakeBack(id ID, cached *Cached, shared bool) (h *Hold, ok bool) {
	l := r.find(id, cached)
	if l == nil {
		return nil, false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.sync == nil {
		return nil, false
	}
	if all := l.sync.all; len(all) == 1 && all[0].hold.grant.shared == shared && all[0].left == 1 { // mostly
		h = all[0].hold
		all[0] = syncHold{} // or the lock would remember the grant
		l.sync.all = all[:0]
		l.undone(1)
	} else if taken := l.takeBack(shared, 1); len(taken) == 0 {
		return nil, false
	} else if taken[0].left == 0 {
		h = taken[0].hold
	}
	if h != nil && h.anonymous && h.end == nil && l.passOn(h.grant) {
		h = nil // it goes on with the grant
	}
	return h, true
}

// Part is what is left of a hold that was taken from.
type Part struct {
	Hold *Hold
	Left int64
}

// TakeBackSome undoes n permits of the sync holds, and returns the holds that it has taken
// from. It reports false, and takes nothing, if there are fewer.
func (r *Registry) TakeBackSome(id ID, cached *Cached, n int64) (parts []Part, ok bool) {
	l := r.find(id, cached)
	if l == nil {
		return nil, n == 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.sync == nil {
		return nil, n == 0
	}
	for _, t := range l.takeBack(false, n) {
		parts = append(parts, Part{t.hold, t.left})
	}
	return parts, len(parts) > 0 || n == 0
}

// takeBack takes n away from the holds that are shared, or are not. It returns them as they
// are then, or none if there are fewer than n. The caller holds mu.
//
// Nobody says which hold they mean, and a lost one is as good as any other. Lost holds come
// first. A caller may think of a lost hold; to end a good one for it would let in a
// stranger beside the real owner. The clock is asked, too: just after a suspension nobody
// has been told yet what was lost meanwhile.
func (l *Lock) takeBack(shared bool, n int64) (taken []syncHold) {
	var lost, same, rest []int
	var sum int64
	for i, h := range l.sync.all {
		switch {
		case h.hold.grant.shared != shared:
			continue
		case h.hold.end != nil || !h.hold.grant.Trusted():
			lost = append(lost, i)
		case h.left == n && !shared: // of readers' holds the oldest goes first: nobody joins it
			same = append(same, i)
		default:
			rest = append(rest, i)
		}
		sum += h.left
	}
	if sum < n {
		return nil
	}
	for _, i := range slices.Concat(lost, same, rest) {
		h := &l.sync.all[i]
		part := min(n, h.left)
		if part == 0 {
			break
		}
		h.left -= part
		n -= part
		taken = append(taken, *h)
	}
	before := len(l.sync.all)
	l.sync.all = slices.DeleteFunc(l.sync.all, func(h syncHold) bool { return h.left == 0 })
	l.undone(before - len(l.sync.all))
	return taken
}

// undone notes that n sync holds are. The caller holds mu.
func (l *Lock) undone(n int) {
	if n > 0 && l.sync.freed != nil {
		close(l.sync.freed)
		l.sync.freed = nil
	}
	l.deposited.Add(int32(-n))
	l.refs.Add(int32(-n))
}
