// Package tusdlock lets several [tusd] servers work on the same uploads: a handler.Locker whose locks
// live in a store of holdfast.
//
//	composer := handler.NewStoreComposer()
//	store.UseIn(composer)
//	tusdlock.New(locks).UseIn(composer)
//
// A client of tus that has lost its connection comes back, often to another server, while the
// first one still waits for data that will not come. The second server asks for the lock of the upload. Then
// the first is told to finish, by [holdfast.Lease.Wanted], saves what it has, and lets go.
//
// A server that has lost the lock, as in an outage of the store, is told to finish, too. tusd has no
// fences, so a write under way may still come after that of the next server. See the
// documentation of package holdfast.
//
// [tusd]: https://github.com/tus/tusd
package tusdlock

import (
	"context"
	"errors"
	"time"

	"github.com/tus/tusd/v2/pkg/handler"

	"github.com/holdfast-go/holdfast"
)

// releaseTimeout bounds how long a request waits for a store that does not answer. The release goes on
// in the background.
const releaseTimeout = 3 * time.Second

// Locker is a handler.Locker.
type Locker struct {
	locks *holdfast.Client
	opts  []holdfast.LockOption
}

var _ handler.Locker = (*Locker)(nil)

// New returns a locker that has a mutex for each upload, with the id of the upload as its name.
// Requests to one server queue in the store as those to several do, see [holdfast.WithStrictFIFO]; so New
// panics if opts have [holdfast.WithLinger].
func New(locks *holdfast.Client, opts ...holdfast.LockOption) *Locker {
	opts = append(opts[:len(opts):len(opts)], holdfast.WithStrictFIFO())
	locks.Mutex("upload", opts...) // panics now, rather than at the first upload
	return &Locker{locks, opts}
}

// UseIn adds the locker to a composer.
func (l *Locker) UseIn(composer *handler.StoreComposer) { composer.UseLocker(l) }

// NewLock implements handler.Locker.
func (l *Locker) NewLock(id string) (handler.Lock, error) {
	return &lock{mu: l.locks.Mutex(id, l.opts...)}, nil
}

type lock struct {
	mu    *holdfast.Mutex
	lease *holdfast.Lease
}

// Lock implements handler.Lock. If ctx ends while another holds the lock, the error is
// handler.ErrLockTimeout. If the store is unavailable, the error says so.
func (l *lock) Lock(ctx context.Context, requestRelease func()) error {
	lease, err := l.mu.Lease(ctx)
	if errors.Is(err, holdfast.ErrLocked) {
		return handler.ErrLockTimeout
	}
	if err != nil {
		return err
	}
	l.lease = lease
	wanted := lease.Wanted()
	go func() {
		select {
		case <-wanted:
			requestRelease()
		case <-lease.Done():
			if errors.Is(lease.Err(), holdfast.ErrLost) {
				requestRelease()
			}
		}
	}()
	return nil
}

// Unlock implements handler.Lock.
func (l *lock) Unlock() error {
	ctx, cancel := context.WithTimeout(context.Background(), releaseTimeout)
	defer cancel()
	return l.lease.Release(ctx)
}
