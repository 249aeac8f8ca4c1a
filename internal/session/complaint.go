package session

import (
	"errors"
	"log/slog"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// troubleAfter is how long a caller waits for a store in trouble before the log says so.
const troubleAfter = 2 * time.Second

var errSilent = errors.New("the store does not answer")

// Complaint says why a caller has to wait although no holder is in the way: the store
// refuses, or does not answer. It comes up after 2 s, and again after as long as the trouble
// has lasted by then: 2 s, 4 s, 8 s … Callers with the same trouble share the lines of the log.
type Complaint struct {
	Op   string
	Kind driver.Kind
	Name string
	Log  interface{ Log() *slog.Logger }

	since    time.Time     // zero if there is no trouble
	after    time.Duration // when it comes up, counted from that
	reason   error         // nil as long as the store has not answered at all
	persists bool
	up       bool // it counts as one that waits
}

// Asked notes that the store is asked. It may be called again.
func (c *Complaint) Asked() {
	if c.since.IsZero() {
		c.since, c.after = time.Now(), troubleAfter
	}
}

// Failed notes why the store was asked in vain.
func (c *Complaint) Failed(reason error) {
	c.Asked()
	c.reason = reason
}

// Persist is Failed for trouble that does not end with the next answer of the store.
func (c *Complaint) Persist(reason error) {
	c.Failed(reason)
	c.persists = true
}

// Answered notes that the store has answered.
func (c *Complaint) Answered(s *Session) {
	if !c.persists {
		c.Leave(s)
		c.since, c.reason = time.Time{}, nil
	}
}

// Over notes that trouble which persists is over, if that was its reason.
func (c *Complaint) Over(reason error, s *Session) {
	if c.persists && c.reason == reason {
		c.persists = false
		c.Answered(s)
	}
}

// Leave notes that the caller waits no more.
func (c *Complaint) Leave(s *Session) {
	if c.up {
		s.appease(c)
		c.up = false
	}
}

// Tell complains if it is time for that, and returns when to look again.
func (c *Complaint) Tell(s *Session) (again time.Duration) {
	if c.since.IsZero() {
		return troubleAfter
	}
	waited := time.Since(c.since)
	if waited < c.after {
		return c.after - waited
	}
	c.up = true
	s.complain(c)
	c.after = 2 * waited
	return waited
}
