package holdfast

import (
	"context"
	"errors"
	"fmt"
	"runtime/pprof"
	"strconv"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/local"
	"github.com/holdfast-go/holdfast/internal/session"
	"github.com/holdfast-go/holdfast/internal/token"
	"github.com/holdfast-go/holdfast/internal/trouble"
)

// Lease is the right to hold a lock until a deadline, which each renewal moves. A lease
// ends when it is released, or when it is lost. Its methods may be called from any
// goroutine.
type Lease hold

// hold is the inside of a lease. A Lease is a hold under another name, not a struct with one:
// hooks and methods convert between the two, at no cost.
type hold = local.Hold

// Context returns a context that ends when the lease does. If the lease is lost, the
// context ends with cause [ErrLost] before another holder can get the lock. It has the
// values of the context that the lease was acquired with, but neither its deadline nor its
// cancellation.
func (l *Lease) Context() context.Context { return l.hold().Context() }

// WithContext returns a context that ends when ctx or the lease does, whichever comes
// first, with the cause of that. It has the values of ctx, and its deadline.
//
// It may be called for each request or message, however long the lease lasts: nothing has to be
// undone, and nothing is kept of a context for whose end nobody waits. Contexts made from one that
// ends, such as that of the process, share what waits for both ends. A ctx that was made for the
// request has to be cancelled after it, as always, or the lease remembers it until its own end.
func (l *Lease) WithContext(ctx context.Context) context.Context { return l.hold().WithContext(ctx) }

// Done returns a channel that is closed when the lease ends.
func (l *Lease) Done() <-chan struct{} { return l.Context().Done() }

// Err returns nil while the lease is held. If the lease was lost, the error matches
// [ErrLost] and says why. After a release it matches [ErrNotHeld], and [ErrClosed] if it was
// [Client.Close] that released the lease. Err looks at the clock
// itself, so it is right even just after the process was suspended. But the process can be
// suspended between the check and the next step. Only a fence helps there.
func (l *Lease) Err() error { return l.hold().Err() }

// Fence returns the fencing token: a number that is larger for every new lease on the lock.
// A resource should remember the largest fence it has seen, and refuse smaller ones. Then a
// holder that does not know yet that its lease is over can do no harm.
//
// Several readers can hold at a time. A reader's fence is out of date only if it is smaller
// than that of the last writer. To holders of a [Semaphore] fences only give an order.
func (l *Lease) Fence() int64 { return l.hold().Fence() }

// Token returns the identity of the lease, which contains the kind and name of its lock.
// Anybody that knows the token can end the lease, so it does not belong in logs.
func (l *Lease) Token() string {
	id := l.hold().ID()
	return token.Text(id.Kind, l.hold().Token(), id.Name)
}

// Name returns the name of the lock.
func (l *Lease) Name() string { return l.hold().ID().Name }

// Deadline returns when the lease ends unless it is renewed, by the clock of this process.
// The store lets it last a little longer.
func (l *Lease) Deadline() time.Time { return l.hold().Deadline() }

// Wanted returns a channel that is closed as soon as another waits for what the lease holds:
// another process, or a goroutine of this one. A long holder can finish its piece of work and
// release the lock.
//
//	select {
//	case <-lease.Wanted():
//		return lease.Release(ctx) // and the other goes on
//	case <-lease.Done():
//		return context.Cause(lease.Context())
//	case part := <-parts:
//
// If somebody waits already, the channel is closed after one round trip to the store. Later
// waiters are heard as soon as they wait; where no news comes in, when the lease is renewed, within
// TTL/3, or not at all [WithoutRenewal]. The channel stays closed although the waiter may give up. If nobody else comes it stays
// open, also when the lease ends. Of readers, and of holders of permits, all hear of a waiter.
//
// The first call asks the store once, in the background; a lease for which nobody calls Wanted
// costs nothing. Callers that only try, such as [Mutex.TryLease], do not wait. If the store does
// not know who waits, such as driver/setnx, getset and redisson, Wanted hears of goroutines of
// this client alone, and only of a lock that passes among them, see [WithStrictFIFO]; the log says so once. See [driver.Notifier].
func (l *Lease) Wanted() <-chan struct{} {
	if c := l.client(); c.session.Notifier == nil && !c.unheard.Swap(true) {
		c.config.options.Log().Warn("holdfast: the store does not tell who waits, so Lease.Wanted hears of this client alone",
			"kind", string(l.hold().ID().Kind), "lock", l.Name())
	}
	return l.hold().Wanted()
}

// Release gives the lock up and ends the lease's context. If the lease was lost before the
// call, or the store says that the lock was taken away, the error matches [ErrLost]. If the
// lease was released before, it matches [ErrNotHeld]. Release never touches the lock of
// another holder. If the store says that it has ended the lease while Release waited for it, the lease
// was given up in time: no error.
//
// Release works with a ctx that has ended. It waits for the store, in any trouble that may pass, until
// ctx ends or the store has ended the lease by itself, shortly after [Lease.Deadline], but at
// least 1 s, or as late as [Mutex.Lease] if the store has just fallen silent. The error then says why the store
// was not told, and matches the Err and the cause of ctx if that has ended. If the store refuses, as while a
// password is changed, the error says why at once. In both cases the release is repeated in the
// background, until the store carries it out or the lease would have ended by itself. In
// the latter case the log says so.
func (l *Lease) Release(ctx context.Context) error {
	if hooks := l.client().hooks.Load(); hooks != nil {
		return hooks.releaseOf(l, ctx)
	}
	return l.error("release", l.hold().Release(ctx))
}

// Renew lets the lease last its whole TTL again. Only leases made [WithoutRenewal] need it.
// Transient errors, such as a broken connection, are retried until ctx ends. The error
// matches [ErrLost] if the lease is lost. After any other error the lease is still held
// until its [Lease.Deadline].
func (l *Lease) Renew(ctx context.Context) error {
	const op = "renew"
	if err := l.Err(); err != nil {
		return l.error(op, err)
	}
	c, g := l.client(), l.hold().Grant()
	return c.await(ctx, l.hold().Options(), l.hold().ID(), op, session.Errand{Able: true, Do: func() error {
		if err := l.Err(); err != nil { // since the last attempt
			return err
		}
		sent := time.Now()
		err := c.renew(c.session.Detached(ctx), &RenewOp{}, []*local.Grant{g}, func(int) {})[0]
		switch {
		case err == nil:
			g.Renewed(sent)
			err = l.Err() // the answer may have come too late
		case errors.Is(err, driver.ErrNotHeld):
			g.Lost(err) // unless it was released meanwhile
			err = l.Err()
		}
		return err
	}})
}

// Downgrade turns the lease on a write lock into one on a read lock, without letting
// another writer have the lock in between. Readers that are next in the queue are let in.
// The fence stays. On a lease for reading Downgrade does nothing.
//
// From the call on, the holder must not rely on being alone, even if Downgrade returns an
// error. Unless that error matches [ErrLost], the lease stays held, for writing or reading,
// and Downgrade can be called again. Transient errors are retried until ctx ends.
//
// Only an RWMutex can be downgraded; otherwise the error matches [errors.ErrUnsupported].
// While other leases are nested with this one, see [WithReentrancy], they may rely on being
// alone: the error matches [ErrLocked].
func (l *Lease) Downgrade(ctx context.Context) error {
	const op = "downgrade"
	c, h := l.client(), l.hold()
	if err := l.Err(); err != nil || h.Shared() {
		return l.error(op, err)
	}
	if h.ID().Kind != driver.RWMutex {
		return l.error(op, fmt.Errorf("only an RWMutex has a weaker hold than this: %w", errors.ErrUnsupported))
	}
	d := c.session.Downgrader
	undone := true // surely, whatever was sent
	return c.await(ctx, h.Options(), h.ID(), op, session.Errand{Able: d != nil, First: h.Lower, Do: func() error {
		if err := l.Err(); err != nil { // since the last attempt
			return err
		}
		err := trouble.Of(d.Downgrade(c.session.Detached(ctx), h.Grant().Leased(), 0))
		undone = undone && errors.Is(err, driver.ErrNotExecuted)
		switch {
		case errors.Is(err, driver.ErrNotHeld):
			h.Grant().Lost(err) // unless it was released meanwhile
			err = l.Err()
		case undone && !errors.Is(err, driver.ErrTransient):
			h.Unlower() // it was refused, and goes on for writing
		}
		return err
	}})
}

// do is Do of every primitive.
func (h *handle) do(ctx context.Context, w local.Want, f func(context.Context) error) (err error) {
	l, err := h.lease(ctx, w, "acquire")
	if err != nil {
		return err
	}
	within := l.hold().Within(ctx)
	defer func() {
		var released, end error
		if err != nil && within.Err() != nil {
			end = l.Err()
		}
		released = l.releaseDespiteHooks(ctx)
		told := errors.Is(err, end) || errors.Is(end, err) // f has told of the end, or of what has led to it
		if errors.Is(released, ErrLost) {
			told = told && errors.Is(err, ErrLost)
		}
		switch {
		case err == nil:
			err = released
		case released != nil && !told:
			err = fmt.Errorf("%w; %w", err, released)
		}
	}()
	if l.client().config.labels {
		pprof.Do(within, l.labels(), func(ctx context.Context) { err = f(ctx) })
		return err
	}
	return f(within)
}

// releaseDespiteHooks is Release of a lease that nobody has who could try again if a hook refuses.
func (l *Lease) releaseDespiteHooks(ctx context.Context) error {
	if hooks := l.client().hooks.Load(); hooks != nil {
		return hooks.releaseAnyway(l, ctx, 0, (*local.Hold).Release)
	}
	return l.error("release", l.hold().Release(ctx))
}

// undo gives back a lease that its caller never gets.
func (l *Lease) undo(ctx context.Context) {
	l.hold().Waive()
	_ = l.releaseDespiteHooks(ctx)
}

// labels tell in a profile who holds what.
func (l *Lease) labels() pprof.LabelSet {
	id := l.hold().ID()
	return pprof.Labels("holdfast.kind", string(id.Kind), "holdfast.lock", id.Name, "holdfast.fence", strconv.FormatInt(l.Fence(), 10))
}

// hold returns the inside of the lease. It panics if there is none, as with the lease of a
// failed call.
func (l *Lease) hold() *local.Hold {
	if l == nil || (*local.Hold)(l).Grant() == nil {
		panic("holdfast: nil or zero Lease: check the error of the call that returns one")
	}
	return (*local.Hold)(l)
}

func (l *Lease) client() *Client { return l.hold().Client().(*Client) }

func (l *Lease) error(op string, err error) error {
	if err == nil {
		return nil
	}
	id := l.hold().ID()
	return lockError(op, id.Kind, id.Name, err)
}
