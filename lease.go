package holdfast

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/keepalive"
)

// Lease is the right to hold a lock until a deadline, which is moved on while the
// lease is renewed. It ends when it is released, or when it is lost. Its methods may
// be called from any goroutine.
type Lease struct {
	a      *acquisition
	fence  int64
	values context.Context          // which its context has, and what is done for it
	life   atomic.Pointer[lifetime] // nil until there is need of its context; set under a.mu
	plain  bool                     // nobody sees it: it can serve another when its holder is done

	end error // nil while held, then an error that matches ErrLost or ErrNotHeld; under a.mu
}

// lifetime is the context of a lease. Most of those who lock never look at it.
type lifetime struct {
	context.Context
	end     context.CancelCauseFunc
	carrier string // what others are told of us who wait
}

// live says where the lease has its values from. op is nil if there are no hooks.
func (l *Lease) live(ctx context.Context, op *AcquireOp) {
	l.values = ctx
	if op != nil && op.Holding != nil {
		l.values = op.Holding(context.WithoutCancel(ctx), l.fence)
		life := l.lifetime(l.values, holdings(ctx))
		life.carrier, _ = life.Value(carrierKey{}).(string)
		l.life.Store(life)
	}
}

func (l *Lease) lifetime(values context.Context, outer *holding) *lifetime {
	life := &lifetime{}
	life.Context, life.end = context.WithCancelCause(l.within(values, outer))
	return life
}

func (l *Lease) carrier() string {
	if life := l.life.Load(); life != nil {
		return life.carrier
	}
	return ""
}

// Context returns a context that ends when the lease does: with cause [ErrLost] when
// it is lost, before another can get the lock. It has the values of the context that
// the lease was acquired with, but neither its deadline nor its cancellation.
func (l *Lease) Context() context.Context {
	if life := l.life.Load(); life != nil {
		return life.Context
	}
	life := l.lifetime(context.WithoutCancel(l.values), holdings(l.values))
	l.a.mu.Lock()
	defer l.a.mu.Unlock()
	if before := l.life.Load(); before != nil { // another was faster
		return before.Context
	}
	if l.end != nil { // nobody shall see it before that
		life.end(causeOf(l.end))
	}
	l.life.Store(life)
	return life.Context
}

// die ends the context of a lease that has ended, if there is one.
func (l *Lease) die(cause error) {
	if life := l.life.Load(); life != nil {
		life.end(cause)
	}
}

// causeOf is the cause of the end of a context, if the lease has ended so.
func causeOf(end error) error {
	if errors.Is(end, ErrLost) {
		return end
	}
	return context.Canceled
}

// WithContext returns a context that ends when ctx or the lease does, whichever comes
// first. It has the values of ctx.
func (l *Lease) WithContext(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancelCause(l.within(ctx, holdings(ctx)))
	held := l.Context()
	if held.Err() != nil {
		cancel(context.Cause(held))
		return ctx
	}
	// The lease is certain to end, and cancel will be called. But if ctx ends before, a
	// long lease should not remember it.
	forget := context.AfterFunc(held, func() { cancel(context.Cause(held)) })
	context.AfterFunc(ctx, func() { forget() })
	return ctx
}

// Done returns a channel that is closed when the lease ends.
func (l *Lease) Done() <-chan struct{} { return l.Context().Done() }

// Err returns nil while the lease is held. When it was lost the error matches [ErrLost]
// and says why; after it was released it matches [ErrNotHeld]. Err looks at the clock
// itself, so it is right also just after the process was suspended. The process can be
// suspended between the check and what follows, however; only a fence helps there.
func (l *Lease) Err() error {
	end := l.ended()
	if end == nil {
		if trust := l.trust(); trust.Left() <= 0 {
			l.a.Lost(trust.Cause())
			end = l.ended()
		}
	}
	return end
}

func (l *Lease) ended() error {
	l.a.mu.Lock()
	defer l.a.mu.Unlock()
	return l.end
}

// trust is how long the lease is held by the clocks: it may be over before anybody has
// noticed.
func (l *Lease) trust() keepalive.Trust { return l.a.c.keeper.Trust(&l.a.entry) }

func (l *Lease) expired() bool { return l.trust().Left() <= 0 }

// Fence returns the fencing token: a number that is larger for every new lease on the
// lock. A resource that remembers the largest it has seen, and refuses smaller ones,
// is safe from a holder who does not know yet that its lease is over. Where several hold
// at a time, as readers do, a smaller fence is not out of date unless it is smaller than
// that of the last writer; to holders of a [Semaphore] it only gives an order.
func (l *Lease) Fence() int64 { return l.fence }

// Token returns the identity of the lease, which contains the kind and name of its
// lock. Who knows it can end the lease, so it does not belong in logs.
func (l *Lease) Token() string {
	return string(l.a.req.Kind) + ":" + l.a.req.Token + ":" + l.a.req.Name
}

// Name returns the name of the lock.
func (l *Lease) Name() string { return l.a.req.Name }

// Deadline returns when the lease ends if it is not renewed until then, by the clock
// of this process. The store lets it last a little longer.
func (l *Lease) Deadline() time.Time { return l.trust().Deadline() }

// Renew lets the lease last its whole TTL again. Only leases made [WithoutRenewal]
// need it. Transient errors, such as a broken connection, are retried until ctx ends. The
// error matches [ErrLost] if the lease is lost; after any other it is still held until its
// [Lease.Deadline].
func (l *Lease) Renew(ctx context.Context) error {
	op := "renew"
	if err := l.Err(); err != nil {
		return l.error(op, err)
	}
	_, err := await(l.a.c, ctx, errand[any]{op: op, door: l.door(), able: true, do: func() (any, error) {
		if err := l.Err(); err != nil { // since the last attempt
			return nil, err
		}
		sent := time.Now()
		err := l.a.c.renew(l.a.c.under(ctx), []*keepalive.Entry{&l.a.entry})[0]
		switch {
		case err == nil:
			l.a.c.keeper.Renewed(&l.a.entry, sent)
			err = l.Err() // the answer may have come too late
		case errors.Is(err, driver.ErrNotHeld):
			l.a.Lost(err) // unless it was released meanwhile
			err = l.Err()
		}
		return nil, err
	}})
	return err
}

// Downgrade turns the lease on a write lock into one on a read lock, without letting
// another writer have it in between. Readers that are next in the queue are let in.
// The fence stays. From the call on the holder must not rely on being alone, also if
// there is an error: unless that matches [ErrLost] the lease is held on, for writing or
// reading, and Downgrade can be called again. Transient errors are retried until ctx ends.
// On a lease for reading it does nothing.
// Other locks than an RWMutex cannot be downgraded; the error matches
// [errors.ErrUnsupported]. While other leases are nested with this one, see
// [WithReentrancy], it matches [ErrLocked], for they may rely on being alone.
func (l *Lease) Downgrade(ctx context.Context) error {
	const op = "downgrade"
	if err := l.Err(); err != nil || l.a.req.Shared {
		return l.error(op, err)
	}
	d, able := driver.As[driver.Downgrader](l.a.c.d)
	begin := func() error {
		err := l.a.lower(l)
		if err == nil && l.a.at != nil {
			l.a.at.line.Review() // those behind us go to the store
		}
		return err
	}
	undone := true // surely, whatever was sent
	_, err := await(l.a.c, ctx, errand[any]{op: op, door: l.door(), able: able && l.a.req.Kind == driver.RWMutex, begin: begin, do: func() (any, error) {
		err := d.Downgrade(l.a.c.under(ctx), l.a.driverLease(), 0)
		undone = undone && errors.Is(err, driver.ErrNotExecuted)
		switch {
		case errors.Is(err, driver.ErrNotHeld):
			l.a.Lost(err) // unless it was released meanwhile
			err = l.Err()
		case undone && !errors.Is(err, driver.ErrTransient):
			l.a.lowered.Store(false) // it was refused, and goes on for writing
		}
		return nil, err
	}})
	return err
}

// lose ends the lease, and those that are nested with it, because their term is lost.
func (l *Lease) lose(cause error) {
	switch {
	case errors.Is(cause, driver.ErrNotHeld):
		cause = errTakenAway
	case errors.Is(cause, errClock):
	case cause == nil:
		cause = errNotRenewed
	default:
		cause = fmt.Errorf("%w: %w", errNotRenewed, cause)
	}
	if l.a.dismiss(l.error("hold", fmt.Errorf("%w: %w", ErrLost, cause))) {
		go l.a.cfg.log().Warn("holdfast: lock lost",
			"kind", l.a.req.Kind, "lock", l.a.req.Name, "fence", l.fence, "cause", cause)
	}
}

// Why a lease was lost, as far as this process knows.
var (
	errNotRenewed = errors.New("not renewed in time")
	errTakenAway  = errors.New("the store does not know it any more")
	errClock      = keepalive.ErrClock
)

// do is Do of every primitive.
func do(ctx context.Context, acquire func(context.Context) (*Lease, error), f func(context.Context) error) (err error) {
	l, err := acquire(ctx)
	if err != nil {
		return err
	}
	defer func() {
		released := l.surely(ctx, 0, (*Lease).release)
		if released != nil {
			err = errors.Join(err, released)
		}
	}()
	// What a hook has put into the lease's context, such as a span, f shall see, too.
	return f(l.WithContext(together{ctx, l.Context()}))
}

func (l *Lease) door() door { return door{kind: l.a.req.Kind, name: l.a.req.Name} }

func (l *Lease) error(op string, err error) error {
	if err == nil {
		return nil
	}
	return &LockError{Op: op + " " + string(l.a.req.Kind), Name: l.a.req.Name, Err: err}
}
