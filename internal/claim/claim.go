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

// ID says which lock it is. What is held on behalf of an owner is not for others to unlock, so
// each owner has locks of its own.
type ID struct {
	Kind  driver.Kind
	Name  string
	Owner string
}

// Want is what is asked for.
type Want struct {
	ID            *ID
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
	// Log is where to say what nobody is told otherwise.
	Log() *slog.Logger
}

// Claim is one token at the store.
type Claim struct {
	ID     *ID
	Token  string
	Owner  string // on whose behalf it holds; not known before it has taken over another's
	Shared bool
	Weight int64
	TTL    time.Duration

	s        *session.Session
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

// Init makes a claim, of which the store does not know yet.
func (c *Claim) Init(s *session.Session, w *Want, listener Listener) {
	c.ID, c.Token, c.Owner = w.ID, s.NewToken(), w.ID.Owner
	c.Shared, c.Weight, c.TTL = w.Shared, w.Weight, w.TTL
	c.s, c.listener = s, listener
	a := &asking{wait: w.Wait, notice: w.Notice, fences: w.Fences, limit: w.Limit, from: w.From, first: 1}
	a.sent = a.firstSent[:0]
	a.own = session.Complaint{Op: "acquire", Kind: w.ID.Kind, Name: w.ID.Name, Log: listener}
	if w.From != nil {
		a.own.Op = "attach"
	}
	a.said = &a.own
	c.asking = a
}

// Lease is what the store is told of.
func (c *Claim) Lease(tag string) driver.Lease {
	return driver.Lease{Kind: c.ID.Kind, Name: c.ID.Name, Token: c.Token, TTL: c.TTL, Owner: c.Owner, HolderTag: tag}
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
