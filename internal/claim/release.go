package claim

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver"
)

// releaseWait is how long a release that returns no error waits for the store.
const releaseWait = time.Second

// Releaser releases a token at the store, or a part of what it holds. It tries until the
// store has answered, or the lease would have ended by itself.
type Releaser struct {
	c        *Claim
	ctx      context.Context
	lease    driver.Lease
	part     func(context.Context, driver.Lease) error // gives up a part; nil for all of it
	instead  func(context.Context, driver.Lease) error // gives it up in another way; nil for a release
	last     LastHolder                                // nil if nobody held it
	deadline time.Time                                 // set when the first attempt fails
	pause    time.Duration
	maybe    bool // a release may have been carried out without our hearing of it
	late     bool // see Late
}

// Releaser returns what releases the token, with which nobody asks any more. It is an
// operation of the session, and ends that. tag is what the next holder is told of this one.
// last is nil if nobody held the lock by the token.
func (c *Claim) Releaser(ctx context.Context, tag string, last LastHolder) Releaser {
	c.ceased.Store(true)
	return Releaser{c: c, ctx: c.s.Under(ctx), lease: c.Lease(tag), last: last}
}

// LastHolder held the lock by a token that is released.
type LastHolder interface {
	// Trusted reports whether the lease would still be held by the clock.
	Trusted() bool
}

// PartReleaser returns what releases a part. part is the call of the driver for it.
func (c *Claim) PartReleaser(ctx context.Context, part func(context.Context, driver.Lease) error) Releaser {
	return Releaser{c: c, ctx: c.s.Under(ctx), lease: c.Lease(""), part: part}
}

// Instead has the token given up by send. send may be called again after an error; it
// returns what a release would.
func (r *Releaser) Instead(send func(context.Context, driver.Lease) error) { r.instead = send }

// Late says that the lease was lost: the store has ended it, or is about to. A release may
// save the next holder a moment. It is not worth a line in the log, nor that Close waits.
func (r *Releaser) Late() { r.late, r.ctx = true, r.c.s.While(r.ctx) }

// Cease notes that nobody wants the lock by this token any more, although it is not
// released: another token takes the lock over.
func (c *Claim) Cease() { c.ceased.Store(true) }

// Withdraw gives up the token in the background, whatever became of its asks: its place in
// the queue, or a grant that nobody used. It is called within an operation.
func (c *Claim) Withdraw(ctx context.Context) {
	if a := c.asking; a.heard && a.underWay == 0 && c.absent() {
		return
	}
	c.s.Grow()
	r := c.Releaser(ctx, "", nil)
	r.Background()
}

// absent reports whether the store surely knows nothing of a token: no ask has left anything
// behind there, and none that may still do so is under way. Once the token is given up it
// stays so.
func (c *Claim) absent() bool { return c.uncertain.Load() == 0 && !c.left.Load() }

// Run releases and returns the result: nil, driver.ErrNotHeld if the lock had been taken
// away, or why the store could not be told. It returns a refusal at once, and then goes on
// in the background.
func (r *Releaser) Run() error {
	err, final := r.try()
	if final {
		return r.end(err)
	}
	return <-r.Background()
}

// RunBriefly is Run for callers that cannot be told of an error, and wait 1 s at most.
func (r *Releaser) RunBriefly() {
	if r.c.s.Brisk() {
		if err, final := r.try(); final {
			_ = r.end(err)
			return
		}
	}
	timer := time.NewTimer(releaseWait)
	defer timer.Stop()
	select {
	case <-r.Background():
	case <-timer.C:
	}
}

// Forget has the driver forget a token that was lost, which nobody may ever release. It
// ends the operation.
func (r *Releaser) Forget() {
	defer r.c.s.Done()
	_, _ = r.try()
}

// Background is Run on another goroutine. The channel gets one value: the result, or before
// that, a refusal.
func (r Releaser) Background() <-chan error {
	told := make(chan error, 1)
	go func() {
		err := r.end(r.run(told))
		select {
		case told <- err:
		default:
		}
	}()
	return told
}

// end ends the operation with the result err, and returns what the caller is told.
func (r *Releaser) end(err error) error {
	defer r.c.s.Done()
	switch {
	case errors.Is(err, driver.ErrNotHeld):
		if r.last == nil || !r.last.Trusted() {
			return nil // its time has run out since, but it was given up before
		}
		return driver.ErrNotHeld
	case err != nil && !r.late:
		r.c.listener.Log().Warn("holdfast: not released, the store keeps it until its TTL is over",
			"kind", string(r.c.ID.Kind), "lock", r.c.ID.Name, "ttl", r.c.TTL, "error", err)
	}
	return err
}

// run tries until the release is done. A refusal may be transient, too, such as while
// a password is changed. So it is told at once, and is not final unless the client is being
// closed.
func (r *Releaser) run(told chan<- error) error {
	for {
		err, final := r.try()
		if final {
			return err
		}
		closing := r.c.s.Closing()
		if errors.Is(err, driver.ErrTransient) {
			if !r.late {
				closing = nil
			}
		} else {
			select {
			case told <- err:
			default:
			}
		}
		r.pause = min(max(2*r.pause, 5*time.Millisecond), time.Second, r.lease.TTL/3)
		select {
		case <-r.c.s.Life().Done():
			return err
		case <-closing:
			return err
		case <-time.After(r.pause/2 + rand.N(r.pause)):
		}
	}
}

// try makes one attempt. If it is final, err is the result. That is driver.ErrNotHeld only
// if the token was not held when the first release arrived. After a release whose answer
// was lost, ErrNotHeld is to be expected.
func (r *Releaser) try() (err error, final bool) {
	send := r.c.s.Driver.Release
	switch {
	case r.part != nil:
		send = r.part
	case r.instead != nil:
		send = r.instead
	}
	r.lease.Unsettled = r.c.uncertain.Load() > 0
	err = send(r.ctx, r.lease)
	switch {
	case err == nil, errors.Is(err, driver.ErrNotHeld) && r.maybe:
		err, final = nil, true
	case errors.Is(err, driver.ErrNotHeld), errors.Is(err, redis.ErrClosed), errors.Is(err, errors.ErrUnsupported):
		final = true
	default:
		r.maybe = r.maybe || !errors.Is(err, driver.ErrNotExecuted)
		if r.deadline.IsZero() {
			r.deadline = time.Now().Add(r.lease.TTL + time.Second)
		}
		final = time.Now().After(r.deadline)
	}
	if err == nil {
		r.c.s.Answered()
	} else if r.c.absent() {
		err, final = nil, true // there is nothing to release, only the driver had to be told
	}
	if final && r.part == nil {
		r.c.settled.Store(true)
		if r.c.straggled.Swap(false) {
			_ = r.c.s.Driver.Release(r.ctx, r.lease)
		}
	}
	return err, final
}

// releaseAgain deals with an ask that was answered after its token was given up. The store
// may have handled the ask after the release, if that has no tombstone any more. So the
// release is repeated, by the later one of the ask and the first release. (A release that
// begins from now on comes after this ask, which is answered.)
func (c *Claim) releaseAgain(ctx context.Context) {
	c.straggled.Store(true)
	if c.settled.Load() && c.straggled.Swap(false) {
		r := c.Releaser(ctx, "", nil)
		_ = r.run(nil)
	}
}
