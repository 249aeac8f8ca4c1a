package holdfast

import (
	"cmp"
	"context"
	"fmt"
	"slices"
)

// All takes several locks: all of them, or none. It waits as [Mutex.Lease] does.
//
//	both, err := holdfast.All(ctx, accounts("alice"), accounts("bob"))
//	if err != nil {
//		return err
//	}
//	defer both.Release(ctx)
//	transfer(both.Context())
//
// Calls of All never wait for each other in a circle, in whatever order they name the locks,
// since each takes them in the order of their names. Code that takes some of these locks one
// by one must do so in that order, too. While All waits for one lock it holds those before
// it.
//
// If a lock cannot be had, All gives back the others and returns the error. If a lock is
// lost while All waits for the next, the error matches [ErrLost]. If a lock is named twice,
// the error matches [ErrDeadlock]. All panics if the locks are of several clients, whose
// names have no order, or if there are none.
func All(ctx context.Context, locks ...*Mutex) (*Leases, error) {
	if len(locks) == 0 {
		panic("holdfast: All of no locks")
	}
	order := make([]int, len(locks))
	for i, m := range locks {
		if m.c != locks[0].c {
			panic("holdfast: All of locks of several clients")
		}
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int { return cmp.Compare(locks[i].name, locks[j].name) })
	for n, i := range order[1:] {
		if m := locks[i]; m.name == locks[order[n]].name {
			return nil, m.fail("acquire", fmt.Errorf("%w: it is named twice", ErrDeadlock))
		}
	}

	s := &Leases{all: make([]*Lease, len(locks)), order: order, ctx: context.WithoutCancel(ctx)}
	for n, i := range order {
		lease, err := locks[i].Lease(ctx)
		if err != nil {
			s.order = order[:n]
			_ = s.Release(ctx)
			return nil, err
		}
		s.all[i] = lease
		ctx = lease.WithContext(ctx) // ends the waiting if this one is lost
		s.ctx = lease.WithContext(s.ctx)
	}
	return s, nil
}

// Leases are the leases that [All] has taken. Its methods may be called from any goroutine.
type Leases struct {
	all   []*Lease // in the order of the arguments
	order []int    // in which they were taken
	ctx   context.Context
}

// Context returns a context that ends as soon as any of the leases does. If one is lost, the
// cause matches [ErrLost]. It has the values of the context that All was called with. Guards,
// such as [GuardHook] and those below package fence, look at all of the leases.
func (s *Leases) Context() context.Context { return s.ctx }

// Each returns the leases in the order in which All was given their locks, such as for
// their fences.
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

// Release gives up all locks as [Lease.Release] does, the last one that was taken first. If
// that fails for some, it returns their errors in one.
func (s *Leases) Release(ctx context.Context) error {
	var failed error
	for _, i := range slices.Backward(s.order) {
		switch err := s.all[i].Release(ctx); {
		case failed == nil:
			failed = err
		case err != nil:
			failed = fmt.Errorf("%w; %w", failed, err)
		}
	}
	return failed
}
