package token

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/keepalive"
	"github.com/holdfast-go/holdfast/internal/session"
	"github.com/holdfast-go/holdfast/internal/tag"
	"github.com/holdfast-go/holdfast/internal/trouble"
)

// asksInTrace is how many asks of a token are in the trace of its caller. A candidate that waits for a day asks
// some 26,000 times.
const asksInTrace = 4

// ask sends the next ask on another goroutine, unless too many are under way.
func (a *asker) ask(ctx context.Context) {
	if a.underWay == maxAsking {
		a.due = a.heartbeat(time.Now())
		return
	}
	r, replies := a.nextRequest(), a.replies
	a.s.Go(func() {
		answer, late := a.send(ctx, r)
		replies <- answer
		if late {
			a.withdraw(ctx) // by a release that comes after that ask, which is answered
		}
	})
}

// askInPlace sends the first ask of a caller that may have to leave, and returns what answer says. If the ask
// hangs it is ended, unless it is written: it waits for a connection, or to share a call with others. Then another
// goroutine asks.
func (a *asker) askInPlace(ctx context.Context) (driver.Grant, error) {
	brief, leave := context.WithCancel(ctx)
	a.leave = leave
	alarm := a.s.Alarm(session.LeastHang, a)
	r, _ := a.send(brief, a.nextRequest())
	hung := !alarm.Stop()
	leave()
	unsent := hung && ctx.Err() == nil && errors.Is(r.err, context.Canceled)
	if r.cut = r.cut && (unsent || ctx.Err() != nil); unsent {
		a.unsent = true
	}
	g, err := a.answer(r)
	switch {
	case err != nil && ctx.Err() != nil: // as if it had been called off before
		err = session.WithTrouble(session.EndOf(ctx), err)
	case err == nil && unsent:
		a.ask(ctx)
	}
	return g, err
}

// Ring implements [session.Bell], for an ask in place that hangs.
func (a *asker) Ring(*session.Alarm) {
	a.s.Kept()
	a.leave()
}

// heartbeat returns when to ask again after an ask at that time: after TTL/3, or up to TTL/30 earlier. The
// waiters of a client with that TTL keep time together, so that the driver can put many of them into one call.
func (a *asker) heartbeat(asked time.Time) time.Time {
	return a.s.Beat(asked.Add(a.TTL/3), a.TTL/30)
}

// nextRequest makes the next ask and notes when it is sent.
func (a *asker) nextRequest() *driver.Request {
	now := time.Now()
	a.underWay++
	a.last++
	a.Stats.Asked++
	a.sent = append(a.sent, now)
	// A grant that rests on an ask older than the TTL is worth nothing.
	for now.Sub(a.sent[0]) > a.TTL {
		a.sent = a.sent[1:]
		a.first++
	}
	a.due = a.heartbeat(now)
	if a.request.Wait {
		a.Complaint.Asked()
	}
	a.mu.Lock()
	a.unsettled++
	if a.obstacle.Since.IsZero() {
		a.obstacle.Since = now
	}
	a.mu.Unlock()
	r := &a.request
	if a.last > 1 { // nobody knows how long the driver looks at the first one
		again := a.request
		r = &again
	}
	r.Ask = a.last
	if a.letIn {
		r.MaxWaiters = 0 // should it have to come back, it was there before
	}
	return r
}

// send carries an ask to the store, and returns the reply. Late is one that may have got the lock for nobody,
// after which the caller must release it.
func (a *asker) send(ctx context.Context, r *driver.Request) (_ reply, late bool) {
	if r.Ask > asksInTrace {
		ctx = a.s.Unasked(ctx)
	}
	var g driver.Grant
	var err error
	switch {
	case a.steal:
		g, err = a.s.Stealer.Steal(ctx, r)
	case a.from != nil:
		g, err = a.s.Attacher.Attach(ctx, *a.from, r)
	default:
		g, err = a.s.Driver.Acquire(ctx, r)
	}
	err = trouble.Of(err)
	late = a.settled(g, err)
	end, cut := ctx.Err(), false
	if at, timed := ctx.Deadline(); err != nil && (end != nil || timed && !time.Now().Before(at)) {
		cut = errors.Is(err, driver.ErrTransient) // a read may time out a moment before the context does
		if end != nil && errors.Is(err, end) {
			// A waiter that goes on with the token has a context of its own.
			err, cut = fmt.Errorf("%w: %w", driver.ErrTransient, err), true
		}
	}
	return reply{r.Ask, g, err, cut}, late
}

// settled notes what is known of an ask now, and reports whether it came too late for the release to be
// repeated by another.
func (t *Token) settled(g driver.Grant, err error) (late bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil || errors.Is(err, driver.ErrNotExecuted) || errors.Is(err, driver.ErrNotHeld) {
		t.unsettled--
	}
	if err != nil || g.Status == driver.Busy || g.Status == driver.Full { // which leave nothing behind
		return false
	}
	t.left = true
	t.straggled = t.straggled || t.state == leaving
	return t.state == gone
}

// trust returns the trust that follows from a grant resting on that ask.
func (a *asker) trust(ask uint64) (keepalive.Trust, bool) {
	if ask < a.first || ask > a.last {
		return keepalive.Trust{}, false
	}
	return keepalive.NewTrust(a.sent[ask-a.first], a.TTL), true
}

// answer looks at the reply to an ask. It returns a grant if there is one, or an error if it is no use to go
// on. Otherwise it sets the time of the next ask.
func (a *asker) answer(r reply) (driver.Grant, error) {
	a.underWay--
	if r.err != nil {
		return driver.Grant{}, a.failed(r.err, r.cut)
	}
	a.s.Answered()
	a.pause = 0
	a.Complaint.Answered()
	a.heard = true
	a.tagged(r.grant.HolderTag)
	if r.grant.Status == driver.Granted {
		if a.from != nil {
			a.Owner = r.grant.Owner
		}
		return r.grant, nil
	}
	a.busy(r)
	again := r.grant.RetryAfter
	switch {
	case r.grant.Status == driver.Full:
		return driver.Grant{}, fmt.Errorf("%w: %w", ErrQueueFull, a.Why)
	case r.grant.Status == driver.Queued:
		a.letIn = true
		if again > 0 && again < a.TTL/3 {
			a.due = time.Now().Add(again)
		}
	case !a.request.Wait:
		return driver.Grant{}, a.Why
	default: // The driver has no queue. Jitter keeps the waiters from coming in step.
		if again <= 0 {
			again = 50 * time.Millisecond
		}
		a.askIn(min(again, a.TTL/3))
	}
	return driver.Grant{}, nil
}

// busy notes that somebody has the lock or is before us. A store that says so in time is no longer too slow.
func (a *asker) busy(r reply) {
	g := r.grant
	if trust, ok := a.trust(r.ask); ok && trust.Left() > a.TTL/2 {
		a.Complaint.Over(errTooSlow)
	}
	why := ErrLocked
	switch {
	case g.Behind:
		why = behind{}
	case g.Holder != "":
		a.by = &Held{g.Holder, g.HolderFence, g.HeldFor, time.Now()}
		why = a.by
	}
	a.blame(why, time.Time{})
	a.Stats.InTheWay("", a.obstacle.Held)
	a.Stats.Contended = true
	if !a.contended && a.request.Wait {
		a.listener.Busy()
	}
	a.contended = true
}

// tagged notes what the store says with the tag of a holder that is in the way.
func (a *asker) tagged(said string) {
	a.tag = cmp.Or(tag.Own(said), a.tag)
	a.Stats.InTheWay(a.tag, nil)
}

// failed decides whether an error ends the wait.
func (a *asker) failed(err error, cut bool) error {
	if errors.Is(err, driver.ErrLimitConflict) || errors.Is(err, driver.ErrLimitExceeded) || errors.Is(err, driver.ErrNotHeld) {
		a.s.Answered() // it is an answer, if not the one we had hoped for
	}
	// A user whom the store has let in before is let in again, once somebody has mended the password or the
	// rights. To give up for that would end a fleet.
	passes := errors.Is(err, driver.ErrTransient) || a.request.Wait && a.s.Accepted() && errors.Is(err, driver.ErrDenied)
	tries := a.last
	if a.unsent {
		tries--
	}
	if !passes || !cut && !a.request.Wait && tries >= maxTries {
		return err
	}
	if !cut {
		if a.request.Wait {
			a.Complaint.Failed(err)
		}
		if !errors.Is(err, driver.ErrTransient) {
			err = trouble.Passing(err)
		}
		a.blame(err, a.obstacle.Since)
	}
	a.due = time.Now().Add(a.pause.Next(a.TTL / 6))
	return nil
}

// askIn sets the next ask to a random time around d from now.
func (a *asker) askIn(d time.Duration) {
	a.due = time.Now().Add(d/2 + rand.N(d))
}
