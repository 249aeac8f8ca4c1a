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
)

const (
	// maxAsking is how many asks of one claim may be under way. A second one gets through
	// where the first hangs on a dead connection.
	maxAsking = 3
	// MaxTags is how many holders that were in the way of a claim are remembered, beside the last.
	MaxTags = 8
	// maxTries bounds how often an ask that does not wait is repeated after a failure.
	maxTries = 3
)

// ErrLocked says that another holds the lock.
var ErrLocked error = &session.Sentinel{Kind: "locked", Text: "held by another"}

// ErrQueueFull says that as many wait for a lock as may.
var ErrQueueFull error = &session.Sentinel{Kind: "queue_full", Text: "too many wait"}

// Held is ErrLocked with what the store says of a holder.
type Held struct {
	Holder string
	For    time.Duration // when it said so; 0 if it does not know
	At     time.Time     // on our clock
}

// behind is ErrLocked of a request for which there is room.
type behind struct{}

func (behind) Error() string { return "holdfast: others wait for it, and come first" }
func (behind) Unwrap() error { return ErrLocked }

// Now returns what is known now. As long as the store tells of nobody else, it is still the
// same holder.
func (h *Held) Now() *Held {
	now := time.Now()
	if h.For == 0 {
		return &Held{h.Holder, 0, now}
	}
	return &Held{h.Holder, h.For + now.Sub(h.At), now}
}

// Error says it with a precision that people can use.
func (h *Held) Error() string {
	if h.For == 0 {
		return fmt.Sprintf("holdfast: held by %q", h.Holder)
	}
	unit := time.Second
	if h.For < 10*time.Second {
		unit = time.Millisecond
	}
	return fmt.Sprintf("holdfast: held by %q for %v", h.Holder, h.For.Round(unit))
}

// Unwrap returns ErrLocked.
func (h *Held) Unwrap() error { return ErrLocked }

// errTooSlow is why a grant is of no use: its lease was over when we heard of it.
var errTooSlow = fmt.Errorf("%w: it takes longer to answer than a lease lasts", driver.ErrTransient)

// asking is what a claim needs until the lock is held. It belongs to the goroutine in Wait.
type asking struct {
	wait, notice  bool  // as in the request
	heard         bool  // there were answers
	room          int64 // how many may wait, until the store has let it in; 0: as many as there are
	late          int32 // grants that came too late to be of use
	fences, limit int64
	holder        string
	from          *driver.Lease

	sent []time.Time // when the asks were sent; sent[0] is ask number first
	first,
	last uint64 // numbers of the oldest ask that is remembered, and of the newest

	underWay int           // asks that are not answered
	post     *post         // nil as long as nothing is to come in; guarded by the claim's mu
	in       *post         // the same, for Wait to use; nil as long as it has not looked
	due      time.Time     // when to ask again
	pause    time.Duration // before that, if asks fail

	err   error // why it takes so long: ErrLocked or an error of the store
	said  *session.Complaint
	own   session.Complaint
	stats Stats

	// Room for what is sent first, which mostly is enough.
	firstAsk  driver.Request
	firstSent [1]time.Time
}

type reply struct {
	ask   uint64
	grant driver.Grant
	err   error
}

// Stats is what has happened to a claim, or to several of one caller.
type Stats struct {
	Contended               bool     // another held the lock, or waited for it
	Asked                   int      // how often the store was asked
	Notify, Poll, Reconnect int      // what ended the pauses, see AcquireOp in the root
	Tags                    []string // of the holders that were in the way
}

// Stats returns what has happened so far.
func (c *Claim) Stats() Stats {
	r := c.asking.stats
	r.Asked = int(c.asking.last)
	r.Contended = r.Contended || r.Notify > 0 // which can overtake the answer
	return r
}

// Explain sets the reason for waiting from the beginning, and where to log it. nil leaves
// either as it is.
func (c *Claim) Explain(err error, said *session.Complaint) {
	if err != nil {
		c.asking.err = err
	}
	if said != nil {
		c.asking.said = said
	}
}

// Hurry has the next Wait ask at once.
func (c *Claim) Hurry() { c.asking.due = time.Now() }

// post is where a claim hears of what happens. It is used again by other claims of the session.
type post struct {
	replies chan reply        // has room for all asks
	news    chan driver.Grant // has room for one
	timer   *time.Timer       // until the next ask; nil before the first pause
}

// open returns the post for Wait.
func (c *Claim) open() *post {
	a := c.asking
	if a.in == nil {
		c.mu.Lock()
		a.in = c.inbox()
		c.mu.Unlock()
	}
	return a.in
}

// inbox returns the post. Many claims need none. The caller holds the claim's mu.
func (c *Claim) inbox() *post {
	a := c.asking
	if a.post == nil {
		if a.post, _ = c.s.Posts.Get().(*post); a.post == nil {
			a.post = &post{replies: make(chan reply, maxAsking), news: make(chan driver.Grant, 1)}
		}
	}
	return a.post
}

// wait has the timer run for so long.
func (p *post) wait(d time.Duration) {
	if p.timer == nil {
		p.timer = time.NewTimer(d)
	} else {
		p.timer.Reset(d)
	}
}

// Wait asks, and asks again every TTL/3, which is the heartbeat of a waiter. It returns
// when the lock is granted or there is a reason to give up. After that another goroutine
// may go on with the claim.
func (c *Claim) Wait(ctx context.Context) (keepalive.Trust, driver.Grant, error) {
	a := c.asking
	defer a.own.Leave(c.s)
	var g driver.Grant
	var err error
	switch {
	case a.last > 0:
	case ctx.Done() == nil && c.s.Brisk():
		// Nobody can call this off, so this goroutine can wait for the answer itself.
		// Another goroutine would double the time that a free lock takes.
		r := c.number()
		watch := c.s.Watch(c, a.said.Tell(c.s))
		answer, late := c.send(ctx, r, a.from)
		watch.End()
		if late {
			c.releaseAgain(ctx)
		}
		g, err = c.answer(answer)
	default:
		c.ask(ctx)
	}
	for ; err == nil; g, err = c.event(ctx) {
		if g.Status == driver.Granted && ctx.Err() == nil {
			if trust, ok := c.trust(g.Ask); ok && trust.Left() > 0 {
				return trust, g, nil
			}
			// The news came so late that the lease it tells of is over, and somebody
			// else may hold the lock. Whether we do, a new ask will tell. But such a
			// grant keeps the lock from the others for a TTL, so they get their turn first.
			if a.late++; !a.wait && a.late == maxTries {
				return keepalive.Trust{}, driver.Grant{}, errTooSlow
			}
			c.trouble(errTooSlow)
			a.said.Persist(errTooSlow)
			a.askIn(min(c.TTL<<min(a.late, 8), max(c.TTL, time.Second)))
		}
	}
	return keepalive.Trust{}, driver.Grant{}, err
}

// Hangs implements [session.Hanging]. It complains for a waiter that waits for the store
// itself.
func (c *Claim) Hangs(v *session.Vigil) {
	a := c.asking
	for over := false; !over; {
		var again <-chan time.Time
		if a.wait {
			again = time.After(a.said.Tell(c.s))
		}
		select {
		case <-v.Over:
			over = true
		case <-again:
		}
	}
	v.Met <- struct{}{} // from here on what is asked is for Wait to use
}

// event waits for the next thing to happen and returns its result: a grant, a reason to
// give up, or neither.
func (c *Claim) event(ctx context.Context) (driver.Grant, error) {
	a, in := c.asking, c.open()
	select {
	case r := <-in.replies: // a timer costs more than looking first
		return c.answer(r)
	default:
	}
	next := time.Until(a.due)
	if a.wait {
		next = min(next, a.said.Tell(c.s))
	}
	in.wait(next)
	defer in.timer.Stop()
	select {
	case r := <-in.replies:
		return c.answer(r)
	case g := <-in.news:
		c.behind(g.HolderTag)
		if g.Reconnect {
			a.stats.Reconnect++
		} else {
			a.stats.Notify++
		}
		if g.Status != driver.Granted {
			c.ask(ctx)
		}
		return g, nil
	case <-in.timer.C:
		if !time.Now().Before(a.due) { // else it was to complain
			a.stats.Poll++
			c.ask(ctx)
		}
		return driver.Grant{}, nil
	case <-ctx.Done():
		why := a.err
		if held, told := why.(*Held); told {
			why = held.Now()
		}
		return driver.Grant{}, session.WithTrouble(context.Cause(ctx), why)
	case <-c.s.Closing():
		return driver.Grant{}, session.ErrClosed
	}
}

// ask sends the next ask, unless too many are under way.
func (c *Claim) ask(ctx context.Context) {
	a := c.asking
	if a.underWay == maxAsking {
		a.due = c.heartbeat(time.Now())
		return
	}
	r, from, replies := c.number(), a.from, c.open().replies
	c.s.Grow()
	go func() {
		defer c.s.Done()
		answer, late := c.send(ctx, r, from)
		replies <- answer
		if late {
			c.releaseAgain(ctx)
		}
	}()
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
	a.said.Asked()
	c.uncertain.Add(1)
	r := &a.firstAsk
	if a.last > 1 { // nobody knows how long the driver looks at the first one
		r = new(driver.Request)
	}
	*r = driver.Request{
		Kind: c.ID.Kind, Name: c.ID.Name, Token: c.Token, Ask: a.last, TTL: c.TTL, Owner: c.Owner,
		Shared: c.Shared, Wait: a.wait, MaxWaiters: a.room, Notice: a.notice, Weight: c.Weight, Limit: a.limit, Fences: a.fences,
		Holder: a.holder, Wake: c.wake,
	}
	return r
}

// send carries an ask to the store, and returns the reply. If late, the caller must call
// releaseAgain at a suitable moment.
func (c *Claim) send(ctx context.Context, r *driver.Request, from *driver.Lease) (_ reply, late bool) {
	var g driver.Grant
	var err error
	if from == nil {
		g, err = c.s.Driver.Acquire(ctx, r)
	} else {
		d, _ := driver.As[driver.Attacher](c.s.Driver)
		g, err = d.Attach(ctx, *from, r)
	}
	if err == nil && !nothing(g) {
		c.left.Store(true)
	}
	if err == nil || errors.Is(err, driver.ErrNotExecuted) || errors.Is(err, driver.ErrNotHeld) {
		c.uncertain.Add(-1) // not before that, see absent
	}
	if end := ctx.Err(); end != nil && errors.Is(err, end) {
		// A waiter that goes on with the claim has a context of its own.
		err = fmt.Errorf("%w: %w", driver.ErrTransient, err)
	}
	return reply{r.Ask, g, err}, err == nil && !nothing(g) && c.ceased.Load()
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
		return driver.Grant{}, c.failed(r.err)
	}
	c.s.Answered()
	a.pause = 0
	a.said.Answered(c.s)
	if a.err != nil {
		c.listener.Trouble(nil)
	}
	a.heard = true
	c.behind(r.grant.HolderTag)
	switch r.grant.Status {
	case driver.Granted:
		if a.from != nil {
			c.Shared, c.Weight, c.Owner = r.grant.Shared, r.grant.Weight, r.grant.Owner
		}
		return r.grant, nil
	case driver.Busy:
		c.busy(r.grant)
		if !a.wait {
			return driver.Grant{}, a.err
		}
		// The driver has no queue. Jitter keeps the waiters from coming in step.
		least := 50 * time.Millisecond
		if p, able := driver.As[driver.Poller](c.s.Driver); able {
			least = min(least, p.Poll())
		}
		a.askIn(min(max(r.grant.RetryAfter, least), c.TTL/3))
	case driver.Full:
		c.busy(r.grant)
		return driver.Grant{}, fmt.Errorf("%w: %w", ErrQueueFull, a.err)
	case driver.Queued:
		a.room = 0 // should it have to come back, it was there before
		c.busy(r.grant)
		if r.grant.RetryAfter > 0 && r.grant.RetryAfter < c.TTL/3 {
			a.due = time.Now().Add(r.grant.RetryAfter)
		}
	}
	return driver.Grant{}, nil
}

// busy notes that somebody has the lock or is before us.
func (c *Claim) busy(g driver.Grant) {
	c.asking.err = ErrLocked
	switch {
	case g.Behind:
		c.asking.err = behind{}
		c.listener.HeldBy(nil)
	case g.Holder != "":
		held := &Held{g.Holder, g.HeldFor, time.Now()}
		c.asking.err = held
		c.listener.HeldBy(held)
	}
	if !c.asking.stats.Contended {
		c.asking.stats.Contended = true
		if c.asking.wait {
			c.listener.Busy()
		}
	}
}

// behind notes the tag of a holder that is in the way. Of a long wait the first ones are
// remembered, and the last.
func (c *Claim) behind(tag string) {
	if tags := c.asking.stats.Tags; tag != "" && (len(tags) == 0 || tags[len(tags)-1] != tag) {
		c.asking.stats.Tags = append(tags[:min(len(tags), MaxTags)], tag)
		c.listener.Behind(tag)
	}
}

// failed decides whether an error ends the claim.
func (c *Claim) failed(err error) error {
	a := c.asking
	if errors.Is(err, driver.ErrLimitConflict) || errors.Is(err, driver.ErrLimitExceeded) {
		c.s.Answered() // it is an answer, if not what we had hoped for
	}
	// A user whom the store has let in before is let in again, once somebody has mended the password
	// or the rights. To give up for that would end a fleet.
	passes := errors.Is(err, driver.ErrTransient) || a.wait && c.s.Accepted() && errors.Is(err, driver.ErrDenied)
	if !passes || !a.wait && a.last >= maxTries {
		return err
	}
	c.trouble(err)
	a.said.Failed(err)
	a.pause = min(max(2*a.pause, 5*time.Millisecond), time.Second, c.TTL/6)
	a.askIn(a.pause)
	return nil
}

// trouble notes why the store is of no help.
func (c *Claim) trouble(err error) {
	c.asking.err = err
	c.listener.Trouble(err)
}

// askIn sets the next ask to a random time around d from now.
func (a *asking) askIn(d time.Duration) {
	a.due = time.Now().Add(d/2 + rand.N(d))
}
