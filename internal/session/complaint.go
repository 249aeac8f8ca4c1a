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

// Complaint logs why a caller has to wait although no holder is in the way: the store
// refuses, or does not answer. The first line comes after 2 s. Each further line comes
// after as long again as the trouble has lasted by then: 2 s, 4 s, 8 s …
type Complaint struct {
	Op   string
	Kind driver.Kind
	Name string
	Log  interface{ Log() *slog.Logger }

	since    time.Time     // zero if there is no trouble
	after    time.Duration // when to write a line, counted from that
	reason   error         // nil as long as the store has not answered at all
	persists bool
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
func (c *Complaint) Answered() {
	if !c.persists {
		c.since, c.reason = time.Time{}, nil
	}
}

// Tell writes a line if it is time for one, and returns when to look again.
func (c *Complaint) Tell() (again time.Duration) {
	if c.since.IsZero() {
		return troubleAfter
	}
	waited := time.Since(c.since)
	if waited < c.after {
		return c.after - waited
	}
	reason := c.reason
	if reason == nil {
		reason = errSilent
	}
	c.Log.Log().Warn("holdfast: still waiting for the store", "op", c.Op, "kind", string(c.Kind), "lock", c.Name,
		"waited", waited.Round(100*time.Millisecond), "error", reason)
	c.after = 2 * waited
	return waited
}
