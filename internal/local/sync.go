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

// Part is what is left of a hold, in permits. The hold of a lock has one, or one for each reader that
// shares it.
type Part struct {
	Hold *Hold
	Left int64
}

// syncHolds are the sync holds of a lock, in the order of their grants.
type syncHolds struct {
	all   []Part
	room  [1]Part       // for most
	freed chan struct{} // closed when one of them goes; nil if nobody waits for that
}

// blockedBy returns nil if no sync hold keeps the request out, and otherwise a channel that
// is closed when a sync hold goes. A hold with a good lease keeps others out at the store.
// It matters here if the lease is lost, for a sync hold lasts until it is undone. So with
// lostOnly only lost ones count.
func (l *Lock) blockedBy(w *Want, lostOnly bool) <-chan struct{} {
	if l.kept.Load() == 0 {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.blocks(w, lostOnly)
}

// blocks is blockedBy for a caller that holds mu.
func (l *Lock) blocks(w *Want, lostOnly bool) <-chan struct{} {
	if !w.Sync || l.id.Owner != "" || l.sync == nil { // the store lets an owner in beside itself
		return nil
	}
	for _, h := range l.sync.all {
		together := w.Shared && h.Hold.grant.shared
		if !together && (!lostOnly || h.Hold.end != nil) {
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

// Keep leaves a hold that hooks have seen with its lock, where TakeBack finds it. It reports false if another
// hold is in the way of the request, which was lost meanwhile: its Unlock comes first.
func (r *Registry) Keep(id ID, cached *Cached, w *Want, h *Hold) (kept bool, err error) {
	l := r.ref(id, cached)
	defer l.unref()
	freed, err := l.keep(w, h)
	return freed == nil && err == nil, err
}

// keep leaves a hold with the lock, which is in use from then on. Readers that wait for it are in with that,
// for one turn. If another sync hold is in the way of the request, keep returns what blockedBy does, and has
// kept nothing. The wrong version looked first, and kept it later: two holds, one of them lost, could be kept
// in between.
func (l *Lock) keep(w *Want, h *Hold) (freed <-chan struct{}, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.r.Session.Open() {
		return nil, session.ErrClosed // Close releases it
	}
	if freed = l.blocks(w, false); freed != nil {
		return freed, nil
	}
	if l.sync == nil {
		l.sync = &syncHolds{}
		l.sync.all = l.sync.room[:0]
	}
	l.sync.all = append(l.sync.all, Part{h, max(1, h.grant.weight)})
	l.kept.Add(1)
	l.refs.Add(1)
	if h.grant.shared {
		h.grant.arrive()
	}
	return nil, nil
}

// share counts another reader on the hold of a grant. The caller holds Lock.mu.
func (s *syncHolds) share(g *Grant) { s.all[s.index(g)].Left++ }

// index returns where the hold of readers is that count on a grant, below 0 if they have left. The caller holds
// Lock.mu.
func (s *syncHolds) index(g *Grant) int {
	return slices.IndexFunc(s.all, func(p Part) bool { return p.Hold == &g.first })
}

// TakeBack undoes n permits of the sync holds that are shared, or are not. It returns
//   - false if there are fewer: then it takes nothing
//   - true, and the parts appended to those given, if the caller has to release them
//   - true alone if there is no more to do: others count on the hold, or it has passed to the next one.
func (r *Registry) TakeBack(id ID, cached *Cached, shared bool, n int64, to []Part) (parts []Part, ok bool) {
	l := r.find(id, cached)
	if l == nil {
		return nil, n == 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.sync == nil {
		return nil, n == 0
	}
	parts, ok = l.takeBack(shared, n, to)
	if len(parts) == 1 {
		if h := parts[0].Hold; parts[0].Left > 0 && shared || h.anonymous && h.end == nil && l.passOn(h.grant) {
			parts = nil
		}
	}
	return parts, ok
}

// takeBack takes n away, and appends the holds as they are then. The caller holds mu.
//
// Nobody says which hold they mean, and a lost one is as good as any other. Lost holds come
// first. A caller may think of a lost hold; to end a good one for it would let in a
// stranger beside the real owner. The clock is asked, too: just after a suspension nobody
// has been told yet what was lost meanwhile.
func (l *Lock) takeBack(shared bool, n int64, to []Part) (taken []Part, ok bool) {
	if all := l.sync.all; len(all) == 1 && all[0].Hold.grant.shared == shared && 0 < n && n <= all[0].Left { // mostly
		all[0].Left -= n
		to = append(to, all[0])
		if all[0].Left == 0 {
			all[0] = Part{} // or the lock would remember the grant
			l.sync.all = all[:0]
			l.undone(1)
		}
		return to, true
	}
	var lost, same, rest []int
	var sum int64
	for i, p := range l.sync.all {
		switch {
		case p.Hold.grant.shared != shared:
			continue
		case p.Hold.end != nil || !p.Hold.grant.trusted():
			lost = append(lost, i)
		case p.Left == n && !shared: // of readers' holds the oldest goes first: nobody joins it
			same = append(same, i)
		default:
			rest = append(rest, i)
		}
		sum += p.Left
	}
	if sum < n {
		return nil, false
	}
	for _, i := range slices.Concat(lost, same, rest) {
		p := &l.sync.all[i]
		part := min(n, p.Left)
		if part == 0 {
			break
		}
		p.Left -= part
		n -= part
		to = append(to, *p)
	}
	before := len(l.sync.all)
	l.sync.all = slices.DeleteFunc(l.sync.all, func(p Part) bool { return p.Left == 0 })
	l.undone(before - len(l.sync.all))
	return to, true
}

// undone notes that n sync holds are. The caller holds mu.
func (l *Lock) undone(n int) {
	if n > 0 && l.sync.freed != nil {
		close(l.sync.freed)
		l.sync.freed = nil
	}
	l.kept.Add(int32(-n))
	l.refs.Add(int32(-n))
}
