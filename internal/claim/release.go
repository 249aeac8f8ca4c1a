package claim

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/session"
	"github.com/holdfast-go/holdfast/internal/trouble"
)

const (
	// releaseWait is how long a release that returns no error waits for the store.
	releaseWait = time.Second
)

// Releaser releases a token at the store, or a part of what it holds. It tries until the
// store has answered, or the lease would have ended by itself. An attempt that hangs is
// repeated beside, as an ask is: the next holder waits for it.
type Releaser struct {
	Ending
	c     *Claim
	ctx   context.Context
	lease driver.Lease

	gone     time.Time // when the caller is told that the store has ended the lease; zero: never
	deadline time.Time // when it is no use to go on; set when the first attempt fails
	pause    session.Pause
	trouble  atomic.Pointer[error] // why the last attempt failed; nil if none has
	underWay int                   // attempts that are not answered
	maybe    bool                  // a release may have been carried out without our hearing of it

	inPlace bool       // the caller makes the first attempt
	opening sync.Once  // of those who go on beside the first attempt
	answers chan error // to attempts on other goroutines; has room for all
	told    chan error // what the caller is told, once; nil as long as nothing goes on in the background
}

// Ending is how a token is given up.
type Ending struct {
	Tag  string     // what the next holder is told of this one
	Last LastHolder // who held the lock by the token; nil if nobody did

	// Part gives up a part, and the token goes on; nil for all of it.
	Part Send
	// Later gives the token up, after which the store keeps the lock for Keeps; nil for a release.
	// If it returns driver.ErrNotHeld, the lock is free, or another has it.
	Later Send
	Keeps time.Duration

	// Lost: the store has ended the lease, or is about to. A release may save the next holder a
	// moment. It is not worth a line in the log, nor that Close waits.
	Lost bool
	// Unused: nobody was given the lock by the token. The log says nothing, see Withdraw.
	Unused bool
}

// Send is a call of the driver about a lease. It may be called again, also while another call of it
// hangs.
type Send func(context.Context, driver.Lease) error

// LastHolder held the lock by a token that is released.
type LastHolder interface {
	// Trusted reports whether the lease would still be held by the clock.
	Trusted() bool
	// Robbed says that it was, and that the store held it no more when it was released.
	Robbed()
}

// Releaser returns what gives the token up, with which nobody asks any more unless it gives up a part. It is an
// operation of the session, and ends that.
func (c *Claim) Releaser(ctx context.Context, e Ending) *Releaser {
	if e.Part == nil {
		c.Cease()
	}
	under := c.s.Under
	if e.Lost {
		under = c.s.While
	}
	return &Releaser{Ending: e, c: c, ctx: under(ctx), lease: c.Lease(e.Tag)}
}

// Cease notes that nobody wants the lock by this token any more, although it is not
// released: another token takes the lock over.
func (c *Claim) Cease() { c.phase.CompareAndSwap(wanted, ceased) }

// Withdraw gives up the token in the background, whatever became of its asks: its place in
// the queue, or a grant that nobody used. It is called within an operation. If the store is never
// told, the log says nothing: the caller has been told of the same trouble, and in an outage there
// would be a line for each of the callers.
func (c *Claim) Withdraw(ctx context.Context) {
	if a := c.asking; a.heard && a.underWay == 0 && c.absent() {
		return
	}
	c.withdrawal(ctx).Background()
}

// GiveBack is Withdraw for a grant, and returns when that is done, with wait or after 1 s at the latest: a program may
// end, or try again, as soon as it is told why it does not have the lock.
func (c *Claim) GiveBack(ctx, wait context.Context) {
	timer := time.NewTimer(releaseWait)
	defer timer.Stop()
	select {
	case <-c.withdrawal(ctx).Background():
	case <-wait.Done():
	case <-timer.C:
	}
}

func (c *Claim) withdrawal(ctx context.Context) *Releaser {
	c.s.Grow()
	return c.Releaser(ctx, Ending{Unused: true})
}

// absent reports whether the store surely knows nothing of a token: no ask has left anything
// behind there, and none that may still do so is under way. Once the token is given up it
// stays so.
func (c *Claim) absent() bool { return c.uncertain.Load() == 0 && !c.left.Load() }

// Brief releases for a caller that cannot be told of an error, unlike hooks. It waits for 1 s at most, unless
// the store, which was brisk, falls silent just now, and goes on in the background.
func (r *Releaser) Brief() error {
	if !r.c.s.Brisk() {
		r.Background()
	} else if err, over := r.attempt(true); over {
		return err
	}
	timer := time.NewTimer(releaseWait)
	defer timer.Stop()
	select {
	case err := <-r.told:
		return err
	case <-timer.C:
		return fmt.Errorf("%w: it goes on in the background", r.Trouble())
	}
}

// attempt makes the first attempt. If it is not over with that, another goroutine goes on, and
// tells the result. It begins when the attempt hangs, and does not wait for it. In place the caller is
// kept no longer than that before its command is written.
func (r *Releaser) attempt(inPlace bool) (err error, over bool) {
	r.c.s.Grow()
	defer r.c.s.Done()
	r.underWay, r.inPlace = 1, inPlace
	ctx, alarm := r.ctx, r.c.s.Alarm(r.hang(), r)
	if inPlace && r.c.s.Timeout > 0 { // else the end of a context may cut short what is written
		ctx = alarm.Quiet(ctx)
	}
	answer := r.call()(ctx, r.now())
	if !alarm.Stop() {
		r.open()
		if errors.Is(answer, context.Canceled) && r.ctx.Err() == nil {
			answer = unheard(answer) // nobody has called it off, but it was not written in time
		}
		r.answers <- answer
		return nil, false
	}
	r.underWay = 0
	err, final := r.judge(answer)
	if final {
		return r.end(err), true
	}
	r.open()
	go r.finish(err)
	return nil, false
}

// unheard is the error of an attempt that has hung for so long that it was given up.
func unheard(err error) error {
	if errors.Is(err, driver.ErrNotExecuted) {
		return fmt.Errorf("%w: %w", session.ErrSilent, driver.ErrNotExecuted)
	}
	return session.ErrSilent
}

// Ring implements [session.Bell]. It goes on beside the first attempt, which hangs.
func (r *Releaser) Ring(*session.Alarm) {
	r.open()
	if r.inPlace {
		r.c.s.Kept()
	}
	r.finish(nil)
}

// open makes the channels for those who go on in the background.
func (r *Releaser) open() {
	r.opening.Do(func() {
		r.answers = make(chan error, maxAsking)
		if r.told == nil {
			r.told = make(chan error, 1)
		}
	})
}

// Forget has the driver forget a token that was lost, which nobody may ever release. It
// ends the operation.
func (r *Releaser) Forget() {
	defer r.c.s.Done()
	_, _ = r.judge(r.send())
}

// Background releases on another goroutine. The channel gets one value: nil, driver.ErrNotHeld if the
// lock had been taken away, or why the store could not be told. It gets a refusal at once, after which
// the release goes on.
func (r *Releaser) Background() <-chan error {
	r.told = make(chan error, 1)
	go func() {
		if err, over := r.attempt(false); over {
			r.tell(err)
		}
	}()
	return r.told
}

// Within is Background for a lease that ends by itself after that long. By then the channel gets
// something. In place, the first attempt is made here. If it is the last, the channel is nil, and err
// what it would have got.
func (r *Releaser) Within(left time.Duration, inPlace bool) (told <-chan error, err error) {
	r.gone = time.Now().Add(max(left+min(r.lease.TTL/10, time.Second), releaseWait)) // the store adds its grace
	if !inPlace {
		return r.Background(), nil
	}
	if err, over := r.attempt(true); over {
		return nil, err
	}
	return r.told, nil
}

// finish goes on until the release is done, and ends the operation. failed is why the attempt
// before has failed, nil if there was none.
func (r *Releaser) finish(failed error) { r.tell(r.end(r.run(failed))) }

// tell tells the caller, unless that was told before.
func (r *Releaser) tell(err error) {
	select {
	case r.told <- err:
	default:
	}
}

// end ends the operation with the result err, and returns what the caller is told.
func (r *Releaser) end(err error) error {
	defer r.c.s.Done()
	switch {
	case err == nil:
	case r.Later != nil:
		r.c.listener.Log().Warn("holdfast: not kept for as long as it was to be, another may have it", r.about(err)...)
	case errors.Is(err, driver.ErrNotHeld):
		if r.Last == nil || !r.Last.Trusted() {
			return nil // its time has run out since, but it was given up before
		}
		r.Last.Robbed()
		return driver.ErrNotHeld
	case !r.Lost && !r.Unused:
		r.c.listener.Log().Warn("holdfast: not released, the store keeps it until its TTL is over", r.about(err)...)
	}
	return err
}

// about is what the log says of a release that came to err.
func (r *Releaser) about(err error) []any {
	return []any{"kind", string(r.c.ID.Kind), "lock", r.c.ID.Name, "ttl", r.c.TTL, "error", err}
}

// hang is how long an attempt may go unanswered before it is repeated beside.
func (r *Releaser) hang() time.Duration {
	return min(max(r.lease.TTL/6, session.LeastHang), releaseWait)
}

// run tries until the release is done.
func (r *Releaser) run(failed error) error {
	err := session.ErrSilent
	next := time.NewTimer(0) // until the next attempt
	defer next.Stop()
	if failed != nil {
		err = failed
		next.Reset(r.failed(err))
	}
	var gone <-chan time.Time
	if !r.gone.IsZero() {
		timer := time.NewTimer(time.Until(r.gone))
		defer timer.Stop()
		gone = timer.C
	}
	for {
		select {
		case answer := <-r.answers:
			r.underWay--
			var final bool
			if err, final = r.judge(answer); final {
				return err
			}
			next.Reset(r.failed(err))
		case <-next.C:
			if r.underWay > 0 && r.tooLate() {
				r.settle()
				return r.explained(err)
			}
			r.maybe = r.maybe || r.underWay > 0
			if r.underWay < maxAsking {
				r.underWay++
				r.c.s.Go(func() { r.answers <- r.send() })
			}
			next.Reset(r.hang())
		case <-gone:
			r.tell(fmt.Errorf("%w: it ends the lease by itself", r.explained(err)))
		case <-r.c.s.Life().Done():
			return err
		case <-r.givenUp(err):
			return err
		}
	}
}

// failed tells of a refusal, and returns for how long to wait before the next attempt. A
// refusal may be transient, too, such as while a password is changed.
func (r *Releaser) failed(err error) time.Duration {
	r.trouble.Store(&err)
	if !errors.Is(err, driver.ErrTransient) {
		r.tell(err)
	}
	return r.pause.Next(r.lease.TTL / 3)
}

// Trouble is why the store was not told yet.
func (r *Releaser) Trouble() error {
	if err := r.trouble.Load(); err != nil {
		return r.explained(*err)
	}
	return r.c.s.Silent()
}

// explained is an error of this release as callers are told it.
func (r *Releaser) explained(err error) error {
	if errors.Is(err, session.ErrSilent) {
		return r.c.s.Silent()
	}
	return err
}

// givenUp returns a channel that is closed when it is not worth while to go on: when the
// client is being closed, after a refusal or if there is no hurry.
func (r *Releaser) givenUp(err error) <-chan struct{} {
	if r.Lost || !errors.Is(err, driver.ErrTransient) {
		return r.c.s.Closing()
	}
	return nil
}

// send makes one attempt.
func (r *Releaser) send() error { return r.call()(r.ctx, r.now()) }

// call is the call of the driver for an attempt.
func (r *Releaser) call() Send {
	switch {
	case r.Part != nil:
		return r.Part
	case r.Later != nil:
		return r.Later
	}
	return r.c.s.Driver.Release
}

// now returns the lease as it is given up now. Asks of its token may still be under way.
func (r *Releaser) now() driver.Lease {
	lease := r.lease
	lease.Unsettled = r.c.uncertain.Load() > 0
	return lease
}

// judge looks at the answer to an attempt. If it is final, err is the result. That is
// driver.ErrNotHeld only if the token was not held when the first release arrived. After a
// release whose answer was lost, ErrNotHeld is to be expected.
func (r *Releaser) judge(answer error) (err error, final bool) {
	err = trouble.Of(answer)
	switch {
	case err == nil, errors.Is(err, driver.ErrNotHeld) && r.maybe && r.Later == nil:
		err, final = nil, true
	case errors.Is(err, driver.ErrNotHeld), errors.Is(err, driver.ErrClosed), errors.Is(err, errors.ErrUnsupported):
		final = true
	default:
		r.maybe = r.maybe || !errors.Is(err, driver.ErrNotExecuted)
		final = r.tooLate()
	}
	if err == nil {
		r.c.s.Answered()
	} else if r.c.absent() {
		err, final = nil, true // there is nothing to release, only the driver had to be told
	}
	if final {
		r.settle()
	}
	return err, final
}

// tooLate reports whether the lease has ended by itself since the first attempt failed.
func (r *Releaser) tooLate() bool {
	if r.deadline.IsZero() {
		r.deadline = time.Now().Add(max(r.lease.TTL, r.Keeps) + time.Second)
	}
	return time.Now().After(r.deadline)
}

// settle notes that the release is done.
func (r *Releaser) settle() {
	if r.Part == nil && r.c.phase.Swap(settled) == straggled {
		_ = r.c.s.Driver.Release(r.ctx, r.now())
	}
}

// releaseAgain deals with a grant that came after its token was given up. A release that begins from
// now on comes after that ask, which is answered.
func (c *Claim) releaseAgain(ctx context.Context) {
	if c.phase.CompareAndSwap(ceased, straggled) || c.phase.Load() != settled {
		return // the release that is under way will be repeated
	}
	r := c.Releaser(ctx, Ending{})
	r.open()
	_ = r.run(nil)
}
