package holdfast

import (
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// troubleAfter is how long a caller waits for a store in trouble before the log says so.
const troubleAfter = 2 * time.Second

var errSilent = errors.New("the store does not answer")

// complaint says in the log why a caller has to wait although no holder is in the way: the
// store refuses, or does not answer. The first line comes after troubleAfter, and each
// further one after as long again as the trouble has lasted by then: 2 s, 4 s, 8 s …
type complaint struct {
	op   string
	kind driver.Kind
	name string
	cfg  *config // for its logger

	since    time.Time // zero if there is no trouble
	next     time.Time // when to write a line
	reason   error     // nil as long as the store has not answered at all
	persists bool
}

// begin notes that the store is asked. It may be called again.
func (c *complaint) begin() {
	if c.since.IsZero() {
		c.since = time.Now()
		c.next = c.since.Add(troubleAfter)
	}
}

// because notes what the store has answered instead of what was wanted.
func (c *complaint) because(reason error) {
	c.begin()
	c.reason = reason
}

// persist is because, of trouble that does not end with the next answer of the store.
func (c *complaint) persist(reason error) {
	c.because(reason)
	c.persists = true
}

// end notes that the store has answered.
func (c *complaint) end() {
	if !c.persists {
		c.since, c.reason = time.Time{}, nil
	}
}

// tell writes a line if it is time for one, and returns when to look again.
func (c *complaint) tell() (again time.Duration) {
	now := time.Now()
	if c.since.IsZero() {
		return troubleAfter
	}
	if wait := c.next.Sub(now); wait > 0 {
		return wait
	}
	reason := c.reason
	if reason == nil {
		reason = errSilent
	}
	waited := now.Sub(c.since)
	c.cfg.log().Warn("holdfast: still waiting for the store", "op", c.op, "kind", string(c.kind), "lock", c.name,
		"waited", waited.Round(100*time.Millisecond), "error", reason)
	c.next = now.Add(waited)
	return waited
}
