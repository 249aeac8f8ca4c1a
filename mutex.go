package holdfast

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/claim"
	"github.com/holdfast-go/holdfast/internal/leasectx"
	"github.com/holdfast-go/holdfast/internal/local"
	"github.com/holdfast-go/holdfast/internal/session"
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
// If the store refuses for good, such as for lack of permission, Lease returns the error at
// once; the error says what to do. But a client that the store has served before waits out a
// password that is rotated and a right that is taken away, see [driver.ErrDenied]. Transient
// errors, such as a broken connection, are
// retried. A wait of more than 2 s for a store in trouble is logged, then ever more rarely.
// If ctx ends first, the error matches its cause. It also matches the last answer
// of the store, [ErrLocked] or an error. Lease then returns within 10 ms, even if Redis does
// not answer, and the rest is undone in the background. A ctx that has
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
// TryLease does not wait for others, but for the store: until ctx ends, or the third attempt
// has failed. Then it returns the store's last error. If connections are refused, that takes
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
// once it has had to wait for a lock. Otherwise the holder loses the lease when it tries to
// renew it. Until then two holders exist. The old holder's process may pass the lock on to
// its other goroutines, with fences smaller than that of the new holder.
//
// If nobody holds the lock, the error matches [ErrNotHeld]. ForceUnlock is not repeated
// when its answer was lost, for a repeat could hit the next holder. After any error other
// than [ErrNotHeld], see with Inspect who holds the lock.
func (m *Mutex) ForceUnlock(ctx context.Context) error {
	return m.force(ctx)
}

// Lock waits for the lock. It waits out outages of the store, and logs them: after 2 s,
// then ever more rarely. The log gives the kind and name of the lock and the reason.
//
// Of a client that is closed, before or meanwhile, Lock never returns: the program is about to
// end, and the log says so once. Use Lease or Do for a wait that must end.
//
// Lock panics on misuse: a bad name, or a closed Redis client. It also panics if the
// store refuses for good before it has carried out any command of this client. Such
// refusals are no permission, a wrong password, a key of another type, or an error of the
// user's own dialer or hook. Lock waits out a later refusal: a rotated password must not
// crash a fleet.
//
// Lock has no way to tell that the lock was lost; the loss is logged. In this process the
// lock nevertheless stays locked until Unlock. So the Unlock of one goroutine never undoes a
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
// may wait for as long as the Redis client's ReadTimeout. If Redis cannot be told at all, the
// log says so, and the lock stays taken until its TTL has passed.
func (m *Mutex) Unlock() {
	if !m.unlock(false) {
		panic(fmt.Sprintf("holdfast: unlock of unlocked mutex %q", m.name))
	}
}

// tryWait is how long TryLock waits for the store.
const tryWait = time.Second

// handle is the common part of Mutex, RWMutex and Semaphore: the name of a lock, and the way
// to hold it.
type handle struct {
	_      noCopy
	c      *Client
	kind   driver.Kind
	name   string
	config *config
	kept   local.Kept // of the lock
}

func (c *Client) handle(k driver.Kind, name string, opts []LockOption) handle {
	c.made()
	cfg := &c.config // which most have in common
	if len(opts) > 0 {
		own := c.config
		for _, o := range opts {
			o.apply(&own)
		}
		own.hold = c.options(own)
		cfg = &own
	}
	return handle{c: c, kind: k, name: name, config: cfg}
}

// client returns the client that has made the handle. It panics if none has.
func (h *handle) client() *Client {
	if h.c == nil {
		panic("holdfast: zero Mutex, RWMutex or Semaphore: use the method of a Client that makes one")
	}
	return h.c
}

// base identifies the lock without an owner.
func (h *handle) base() local.ID { return local.ID{Kind: h.kind, Name: h.name} }

// id identifies the lock with its owner. Permits, and a lock held for reading, have no owner.
func (h *handle) id(shared bool) local.ID {
	id := h.base()
	if h.kind != driver.Semaphore && !shared {
		id.Owner = h.config.hold.Owner
	}
	return id
}

func (h *handle) fail(op string, err error) error {
	e := &LockError{Op: op + " " + string(h.kind), Name: h.name, Err: err}
	var held *claim.Held
	if errors.As(err, &held) {
		e.Holder, e.HeldFor = held.Holder, held.For
	}
	return e
}

// lock gets a hold and leaves it with the lock, where unlock finds it. With wait it waits
// for others, and for outages of the store to pass; without, it reports false if others
// have it.
func (h *handle) lock(shared, wait bool) bool {
	if err := h.invalid(); err != nil {
		h.misuse(err)
	}
	if !shared && h.c.hooks.Load() == nil && h.kept.Again(h.config.hold) {
		return true
	}
	ctx := context.Background()
	if !wait {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, tryWait)
		defer cancel()
	}
	w := local.Want{Shared: shared, Wait: wait, Sync: true, Options: h.config.hold}
	if !wait {
		w.Patience = h.config.wait
	}
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		lock, hooks := h.c.locks.Ref(h.id(shared), &h.kept), h.c.hooks.Load()
		grouped := shared && hooks == nil && w.Options.Grouped()
		if grouped && lock.JoinReaders(&w) {
			return true
		}
		var held *local.Hold
		var err error
		if hooks == nil {
			held, err = lock.Acquire(ctx, &w)
		} else {
			held, err = h.hooked(ctx, hooks, lock, w)
		}
		if err == nil && !lock.Deposit(held) {
			held, err = nil, ErrClosed // which has released it
		}
		if grouped {
			lock.Admit(&w, held)
		}
		if err == nil {
			return true
		}
		lock.Unref()
		switch {
		case errors.Is(err, ErrClosed) && wait:
			h.strand()
		case h.fatal(err):
			h.misuse(err)
		case !wait:
			return false
		case w.Said == nil:
			w.Said = &session.Complaint{Op: "acquire", Kind: h.kind, Name: h.name, Log: w.Options}
		}
		w.Said.Persist(err)
		select {
		case <-h.c.session.Closing():
			h.strand()
		case <-time.After(min(pause, w.Said.Tell(h.c.session))):
		}
	}
}

// unlock undoes what lock has done, and reports whether there is anything to undo.
func (h *handle) unlock(shared bool) bool {
	held, ok := h.client().locks.TakeBack(h.id(shared), &h.kept, shared)
	if held == nil {
		return ok
	}
	if hooks := h.c.hooks.Load(); hooks != nil {
		_ = hooks.surely((*Lease)(held), context.WithoutCancel(held.Context()), 0, (*local.Hold).ReleaseBriefly)
	} else {
		_ = held.ReleaseBriefly(held.Values()) // for the span
	}
	return true
}

// invalid is why nobody can lock this, whatever the state of the store.
func (h *handle) invalid() error {
	c := h.client()
	if !validName(h.name) {
		return ErrInvalidName
	}
	if ttl := h.config.hold.TTL; ttl < c.least {
		return fmt.Errorf("a TTL of %v: on this store leases last at least %v: %w", ttl, c.least, errors.ErrUnsupported)
	}
	return nil
}

// lease gets a lease.
func (h *handle) lease(ctx context.Context, w local.Want, verb string) (*Lease, error) {
	if err := h.invalid(); err != nil {
		return nil, h.fail(verb, err)
	}
	w.Options, w.Patience, w.MaxWaiters = h.config.hold, h.config.wait, h.config.maxWaiters
	lock := h.c.locks.Ref(h.id(w.Shared || w.From != nil), &h.kept)
	defer lock.Unref()
	if hooks := h.c.hooks.Load(); hooks != nil {
		held, err := h.hooked(ctx, hooks, lock, w)
		return (*Lease)(held), err
	}
	held, err := lock.Acquire(ctx, &w)
	if err != nil {
		return nil, h.fail(verb, err)
	}
	return (*Lease)(held), nil
}

// fatal reports whether an error is one that forms without an error cannot live with.
func (h *handle) fatal(err error) bool {
	refused := !errors.Is(err, driver.ErrTransient) && !errors.Is(err, ErrLocked) &&
		!errors.Is(err, context.DeadlineExceeded) && !h.c.session.Accepted()
	return !errors.Is(err, ErrClosed) && (refused || errors.Is(err, ErrInvalidName) || errors.Is(err, redis.ErrClosed) ||
		errors.Is(err, errors.ErrUnsupported))
}

// strand never returns, as there is no lock to return with. A panic would end each graceful
// shutdown with a stack trace. The wrong version called runtime.Goexit: that runs the deferred
// functions of the caller, which may tell others of work that was never done.
//
// Each goroutine logs its end itself. In a bubble of testing/synctest, where none may stay, the
// handler of a test can end it there.
func (h *handle) strand() {
	if log := h.config.hold.Log(); !h.c.stranded.Swap(true) {
		log.Warn("holdfast: the client is closed, so Lock never returns", "kind", string(h.kind), "lock", h.name)
	} else {
		log.Debug("holdfast: the client is closed, so Lock never returns", "kind", string(h.kind), "lock", h.name)
	}
	select {}
}

func (h *handle) misuse(err error) {
	panic(&LockError{Op: "lock " + string(h.kind), Name: h.name, Err: err})
}

// inspect and force serve the methods of all primitives.

func (h *handle) inspect(ctx context.Context) (Info, error) {
	i, ok := driver.As[driver.Inspector](h.client().session.Driver)
	found := make(chan Info, 1) // which may come when nobody waits any more
	err := h.c.await(ctx, h.base(), session.Errand{Op: "inspect", Able: ok, Do: func() error {
		info, err := i.Inspect(leasectx.Exempt(ctx), h.kind, h.name)
		if err == nil {
			info.Kind = h.kind
			found <- info
		}
		return err
	}})
	if err != nil {
		return Info{}, err
	}
	return <-found, nil
}

func (h *handle) force(ctx context.Context) error {
	f, ok := driver.As[driver.Forcer](h.client().session.Driver)
	return h.c.await(ctx, h.base(), session.Errand{Op: "force unlock", Able: ok, Once: true, Do: func() error {
		err := f.ForceRelease(leasectx.Exempt(ctx), h.kind, h.name)
		if errors.Is(err, driver.ErrNotHeld) {
			err = ErrNotHeld
		}
		return err
	}})
}
