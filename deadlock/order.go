package deadlock

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/leasectx"
	"github.com/holdfast-go/holdfast/internal/local"
)

// OrderOption changes what [Order] returns.
type OrderOption func(*order)

// WithClass names the class of a lock, such as "account" for all accounts. Locks of one class that
// are nested in each other are not looked at. The default is the name of the lock.
func WithClass(class func(name string) string) OrderOption {
	return func(o *order) { o.class = class }
}

// WithReport sets what is called with each inversion, on the goroutine that acquires, before it
// waits. The default writes to the log.
func WithReport(report func(*Inversion)) OrderOption {
	return func(o *order) { o.report = report }
}

// Order returns a hook that finds locks which could wait for each other in a circle, though nobody
// ever did: lock a was taken while b was held, and once the other way round. It is for tests and
// staging, in one process, and sees what [New] sees, before the first pause.
//
//	locks.AddHook(deadlock.Order(deadlock.WithReport(func(i *deadlock.Inversion) { t.Error(i) })))
//
// It remembers which class of lock was taken within which, up to 10,000 pairs, and tells each new
// pair that closes a circle once. When there are more, the log says so, once. A pair that it knows
// costs about 100 ns. Calls that do not wait make no circle: TryLock and its like, Steal, Attach, and a
// lock that the context holds already. Readers count as writers do, as a writer in the queue
// makes them wait for each other. Nestings within one outer lock, which therefore never meet, are
// reported like all others; so are those on locks of one name in several stores. The idea is that of
// lockdep in the Linux kernel.
func Order(opts ...OrderOption) holdfast.Hook {
	o := &order{
		pairs: map[pair][]uintptr{}, inner: map[Lock][]Lock{},
		class: func(name string) string { return name },
		report: func(i *Inversion) {
			slog.Warn("holdfast: locks are taken in different orders", "inversion", i.String())
		},
	}
	for _, opt := range opts {
		opt(o)
	}
	return o
}

// Inversion is nestings that make a circle: each takes a class of lock within another, and the next
// one takes another within that. The first closed the circle.
type Inversion struct{ Nestings []Nesting }

// Nesting says that a lock of one class was taken while one of another was held. Their names are
// those of the classes.
type Nesting struct {
	Held, Taken Lock
	Stack       string // of the first time, as in a panic
}

// String returns the nestings with their stacks.
func (i *Inversion) String() string {
	var b strings.Builder
	for n, nest := range i.Nestings {
		when := "and before, "
		if n == 0 {
			when = "now "
		}
		fmt.Fprintf(&b, "%s%v was taken while %v was held:\n%s\n", when, nest.Taken, nest.Held, nest.Stack)
	}
	return b.String()
}

type pair struct{ held, taken Lock }

// most is how many pairs are remembered.
const most = 10_000

// order is a graph of classes, with an edge from one to those that were taken while it was held.
type order struct {
	holdfast.HookBase
	class  func(string) string
	report func(*Inversion)

	mu    sync.RWMutex
	pairs map[pair][]uintptr // and the stack of the first time
	inner map[Lock][]Lock
	full  sync.Once // tells that pairs is full
}

// AcquireHook implements [holdfast.Hook].
func (o *order) AcquireHook(next holdfast.AcquireFunc) holdfast.AcquireFunc {
	return func(ctx context.Context, op *holdfast.AcquireOp) (*holdfast.Lease, error) {
		held := leasectx.Of(ctx)
		if held != nil && op.Wait && !op.Attach && !op.Steal && op.Kind != driver.Semaphore && !holds(held, Lock{op.Kind, op.Name}) {
			o.nested(held, Lock{op.Kind, o.class(op.Name)})
		}
		return next(ctx, op)
	}
}

// holds reports whether one of the leases is on a lock. To take that once more is no wait.
func holds(held *leasectx.Leases, lock Lock) bool {
	for l := held; l != nil; l = l.Outer {
		if l.Lease.Kind() == lock.Kind && l.Lease.Name() == lock.Name && l.Lease.Err() == nil {
			return true
		}
	}
	return false
}

// nested notes that a lock is about to be taken while others are held.
func (o *order) nested(held *leasectx.Leases, taken Lock) {
	for l := held; l != nil; l = l.Outer {
		if l.Lease.Kind() == driver.Semaphore {
			continue
		}
		p := pair{Lock{l.Lease.Kind(), o.class(l.Lease.Name())}, taken}
		o.mu.RLock()
		_, known := o.pairs[p]
		o.mu.RUnlock()
		if known || p.held == p.taken || !counts(l.Lease) {
			continue
		}
		if i := o.add(p); i != nil {
			o.report(i)
		}
	}
}

// counts reports whether a lease is held, and does not end by itself.
func counts(l leasectx.Lease) bool {
	hold, ours := l.(*local.Hold)
	return l.Err() == nil && !(ours && hold.Fixed())
}

// add adds a pair, and returns the circle that it closes, nil for none.
func (o *order) add(p pair) *Inversion {
	stack := make([]uintptr, 32)
	stack = stack[:runtime.Callers(5, stack)]
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, known := o.pairs[p]; known {
		return nil
	}
	if len(o.pairs) >= most {
		o.full.Do(func() {
			slog.Warn("holdfast: the order of locks is not watched any further: too many classes, see deadlock.WithClass", "pairs", most)
		})
		return nil
	}
	o.pairs[p] = stack
	o.inner[p.held] = append(o.inner[p.held], p.taken)
	path := o.path(p.taken, p.held, map[Lock]bool{})
	if path == nil {
		return nil
	}
	i := &Inversion{}
	for n, from := range append([]Lock{p.held}, path[:len(path)-1]...) {
		to := path[n]
		i.Nestings = append(i.Nestings, Nesting{from, to, text(o.pairs[pair{from, to}])})
	}
	return i
}

// path returns a way from one class to another, both included, nil if there is none. The caller
// holds mu.
func (o *order) path(from, to Lock, seen map[Lock]bool) []Lock {
	if from == to {
		return []Lock{to}
	}
	seen[from] = true
	for _, next := range o.inner[from] {
		if seen[next] {
			continue
		}
		if rest := o.path(next, to, seen); rest != nil {
			return slices.Insert(rest, 0, from)
		}
	}
	return nil
}

// text is a stack as in a panic.
func text(stack []uintptr) string {
	var b strings.Builder
	frames := runtime.CallersFrames(stack)
	for {
		f, more := frames.Next()
		fmt.Fprintf(&b, "%s(...)\n\t%s:%d\n", f.Function, f.File, f.Line)
		if !more {
			return b.String()
		}
	}
}
