package claim

import (
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

// ask sends the next ask on another goroutine, unless too many are under way. The first one goes in
// place if the store is brisk, see [session.Session.InPlace].
func (c *Claim) ask(ctx context.Context) {
	a := c.asking
	if a.underWay == maxAsking {
		a.due = c.heartbeat(time.Now())
		return
	}
	r, verb, replies := c.number(), a.verb(), c.open().replies
	c.s.Grow()
	go func() {
		defer c.s.Done()
		answer, late := c.send(ctx, r, verb)
		replies <- answer
		if late {
			c.releaseAgain(ctx)
		}
	}()
}

// brief is the context of an ask in place. It ends when the ask hangs, which ends it unless it is written: it waits
// for a connection, or for a seat beside others. Then another goroutine asks.
type brief struct {
	context.Context
	s     *session.Session
	alarm *session.Alarm
	leave context.CancelFunc
}

func (c *Claim) brief(ctx context.Context) *brief {
	b := &brief{s: c.s}
	b.Context, b.leave = context.WithCancel(ctx)
	b.alarm = c.s.Alarm(session.LeastHang, b)
	return b
}

// Ring implements [session.Bell].
func (b *brief) Ring(*session.Alarm) {
	b.s.Kept()
	b.leave()
}

// landed is answer for an ask in place of a caller with ctx.
func (c *Claim) landed(ctx context.Context, b *brief, r reply) (driver.Grant, error) {
	hung := !b.alarm.Stop()
	b.leave()
	unsent := hung && ctx.Err() == nil && errors.Is(r.err, context.Canceled)
	if r.cut = r.cut && (unsent || ctx.Err() != nil); unsent {
		c.asking.unsent = 1
	}
	g, err := c.answer(r)
	switch {
	case err != nil && ctx.Err() != nil: // as if it had been called off before
		err = session.WithTrouble(session.EndOf(ctx), err)
	case err == nil && unsent:
		c.ask(ctx)
	}
	return g, err
}

// heartbeat returns when to ask again after an ask at that time: after TTL/3, or up to TTL/30
// earlier. The waiters of a client with that TTL keep time together, so that the driver can
// put many of them into one call.
func (c *Claim) heartbeat(asked time.Time) time.Time {
	return c.s.Beat(asked.Add(c.TTL/3), c.TTL/30)
}

// number makes the next ask and notes when it is sent.
func (c *Claim) number() *driver.Request {
	a, now := c.asking, time.Now()
	a.underWay++
	a.last++
	a.sent = append(a.sent, now)
	// A grant that rests on an ask older than the TTL is worth nothing.
	for now.Sub(a.sent[0]) > c.TTL {
		a.sent = a.sent[1:]
		a.first++
	}
	a.due = c.heartbeat(now)
	if a.request.Wait {
		a.said.Asked()
	}
	if a.unanswered.IsZero() {
		c.owed(now)
	}
	c.uncertain.Add(1)
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

// verb is how a claim asks.
type verb struct {
	from  *driver.Lease // to take over; nil to acquire
	steal bool          // to steal
}

func (a *asking) verb() verb { return verb{a.from, a.steal} }

// send carries an ask to the store, and returns the reply. If late, the caller must call
// releaseAgain at a suitable moment.
func (c *Claim) send(ctx context.Context, r *driver.Request, v verb) (_ reply, late bool) {
	if r.Ask > asksInTrace {
		ctx = c.s.Unasked(ctx)
	}
	var g driver.Grant
	var err error
	switch {
	case v.steal:
		g, err = c.s.Stealer.Steal(ctx, r)
	case v.from != nil:
		g, err = c.s.Attacher.Attach(ctx, *v.from, r)
	default:
		g, err = c.s.Driver.Acquire(ctx, r)
	}
	err = trouble.Of(err)
	if err == nil && !nothing(g) {
		c.left.Store(true)
	}
	if err == nil || errors.Is(err, driver.ErrNotExecuted) || errors.Is(err, driver.ErrNotHeld) {
		c.uncertain.Add(-1) // not before that, see absent
	}
	end, cut := ctx.Err(), false
	if at, timed := ctx.Deadline(); err != nil && (end != nil || timed && !time.Now().Before(at)) {
		cut = errors.Is(err, driver.ErrTransient) // a read may time out a moment before the context does
		if end != nil && errors.Is(err, end) {
			// A waiter that goes on with the claim has a context of its own.
			err, cut = fmt.Errorf("%w: %w", driver.ErrTransient, err), true
		}
	}
	return reply{r.Ask, g, err, cut}, err == nil && !nothing(g) && c.phase.Load() != wanted
}

// nothing reports whether an answer says that nothing was left behind.
func nothing(g driver.Grant) bool { return g.Status == driver.Busy || g.Status == driver.Full }

// trust returns the trust that follows from a grant resting on that ask.
func (c *Claim) trust(ask uint64) (keepalive.Trust, bool) {
	a := c.asking
	if ask < a.first || ask > a.last {
		return keepalive.Trust{}, false
	}
	return keepalive.NewTrust(a.sent[ask-a.first], c.TTL), true
}

// answer looks at the reply to an ask. It returns a grant if there is one, or an error if
// it is no use to go on. Otherwise it sets the time of the next ask.
func (c *Claim) answer(r reply) (driver.Grant, error) {
	a := c.asking
	a.underWay--
	if r.err != nil {
		return driver.Grant{}, c.failed(r.err, r.cut)
	}
	c.s.Answered()
	a.pause = 0
	a.said.Answered()
	a.heard = true
	a.behind(r.grant.HolderTag)
	switch r.grant.Status {
	case driver.Granted:
		if a.troubled() {
			c.listener.InTheWay(Obstacle{})
		}
		if a.from != nil {
			c.Shared, c.Weight, c.Owner = r.grant.Shared, r.grant.Weight, r.grant.Owner
		}
		return r.grant, nil
	case driver.Busy:
		c.owed(time.Time{})
		c.busy(r)
		if !a.request.Wait {
			return driver.Grant{}, a.err
		}
		// The driver has no queue. Jitter keeps the waiters from coming in step.
		pause := 50 * time.Millisecond
		if r.grant.RetryAfter > 0 {
			pause = r.grant.RetryAfter
		}
		a.askIn(min(pause, c.TTL/3))
	case driver.Full:
		c.busy(r)
		return driver.Grant{}, fmt.Errorf("%w: %w", ErrQueueFull, a.err)
	case driver.Queued:
		c.owed(time.Time{})
		a.letIn = true
		c.busy(r)
		if r.grant.RetryAfter > 0 && r.grant.RetryAfter < c.TTL/3 {
			a.due = time.Now().Add(r.grant.RetryAfter)
		}
	}
	return driver.Grant{}, nil
}

// busy notes that somebody has the lock or is before us. A store that says so in time is no longer
// too slow.
func (c *Claim) busy(r reply) {
	g := r.grant
	if trust, ok := c.trust(r.ask); ok && trust.Left() > c.TTL/2 {
		c.asking.said.Over(errTooSlow)
	}
	c.asking.err = ErrLocked
	switch {
	case g.Behind:
		c.asking.err = behind{}
	case g.Holder != "":
		c.asking.stats.Holder, c.asking.stats.HolderFence = g.Holder, g.HolderFence
		c.asking.err = &Held{g.Holder, g.HolderFence, g.HeldFor, time.Now()}
	}
	c.listener.InTheWay(c.asking.obstacle())
	if !c.asking.stats.Contended {
		c.asking.stats.Contended = true
		if c.asking.request.Wait {
			c.listener.Busy()
		}
	}
}

// behind notes the tag of a holder that is in the way. Of a long wait the first ones are
// remembered, and the last.
func (a *asking) behind(said string) {
	tag := tag.Own(said)
	if tags := a.stats.Tags; tag != "" && (len(tags) == 0 || tags[len(tags)-1] != tag) {
		a.stats.Tags = append(tags[:min(len(tags), MaxTags)], tag)
	}
}

// obstacle is what is in the way now.
func (a *asking) obstacle() (o Obstacle) {
	if n := len(a.stats.Tags); n > 0 {
		o.Tag = a.stats.Tags[n-1]
	}
	if a.troubled() {
		o.Trouble = a.err
	}
	o.Held, _ = a.err.(*Held)
	return o
}

// owed notes since when the store owes an answer. A grant that is of no use is none.
func (c *Claim) owed(since time.Time) {
	c.asking.unanswered = since
	c.listener.Unanswered(since)
}

// failed decides whether an error ends the claim.
func (c *Claim) failed(err error, cut bool) error {
	a := c.asking
	if errors.Is(err, driver.ErrLimitConflict) || errors.Is(err, driver.ErrLimitExceeded) || errors.Is(err, driver.ErrNotHeld) {
		c.s.Answered() // it is an answer, if not the one we had hoped for
	}
	// A user whom the store has let in before is let in again, once somebody has mended the password
	// or the rights. To give up for that would end a fleet.
	passes := errors.Is(err, driver.ErrTransient) || a.request.Wait && c.s.Accepted() && errors.Is(err, driver.ErrDenied)
	if !passes || !cut && !a.request.Wait && a.last-a.unsent >= maxTries {
		return err
	}
	if !cut {
		if a.request.Wait {
			a.said.Failed(err)
		}
		if !errors.Is(err, driver.ErrTransient) {
			err = trouble.Passing(err)
		}
		c.trouble(err)
	}
	a.due = time.Now().Add(a.pause.Next(c.TTL / 6))
	return nil
}

// trouble notes why the store is of no help.
func (c *Claim) trouble(err error) {
	c.asking.err = err
	c.listener.InTheWay(c.asking.obstacle())
}

// askIn sets the next ask to a random time around d from now.
func (a *asking) askIn(d time.Duration) {
	a.due = time.Now().Add(d/2 + rand.N(d))
}
