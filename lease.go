package holdfast

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/keepalive"
)

// Lease is the right to hold a lock until a deadline, which is moved on while the
// lease is renewed. It ends when it is released, or when it is lost. Its methods may
// be called from any goroutine.
type Lease struct {
	c      *Client
	a      *acquisition
	fence  int64
	log    func(cause error) // of a loss
	entry  *keepalive.Entry
	ctx    context.Context
	cancel context.CancelCauseFunc

	mu  sync.Mutex
	end error // nil while held, then an error that matches ErrLost or ErrNotHeld
}

// releaseWait is how long Release waits for the store in any case, and Unlock at most.
const releaseWait = time.Second

// holding is what a context knows of leases: the innermost one that it comes from.
type holding struct {
	lease *Lease
	outer *holding
}

type holdingKey struct{}

func holdings(ctx context.Context) *holding {
	h, _ := ctx.Value(holdingKey{}).(*holding)
	return h
}

func (l *Lease) within(ctx context.Context, outer *holding) context.Context {
	return context.WithValue(ctx, holdingKey{}, &holding{l, outer})
}

// holds reports whether ctx comes from a lease on the lock that is still held.
func (c *Client) holds(ctx context.Context, want driver.Request) bool {
	for h := holdings(ctx); h != nil; h = h.outer {
		if h.lease.c == c && h.lease.door() == (door{want.Kind, want.Name}) && h.lease.Err() == nil {
			return true
		}
	}
	return false
}

func newLease(ctx context.Context, a *acquisition, fence int64, cfg config, op *AcquireOp) *Lease {
	outer := holdings(ctx)
	ctx = context.WithoutCancel(ctx)
	if op != nil && op.Holding != nil {
		ctx = op.Holding(ctx, fence)
		a.carrier, _ = ctx.Value(carrierKey{}).(string)
	}
	l := &Lease{c: a.c, a: a, fence: fence}
	l.entry = &keepalive.Entry{Lease: a.driverLease(), Fixed: cfg.fixed, Owner: l, Lost: func(err error) { l.lose(err) }}
	l.log = func(cause error) {
		cfg.log().Warn("holdfast: lock lost", "kind", a.req.Kind, "lock", a.req.Name, "fence", fence, "cause", cause)
	}
	l.ctx, l.cancel = context.WithCancelCause(l.within(ctx, outer))
	return l
}

// start puts the lease in the care of the client.
func (l *Lease) start(trust keepalive.Trust) error {
	l.c.keeper.Add(l.entry, trust)
	l.c.mu.Lock()
	closed := l.c.closed
	if !closed {
		l.c.leases[l] = struct{}{}
	}
	l.c.mu.Unlock()
	if closed {
		l.c.keeper.Remove(l.entry)
		l.cancel(ErrClosed)
		return ErrClosed
	}
	l.a.lease.Store(l)
	if l.a.gone.Load() { // before we were there to hear it
		l.lose(driver.ErrNotHeld)
	}
	if l.ended() != nil { // before Close could have known of it
		l.c.forget(l)
	}
	return nil
}

// Context returns a context that ends when the lease does: with cause [ErrLost] when
// it is lost, before another can get the lock. It has the values of the context that
// the lease was acquired with, but neither its deadline nor its cancellation.
func (l *Lease) Context() context.Context { return l.ctx }

// WithContext returns a context that ends when ctx or the lease does, whichever comes
// first. It has the values of ctx.
func (l *Lease) WithContext(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancelCause(l.within(ctx, holdings(ctx)))
	if l.ctx.Err() != nil {
		cancel(context.Cause(l.ctx))
		return ctx
	}
	// The lease is certain to end, and cancel will be called. But if ctx ends before, a
	// long lease should not remember it.
	forget := context.AfterFunc(l.ctx, func() { cancel(context.Cause(l.ctx)) })
	context.AfterFunc(ctx, func() { forget() })
	return ctx
}

// Done returns a channel that is closed when the lease ends.
func (l *Lease) Done() <-chan struct{} { return l.ctx.Done() }

// Err returns nil while the lease is held. When it was lost the error matches [ErrLost]
// and says why; after it was released it matches [ErrNotHeld]. Err looks at the clock
// itself, so it is right also just after the process was suspended. The process can be
// suspended between the check and what follows, however; only a fence helps there.
func (l *Lease) Err() error {
	end := l.ended()
	if end == nil && l.expired() {
		l.lose(nil)
		end = l.ended()
	}
	return end
}

func (l *Lease) ended() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.end
}

// expired reports whether the lease is over by the clock, which may be before anybody
// has noticed.
func (l *Lease) expired() bool { return l.c.keeper.Trust(l.entry).Left() <= 0 }

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
func (l *Lease) Deadline() time.Time { return l.c.keeper.Trust(l.entry).Deadline() }

// Renew lets the lease last its whole TTL again. Only leases made [WithoutRenewal]
// need it. The error matches [ErrLost] if the lease is lost; after any other it is
// still held until its [Lease.Deadline].
func (l *Lease) Renew(ctx context.Context) error {
	op := "renew"
	if err := l.Err(); err != nil {
		return l.error(op, err)
	}
	_, err := await(l.c, ctx, op, l.door(), true, func() (any, error) {
		sent := time.Now()
		err := l.c.renew(l.c.under(ctx), []*keepalive.Entry{l.entry})[0]
		switch {
		case err == nil:
			l.c.keeper.Renewed(l.entry, sent)
			err = l.Err() // the answer may have come too late
		case errors.Is(err, driver.ErrNotHeld):
			l.lose(err) // unless it was released meanwhile
			err = l.Err()
		}
		return nil, err
	})
	return err
}

// Downgrade turns the lease on a write lock into one on a read lock, without letting
// another writer have it in between. Readers that are next in the queue are let in.
// The fence stays. From the call on the holder must not rely on being alone, also if
// there is an error: unless that matches [ErrLost] the lease is held on, for writing or
// reading, and Downgrade can be called again. On a lease for reading it does nothing.
// Other locks than an RWMutex cannot be downgraded; the error matches
// [errors.ErrUnsupported].
func (l *Lease) Downgrade(ctx context.Context) error {
	const op = "downgrade"
	d, able := driver.As[driver.Downgrader](l.c.d)
	if err := l.Err(); err != nil || l.a.req.Shared {
		return l.error(op, err)
	}
	_, err := await(l.c, ctx, op, l.door(), able && l.a.req.Kind == driver.RWMutex, func() (any, error) {
		err := d.Downgrade(l.c.under(ctx), l.entry.Lease, 0)
		if errors.Is(err, driver.ErrNotHeld) {
			l.lose(err) // unless it was released meanwhile
			err = l.Err()
		}
		return nil, err
	})
	return err
}

// Release gives the lock up and ends the lease's context. The error matches [ErrLost]
// if the lease had been lost, and [ErrNotHeld] if it was released before; the lock of
// another is never touched.
//
// Release works with a ctx that has ended. It waits for the store until ctx ends, but
// at least 1 s; it then goes on in the background, and the error matches the cause of
// ctx.
func (l *Lease) Release(ctx context.Context) error {
	if h := l.c.hooks.Load(); h != nil {
		return h.release(ctx, &ReleaseOp{Lease: l, run: (*Lease).release})
	}
	return l.release(ctx, nil)
}

func (l *Lease) release(ctx context.Context, _ *ReleaseOp) error {
	const op = "release"
	settle, err := l.giveUp(ctx, l.c.begin())
	if settle == nil {
		return l.error(op, err)
	}
	if ctx.Done() == nil { // as in run
		return l.error(op, l.finish(settle))
	}
	done := l.background(settle)
	atLeast := time.After(releaseWait)
	select {
	case err := <-done:
		return l.error(op, err)
	case <-ctx.Done():
	}
	select {
	case err := <-done:
		return l.error(op, err)
	case <-atLeast:
		return l.error(op, fmt.Errorf("%w: it goes on in the background", context.Cause(ctx)))
	}
}

// unlock is Release for those who cannot be told of an error.
func (l *Lease) unlock() {
	if h := l.c.hooks.Load(); h != nil {
		_ = h.release(context.WithoutCancel(l.ctx), &ReleaseOp{Lease: l, run: (*Lease).letGo})
		return
	}
	_ = l.letGo(context.Background(), nil)
}

func (l *Lease) letGo(ctx context.Context, _ *ReleaseOp) error {
	settle, err := l.giveUp(ctx, l.c.begin())
	if settle != nil {
		l.hurry(settle)
	}
	return err
}

// lower gives up all of the lease but a weight, in the same way.
func (l *Lease) lower(weight int64) {
	op := &ReleaseOp{Lease: l, Keep: weight, run: (*Lease).letGoOfSome}
	ctx := context.WithoutCancel(l.ctx)
	if h := l.c.hooks.Load(); h != nil {
		_ = h.release(ctx, op)
		return
	}
	_ = l.letGoOfSome(ctx, op)
}

func (l *Lease) letGoOfSome(ctx context.Context, op *ReleaseOp) error {
	d, able := driver.As[driver.Downgrader](l.c.d)
	if !able || l.ended() != nil || !l.c.begin() {
		return nil // it all goes when the rest does
	}
	s := l.a.settlement(ctx)
	s.send = func(ctx context.Context, to driver.Lease) error { return d.Downgrade(ctx, to, op.Keep) }
	l.hurry(s)
	return nil
}

// hurry is finish for those who do not want to wait for long.
func (l *Lease) hurry(s *settlement) {
	if l.c.brisk() {
		if _, final := s.try(); final {
			l.c.wg.Done()
			return
		}
	}
	timer := time.NewTimer(releaseWait)
	defer timer.Stop()
	select {
	case <-l.background(s):
	case <-timer.C:
	}
}

// finish ends the lease in the store, and the operation that this is part of.
func (l *Lease) finish(s *settlement) error {
	defer l.c.wg.Done()
	err := s.run()
	if errors.Is(err, driver.ErrNotHeld) {
		err = ErrLost
	}
	return err
}

func (l *Lease) background(s *settlement) <-chan error {
	done := make(chan error, 1)
	go func() { done <- l.finish(s) }()
	return done
}

// giveUp ends the lease in this process and returns what has still to be done in the
// store, or if one need not wait for that, what to say instead. It is part of an
// operation that has begun, or could not; finish ends that.
func (l *Lease) giveUp(ctx context.Context, begun bool) (*settlement, error) {
	_ = l.Err() // the lease may be lost without anybody having noticed yet
	l.mu.Lock()
	before := l.end
	if begun {
		l.end = ErrNotHeld
	}
	l.mu.Unlock()
	switch {
	case !begun && before == nil:
		return nil, ErrClosed // Close releases it
	case !begun:
		return nil, before
	case before == nil:
		// The holder stops to believe, and renewal stops, before the store is told.
		l.c.keeper.Remove(l.entry)
		l.cancel(context.Canceled)
		l.c.forget(l)
		return l.a.settlement(ctx), nil
	case errors.Is(before, ErrLost):
		// The store may still keep the lease for a moment. The next one need not wait
		// for that, and this one not for the store.
		l.background(l.a.settlement(ctx))
	default:
		l.c.wg.Done()
	}
	return nil, before
}

// lose ends a lease that the store does not keep for us any more, or may not. It must
// not block: it is called with locks of the driver held, and on the timer goroutine.
func (l *Lease) lose(cause error) {
	switch {
	case errors.Is(cause, driver.ErrNotHeld):
		cause = errTakenAway
	case cause == nil:
		cause = errNotRenewed
	default:
		cause = fmt.Errorf("%w: %w", errNotRenewed, cause)
	}
	lost := l.error("hold", fmt.Errorf("%w: %w", ErrLost, cause))
	l.mu.Lock()
	before := l.end
	if before == nil {
		l.end = lost
	}
	l.mu.Unlock()
	if before != nil {
		return
	}
	l.c.keeper.Remove(l.entry)
	l.c.forget(l)
	l.cancel(lost)
	go l.log(cause)
	if l.c.begin() {
		go l.tidy()
	}
}

// tidy lets the driver forget a lost lease that nobody may ever release. There is no
// hurry: who works under the lease has just been told to stop, and as long as the store
// keeps it nobody else begins.
func (l *Lease) tidy() {
	defer l.c.wg.Done()
	select {
	case <-l.c.closing.Done():
	case <-time.After(releaseWait):
	}
	_, _ = l.a.settlement(l.ctx).try()
}

// Why a lease was lost, as far as this process knows.
var (
	errNotRenewed = errors.New("not renewed in time")
	errTakenAway  = errors.New("the store does not know it any more")
)

// do is Do of every primitive.
func do(ctx context.Context, acquire func(context.Context) (*Lease, error), f func(context.Context) error) (err error) {
	l, err := acquire(ctx)
	if err != nil {
		return err
	}
	defer func() {
		released := l.Release(ctx)
		if released != nil {
			err = errors.Join(err, released)
		}
	}()
	return f(l.WithContext(ctx))
}

func (l *Lease) door() door { return door{l.a.req.Kind, l.a.req.Name} }

func (l *Lease) error(op string, err error) error {
	if err == nil {
		return nil
	}
	return &LockError{Op: op + " " + string(l.a.req.Kind), Name: l.a.req.Name, Err: err}
}
