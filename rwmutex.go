package holdfast

import (
	"context"
	"fmt"
	"sync"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/local"
)

// RWMutex is a lock that either one writer or any number of readers hold at a time, among
// all processes that use the same store. It can replace a [sync.RWMutex]. Use
// [RWMutex.Lease], [RWMutex.RLease] and [RWMutex.Do] where code must know if the lock is
// lost.
//
// Readers and writers wait in one queue, first come, first served. So a writer that waits
// holds up the readers that come after it, and no stream of readers can starve the writer.
// It follows that a reader must not read-lock again: a writer may have come in between, and
// then each waits for the other.
//
// Each reader has a lease of its own, except that readers of one client by RLock and
// TryRLock may share one, see [WithStrictFIFO]. A reader that crashes keeps writers waiting
// for a TTL, as a writer does, whatever the other readers do.
//
// An RWMutex is a cheap handle. All handles of one name are the same lock, including for
// Unlock and RUnlock, which any goroutine may call. A [Mutex] of that name is another lock.
type RWMutex struct{ handle }

var _ sync.Locker = (*RWMutex)(nil)

// RWMutex returns the read-write lock with that name, as [Client.Mutex] does.
func (c *Client) RWMutex(name string, opts ...LockOption) *RWMutex {
	return &RWMutex{c.handle(driver.RWMutex, name, opts)}
}

// Lease waits for the lock, for writing, as [Mutex.Lease] does. If ctx comes from a lease
// on this lock, including one for reading, the error is [ErrDeadlock]. A reader cannot
// become a writer without letting go first.
func (rw *RWMutex) Lease(ctx context.Context) (*Lease, error) {
	return rw.lease(ctx, local.Want{Wait: true}, "acquire")
}

// TryLease returns a lease for writing if nobody holds the lock or waits for it. Otherwise
// it returns an error that matches [ErrLocked]. In an outage it does what [Mutex.TryLease]
// does.
func (rw *RWMutex) TryLease(ctx context.Context) (*Lease, error) {
	return rw.lease(ctx, local.Want{}, "acquire")
}

// RLease waits for the lock, for reading, as [RWMutex.Lease] does for writing.
func (rw *RWMutex) RLease(ctx context.Context) (*Lease, error) {
	return rw.lease(ctx, local.Want{Shared: true, Wait: true}, "acquire")
}

// TryRLease returns a lease for reading if no writer holds the lock and nobody waits for
// it. Otherwise it returns an error that matches [ErrLocked]. If that is because a writer waits,
// the error says that others come first, and names no holder. In an outage it does what
// [Mutex.TryLease] does.
func (rw *RWMutex) TryRLease(ctx context.Context) (*Lease, error) {
	return rw.lease(ctx, local.Want{Shared: true}, "acquire")
}

// Do calls f with the lock held for writing, as [Mutex.Do] does.
func (rw *RWMutex) Do(ctx context.Context, f func(ctx context.Context) error) error {
	return rw.do(ctx, local.Want{Wait: true}, f)
}

// RDo calls f with the lock held for reading, as [Mutex.Do] does.
func (rw *RWMutex) RDo(ctx context.Context, f func(ctx context.Context) error) error {
	return rw.do(ctx, local.Want{Shared: true, Wait: true}, f)
}

// TryDo calls f with the lock held for writing if it is free, as [Mutex.TryDo] does.
func (rw *RWMutex) TryDo(ctx context.Context, f func(ctx context.Context) error) error {
	return rw.do(ctx, local.Want{}, f)
}

// TryRDo calls f with the lock held for reading if no writer has it or waits for it, as
// [Mutex.TryDo] does.
func (rw *RWMutex) TryRDo(ctx context.Context, f func(ctx context.Context) error) error {
	return rw.do(ctx, local.Want{Shared: true}, f)
}

// Inspect says who holds the lock and who waits, as [Mutex.Inspect] does.
func (rw *RWMutex) Inspect(ctx context.Context) (Info, error) { return rw.inspect(ctx) }

// ForceUnlock takes the lock from all its holders, readers or writer, as
// [Mutex.ForceUnlock] does.
func (rw *RWMutex) ForceUnlock(ctx context.Context) error { return rw.force(ctx) }

// Steal takes the lock from all its holders, readers or writer, and returns a lease for writing, as
// [Mutex.Steal] does.
func (rw *RWMutex) Steal(ctx context.Context) (*Lease, error) { return rw.steal(ctx) }

// Lock waits for the lock, for writing. It treats outages, misuse and a lost lock as
// [Mutex.Lock] does.
func (rw *RWMutex) Lock() { rw.lock(false, true) }

// TryLock tries to lock for writing, as [Mutex.TryLock] does.
func (rw *RWMutex) TryLock() bool { return rw.lock(false, false) }

// Unlock undoes a Lock or TryLock, as [Mutex.Unlock] does.
func (rw *RWMutex) Unlock() {
	if !rw.unlock(false) {
		panic(fmt.Sprintf("holdfast: Unlock of unlocked RWMutex %q", rw.name))
	}
}

// RLock waits for the lock, for reading, as [RWMutex.Lock] does for writing.
func (rw *RWMutex) RLock() { rw.lock(true, true) }

// TryRLock tries to lock for reading, as [Mutex.TryLock] does.
func (rw *RWMutex) TryRLock() bool { return rw.lock(true, false) }

// RUnlock undoes one RLock or TryRLock, as [Mutex.Unlock] undoes Lock.
func (rw *RWMutex) RUnlock() {
	if !rw.unlock(true) {
		panic(fmt.Sprintf("holdfast: RUnlock of unlocked RWMutex %q", rw.name))
	}
}

// RLocker returns a [sync.Locker] whose Lock and Unlock are RLock and RUnlock.
func (rw *RWMutex) RLocker() sync.Locker { return (*rlocker)(rw) }

type rlocker RWMutex

func (r *rlocker) Lock()   { (*RWMutex)(r).RLock() }
func (r *rlocker) Unlock() { (*RWMutex)(r).RUnlock() }
