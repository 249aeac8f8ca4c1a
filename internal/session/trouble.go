package session

import (
	"cmp"
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

const (
	// troubleAfter is how long a caller waits for a store in trouble before the log says so.
	troubleAfter = 2 * time.Second
	// gathering is how long a line of the log waits for others to share it.
	gathering = 100 * time.Millisecond
)

var errSilent = errors.New("the store does not answer")

// Complaint is that a caller has to wait although no holder is in its way: the store refuses, or
// does not answer. It comes up in the log after 2 s, and again after as long as the trouble has
// lasted by then: 2 s, 4 s, 8 s … Callers with the same trouble share the lines.
//
//	              Asked, Failed
//	nothing owed ───────────────> waits ──2 s──> up in the log
//	     ^                          │                  │
//	     └───────── Answered ───────┴──────────────────┘
//
// Leave takes it back from either, and the next Asked goes on with the same trouble.
type Complaint struct {
	s    *Session
	op   string
	kind driver.Kind
	name string
	log  Logging

	mu       sync.Mutex
	since    time.Time     // when the store was asked; zero if it owes nothing
	after    time.Duration // when it comes up, counted from that
	reason   error         // nil as long as the store has not answered at all
	persists bool
	alarm    *Alarm // for when it comes up; nil if nobody waits
	up       bool
}

// Logging is what has a log.
type Logging interface{ Log() *slog.Logger }

// Complaint returns the complaint of a caller about an operation on a lock.
func (s *Session) Complaint(op string, kind driver.Kind, name string, log Logging) *Complaint {
	c := new(Complaint)
	c.Init(s, op, kind, name, log)
	return c
}

// Init is [Session.Complaint] in memory of the caller.
func (c *Complaint) Init(s *Session, op string, kind driver.Kind, name string, log Logging) {
	c.s, c.op, c.kind, c.name, c.log = s, op, kind, name, log
}

// Asked notes that the store is asked. It may be called again.
func (c *Complaint) Asked() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waits()
}

// Failed notes why the store was asked in vain.
func (c *Complaint) Failed(reason error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waits()
	c.reason = reason
}

// Persist is Failed for trouble that does not end with the next answer of the store.
func (c *Complaint) Persist(reason error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waits()
	c.reason, c.persists = reason, true
}

// Answered notes that the store has answered.
func (c *Complaint) Answered() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.persists {
		c.over()
	}
}

// AnsweredInPart notes that the store has answered a caller who asks it for more. It changes nothing if an
// answer was an error: then it may fail again and again for one thing of many.
func (c *Complaint) AnsweredInPart() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reason == nil && c.alarm != nil { // else the caller has left
		c.over()
		c.waits()
	}
}

// Over notes that trouble which persists is over, if that was its reason.
func (c *Complaint) Over(reason error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.persists && c.reason == reason {
		c.persists = false
		c.over()
	}
}

// Leave notes that the caller waits no more. nil has nothing to complain of.
func (c *Complaint) Leave() {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leave()
}

// Trouble returns for how long the store has owed an answer, and what it says, nil if it says nothing.
func (c *Complaint) Trouble() (time.Duration, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.since.IsZero() {
		return 0, nil
	}
	return time.Since(c.since), c.reason
}

// The caller of waits, over and leave holds mu.

func (c *Complaint) waits() {
	var waited time.Duration
	switch {
	case c.alarm != nil:
		return
	case c.since.IsZero():
		c.since, c.after = time.Now(), troubleAfter
	default: // it has left, and is back
		waited = time.Since(c.since)
	}
	c.alarm = c.s.Alarm(max(0, c.after-waited), c)
}

func (c *Complaint) over() {
	c.leave()
	c.since, c.reason = time.Time{}, nil
}

func (c *Complaint) leave() {
	if c.alarm != nil {
		c.alarm.Stop()
		c.alarm = nil
	}
	if c.up {
		c.s.outages.leave(c)
		c.up = false
	}
}

// Ring implements [Bell]: it complains.
func (c *Complaint) Ring(a *Alarm) {
	c.mu.Lock()
	reason := c.reason
	c.mu.Unlock()
	if reason == nil {
		reason = cmp.Or(c.s.Explain(), errSilent)
	}
	log, cause := c.log.Log(), CauseOf(reason)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.alarm != a { // it was stopped just now
		return
	}
	waited := time.Since(c.since)
	c.up = true
	c.s.complain(c, log, cause, reason)
	c.after = 2 * waited
	c.alarm = c.s.Alarm(waited, c)
}

// outages are the troubles of a store, by their cause. Hundreds of callers may wait for one
// store, and one line of the log tells of all of them.
type outages struct {
	mu  sync.Mutex
	all map[string]*outage
}

// outage is trouble with one cause. It lasts for as long as somebody waits.
type outage struct {
	began   time.Time               // for the caller that has waited longest
	next    time.Time               // no line before that
	waiting map[*Complaint]struct{} // that came up, and have not left
	due     bool                    // a line is
}

// leave takes a complaint back. With the last one its outage is over: a line about the next must
// not wait for the time of this one.
func (o *outages) leave(c *Complaint) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for cause, one := range o.all { // mostly one
		if delete(one.waiting, c); len(one.waiting) == 0 {
			delete(o.all, cause)
		}
	}
}

// complain has the log tell of a complaint. The caller holds its mu.
func (s *Session) complain(c *Complaint, log *slog.Logger, cause string, reason error) {
	now := time.Now()
	s.outages.leave(c) // It may have had another cause.
	s.outages.mu.Lock()
	defer s.outages.mu.Unlock()
	if s.outages.all == nil {
		s.outages.all = map[string]*outage{}
	}
	o := s.outages.all[cause]
	if o == nil {
		o = &outage{began: c.since, next: now.Add(gathering), waiting: map[*Complaint]struct{}{}}
		s.outages.all[cause] = o
	}
	o.waiting[c] = struct{}{}
	if c.since.Before(o.began) {
		o.began = c.since
	}
	if !o.due {
		o.due = true
		attrs := []any{"op", c.op, "kind", string(c.kind), "lock", c.name}
		time.AfterFunc(o.next.Sub(now), func() { s.tell(o, log, attrs, reason) })
	}
}

// tell writes a line about an outage, unless it is over: the operation that came up first, and how
// many wait.
func (s *Session) tell(o *outage, log *slog.Logger, attrs []any, reason error) {
	s.outages.mu.Lock()
	now := time.Now()
	waited, waiting := now.Sub(o.began), len(o.waiting)
	o.due, o.next = false, now.Add(waited-gathering/2)
	s.outages.mu.Unlock()
	if waiting == 0 {
		return
	}
	if waiting > 1 {
		attrs = append(attrs, "waiting", waiting)
	}
	attrs = append(attrs, "waited", waited.Round(100*time.Millisecond))
	if s.Stringer != nil {
		attrs = append(attrs, "store", s.Stringer.String())
	}
	log.Warn("holdfast: still waiting for the store", append(attrs, "error", reason)...)
}

// CauseOf returns what errors with the same cause have in common: each connection has a port
// of its own.
func CauseOf(err error) string {
	var network *net.OpError
	if errors.As(err, &network) && network.Addr != nil {
		return network.Op + " " + network.Addr.String()
	}
	text, _, _ := strings.Cut(err.Error(), " ")
	return text
}
