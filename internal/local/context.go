package local

import (
	"context"
	"errors"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/internal/leasectx"
	"github.com/holdfast-go/holdfast/internal/session"
)

// life is what ends the contexts of a lease. Most callers that lock never look at one.
//
// What hangs on it may be hundreds of thousands of contexts. So nothing of that is ended under
// Lock.mu, nor by the Keeper, nor with a goroutine each. The wrong version did all that, and other
// leases of the client were lost meanwhile.
type life struct {
	ctx   context.Context       // of the lease
	tag   string                // what waiters are told of this holder
	limit *time.Timer           // of Options.MaxHold; nil for none
	cause atomic.Pointer[error] // why it has ended, nil until then

	mu     sync.Mutex                 // comes after Lock.mu
	joints map[<-chan struct{}]*joint // by the Done of what else they end with
	after  []func()                   // called when all these have ended
	sweep  int                        // how many are enough to throw away those that have ended
}

// joint ends with a lease or with another context, if that can end. It serves all contexts that end
// so: those of a thousand requests, say, that come from the context of the process. It is of
// package context, for only then a context that comes from it, with values in between, needs no
// goroutine.
type joint struct {
	context.Context
	end context.CancelCauseFunc
}

// leastSweep is how many joints a lease may remember although they have ended.
const leastSweep = 16

// bound is a context that ends with a lease, and with outer if that can end. It costs nothing but
// itself until somebody waits for its end.
type bound struct {
	context.Context // outer, with the lease
	hold            *Hold
	joint           atomic.Pointer[joint] // nil until there is need of it
}

// Context returns the context of the lease.
func (h *Hold) Context() context.Context { return h.lives().ctx }

// WithContext returns a context that ends when outer or the lease does.
func (h *Hold) WithContext(outer context.Context) context.Context {
	return h.bound(outer, leasectx.Of(outer))
}

// Within is WithContext for a function that is called under the lease. It shall also see the values
// that a hook has put into the lease's context, such as a span.
func (h *Hold) Within(outer context.Context) context.Context {
	if h.hooked {
		outer = leasectx.Merged(outer, h.values)
	}
	return h.WithContext(outer)
}

func (h *Hold) bound(outer context.Context, of *leasectx.Leases) *bound {
	return &bound{Context: leasectx.With(outer, h, of), hold: h}
}

func (h *Hold) newLife(of *leasectx.Leases) *life {
	values := h.values
	if !h.hooked { // else it has been done
		values = context.WithoutCancel(values)
	}
	return &life{ctx: h.bound(values, of), sweep: leastSweep}
}

// lives returns the life of the hold, and makes it if there is none.
func (h *Hold) lives() *life {
	if life := h.life.Load(); life != nil {
		return life
	}
	life := h.newLife(leasectx.Of(h.values))
	l := h.grant.lock
	l.mu.Lock()
	defer l.mu.Unlock()
	if before := h.life.Load(); before != nil { // another was faster
		return before
	}
	if h.end != nil { // nobody shall see it before that
		life.end(causeOf(h.end))
	}
	h.life.Store(life)
	return life
}

// endContext ends the contexts of a hold that has ended. The contexts that hang on them hear of it soon. The
// caller holds Lock.mu.
func (h *Hold) endContext(cause error) {
	if life := h.life.Load(); life != nil && life.end(cause) {
		h.grant.lock.r.heralds.send(maxHeralds, life.tell)
	}
}

// causeOf is the cause with which the context of a lease ends that has ended so.
func causeOf(end error) error {
	switch {
	case errors.Is(end, ErrLost):
		return end
	case errors.Is(end, session.ErrClosed):
		return session.ErrClosed
	}
	return context.Canceled
}

// hasEnded returns the cause if the lease has ended, as far as anybody has noticed.
func (h *Hold) hasEnded() (cause error, ended bool) {
	if life := h.life.Load(); life != nil {
		return life.hasEnded()
	}
	if h.ended() == nil {
		return nil, false
	}
	return h.lives().hasEnded()
}

func (l *life) hasEnded() (cause error, ended bool) {
	if c := l.cause.Load(); c != nil {
		return *c, true
	}
	return nil, false
}

// end ends a life, and reports whether tell has to be called: Err of a context tells of the end at
// once, Done and what hangs on it only then.
func (l *life) end(cause error) (due bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.cause.CompareAndSwap(nil, &cause) {
		return false
	}
	if l.limit != nil {
		l.limit.Stop()
	}
	return len(l.joints) > 0 || len(l.after) > 0
}

// tell ends all that hangs on a life that has ended.
func (l *life) tell() {
	cause, _ := l.hasEnded()
	l.mu.Lock()
	joints, after := l.joints, l.after
	l.joints, l.after = nil, nil
	l.mu.Unlock()
	for _, j := range joints {
		j.end(cause)
	}
	for _, f := range after {
		f()
	}
}

// join returns what ends with the life or with outer.
func (l *life) join(outer context.Context) *joint {
	if j := l.joined(outer, nil); j != nil {
		return j
	}
	made := &joint{} // not under mu: outer may be of any type
	made.Context, made.end = context.WithCancelCause(leasectx.End(outer))
	if cause, over := l.hasEnded(); over {
		made.end(cause)
	}
	if made.Err() != nil { // which nobody has to remember
		return made
	}
	j := l.joined(outer, made)
	switch {
	case j == nil: // the life has just ended
		cause, _ := l.hasEnded()
		made.end(cause)
		return made
	case j != made: // another was faster
		made.end(nil)
	}
	return j
}

// joined returns the joint with outer, or, if there is none, remembers and returns made. It returns
// nil if the life has ended.
func (l *life) joined(outer context.Context, made *joint) *joint {
	done := outer.Done()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cause.Load() != nil {
		return nil
	}
	if j := l.joints[done]; j != nil || made == nil {
		return j
	}
	if l.joints == nil {
		l.joints = map[<-chan struct{}]*joint{}
	}
	if len(l.joints) >= l.sweep {
		maps.DeleteFunc(l.joints, func(_ <-chan struct{}, j *joint) bool { return j.Err() != nil })
		l.sweep = 2*len(l.joints) + leastSweep
	}
	l.joints[done] = made
	return made
}

// joins returns the joint of the context, and makes it if there is none.
func (b *bound) joins() *joint {
	if j := b.joint.Load(); j != nil {
		return j
	}
	b.joint.CompareAndSwap(nil, b.hold.lives().join(b.Context))
	return b.joint.Load()
}

// Done implements [context.Context].
func (b *bound) Done() <-chan struct{} { return b.joins().Done() }

// Err implements [context.Context].
func (b *bound) Err() error {
	cause, over := b.hold.hasEnded()
	if !over && b.joint.Load() == nil && b.Context.Err() == nil {
		return nil
	}
	j := b.joins()
	if over {
		j.end(cause) // it may be about to come
	}
	return j.Err()
}

// Value implements [context.Context].
func (b *bound) Value(key any) any {
	if !leasectx.IsEnd(key) {
		return b.Context.Value(key)
	}
	if j := b.joint.Load(); j != nil {
		return j.Value(key)
	}
	return nil // nobody waits for its end, and it has none
}

// maxHeralds is how many goroutines tell what hangs on the lives that have ended: those of 10,000
// leases may end at once, and one life with a crowd must not have all others wait.
const maxHeralds = 4

// AfterEnd has f called when the lease has ended, with the time of that: at once if it has. Few
// goroutines call all such functions, and they hold up no contexts.
func (h *Hold) AfterEnd(f func(at time.Time)) {
	follow := func() {
		at := time.Now()
		h.grant.lock.r.followers.send(maxHeralds, func() { f(at) })
	}
	if !h.lives().follow(follow) {
		follow()
	}
}

// follow has f called by tell, and reports false if the life has ended.
func (l *life) follow(f func()) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cause.Load() != nil {
		return false
	}
	l.after = append(l.after, f)
	return true
}
