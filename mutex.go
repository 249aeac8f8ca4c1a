package holdfast

import (
	"context"
	"sync"

	"github.com/holdfast-go/holdfast/driver"
)

// Mutex is a lock with one holder at a time among all processes that use the same
// store. It can replace a [sync.Mutex]; use [Mutex.Lease] or [Mutex.Do] where code
// must know if the lock is lost.
//
// A Mutex is a handle and cheap. All handles of one name are the same lock, also for
// Unlock, which any goroutine may call. It is not reentrant, but see [WithReentrancy] and
// [WithOwner].
type Mutex struct{ handle }

var _ sync.Locker = (*Mutex)(nil)

// Info tells who holds a lock and who waits for it.
type Info = driver.Info

// Holder is who holds a lock; Waiter is who waits.
type (
	Holder = driver.Holder
	Waiter = driver.Waiter
)

// Mutex returns the mutex with that name, any 1 to 512 bytes. A name that is empty or
// longer makes Lock and its like panic, and the others return [ErrInvalidName].
func (c *Client) Mutex(name string, opts ...LockOption) *Mutex {
	return &Mutex{c.handle(driver.Mutex, name, opts)}
}

// Lease waits for the lock until ctx ends, and returns the lease under which it is
// held. ctx bounds the waiting only, not the holding. Waiters are served first come,
// first served, but those of one client in turns, see [WithStrictFIFO].
//
// If the store refuses for good, such as for lack of permission, the error is
// returned at once, and says what to do. Transient errors, such as a broken connection, are
// retried; a wait of more than 2 s for a store in trouble is logged, then ever more rarely. When
// ctx ends first, the error matches its cause and what the store had answered so far,
// [ErrLocked] or its last error. Lease returns then within 10 ms, even if Redis does not
// answer, and what was under way is undone in the background. A ctx that has ended
// before never gets the lock.
//
// If ctx comes from a lease of this client on this lock that is still held, the error is
// [ErrDeadlock], also from [Mutex.TryLease]; or, with [WithReentrancy], the lease is
// nested.
func (m *Mutex) Lease(ctx context.Context) (*Lease, error) {
	return m.c.acquire(ctx, m.want(false, true), *m.config)
}

// TryLease returns the lease if the lock is free and nobody waits for it, else an
// error that matches [ErrLocked].
func (m *Mutex) TryLease(ctx context.Context) (*Lease, error) {
	return m.c.acquire(ctx, m.want(false, false), *m.config)
}

// Do waits for the lock as [Mutex.Lease] does, calls f, and releases the lock, also
// if f panics. The context for f ends when ctx ends and when the lock is lost; then
// the error matches [ErrLost], whatever f returned.
func (m *Mutex) Do(ctx context.Context, f func(ctx context.Context) error) error {
	return do(ctx, m.Lease, f)
}

// Inspect tells who holds the lock and who waits, as the store sees it now. Transient
// errors are retried until ctx ends.
func (m *Mutex) Inspect(ctx context.Context) (Info, error) {
	return m.inspect(ctx)
}

// ForceUnlock takes the lock from its holder, whoever that is, and lets the next
// waiter have it. The holder loses its lease at once if it listens to the store, as
// clients do that had to wait for a lock before, else when it tries to renew it.
// Until then there are two who believe that they hold it, and the old one's process may pass
// it on to its other goroutines, with fences smaller than that of the new one. The error matches
// [ErrNotHeld] if nobody holds the lock. It is not repeated when its answer was lost, for a
// repeat could hit the next holder: after any other error, see with Inspect who holds it.
func (m *Mutex) ForceUnlock(ctx context.Context) error {
	return m.force(ctx)
}

// Lock waits for the lock. It waits out outages of the store, and logs them: after 2 s, then
// ever more rarely, with the kind and name of the lock and the reason.
//
// It panics on misuse (a bad name, a client that is closed, also that of Redis) and if
// the store refuses for good (no permission, wrong password, a key of another type, an
// error of the user's own dialer or hook) before it has ever carried out a command of
// this client. Later such a refusal is waited out, too: a password that is rotated must
// not crash a fleet.
//
// Lock has no way to tell that the lock was lost; the loss is logged. In this process
// the lock stays locked nevertheless until Unlock, so that the Unlock of one goroutine
// never unlocks what another has locked since.
func (m *Mutex) Lock() { m.lock(false) }

// TryLock tries to lock without waiting for others and reports whether it succeeded.
// It waits for the store at most 1 s, and reports false if that does not answer. It
// panics when [Mutex.Lock] would.
func (m *Mutex) TryLock() bool { return m.tryLock(false) }

// Unlock unlocks what Lock or TryLock has locked, also from another goroutine or
// handle, and panics if nothing is. It never touches a hold made with Lease. It waits
// for the store at most 1 s and finishes in the background then; but if the store
// falls silent in the middle of a burst of commands, one Unlock may wait for as long as
// the Redis client's ReadTimeout. If Redis cannot be told at all, the log says so, and the
// lock stays taken until its TTL has passed.
func (m *Mutex) Unlock() {
	if !m.unlock(false) {
		panic("holdfast: unlock of unlocked mutex")
	}
}
