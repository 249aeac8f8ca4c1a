package token

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/keepalive"
	"github.com/holdfast-go/holdfast/internal/session"
)

const (
	// maxAsking is how many asks of one token may be under way. A second one gets through where the first hangs
	// on a dead connection.
	maxAsking = 3
	// maxTags is how many holders are remembered that were in the way of a caller.
	maxTags = 8
	// SilentAfter is how long the store may owe an answer to a waiter before it counts as silent, whatever it
	// had said of the lock before.
	SilentAfter = time.Second
	// maxTries bounds how often an ask that does not wait is repeated after a failure.
	maxTries = 3
)

// Caller waits with a token. When it gives up, another may go on with the same one.
type Caller struct {
	Interrupt <-chan error       // gives the waiting up with the error that it brings
	Why       error              // it takes so long: ErrLocked, or an error of the store; nil for what it was
	Complaint *session.Complaint // of a caller that retries; nil for one of the token's own
	Stats     *Stats             // to add to; nil for none
	Endure    time.Duration      // gives up when the store has owed an answer for so long; 0: never
	Began     time.Time          // when it began, since it endures that much in any case
}

// asker asks with a token until the lock is held. It belongs to the goroutine in Wait.
type asker struct {
	*Token
	Caller
	request driver.Request // the first ask, and what the others are copied from
	from    *driver.Lease  // to take over; nil to acquire
	steal   bool

	heard     bool   // there were answers: the driver knows of the token no more than the store does, see absent
	letIn     bool   // to the queue
	contended bool   // another has the lock, or is before us
	gaveUp    bool   // the caller had enough
	late      int32  // grants that came too late to be of use
	again     bool   // one of them was asked for again at once
	unsent    bool   // the first ask was never sent
	brief     uint64 // the ask whose grant will do though little is left; 0: none was such yet

	sent []time.Time // when the asks were sent; sent[0] is ask number first
	first,
	last uint64 // numbers of the oldest ask that is remembered, and of the newest

	underWay int                // asks that are not answered
	due      time.Time          // when to ask again
	pause    session.Pause      // before that, if asks fail
	leave    context.CancelFunc // ends an ask in place that hangs

	tag string // of the last holder that had one
	by  *Held  // the last holder that the store has named; nil for none
	own session.Complaint

	*post
	obstacle  Obstacle     // as others are told; written under the token's mu
	firstSent [1]time.Time // room for sent, mostly enough
}

// post is where a token hears of what happens. It is used again by other tokens of the session.
type post struct {
	replies chan reply        // has room for all asks
	news    chan driver.Grant // has room for one
	timer   *time.Timer       // until the next ask
	unread  Stats             // of callers that do not want them
}

func postOf(s *session.Session) *post {
	if p, ok := s.Posts.Get().(*post); ok {
		return p
	}
	p := &post{replies: make(chan reply, maxAsking), news: make(chan driver.Grant, 1), timer: time.NewTimer(time.Hour)}
	p.timer.Stop()
	return p
}

type reply struct {
	ask   uint64
	grant driver.Grant
	err   error
	cut   bool // the end of its context has cut it short, which says nothing of the store
}

// Stats is what has happened to a caller, perhaps with several tokens.
type Stats struct {
	Contended               bool     // another held the lock, or waited for it
	Asked                   int      // how often the store was asked
	Notify, Poll, Reconnect int      // what ended the pauses, see AcquireOp in the root
	Tags                    []string // of the holders that were in the way
	Holder                  string   // text of the last of them; empty if not known
	HolderFence             int64    // of its grant; 0 if not known
}

// InTheWay notes a holder that is in the way, by its tag and by what is known of it otherwise. Of a long wait the
// first tags are remembered.
func (s *Stats) InTheWay(tag string, held *Held) {
	if tag != "" && len(s.Tags) < maxTags && !slices.Contains(s.Tags, tag) {
		s.Tags = append(s.Tags, tag)
	}
	if held != nil {
		s.Holder, s.HolderFence = held.Holder, held.Fence
	}
}

// Obstacle is what a token waits for, as far as it is known.
type Obstacle struct {
	Tag     string    // of the last holder that had one
	Held    *Held     // by whom; nil if waiters are in the way, and no holder
	Trouble error     // what keeps the store from answering; nil if it answers
	Since   time.Time // the store owes an answer: from the first ask without one; zero if it owes none
}

// Obstacle returns what the token waits for, to whoever has to wait behind it. It reports false if the token
// has not begun to ask, or asks no more.
func (t *Token) Obstacle() (o Obstacle, asks bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.asker == nil {
		return o, false
	}
	return t.asker.obstacle, true
}

// blame notes why it takes so long, and since when the store owes an answer.
func (a *asker) blame(why error, since time.Time) {
	a.Why = why
	o := Obstacle{Tag: a.tag, Since: since}
	o.Held, _ = why.(*Held)
	if a.troubled() {
		o.Trouble = why
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.obstacle = o
}

// Wait asks, and asks again every TTL/3, which is the heartbeat of a waiter. It returns when the lock is
// granted or there is a reason to give up. After that another goroutine may go on with the token.
func (t *Token) Wait(ctx context.Context, by *Caller) (keepalive.Trust, driver.Grant, error) {
	a := t.asker
	defer a.own.Leave()
	why := cmp.Or(by.Why, a.Why)
	a.Caller, a.gaveUp = *by, false
	a.Complaint, a.Stats, a.Why = cmp.Or(a.Complaint, &a.own), cmp.Or(a.Stats, &a.unread), why
	var g driver.Grant
	var err error
	switch {
	case a.last > 0: // another began, with whose context the ask under way may end
		if ctx.Err() == nil {
			a.due = time.Now()
		}
		a.Stats.Contended = a.Stats.Contended || a.contended
		a.Stats.InTheWay(a.tag, a.by)
		if a.request.Wait && !a.obstacle.Since.IsZero() {
			a.Complaint.Asked()
		}
	case a.Endure > 0 || !t.s.InPlace(ctx, t.TTL):
		a.ask(ctx)
	case ctx.Done() == nil: // it has the time
		r, _ := a.send(ctx, a.nextRequest())
		g, err = a.answer(r)
	default:
		g, err = a.askInPlace(ctx)
	}
	for ; err == nil; g, err = a.event(ctx) {
		if g.Status != driver.Granted || ctx.Err() != nil {
			continue
		}
		switch trust, ok := a.trust(g.Ask); {
		case !ok || trust.Left() <= 0:
			if slow := a.tooLate(); slow != nil {
				return keepalive.Trust{}, driver.Grant{}, slow
			}
		case a.tooBrief(trust, g.Ask):
			if a.brief == 0 {
				a.ask(ctx)
				a.brief = a.last
			}
		default:
			t.mu.Lock()
			a.obstacle = Obstacle{}
			t.mu.Unlock()
			return trust, g, nil
		}
	}
	return keepalive.Trust{}, driver.Grant{}, err
}

// tooBrief reports whether too little is left of a grant, which rests on that ask. A renewal may take as long as
// this answer has, as for a client that makes its first connections to a store that is far. The lease would be over
// first. An answer to one more ask renews it, and the caller need not know.
func (a *asker) tooBrief(trust keepalive.Trust, ask uint64) bool {
	return trust.Left() < a.TTL/2 && (a.brief == 0 || ask < a.brief) && a.from == nil && !a.steal
}

// tooLate notes that news of a grant came so late that the lease it tells of is over, and somebody else may hold
// the lock. Whether we do, a new ask will tell: at once, as after a stall in which this one lay at the store,
// which has only now granted a whole lease. But if answers take so long, each such grant keeps the lock from the
// others for a TTL, so they get their turn first. It returns an error if it is no use to go on.
func (a *asker) tooLate() error {
	if a.late++; !a.request.Wait && a.late == maxTries {
		return errTooSlow
	}
	a.blame(errTooSlow, a.obstacle.Since) // such a grant is no answer
	if a.request.Wait {
		a.Complaint.Persist(errTooSlow)
	}
	if !a.again && a.request.Wait && a.underWay == 0 {
		a.again, a.due = true, time.Now()
		return nil
	}
	a.askIn(min(a.TTL<<min(a.late, 8), max(a.TTL, time.Second)))
	return nil
}

// event waits for the next thing to happen and returns its result: a grant, a reason to give up, or neither.
func (a *asker) event(ctx context.Context) (none driver.Grant, err error) {
	select {
	case r := <-a.replies: // a timer costs more than looking first
		return a.answer(r)
	default:
	}
	next := time.Until(a.due)
	if since := a.obstacle.Since; a.Endure > 0 && !since.IsZero() {
		left := a.Endure - min(time.Since(since), time.Since(a.Began))
		if left <= 0 {
			over := &session.Outage{For: a.Endure}
			if a.troubled() {
				over.Err = a.Why
			}
			a.gaveUp = true
			return none, over
		}
		next = min(next, left)
	}
	a.timer.Reset(next)
	defer a.timer.Stop()
	select {
	case r := <-a.replies:
		return a.answer(r)
	case g := <-a.news:
		a.tagged(g.HolderTag)
		if g.Reconnect {
			a.Stats.Reconnect++
		} else {
			a.Stats.Notify++
			a.Stats.Contended = true // which can overtake the answer
		}
		if g.Status != driver.Granted {
			a.blame(a.Why, a.obstacle.Since)
			a.ask(ctx)
		}
		return g, nil
	case <-a.timer.C:
		if !time.Now().Before(a.due) { // else it was to give up
			a.Stats.Poll++
			a.ask(ctx)
		}
		return none, nil
	case <-ctx.Done():
	case why := <-a.Interrupt:
		err = cmp.Or(why, ErrLocked)
	case <-a.s.Closing():
		err = session.ErrClosed
	}
	if ctx.Err() != nil { // perhaps before that
		err = session.WithTrouble(session.EndOf(ctx), a.why())
	}
	a.gaveUp = true
	return none, err
}

// GaveUp reports whether the last Wait ended because its caller, and not the store, had enough. Another may
// go on with the token.
func (t *Token) GaveUp() bool { return t.asker.gaveUp }

// why is what a caller has waited for whose context ends now.
func (a *asker) why() error {
	held, told := a.Why.(*Held)
	since := a.obstacle.Since
	switch {
	case a.troubled():
		return a.Why
	case a.Why == nil || !since.IsZero() && time.Since(since) >= SilentAfter:
		return a.s.Silent()
	case told:
		return held.Now()
	}
	return a.Why
}

// troubled reports whether the store says why it is of no help.
func (a *asker) troubled() bool { return a.Why != nil && !errors.Is(a.Why, ErrLocked) }
