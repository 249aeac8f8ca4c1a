// Package certmagiclock has the servers of a fleet obtain and renew each certificate once, with
// [certmagic], whatever storage they share.
//
//	certmagic.Default.Storage = certmagiclock.New(certmagic.Default.Storage, locks)
//
// The locks of certmagic's own storage are files that are polled, and kept as long as a
// timestamp in them is fresh. Here waiters come in their order, at once.
//
// certmagic cannot stop what it does under a lock that is lost, such as asking an authority
// for a certificate. It may then be done twice, which costs no more than that.
//
// [certmagic]: https://github.com/caddyserver/certmagic
package certmagiclock

import (
	"context"
	"errors"
	"time"

	"github.com/caddyserver/certmagic"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/byname"
)

// Storage is a [certmagic.Storage] with locks of this package.
type Storage struct {
	certmagic.Storage // where certificates are

	locks *holdfast.Client
	opts  []holdfast.LockOption

	held byname.Leases
}

var (
	_ certmagic.Storage          = (*Storage)(nil)
	_ certmagic.TryLocker        = (*Storage)(nil)
	_ certmagic.LockLeaseRenewer = (*Storage)(nil)
)

// New returns a storage that keeps certificates in inner, whose locks are no longer used. All
// servers that share inner must use it with the same locks.
func New(inner certmagic.Storage, locks *holdfast.Client, opts ...holdfast.LockOption) *Storage {
	return &Storage{Storage: inner, locks: locks, opts: opts}
}

// Lock waits for the lock until ctx ends, see [holdfast.Mutex.Lease] for its errors.
func (s *Storage) Lock(ctx context.Context, name string) error {
	return s.held.Keep(s.locks.Mutex(name, s.opts...).Lease(ctx))
}

// TryLock takes the lock if it is free, and reports whether it did.
func (s *Storage) TryLock(ctx context.Context, name string) (bool, error) {
	err := s.held.Keep(s.locks.Mutex(name, s.opts...).TryLease(ctx))
	if errors.Is(err, holdfast.ErrLocked) {
		return false, nil
	}
	return err == nil, err
}

// Unlock gives the lock up. If it was lost before, the error matches [holdfast.ErrLost]. If this
// storage does not hold it, the error matches [holdfast.ErrNotHeld].
//
// certmagic does not say who unlocks. If a lock was lost and taken again here, whoever unlocks
// first gets ErrLost, and the lock is given up once both have unlocked.
func (s *Storage) Unlock(ctx context.Context, name string) error { return s.held.Release(ctx, name) }

// RenewLockLease does nothing, since leases are renewed by themselves for as long as the lock
// is held. If the lock is lost, it returns an error that matches [holdfast.ErrLost], until Unlock.
func (s *Storage) RenewLockLease(_ context.Context, name string, _ time.Duration) error {
	return s.held.Err(name)
}
