package holdfast

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver"
)

// releaseWait is how long Release waits for the store in any case, and Unlock at most.
const releaseWait = time.Second

// Release gives the lock up and ends the lease's context. The error matches [ErrLost]
// if the lease was lost before the call, or if the store says that the lock was taken away;
// and [ErrNotHeld] if it was released before. The lock of another is never touched. A lease
// whose time runs out while Release waits for the store was given up in time: no error.
//
// Release works with a ctx that has ended. It waits for the store until ctx ends, but
// at least 1 s; the error then matches the cause of ctx. If the store refuses, as while a
// password is changed, the error says why. In both cases the release is repeated in the
// background until the store carries it out, or the lease would have ended by itself; then
// the log says so.
func (l *Lease) Release(ctx context.Context) error {
	if h := l.a.c.hooks.Load(); h != nil {
		return h.release(ctx, &ReleaseOp{Lease: l, run: (*Lease).release})
	}
	return l.release(ctx, 0)
}

// surely carries out a release that hooks cannot refuse, because nobody has the lease to
// try again.
func (l *Lease) surely(ctx context.Context, keep int64, run func(*Lease, context.Context, int64) error) error {
	h := l.a.c.hooks.Load()
	if h == nil {
		return run(l, ctx, keep)
	}
	refused := true
	err := h.release(ctx, &ReleaseOp{Lease: l, Keep: keep, run: func(l *Lease, ctx context.Context, keep int64) error {
		refused = false
		return run(l, ctx, keep)
	}})
	if refused {
		l.a.c.config.log().Warn("holdfast: a hook refused a release that cannot be refused",
			"kind", l.a.req.Kind, "lock", l.a.req.Name, "error", err)
		err = errors.Join(err, run(l, ctx, keep))
	}
	return err
}

func (l *Lease) release(ctx context.Context, _ int64) error {
	const op = "release"
	due, err := l.giveUp(ctx, l.a.c.begin())
	if !due {
		return l.error(op, err)
	}
	s := l.a.settlement(ctx)
	if ctx.Done() == nil { // as in run
		err, final := s.try()
		if final {
			return l.error(op, s.end(err))
		}
		return l.error(op, <-s.background())
	}
	began := time.Now()
	done := s.background()
	select {
	case err := <-done:
		return l.error(op, err)
	case <-ctx.Done():
	}
	select {
	case err := <-done:
		return l.error(op, err)
	case <-time.After(releaseWait - time.Since(began)):
		return l.error(op, fmt.Errorf("%w: it goes on in the background", end(ctx)))
	}
}

// unlock is Release for those who cannot be told of an error.
func (l *Lease) unlock() {
	if l.plain && l.ended() == nil && l.a.passOn() {
		return
	}
	ctx := l.values // for the span
	if l.a.c.hooks.Load() != nil {
		ctx = context.WithoutCancel(l.Context())
	}
	_ = l.surely(ctx, 0, (*Lease).letGo)
}

func (l *Lease) letGo(ctx context.Context, _ int64) error {
	due, err := l.giveUp(ctx, l.a.c.begin())
	if due {
		s := l.a.settlement(ctx)
		l.hurry(&s)
	}
	return err
}

// lower gives up all of the lease but a weight, in the same way.
func (l *Lease) lower(weight int64) {
	_ = l.surely(context.WithoutCancel(l.Context()), weight, (*Lease).letGoOfSome)
}

func (l *Lease) letGoOfSome(ctx context.Context, keep int64) error {
	d, able := driver.As[driver.Downgrader](l.a.c.d)
	if !able || l.ended() != nil || !l.a.c.begin() {
		return nil // it all goes when the rest does
	}
	s := l.a.settlement(ctx)
	s.part = func(ctx context.Context, to driver.Lease) error { return d.Downgrade(ctx, to, keep) }
	l.hurry(&s)
	return nil
}

// hurry is finish for those who do not want to wait for long.
func (l *Lease) hurry(s *settlement) {
	if l.a.c.brisk() {
		if err, final := s.try(); final {
			_ = s.end(err)
			return
		}
	}
	timer := time.NewTimer(releaseWait)
	defer timer.Stop()
	select {
	case <-s.background():
	case <-timer.C:
	}
}

// background ends the lease in the store, on another goroutine, and the operation that this
// is part of. What comes of it is told once: the outcome, or before that, a refusal.
func (s settlement) background() <-chan error {
	told := make(chan error, 1)
	go func() {
		err := s.end(s.run(told))
		select {
		case told <- err:
		default:
		}
	}()
	return told
}

// end ends the operation with what came of it, and returns what to say.
func (s *settlement) end(err error) error {
	defer s.a.c.wg.Done()
	switch {
	case errors.Is(err, driver.ErrNotHeld) && s.a.c.keeper.Trust(&s.a.entry).Left() <= 0:
		return nil // its time has run out since, but it was given up before
	case errors.Is(err, driver.ErrNotHeld):
		return ErrLost
	case err != nil:
		s.a.cfg.log().Warn("holdfast: not released, the store keeps it until its TTL is over",
			"kind", s.a.req.Kind, "lock", s.a.req.Name, "ttl", s.a.cfg.ttl, "error", err)
	}
	return err
}

// giveUp ends the lease in this process. It reports whether a settlement is due, and if one
// need not wait for that, what to say instead. It is part of an operation that has begun,
// or could not; the end of the settlement ends that.
func (l *Lease) giveUp(ctx context.Context, begun bool) (due bool, err error) {
	// The lease may be lost without anybody having noticed yet.
	good := !errors.Is(l.Err(), ErrLost)
	if !good {
		l.Context() // why it ended stays what it was
	}
	before, others := l.a.leave(l, begun)
	switch {
	case !begun && before == nil:
		return false, ErrClosed // Close releases it
	case !begun:
		return false, before
	case before == nil:
		// The holder stops to believe before anybody else is told.
		l.die(context.Canceled)
		if others || l.a.passOn() {
			l.a.c.wg.Done()
			return false, nil
		}
		// Renewal stops before the store is told. If somebody else has stopped it, it is
		// Close, which releases the lock, or it was lost just now, which does no harm.
		if !l.a.cease() && l.a.fate.Load() == nil {
			l.a.c.wg.Done()
			return false, ErrClosed
		}
		return true, nil
	case good && errors.Is(before, ErrLost):
		return true, nil // the same
	case errors.Is(before, ErrLost):
		// The store may still keep the lease for a moment. The next one need not wait
		// for that, and this one not for the store.
		l.a.settlement(ctx).background()
	default:
		l.a.c.wg.Done()
	}
	return false, before
}

// settlement is the release of a token, or of a part of what it holds, which is tried
// until the store has answered or the lease would have ended by itself.
type settlement struct {
	a        *acquisition
	ctx      context.Context
	lease    driver.Lease
	part     func(context.Context, driver.Lease) error // gives up a part; nil for all of it
	deadline time.Time                                 // set when the first attempt fails
	pause    time.Duration
	maybe    bool // a release may have been carried out without our hearing of it
}

func (a *acquisition) settlement(ctx context.Context) settlement {
	return settlement{a: a, ctx: a.c.under(ctx), lease: a.driverLease()}
}

// try makes one attempt. If it is final, err is what to say: driver.ErrNotHeld only if
// the token was not held when the first release arrived, since after a release whose
// answer was lost that is what one expects to hear.
func (s *settlement) try() (err error, final bool) {
	if err, final = s.attempt(); !final || s.part != nil {
		return err, final
	}
	s.a.settled.Store(true)
	if s.a.straggled.Swap(false) {
		_ = s.send()
	}
	return err, final
}

func (s *settlement) send() error {
	if s.part != nil {
		return s.part(s.ctx, s.lease)
	}
	return s.a.c.d.Release(s.ctx, s.lease)
}

func (s *settlement) attempt() (err error, final bool) {
	s.lease.Unsettled = s.a.open.Load() > 0
	err = s.send()
	if err == nil {
		s.a.c.answer()
	}
	switch {
	case err == nil, errors.Is(err, driver.ErrNotHeld) && s.maybe:
		return nil, true
	case errors.Is(err, driver.ErrNotHeld), errors.Is(err, redis.ErrClosed), errors.Is(err, errors.ErrUnsupported):
		return err, true
	}
	s.maybe = s.maybe || !errors.Is(err, driver.ErrNotExecuted)
	if s.deadline.IsZero() {
		s.deadline = time.Now().Add(s.lease.TTL + time.Second)
	}
	return err, time.Now().After(s.deadline)
}

// run tries until it is done. A refusal may pass, too, such as while a password is changed:
// it is told at once, and not taken for the end, unless the client is being closed.
func (s *settlement) run(told chan<- error) error {
	for {
		err, final := s.try()
		if final {
			return err
		}
		closing := s.a.c.closing.Done()
		if errors.Is(err, driver.ErrTransient) {
			closing = nil
		} else {
			select {
			case told <- err:
			default:
			}
		}
		s.pause = min(max(2*s.pause, 5*time.Millisecond), time.Second, s.lease.TTL/3)
		select {
		case <-s.a.c.life.Done():
			return err
		case <-closing:
			return err
		case <-time.After(s.pause/2 + rand.N(s.pause)):
		}
	}
}
