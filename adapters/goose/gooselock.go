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

	"github.com/pressly/goose/v3/lock"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/byname"
)

// New returns what [goose.WithLocker] wants. Processes with one name migrate one after the
// other, in the order in which they came. They wait until their context ends, or for
// [holdfast.WithWait].
//
// [goose.WithLocker]: https://pkg.go.dev/github.com/pressly/goose/v3#WithLocker
func New(locks *holdfast.Client, name string, opts ...holdfast.LockOption) lock.Locker {
	return &locker{name: name, mutex: locks.Mutex(name, opts...)}
}

type locker struct {
	name  string
	mutex *holdfast.Mutex
	held  byname.Leases // of the caller that migrates, and of those that lost the lock
}

// Lock implements [lock.Locker].
func (l *locker) Lock(ctx context.Context, _ *sql.DB) error {
	return l.held.Keep(l.mutex.Lease(ctx))
}

// Unlock implements [lock.Locker].
func (l *locker) Unlock(ctx context.Context, _ *sql.DB) error {
	return l.held.Release(ctx, l.name)
}
