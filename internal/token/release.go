package token

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

// mostHang is how long an attempt to release may hang at most before it is repeated beside.
const mostHang = time.Second

// Ending is how a token is given up.
type Ending struct {
	Tag  string     // what the next holder is told of this one
	Last LastHolder // who held the lock by the token; nil if nobody did

	// Part gives up a part, and the token goes on; nil for all of it.
	Part Send
	// Later gives the token up, after which the store keeps the lock for Keeps; nil for a release. If it
	// returns driver.ErrNotHeld, the lock is free, or another has it.
	Later Send
	Keeps time.Duration
	// Ends is when the caller is told that the store has ended the lease by itself, unless the store has
	// answered by then; zero: never. The wrong version left that to the caller, which did not know that the
	// release was repeated for an ask that had straggled.
	Ends time.Time

	// Lost: the store has ended the lease, or is about to. A release may save the next holder a moment. It is
	// not worth a line in the log, nor that Close waits.
	Lost bool
	// Unused: nobody was given the lock by the token. The log says nothing, see Withdraw.
	Unused bool
}

// Send is a call of the driver about a lease. It may be called again, also while another call of it hangs.
type Send func(context.Context, driver.Lease) error

// LastHolder held the lock by a token that is released.
type LastHolder interface {
	// FoundGone says that the store held the lease no more when it was released, and reports whether it would
	// still be held by the clock.
	FoundGone() bool
}

// Release is a token that is being given up at the store, or a part of what it holds. It goes on until the
// store has answered, or the lease would have ended by itself. An attempt that hangs is repeated beside, as an
// ask is: the next holder waits for it.
type Release struct {
	Ending
	t     *Token
	ctx   context.Context
	lease driver.Lease

	deadline time.Time // when it is no use to go on; set when the first attempt fails
	pause    session.Pause
	underWay int  // attempts that are not answered
	maybe    bool // one may have been carried out without our hearing of it

	opening sync.Once             // of the channels, which an attempt in place mostly needs not
	answers chan error            // to attempts; has room for all
	told    chan error            // what the caller is told, once
	trouble atomic.Pointer[error] // why the last attempt failed; nil if none has
}

// Release gives the token up, with which nobody asks any more unless a part goes on. The caller's operation of
// the session ends with the release.
//
// In place the first attempt is made here, and the caller is kept no longer than until it hangs before it is
// written. If that attempt is the last, Release returns no *Release, and what the caller is told. Else the
// release goes on in the background, also if it was refused: that may pass.
func (t *Token) Release(ctx context.Context, e Ending, inPlace bool) (*Release, error) {
	r, s := t.newRelease(ctx, e), t.s
	if !inPlace {
		r.open()
		go r.run(nil)
		return r, nil
	}
	s.BeginWithin() // the attempt may last longer than the release
	defer s.Done()
	r.underWay = 1
	quiet, alarm := r.ctx, s.Alarm(r.hang(), r)
	if s.Timeout > 0 { // else the end of a context may cut short what is written
		quiet = alarm.Quiet(quiet)
	}
	answer := r.send(quiet)
	if !alarm.Stop() { // others go on beside it
		if errors.Is(answer, context.Canceled) && r.ctx.Err() == nil {
			answer = unheard(answer) // nobody has called it off, but it was not written in time
		}
		r.open()
		r.answers <- answer
		return r, nil
	}
	r.underWay = 0
	err, over := r.judge(answer)
	if over {
		return nil, r.end(err)
	}
	r.open()
	go r.run(err)
	return r, nil
}

func (t *Token) newRelease(ctx context.Context, e Ending) *Release {
	if e.Part == nil {
		t.Cease()
	}
	under := t.s.Detached
	if e.Lost {
		under = t.s.UntilClose
	}
	return &Release{Ending: e, t: t, ctx: under(ctx), lease: t.Lease(e.Tag)}
}

// Cease notes that nobody wants the lock by this token any more, although it is not released: another token
// takes the lock over.
func (t *Token) Cease() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.state = max(t.state, leaving)
}

// Forget is a Release of a token that was lost, and which nobody may ever release otherwise: one attempt, so
// that the driver forgets it. The caller's operation ends with that.
func (t *Token) Forget(ctx context.Context) {
	defer t.s.Done()
	r := t.newRelease(ctx, Ending{Lost: true})
	_, _ = r.judge(r.send(r.ctx))
}

// Withdraw gives the token up in the background, whatever became of its asks: its place in the queue, or a
// grant that nobody used. The caller needs an operation that goes on. The channel gets a value when that is
// done or refused, and is nil if there is nothing to do. If the store is never told, the log says nothing: the
// caller has been told of the same trouble, and in an outage there would be a line for each of the callers.
func (t *Token) Withdraw(ctx context.Context) <-chan error {
	if a := t.asker; a.heard && a.underWay == 0 && t.absent() {
		t.asked(gone)
		return nil
	}
	return t.withdraw(ctx)
}

// withdraw is Withdraw of a token that the store may know.
func (t *Token) withdraw(ctx context.Context) <-chan error {
	t.s.BeginWithin()
	r, _ := t.Release(ctx, Ending{Unused: true}, false)
	return r.told
}

// absent reports whether the store surely knows nothing of a token: no ask has left anything behind there, and
// none that may still do so is under way. Once the token is given up it stays so.
func (t *Token) absent() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.unsettled == 0 && !t.left
}

// Told returns what gets one value: nil, driver.ErrNotHeld if the lock had been taken away, or why the store
// could not be told. It gets a refusal at once, after which the release goes on.
func (r *Release) Told() <-chan error { return r.told }

// Trouble is why the store was not told yet.
func (r *Release) Trouble() error {
	if err := r.trouble.Load(); err != nil && !errors.Is(*err, session.ErrSilent) {
		return *err
	}
	return r.t.s.Silent()
}

// Ring implements [session.Bell]. The attempt in place hangs, so others go on beside it.
func (r *Release) Ring(*session.Alarm) {
	r.open()
	r.t.s.Kept()
	r.run(nil)
}

// open makes the channels for those who go on in the background.
func (r *Release) open() {
	r.opening.Do(func() { r.answers, r.told = make(chan error, maxAsking), make(chan error, 1) })
}

// run makes attempts until the release has come to its end, and tells the caller. failed is why the one in
// place has failed, nil if it hangs or there was none.
func (r *Release) run(failed error) {
	s, err := r.t.s, session.ErrSilent
	next := time.NewTimer(0) // until the next attempt
	defer next.Stop()
	var ends <-chan time.Time
	if !r.Ends.IsZero() {
		ends = time.After(time.Until(r.Ends))
	}
	for over := false; !over; {
		if failed != nil {
			err, failed = failed, nil
			why := err
			r.trouble.Store(&why)
			if !errors.Is(err, driver.ErrTransient) {
				r.tell(err) // which may pass, too, as while a password is changed
			}
			next.Reset(r.pause.Next(r.lease.TTL / 3))
		}
		var closing <-chan struct{}
		if r.Lost || !errors.Is(err, driver.ErrTransient) { // there is no hurry, or it was refused
			closing = s.Closing()
		}
		select {
		case answer := <-r.answers:
			r.underWay--
			if failed, over = r.judge(answer); over {
				err = failed
			}
		case <-next.C:
			if over = r.underWay > 0 && r.tooLate(); over {
				err = r.Trouble()
				r.settle()
				break
			}
			r.maybe = r.maybe || r.underWay > 0
			if r.underWay < maxAsking {
				r.underWay++
				s.Go(func() { r.answers <- r.send(r.ctx) })
			}
			next.Reset(r.hang())
		case <-ends:
			r.tell(fmt.Errorf("%w: it ends the lease by itself", r.Trouble()))
		case <-s.Context().Done():
			over = true
		case <-closing:
			over = true
		}
	}
	r.tell(r.end(err))
}

// tell tells the caller, unless that was told before.
func (r *Release) tell(err error) {
	select {
	case r.told <- err:
	default:
	}
}

// hang is how long an attempt may go unanswered before it is repeated beside.
func (r *Release) hang() time.Duration { return min(max(r.lease.TTL/6, session.LeastHang), mostHang) }

// send makes one attempt.
func (r *Release) send(ctx context.Context) error {
	switch {
	case r.Part != nil:
		return r.Part(ctx, r.now())
	case r.Later != nil:
		return r.Later(ctx, r.now())
	}
	return r.t.s.Driver.Release(ctx, r.now())
}

// now returns the lease as it is given up now. Asks of its token may still be under way.
func (r *Release) now() driver.Lease {
	r.t.mu.Lock()
	defer r.t.mu.Unlock()
	lease := r.lease
	lease.Unsettled = r.t.unsettled > 0
	return lease
}

// judge looks at the answer to an attempt. If it is over with that, err is the result. That is
// driver.ErrNotHeld only if the token was not held when the first release arrived. After a release whose answer
// was lost, ErrNotHeld is to be expected.
func (r *Release) judge(answer error) (err error, over bool) {
	err = trouble.Of(answer)
	switch {
	case err == nil, errors.Is(err, driver.ErrNotHeld) && r.maybe && r.Later == nil:
		err, over = nil, true
	case errors.Is(err, driver.ErrNotHeld), errors.Is(err, driver.ErrClosed), errors.Is(err, errors.ErrUnsupported):
		over = true
	default:
		r.maybe = r.maybe || !errors.Is(err, driver.ErrNotExecuted)
		over = r.tooLate()
	}
	if err == nil {
		r.t.s.Answered()
	} else if r.t.absent() {
		err, over = nil, true // there is nothing to release, only the driver had to be told
	}
	if over {
		r.settle()
	}
	return err, over
}

// unheard is the error of an attempt that has hung for so long that it was given up.
func unheard(err error) error {
	if errors.Is(err, driver.ErrNotExecuted) {
		return fmt.Errorf("%w: %w", session.ErrSilent, driver.ErrNotExecuted)
	}
	return session.ErrSilent
}

// tooLate reports whether the lease has ended by itself since the first attempt failed.
func (r *Release) tooLate() bool {
	if r.deadline.IsZero() {
		r.deadline = time.Now().Add(max(r.lease.TTL, r.Keeps) + time.Second)
	}
	return time.Now().After(r.deadline)
}

// settle notes that the store was told, or keeps the lease no longer. If an ask has straggled, it is told
// again.
func (r *Release) settle() {
	if r.Part != nil {
		return
	}
	r.t.mu.Lock()
	again := r.t.straggled
	r.t.state, r.t.straggled = gone, false
	r.t.mu.Unlock()
	if again {
		_ = r.t.s.Driver.Release(r.ctx, r.now())
	}
}

// end ends the operation with the result err, and returns what the caller is told.
func (r *Release) end(err error) error {
	defer r.t.s.Done()
	switch {
	case err == nil:
	case r.Later != nil:
		r.t.log.Log().Warn("holdfast: not kept for as long as it was to be, another may have it", r.about(err)...)
	case errors.Is(err, driver.ErrNotHeld):
		if r.Last == nil || !r.Last.FoundGone() {
			return nil // its time has run out since, but it was given up before
		}
		return driver.ErrNotHeld
	case !r.Lost && !r.Unused:
		r.t.log.Log().Warn("holdfast: not released, the store keeps it until its TTL is over", r.about(err)...)
	}
	return err
}

func (r *Release) about(err error) []any {
	return []any{"kind", string(r.t.ID.Kind), "lock", r.t.ID.Name, "ttl", r.t.TTL, "error", err}
}
