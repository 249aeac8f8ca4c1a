// Package claim is one token at the store. A claim asks for a lock with the token, and asks
// again as long as it has to wait. At the end it gives the token up, whatever messages were
// lost or late.
//
//	Wait ──> granted ──> Releaser
//	  │                     ^
//	  └──── gives up ───────┘
//
// Of the client a claim needs only the session. Package local decides what follows from a
// grant, such as renewals and who in this process may use it.
package claim

import (
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/session"
)

// ID identifies a lock. A hold on behalf of an owner is not for others to unlock, so each
// owner has locks of its own.
type ID struct {
	Kind  driver.Kind
	Name  string
	Owner string
}

// Want is what a claim is for.
type Want struct {
	ID      *ID
	Request driver.Request // as the store is asked; the claim adds the lock, the token, and the number of the ask
	From    *driver.Lease  // to take over; nil to acquire
	Steal   bool           // from whoever has it
}

// Listener hears what a claim is told between two asks. Its methods must not block.
type Listener interface {
	// Lost says that the lock was taken away.
	Lost(cause error)
	// Wanted says that somebody else waits for the lock.
	Wanted()
	// Busy says, once, that somebody has the lock or is before us.
	Busy()
	// InTheWay says what is in the way now.
	InTheWay(Obstacle)
	// Unanswered says since when the store owes an answer: from the first ask without one. Zero
	// says that it has answered.
	Unanswered(since time.Time)
	// Log returns the log for what is returned to nobody.
	Log() *slog.Logger
}

// Obstacle is what a claim waits for, as far as it is known.
type Obstacle struct {
	Tag     string // of the last holder that had one
	Held    *Held  // by whom; nil if waiters are in the way, and no holder
	Trouble error  // what keeps the store from answering; nil if it answers
}

// ErrTakenAway is what the store tells a holder whose lock is taken by force.
var ErrTakenAway = fmt.Errorf("taken away: %w", driver.ErrNotHeld)

// ErrEnded is what the store tells a holder whose session at the store has ended.
var ErrEnded = fmt.Errorf("its session has ended: %w", driver.ErrNotHeld)

// Stolen is ErrTakenAway with what the store says of the thief.
type Stolen struct{ By string }

func (e *Stolen) Error() string { return fmt.Sprintf("stolen by %q", e.By) }

// Unwrap returns ErrTakenAway.
func (e *Stolen) Unwrap() error { return ErrTakenAway }

// Claim is one token at the store.
type Claim struct {
	ID     *ID
	Token  string
	Owner  string // on whose behalf it holds; not known before it has taken over another's
	Weight int64
	TTL    time.Duration

	s        *session.Session
	listener Listener

	Shared bool
	// uncertain counts the asks of which it is not known whether the store has carried them out
	// or still will. As long as there are any, giving the token up must leave a tombstone.
	uncertain atomic.Int32
	left      atomic.Bool  // an answer left something behind in the store
	phase     atomic.Int32 // of its life, see phase

	// mu guards asking for calls outside of Wait. asking is nil once the lock is held:
	// thousands of locks may be held for long.
	mu     sync.Mutex
	asking *asking
}

// phase is how far the life of a token has come. An ask may be answered when its token is given up
// already. The store may have handled that ask after the release, if it has no tombstone any more.
// So the release is repeated, by the later one of that ask and the first release.
//
//	wanted ──given up──> ceased ──an ask is granted──> straggled
//	                       │                               │
//	                    released                  released, and again
//	                       └──────────> settled <──────────┘
//	                                     │   ^
//	                                     └───┘ an ask is granted: released again
type phase = int32

const (
	wanted phase = iota
	ceased
	straggled
	settled
)

// Init makes a claim that the store does not know yet.
func (c *Claim) Init(s *session.Session, w *Want, listener Listener) {
	c.ID, c.Token, c.Owner = w.ID, s.NewToken(), w.ID.Owner
	c.Shared, c.Weight, c.TTL = w.Request.Shared, w.Request.Weight, w.Request.TTL
	c.s, c.listener = s, listener
	a := &asking{request: w.Request, from: w.From, steal: w.Steal, first: 1}
	r := &a.request
	r.Kind, r.Name, r.Owner, r.Token, r.Wake = w.ID.Kind, w.ID.Name, w.ID.Owner, c.Token, c.wake
	a.sent = a.firstSent[:0]
	op := "acquire"
	switch {
	case w.From != nil:
		op = "attach"
	case w.Steal:
		op = "steal"
	}
	a.own.Init(s, op, w.ID.Kind, w.ID.Name, listener)
	a.said = &a.own
	c.asking = a
}

// Lease returns the claim as the store is told of it.
func (c *Claim) Lease(tag string) driver.Lease {
	return driver.Lease{Kind: c.ID.Kind, Name: c.ID.Name, Token: c.Token, TTL: c.TTL, Owner: c.Owner, HolderTag: tag}
}

// Granted frees what a holder does not need. An ask that is still under way keeps its own
// reference to the channel for its reply, so nobody else may have that.
func (c *Claim) Granted() {
	c.mu.Lock()
	a := c.asking
	c.asking = nil
	c.mu.Unlock()
	if a.post == nil || a.underWay > 0 {
		return
	}
	select {
	case <-a.post.news: // which nobody has read, and nobody can send any more
	default:
	}
	c.s.Posts.Put(a.post)
}

// wake passes news on from the driver. If the inbox is full, the news in it makes the claim
// ask, and the claim learns everything then.
func (c *Claim) wake(g driver.Grant) {
	if g.Status == driver.Granted { // other news can be of the driver's own making
		c.s.Heard()
	}
	switch g.Status {
	case driver.Lost:
		switch {
		case g.Ended:
			c.listener.Lost(ErrEnded)
		case g.Holder != "":
			c.listener.Lost(&Stolen{g.Holder})
		default:
			c.listener.Lost(ErrTakenAway)
		}
	case driver.Wanted:
		c.listener.Wanted()
	default:
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.asking == nil {
			return
		}
		select {
		case c.inbox().news <- g:
		default:
		}
	}
}
