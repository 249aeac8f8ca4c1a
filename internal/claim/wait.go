package claim

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/keepalive"
	"github.com/holdfast-go/holdfast/internal/session"
)

const (
	// maxAsking is how many asks of one claim may be under way. A second one gets through
	// where the first hangs on a dead connection.
	maxAsking = 3
	// asksInTrace is how many asks of a claim are in the trace of its caller. A candidate that waits
	// for a day asks some 26,000 times.
	asksInTrace = 4
	// MaxTags is how many holders that were in the way of a claim are remembered, beside the last.
	MaxTags = 8
	// SilentAfter is how long the store may owe an answer to a waiter before it counts as silent,
	// whatever it had said of the lock before.
	SilentAfter = time.Second
	// maxTries bounds how often an ask that does not wait is repeated after a failure.
	maxTries = 3
)

// asking is what a claim needs until the lock is held. It belongs to the goroutine in Wait.
type asking struct {
	request driver.Request // the first ask, and what the others are copied from
	from    *driver.Lease  // to take over; nil to acquire
	steal   bool

	heard bool   // there were answers
	letIn bool   // to the queue
	late  int32  // grants that came too late to be of use
	again bool   // one of them was asked for again at once
	brief uint64 // the ask whose grant will do though little is left; 0: none was such yet

	sent []time.Time // when the asks were sent; sent[0] is ask number first
	first,
	last uint64 // numbers of the oldest ask that is remembered, and of the newest
	counted uint64 // the newest for another goroutine, which has left
	unsent  uint64 // how many were never sent

	underWay   int           // asks that are not answered
	unanswered time.Time     // when the first ask after the last answer was sent; zero if there is none
	endure     time.Duration // gives up so long after that; 0: never
	began      time.Time     // for the caller in Wait, which endures that much in any case
	post       *post         // nil as long as nothing is to come in; guarded by the claim's mu
	in         *post         // the same, for Wait to use; nil as long as it has not looked
	due        time.Time     // when to ask again
	pause      session.Pause // before that, if asks fail

	err   error // why it takes so long: ErrLocked or an error of the store
	said  *session.Complaint
	own   session.Complaint
	stats Stats

	firstSent [1]time.Time // room for sent, mostly enough
}

type reply struct {
	ask   uint64
	grant driver.Grant
	err   error
	cut   bool // the end of its context has cut it short, which says nothing of the store
}

// Stats is what has happened to a claim, or to several of one caller.
type Stats struct {
	Contended               bool     // another held the lock, or waited for it
	Asked                   int      // how often the store was asked
	Notify, Poll, Reconnect int      // what ended the pauses, see AcquireOp in the root
	Tags                    []string // of the holders that were in the way
	Holder                  string   // text of the last of them; empty if not known
	HolderFence             int64    // of its grant; 0 if not known
}

// Stats returns what has happened so far, to the goroutine that called Wait last.
func (c *Claim) Stats() Stats {
	r := c.asking.stats
	r.Asked = int(c.asking.last - c.asking.counted)
	r.Contended = r.Contended || r.Notify > 0 // which can overtake the answer
	return r
}

// Explain sets the reason for waiting from the beginning, which stays as it is if err is nil, and the
// complaint of the caller; nil for one of the claim's own. That of a caller that has left must not go on.
func (c *Claim) Explain(err error, said *session.Complaint) {
	if err != nil {
		c.asking.err = err
	}
	c.asking.said = cmp.Or(said, &c.asking.own)
}

// Endure has the next Wait give up when the store has owed an answer for d, but not earlier than d
// after began. 0 has it wait for the store as long as for a holder.
func (c *Claim) Endure(d time.Duration, began time.Time) {
	c.asking.endure, c.asking.began = d, began
}

// outage returns how much longer to wait for an answer, and whether that is bounded.
func (a *asking) outage() (left time.Duration, bounded bool) {
	if a.endure == 0 || a.unanswered.IsZero() {
		return 0, false
	}
	since := a.unanswered
	if since.Before(a.began) {
		since = a.began
	}
	return time.Until(since.Add(a.endure)), true
}

// why is what a caller has waited for whose context ends now.
func (a *asking) why(s *session.Session) error {
	held, told := a.err.(*Held)
	switch {
	case a.troubled():
		return a.err
	case a.err == nil || !a.unanswered.IsZero() && time.Since(a.unanswered) >= SilentAfter:
		return s.Silent()
	case told:
		return held.Now()
	}
	return a.err
}

// troubled reports whether the store says why it is of no help.
func (a *asking) troubled() bool { return a.err != nil && !errors.Is(a.err, ErrLocked) }

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
// may go on with the claim. An error that comes from interrupt is such a reason.
func (c *Claim) Wait(ctx context.Context, interrupt <-chan error) (keepalive.Trust, driver.Grant, error) {
	a := c.asking
	defer a.own.Leave()
	var g driver.Grant
	var err error
	switch {
	case a.last > 0: // another began
		a.counted, a.stats.Notify, a.stats.Poll, a.stats.Reconnect = a.last, 0, 0, 0
		if a.request.Wait && !a.unanswered.IsZero() {
			a.said.Asked()
		}
	case a.endure == 0 && c.s.InPlace(ctx, c.TTL):
		r := c.number()
		var answer reply
		var late bool
		if ctx.Done() == nil { // it has the time
			answer, late = c.send(ctx, r, a.verb())
			g, err = c.answer(answer)
		} else {
			b := c.brief(ctx)
			answer, late = c.send(b, r, a.verb())
			g, err = c.landed(ctx, b, answer)
		}
		if late {
			c.releaseAgain(ctx)
		}
	default:
		c.ask(ctx)
	}
	for ; err == nil; g, err = c.event(ctx, interrupt) {
		if g.Status == driver.Granted && ctx.Err() == nil {
			trust, ok := c.trust(g.Ask)
			ok = ok && trust.Left() > 0
			if ok && trust.Left() < c.TTL/2 && (a.brief == 0 || g.Ask < a.brief) && a.from == nil && !a.steal {
				// A renewal may take as long as this answer has, as for a client that makes its first
				// connections to a store that is far. The lease would be over first. An answer to
				// one more ask renews it, and the caller need not know.
				if a.brief == 0 {
					c.ask(ctx)
					a.brief = a.last
				}
				continue
			}
			if ok {
				c.owed(time.Time{})
				return trust, g, nil
			}
			// The news came so late that the lease it tells of is over, and somebody
			// else may hold the lock. Whether we do, a new ask will tell: at once, as after a
			// stall in which this one lay at the store, which has only now granted a whole lease.
			// But if answers take so long, each such grant keeps the lock from the others for a
			// TTL, so they get their turn first.
			if a.late++; !a.request.Wait && a.late == maxTries {
				return keepalive.Trust{}, driver.Grant{}, errTooSlow
			}
			c.trouble(errTooSlow)
			if a.request.Wait {
				a.said.Persist(errTooSlow)
			}
			if !a.again && a.request.Wait && a.underWay == 0 {
				a.again, a.due = true, time.Now()
				continue
			}
			a.askIn(min(c.TTL<<min(a.late, 8), max(c.TTL, time.Second)))
		}
	}
	return keepalive.Trust{}, driver.Grant{}, err
}

// event waits for the next thing to happen and returns its result: a grant, a reason to
// give up, or neither.
func (c *Claim) event(ctx context.Context, interrupt <-chan error) (driver.Grant, error) {
	a, in := c.asking, c.open()
	select {
	case r := <-in.replies: // a timer costs more than looking first
		return c.answer(r)
	default:
	}
	next := time.Until(a.due)
	if left, bounded := a.outage(); bounded {
		if left <= 0 {
			over := &session.Outage{For: a.endure}
			if a.troubled() {
				over.Err = a.err
			}
			return driver.Grant{}, over
		}
		next = min(next, left)
	}
	in.wait(next)
	defer in.timer.Stop()
	select {
	case r := <-in.replies:
		return c.answer(r)
	case g := <-in.news:
		a.behind(g.HolderTag)
		if g.Reconnect {
			a.stats.Reconnect++
		} else {
			a.stats.Notify++
		}
		if g.Status != driver.Granted {
			c.listener.InTheWay(a.obstacle())
			c.ask(ctx)
		}
		return g, nil
	case <-in.timer.C:
		if !time.Now().Before(a.due) { // else it was to give up
			a.stats.Poll++
			c.ask(ctx)
		}
		return driver.Grant{}, nil
	case <-ctx.Done():
		return driver.Grant{}, c.calledOff(ctx)
	case why := <-interrupt:
		if ctx.Err() != nil { // perhaps before that
			return driver.Grant{}, c.calledOff(ctx)
		}
		return driver.Grant{}, Interrupt(why)
	case <-c.s.Closing():
		if ctx.Err() != nil {
			return driver.Grant{}, c.calledOff(ctx)
		}
		return driver.Grant{}, session.ErrClosed
	}
}

// calledOff is the error of a caller whose context has ended.
func (c *Claim) calledOff(ctx context.Context) error {
	return session.WithTrouble(session.EndOf(ctx), c.asking.why(c.s))
}

// interrupted is the end of a wait that somebody has interrupted.
type interrupted struct{ error }

func (i interrupted) Unwrap() error { return i.error }

// Interrupt returns the error of a wait that somebody has interrupted, and why.
func Interrupt(why error) error { return interrupted{why} }

// Interrupted reports whether a wait has ended so.
func Interrupted(err error) bool {
	_, ok := err.(interrupted)
	return ok
}
