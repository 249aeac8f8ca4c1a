// Package claim is one token at the store: it asks for a lock with it, asks again as long as
// it has to wait, and gives it up, whatever is lost or late on the way.
//
//	Wait ──> granted ──> Release
//	  │                     ^
//	  └──── gives up ───────┘
//
// Of the client it needs the session only. What follows from a grant, such as renewals and
// who in this process may use it, is for package local.
package claim

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/session"
)

// Want is what is asked for.
type Want struct {
	Kind          driver.Kind
	Name          string
	Owner         string
	Shared        bool
	Wait          bool // for others to leave
	Notice        bool // to hear when somebody else wants it
	Weight, Limit int64
	Fences        int64
	TTL           time.Duration
	From          *driver.Lease // to take over; nil to acquire
}

// Listener hears what a claim is told between two asks. Its methods must not block.
type Listener interface {
	// Lost says that the lock was taken away.
	Lost(cause error)
	// Wanted says that somebody else waits for the lock.
	Wanted()
	// Busy says that somebody has the lock, or is before us, for the first time.
	Busy()
	// Behind says who is in the way: what a holder says of itself.
	Behind(tag string)
	// Trouble says what keeps the store from answering, nil if it answers.
	Trouble(err error)
}

// Claim is one token at the store.
type Claim struct {
	Kind   driver.Kind
	Name   string
	Token  string
	Owner  string
	Shared bool
	Weight int64
	TTL    time.Duration

	s        *session.Session
	log      func() *slog.Logger
	listener Listener

	// open counts the asks of which it is not known whether the store has carried them out
	// or still will. As long as there are any, giving the token up must leave a tombstone.
	open      atomic.Int32
	ceased    atomic.Bool // nobody wants the lock by this token any more
	settled   atomic.Bool // the release of its token is done
	straggled atomic.Bool // an ask has been answered since the token was given up

	// mu guards asking for those that are not in Wait. It is nil once the lock is held:
	// thousands of locks may be held for long.
	mu     sync.Mutex
	asking *asking
}

// Init makes a claim, of which the store does not know yet. log is where it says what keeps
// it waiting.
func (c *Claim) Init(s *session.Session, w *Want, listener Listener, log func() *slog.Logger) {
	c.Kind, c.Name, c.Token, c.Owner = w.Kind, w.Name, s.NewToken(), w.Owner
	c.Shared, c.Weight, c.TTL = w.Shared, w.Weight, w.TTL
	c.s, c.log, c.listener = s, log, listener
	a := &asking{wait: w.Wait, notice: w.Notice, fences: w.Fences, limit: w.Limit, from: w.From, first: 1}
	a.sent = a.firstSent[:0]
	a.own = session.Complaint{Op: w.Verb(), Kind: w.Kind, Name: w.Name, Log: log}
	a.said = &a.own
	c.asking = a
}

// Verb is what the operation is called.
func (w *Want) Verb() string {
	if w.From != nil {
		return "attach"
	}
	return "acquire"
}

// Lease is what the store is told of.
func (c *Claim) Lease(tag string) driver.Lease {
	return driver.Lease{Kind: c.Kind, Name: c.Name, Token: c.Token, TTL: c.TTL, Owner: c.Owner, Carrier: tag}
}

// Held lets go of what a holder does not need. An ask that is still under way has its own
// hold on where its reply goes.
func (c *Claim) Held() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asking = nil
}

// wake passes news on from the driver. If there is no room, the news that is in there makes
// the claim ask, and it learns everything then.
func (c *Claim) wake(g driver.Grant) {
	switch g.Status {
	case driver.Lost:
		c.listener.Lost(driver.ErrNotHeld)
	case driver.Wanted:
		c.listener.Wanted()
	default:
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.asking == nil {
			return
		}
		select {
		case c.asking.inbox() <- g:
		default:
		}
	}
}
