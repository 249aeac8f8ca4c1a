package holdfast

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/internal/local"
	"github.com/holdfast-go/holdfast/internal/session"
)

// Part is a lock as [All] takes it: a [*Mutex], an [*RWMutex] for writing, an RWMutex for reading by
// [RWMutex.Reading], or permits of a semaphore by [Semaphore.Permits].
type Part interface{ part() part }

// part is a lock and how it is wanted.
type part struct {
	*handle
	want local.Want
}

func (p part) part() part { return p }

func (m *Mutex) part() part    { return part{&m.handle, local.Want{}} }
func (rw *RWMutex) part() part { return part{&rw.handle, local.Want{}} }

// Reading returns the lock as [All] takes it for reading.
func (rw *RWMutex) Reading() Part { return part{&rw.handle, local.Want{Shared: true}} }

// Permits returns n permits as [All] takes them. It panics if n is below 1.
func (s *Semaphore) Permits(n int64) Part { return part{&s.handle, s.want(n, false)} }

// get gets a lease on the lock.
func (p part) get(ctx context.Context, wait bool) (*Lease, error) {
	w := p.want
	w.Wait = wait
	return p.lease(ctx, w, "acquire")
}

// store is a text about the store of the lock, empty if there is none.
func (p part) store() string {
	if d := p.c.session.Stringer; d != nil {
		return d.String()
	}
	return ""
}

// compareParts is the order in which all processes take locks one after the other. It must depend
// on nothing that differs between them, such as the order in which they make their clients.
func compareParts(a, b part) int {
	return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(a.name, b.name),
		cmp.Compare(a.store(), b.store()), cmp.Compare(a.c.config.prefix, b.c.config.prefix))
}

// All takes several locks, of any kinds and of one or several clients: all of them, or none. It waits
// as [Mutex.Lease] does.
//
//	all, err := holdfast.All(ctx, accounts("alice"), accounts("bob"), rates.Reading(), api.Permits(2))
//	if err != nil {
//		return err
//	}
//	defer all.Release(ctx)
//	transfer(all.Context())
//
// All first tries all locks at the same time, as [Mutex.TryLease] does. If they are free, that takes
// little longer than to take one. If one is not, All at once gives back what it has, and takes the
// locks one after the other. While it then waits for one lock it holds those before it. It
// overtakes nobody.
//
// Calls of All never wait for each other in a circle, in whatever order they name the locks. One
// after the other, each takes them by kind (mutex, rwmutex, semaphore), then by name. Code that takes
// some of these locks one by one must do so in that order, too. Locks of one kind and name in
// different stores have the order of the addresses that the clients know.
//
// If a lock cannot be had, All gives back the others and returns the error. If a lock is
// lost while All waits for the next, the error matches [ErrLost]. If a lock of one client is named
// twice, the error matches [ErrDeadlock]. Hooks are called for several locks at the same time, on
// other goroutines. All panics if there are no locks.
func All(ctx context.Context, locks ...Part) (*Leases, error) {
	if len(locks) == 0 {
		panic("holdfast: All of no locks")
	}
	parts, order := make([]part, len(locks)), make([]int, len(locks))
	for i, l := range locks {
		parts[i], order[i] = l.part(), i
		parts[i].client() // panics if there is none
	}
	slices.SortStableFunc(order, func(i, j int) int { return compareParts(parts[i], parts[j]) })
	for n, i := range order[1:] {
		if p, before := parts[i], parts[order[n]]; p.base() == before.base() && p.c == before.c {
			return nil, p.fail("acquire", fmt.Errorf("%w: it is named twice", ErrDeadlock))
		}
	}
	s := &Leases{all: make([]*Lease, len(parts)), ctx: context.WithoutCancel(ctx)}
	if len(parts) > 1 {
		switch err := s.atOnce(ctx, parts); {
		case err == nil:
			for _, i := range order {
				s.ctx = s.all[i].WithContext(s.ctx)
			}
			return s, nil
		case ctx.Err() != nil:
			if !errors.Is(err, ctx.Err()) || !errors.Is(err, context.Cause(ctx)) {
				err = parts[0].fail("acquire", session.WithTrouble(session.EndOf(ctx), err))
			}
			return nil, err
		}
	}
	if err := s.inOrder(ctx, parts, order); err != nil {
		return nil, err
	}
	return s, nil
}

// leastPass is how long the slowest of several locks that are tried at the same time may take
// longer than the fastest. The stores may be far away.
const leastPass = 250 * time.Millisecond

var (
	errSlowPass  = errors.New("holdfast: one takes longer than the others")
	errAbandoned = errors.New("holdfast: a hook has not returned")
)

// atOnce tries all locks at the same time. If one cannot be had now, it gives back the others, and
// returns why.
func (s *Leases) atOnce(ctx context.Context, parts []part) (failed error) {
	trying, cancel := context.WithCancel(ctx)
	defer cancel()
	type answer struct {
		of    int
		lease *Lease
		err   error
	}
	answers := make(chan answer, len(parts))
	panics := make(chan any, 2*len(parts)) // of hooks
	for i, p := range parts {
		go func() {
			a := answer{of: i, err: errAbandoned}
			defer func() { answers <- a }()
			caught(panics, func() { a.lease, a.err = p.get(trying, false) })
		}()
	}
	var back sync.WaitGroup
	giveBack := func(l *Lease) { back.Go(func() { caught(panics, func() { l.undo(ctx) }) }) }
	giveUp := func(err error) {
		if failed != nil {
			return
		}
		failed = err
		cancel()
		for _, l := range s.all {
			if l != nil {
				giveBack(l)
			}
		}
		clear(s.all)
	}
	began := time.Now()
	var late <-chan time.Time
	for left := len(parts); left > 0; {
		select {
		case a := <-answers:
			left--
			if late == nil {
				late = time.After(max(leastPass, 4*time.Since(began)))
			}
			switch {
			case a.err != nil:
				giveUp(a.err)
			case failed != nil:
				giveBack(a.lease)
			default:
				s.all[a.of] = a.lease
			}
		case <-late:
			giveUp(errSlowPass)
		}
	}
	if ctx.Err() == nil { // else nobody waits for what is undone, as in Lease
		back.Wait()
	}
	select {
	case v := <-panics:
		panic(v) // where the caller can recover from it
	default:
		return failed
	}
}

// inOrder takes the locks one after the other.
func (s *Leases) inOrder(ctx context.Context, parts []part, order []int) error {
	undo := func() <-chan any {
		return together(len(s.all), func(n int) {
			if s.all[n] != nil {
				s.all[n].undo(ctx)
			}
		})
	}
	returned := false
	defer func() {
		if !returned { // a hook panics
			<-undo()
		}
	}()
	for _, i := range order {
		returned = false
		lease, err := parts[i].get(ctx, true)
		if returned = true; err != nil {
			undone := undo()
			if ctx.Err() == nil { // else nobody waits for what is undone, as in Lease
				if v := <-undone; v != nil {
					panic(v) // of a hook
				}
			}
			return err
		}
		s.all[i] = lease
		ctx = lease.WithContext(ctx) // ends the waiting if this one is lost
		s.ctx = lease.WithContext(s.ctx)
	}
	return nil
}

// Leases are the leases that [All] has taken. Its methods may be called from any goroutine.
type Leases struct {
	all []*Lease // in the order of the arguments; nil for those that were not taken
	ctx context.Context
}

// Context returns a context that ends as soon as any of the leases does. If one is lost, the
// cause matches [ErrLost]. It has the values of the context that All was called with. Guards,
// such as [GuardHook] and those below package fence, look at all of the leases.
func (s *Leases) Context() context.Context {
	if s == nil || s.ctx == nil {
		panic("holdfast: nil or zero Leases: check the error of All")
	}
	return s.ctx
}

// Each returns the leases in the order in which All was given their locks, such as for
// their fences. For work under all of them use Context: that of one lease may come from others.
func (s *Leases) Each() []*Lease { return slices.Clone(s.all) }

// Err returns nil while all leases are held. Otherwise it returns the [Lease.Err] of one
// that is over.
func (s *Leases) Err() error {
	for _, l := range s.all {
		if err := l.Err(); err != nil {
			return err
		}
	}
	return nil
}

// Release gives up all locks at once, each as [Lease.Release] does. If that fails for some,
// it returns their errors in one. Hooks are called for all of them at the same time, on other
// goroutines.
func (s *Leases) Release(ctx context.Context) error {
	errs := make([]error, len(s.all))
	if v := <-together(len(s.all), func(n int) {
		if s.all[n] != nil {
			errs[n] = s.all[n].Release(ctx)
		}
	}); v != nil {
		panic(v) // of a hook
	}
	var failed error
	for _, err := range errs {
		switch {
		case failed == nil:
			failed = err
		case err != nil:
			failed = fmt.Errorf("%w; %w", failed, err)
		}
	}
	return failed
}

// together calls f with 0 to n-1, all at the same time. When all calls have returned, the channel gets
// one value: what one of them has panicked with, or nil. One after the other would take the time of
// a store that does not answer once for each.
func together(n int, f func(int)) <-chan any {
	done, panics := make(chan any, 1), make(chan any, n)
	var left sync.WaitGroup
	for i := range n {
		left.Go(func() { caught(panics, func() { f(i) }) })
	}
	go func() {
		left.Wait()
		close(panics)
		done <- <-panics
	}()
	return done
}

// caught calls f and passes on what it panics with, for a goroutine on which nobody could recover
// from it.
func caught(panics chan<- any, f func()) {
	defer func() {
		if v := recover(); v != nil {
			panics <- v
		}
	}()
	f()
}
