// Package gooselock has the migrations of [goose] run by one process at a time.
//
//	locker := gooselock.New(locks, "migrations:shop", holdfast.WithTTL(30*time.Second))
//	p, err := goose.NewProvider(goose.DialectPostgres, db, migrations, goose.WithLocker(locker))
//
// The lock is not in the database that is migrated, so it works with every dialect, and behind
// a pooler of connections such as PgBouncer, where locks of sessions do not.
//
// goose cannot stop a migration whose lock is lost; choose a TTL that outlasts a failover of
// the store. If the lock was lost while goose had it, goose returns an error that matches
// [holdfast.ErrLost], though the migrations may have been done.
//
// [goose]: https://github.com/pressly/goose
package gooselock

import (
	"context"
	"database/sql"
	"sync"

	"github.com/pressly/goose/v3/lock"

	"github.com/holdfast-go/holdfast"
)

// New returns what [goose.WithLocker] wants. Processes with one name migrate one after the
// other, in the order in which they came. They wait until their context ends, or for
// [holdfast.WithWait].
//
// [goose.WithLocker]: https://pkg.go.dev/github.com/pressly/goose/v3#WithLocker
func New(locks *holdfast.Client, name string, opts ...holdfast.LockOption) lock.Locker {
	return &locker{mutex: locks.Mutex(name, opts...)}
}

type locker struct {
	mutex *holdfast.Mutex

	mu    sync.Mutex
	lease *holdfast.Lease // of the caller that migrates; nil if there is none
}

// Lock implements [lock.Locker].
func (l *locker) Lock(ctx context.Context, _ *sql.DB) error {
	lease, err := l.mutex.Lease(ctx)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lease = lease
	return nil
}

// Unlock implements [lock.Locker].
func (l *locker) Unlock(ctx context.Context, _ *sql.DB) error {
	l.mu.Lock()
	lease := l.lease
	l.lease = nil
	l.mu.Unlock()
	if lease == nil {
		return holdfast.ErrNotHeld
	}
	return lease.Release(ctx)
}
