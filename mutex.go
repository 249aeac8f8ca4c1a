package holdfast

import (
	"context"
	"fmt"
	"sync"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/local"
)

// Mutex is a lock with one holder at a time among all processes that use the same store. It
// can replace a [sync.Mutex]. Use [Mutex.Lease] or [Mutex.Do] where code must know if the
// lock is lost.
//
// A Mutex is a cheap handle. All handles of one name are the same lock, including for
// Unlock, which any goroutine may call. A Mutex is not reentrant, but see [WithReentrancy]
// and [WithOwner]. It is made by [Client.Mutex]; the methods of a zero Mutex panic, as do
// those of a zero [RWMutex] or [Semaphore].
type Mutex struct{ handle }

var _ sync.Locker = (*Mutex)(nil)

// Info says who holds a lock and who waits for it.
type Info = driver.Info

// Holder describes one holder of a lock, and Waiter one waiter.
type (
	Holder = driver.Holder
	Waiter = driver.Waiter
)

// Mutex returns the mutex with that name, any 1 to 512 bytes. If the name is empty or
// longer, Lock and its like panic, and the other methods return [ErrInvalidName].
func (c *Client) Mutex(name string, opts ...LockOption) *Mutex {
	return &Mutex{c.handle(driver.Mutex, name, opts)}
}

// Lease waits for the lock until ctx ends, and returns the lease under which it is held.
// ctx bounds the waiting only, not the holding. Waiters are served first come, first
// served. Those of one client are served in turns, see [WithStrictFIFO].
//
// Lease returns at once an error that is known to be the same next time, such as that of a key of
// another type; the error says what to do. Any other trouble may pass, and is waited out, also by the
// first call of a client: a broken connection, a certificate that does not verify, what a proxy
// says, an error of the program's own dialer, limiter, provider of credentials or hook of go-redis.
// A wrong password and a missing right end the first call. But a client that the store has served
// before waits until they are mended, see [driver.ErrDenied].
// A wait of more than 2 s for a store in trouble is logged with the last error, then ever more rarely.
// If ctx ends first, the error matches both its Err and its cause. It also matches the last answer
// of the store, [ErrLocked] or an error. Lease then returns within 10 ms, even if Redis does
// not answer, and the rest is undone in the background. There is one exception: if the store has answered in
// the last 50 ms, Lease waits for the answer to its first command as go-redis does. If the store is silent from then on, Lease
// hears that ctx was canceled when that command ends: after the Redis client's ReadTimeout, 5 s by default, or up to 2 s later. It
// keeps to a deadline all the same. With a ReadTimeout above 5 s or half the TTL there is no exception. A ctx that has
// already ended never gets the lock.
//
// If ctx comes from a lease of this client on this lock that is still held, the error is
// [ErrDeadlock], including from [Mutex.TryLease]. With [WithReentrancy], the new lease is
// nested instead.
func (m *Mutex) Lease(ctx context.Context) (*Lease, error) {
	return m.lease(ctx, local.Want{Wait: true}, "acquire")
}

// TryLease returns a lease if the lock is free and nobody waits for it. Otherwise it
// returns an error that matches [ErrLocked]; its [LockError] says who holds the lock, or that
// others wait for it. If the lock is taken away by force before TryLease has heard of its
// grant, the error matches [ErrLost].
//
// TryLease does not wait for others, but for the store: until ctx ends, as [Mutex.Lease] does, or the third attempt
// has failed. Then it returns the store's last error, which matches [ErrUnavailable] unless it is known
// to last. If connections are refused, or a certificate does not verify, that takes
// about a second. If the store is silent, an attempt fails after the Redis client's
// ReadTimeout.
func (m *Mutex) TryLease(ctx context.Context) (*Lease, error) {
	return m.lease(ctx, local.Want{}, "acquire")
}

// Do waits for the lock as [Mutex.Lease] does, calls f, and releases the lock, even if f
// panics. The context for f ends when ctx ends or the lock is lost. If the lock is lost,
// the error matches [ErrLost], whatever f returned.
func (m *Mutex) Do(ctx context.Context, f func(ctx context.Context) error) error {
	return m.do(ctx, local.Want{Wait: true}, f)
}

// TryDo is Do if the lock is free and nobody waits for it. Otherwise f is not called, and the
// error matches [ErrLocked], as that of [Mutex.TryLease]. With [WithMinHold] it runs a job once in
// a while: the process that comes first does it, and the others skip it.
func (m *Mutex) TryDo(ctx context.Context, f func(ctx context.Context) error) error {
	return m.do(ctx, local.Want{}, f)
}

// Inspect says who holds the lock and who waits, as the store sees it now. Transient errors
// are retried until ctx ends.
func (m *Mutex) Inspect(ctx context.Context) (Info, error) {
	return m.inspect(ctx)
}

// ForceUnlock takes the lock from its holder, whoever that is, and lets the next waiter
// have it. If the holder listens to the store, it loses its lease at once; a client listens
// once it has had to wait for a lock, or wants to hear of waiters. Otherwise the holder loses the lease when it tries to
// renew it. Until then two holders exist. The old holder's process may pass the lock on to
// its other goroutines, with fences smaller than that of the new holder.
//
// If nobody holds the lock, the error matches [ErrNotHeld]. ForceUnlock is not repeated
// when its answer was lost, for a repeat could hit the next holder. After any error other
// than [ErrNotHeld], see with Inspect who holds the lock.
func (m *Mutex) ForceUnlock(ctx context.Context) error {
	return m.force(ctx)
}

// Steal takes the lock from its holder, whoever that is, and returns the lease of the caller, in
// one step: with the next fence, and with nobody in between. Waiters keep their places. If nobody
// holds the lock, Steal takes it all the same, before those that wait. So steals that follow one
// another keep those that wait from the lock.
//
// A waiter holds the lock from when the store has granted it, even if it has not heard yet. If it is
// robbed before it hears, it gets a lease that is lost, or waits again: in its old place with Redis and
// PostgreSQL, and otherwise at the end of the queue.
//
// The old holder hears of it as of a [Mutex.ForceUnlock]: at once if it listens to the store or
// is of this client, and otherwise when it tries to renew its lease. The cause of its loss names
// the thief, see [WithHolder], if it has heard at once. Until it hears of it two holders exist, and
// only the resource can refuse what the old one writes, by its fence.
//
// Steal is repeated when its answer was lost, but never steals twice: if somebody else has taken the lock
// meanwhile, the error matches [ErrLost]. If it matches [ErrNotConfirmed], the old holder has lost the
// lock all the same, and the first waiter gets it. Transient errors are retried until ctx ends. If the store
// cannot do this, the error matches [errors.ErrUnsupported]. If ctx comes from a lease on this
// lock, Steal does what [Mutex.Lease] does. For hooks Steal is a way to acquire, see [AcquireOp].
func (m *Mutex) Steal(ctx context.Context) (*Lease, error) { return m.steal(ctx) }

// Lock waits for the lock. It waits out outages of the store, and all that may pass, as
// [Mutex.Lease] does, and keeps its place meanwhile. It logs them: after 2 s,
// then ever more rarely. The log gives the kind and name of the lock and the reason.
//
// Of a client that is closed, before or meanwhile, Lock never returns: the program is about to
// end, and the log says so once. Use Lease or Do for a wait that must end.
//
// Lock panics on misuse: a bad name, or a client of the store that is closed. It also panics if the
// store refuses for good before it has carried out any command of this client. Such
// refusals are no permission, a wrong password, a key of another type, a server that runs no
// scripts, or the veto of a [Hook]. Lock waits out a later refusal: a rotated password must not
// crash a fleet.
//
// Lock has no context, so package deadlock does not see it wait, nor what it holds: where locks are
// taken within each other, use Do. Lock has no way to tell that the lock was lost; the loss is logged. For Lock and its like the
// lock nevertheless stays locked in this process until Unlock. So the Unlock of one goroutine never undoes a
// later Lock of another.
func (m *Mutex) Lock() { m.lock(false, true) }

// TryLock tries to lock without waiting for others and reports whether it succeeded. It
// waits for the store at most 1 s. If the store does not answer in that time, or the client is
// closed, TryLock reports false. It panics when [Mutex.Lock] would.
func (m *Mutex) TryLock() bool { return m.lock(false, false) }

// Unlock undoes a Lock or TryLock, of any goroutine and by any handle. It panics if nothing
// is locked. It never touches a hold made with Lease.
//
// Unlock waits for the store at most 1 s, and then finishes in the background. There is one
// exception: if the store has answered in the last 50 ms, and is silent from then on, Unlock
// may wait for as long as the Redis client's ReadTimeout, and 1 s. If Redis cannot be told at all, the
// log says so, and the lock stays taken until its TTL has passed.
func (m *Mutex) Unlock() {
	if !m.unlock(false) {
		panic(fmt.Sprintf("holdfast: unlock of unlocked mutex %q", m.name))
	}
}
