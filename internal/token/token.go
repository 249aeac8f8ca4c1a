// Package token is one token at the store. With it a client asks for a lock, and asks again as long as it has
// to wait. At the end the client gives it up, whatever messages were lost or late.
//
//	           granted
//	asking ───────────────> held
//	   │                     │
//	   │ given up            │ given up
//	   └─────> leaving <─────┘
//	              │
//	              │ the store was told, or does not keep it any longer
//	              v
//	            gone
//
// A token that another takes over in the store, or whose release ends with the client, stays leaving.
//
// An ask may be answered when its token is given up already, and may have got the lock for nobody. For the
// store can carry it out after the release. Two rules deal with that.
//   - A release says whether asks are unsettled, that is whether the store has perhaps carried one out, or
//     still will. Then the store keeps a tombstone and refuses them, see [driver.Lease].
//   - If an ask is granted nevertheless, or let into the queue, the release is repeated, by the later one of that ask
//     and the first release. While the token is leaving, the ask only notes that it has straggled, and the
//     release is repeated when it comes to its end. Once the token is gone, the ask has it repeated.
//
// Of the client a token needs only the session, and of the keeper what it makes of the time of an ask. Package local decides what follows from a grant, such as
// renewals and who in this process may use it.
package token

import (
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/session"
)

// ID identifies a lock. A hold on behalf of an owner is not for others to unlock, so each owner has locks of
// its own.
type ID struct {
	Kind  driver.Kind
	Name  string
	Owner string
}

// Want is what a token is for.
type Want struct {
	ID      *ID
	Request driver.Request  // as the store is asked; the token adds the lock, the token, and the number of the ask
	From    *driver.Lease   // to take over; nil to acquire
	Steal   bool            // from whoever has it
	Log     session.Logging // for what is returned to nobody
}

// Listener hears what a token is told between two asks. Its methods must not block.
type Listener interface {
	// Lost says that the lock was taken away.
	Lost(cause error)
	// Wanted says that somebody else waits for the lock.
	Wanted()
	// Busy says, once, that somebody has the lock or is before us.
	Busy()
}

// Token is one token at the store.
type Token struct {
	ID    *ID
	Value string // as the store knows it
	Owner string // on whose behalf it holds; not known before it has taken over another's
	TTL   time.Duration

	s        *session.Session
	listener Listener
	log      session.Logging

	mu        sync.Mutex // guards the rest
	state     state
	straggled bool   // an ask has left something in the store while the token was leaving
	left      bool   // an answer left something behind in the store
	unsettled int32  // asks that the store has perhaps carried out, or still will
	asker     *asker // nil once the lock is held, for thousands may be held for long
}

// state is how far the life of a token has come, see the package comment.
type state uint8

const (
	asking  state = iota // Wait asks, or another goroutine may go on with it
	held                 // nothing is asked any more
	leaving              // it is given up
	gone                 // it is, and the store was told
)

// Init makes a token that the store does not know yet.
func (t *Token) Init(s *session.Session, w *Want, listener Listener) {
	t.ID, t.Value, t.Owner, t.TTL = w.ID, s.NewToken(), w.ID.Owner, w.Request.TTL
	t.s, t.listener, t.log = s, listener, w.Log
	a := &asker{Token: t, request: w.Request, from: w.From, steal: w.Steal, first: 1, post: postOf(s)}
	r := &a.request
	r.Kind, r.Name, r.Owner, r.Token, r.Wake = w.ID.Kind, w.ID.Name, w.ID.Owner, t.Value, t.wake
	a.sent = a.firstSent[:0]
	op := "acquire"
	switch {
	case w.From != nil:
		op = "attach"
	case w.Steal:
		op = "steal"
	}
	a.own.Init(s, op, w.ID.Kind, w.ID.Name, w.Log)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.asker = a
}

// Begun reports whether Init has made the token.
func (t *Token) Begun() bool { return t.s != nil }

// Lease returns the token as the store is told of it.
func (t *Token) Lease(tag string) driver.Lease {
	return driver.Lease{Kind: t.ID.Kind, Name: t.ID.Name, Token: t.Value, TTL: t.TTL, Owner: t.Owner, HolderTag: tag}
}

// Granted frees what a holder does not need.
func (t *Token) Granted() { t.asked(held) }

// asked ends the asking. An ask that is still under way keeps its own reference to the channel for its reply, so
// nobody else may have that.
func (t *Token) asked(next state) {
	t.mu.Lock()
	a := t.asker
	t.asker = nil
	if t.state == asking { // else it is given up already, as by Close
		t.state = next
	}
	t.mu.Unlock()
	if a.underWay > 0 {
		return
	}
	select {
	case <-a.news: // which nobody has read, and nobody can send any more
	default:
	}
	t.s.Posts.Put(a.post)
}

// wake passes news on from the driver. If there is no room for it, the news that is there makes the token ask,
// and the token learns everything then.
func (t *Token) wake(g driver.Grant) {
	if g.Status == driver.Granted { // other news can be of the driver's own making
		t.s.Heard()
	}
	switch {
	case g.Status == driver.Wanted:
		t.listener.Wanted()
	case g.Status == driver.Lost && g.Ended:
		t.listener.Lost(ErrEnded)
	case g.Status == driver.Lost && g.Holder != "":
		t.listener.Lost(&Stolen{g.Holder})
	case g.Status == driver.Lost:
		t.listener.Lost(ErrTakenAway)
	default:
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.state != asking {
			return
		}
		select {
		case t.asker.news <- g:
		default:
		}
	}
}
