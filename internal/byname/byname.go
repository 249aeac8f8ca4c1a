// Package byname keeps leases for interfaces whose Unlock says a name and not which lock is meant.
package byname

import (
	"context"
	"slices"
	"sync"

	"github.com/holdfast-go/holdfast"
)

// Leases are those that callers of one process have not given up. The zero value is ready for use.
//
// A lock that was lost has a next holder, maybe in this process, before the first one calls Unlock.
// So there can be more than one lease of a name. All but the newest are lost, and all are kept
// until as many callers as there are leases have given up.
type Leases struct {
	mu   sync.Mutex
	held map[string][]*holdfast.Lease // oldest first
}

// Keep keeps a lease, if there is one, and returns err.
func (l *Leases) Keep(lease *holdfast.Lease, err error) error {
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held == nil {
		l.held = map[string][]*holdfast.Lease{}
	}
	l.held[lease.Name()] = append(l.held[lease.Name()], lease)
	return nil
}

// Release gives up a lease that is lost, whoever calls, and the one that is not lost last. Whoever
// unlocks first, the lock is thus held until all have unlocked. If the lease was lost, the error
// matches [holdfast.ErrLost], if there is none, [holdfast.ErrNotHeld].
func (l *Leases) Release(ctx context.Context, name string) error {
	l.mu.Lock()
	lease := l.next(name)
	if all := l.held[name]; len(all) > 1 {
		i := slices.Index(all, lease)
		l.held[name] = slices.Delete(all, i, i+1)
	} else {
		delete(l.held, name)
	}
	l.mu.Unlock()
	if lease == nil {
		return holdfast.ErrNotHeld
	}
	return lease.Release(ctx)
}

// Err tells of the lease that Release would give up, so nobody who lost a lock is told that all is well.
func (l *Leases) Err(name string) error {
	l.mu.Lock()
	lease := l.next(name)
	l.mu.Unlock()
	if lease == nil {
		return holdfast.ErrNotHeld
	}
	return lease.Err()
}

// next prefers a lease that is known to be lost. Else the oldest is, or will be.
func (l *Leases) next(name string) *holdfast.Lease {
	all := l.held[name]
	for _, lease := range all {
		if lease.Err() != nil {
			return lease
		}
	}
	if len(all) == 0 {
		return nil
	}
	return all[0]
}
