package session

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// gathering is how long a line of the log waits for others to share it.
const gathering = 100 * time.Millisecond

// outages are the troubles of a store, by their cause. Hundreds of callers may wait for one
// store, and one line of the log tells of all of them.
type outages struct {
	mu  sync.Mutex
	all map[string]*outage
}

// outage is trouble with one cause.
type outage struct {
	began    time.Time               // for the caller that has waited longest
	next     time.Time               // no line before that
	waiting  map[*Complaint]struct{} // of whom no line has told yet
	gathered bool                    // a line is due
}

// complain has the log tell of a complaint.
func (s *Session) complain(c *Complaint) {
	reason, now := c.reason, time.Now()
	if reason == nil {
		reason = errSilent
	}
	cause := causeOf(reason)
	attrs := []any{"op", c.Op, "kind", string(c.Kind), "lock", c.Name}
	log, began := c.Log.Log(), c.since

	s.outages.mu.Lock()
	defer s.outages.mu.Unlock()
	if s.outages.all == nil {
		s.outages.all = map[string]*outage{}
	}
	o := s.outages.all[cause]
	if o == nil {
		o = &outage{began: began, next: now.Add(gathering), waiting: map[*Complaint]struct{}{}}
		s.outages.all[cause] = o
	}
	o.waiting[c] = struct{}{}
	if began.Before(o.began) {
		o.began = began
	}
	if !o.gathered {
		o.gathered = true
		time.AfterFunc(o.next.Sub(now), func() { s.tell(cause, log, attrs, reason) })
	}
}

// appease takes back a complaint of which no line has told.
func (s *Session) appease(c *Complaint) {
	s.outages.mu.Lock()
	defer s.outages.mu.Unlock()
	for _, o := range s.outages.all { // mostly one
		delete(o.waiting, c)
	}
}

// tell writes a line about an outage: the operation that came up first, and how many wait.
func (s *Session) tell(cause string, log *slog.Logger, attrs []any, reason error) {
	now := time.Now()
	s.outages.mu.Lock()
	o := s.outages.all[cause]
	waited, waiting := now.Sub(o.began), len(o.waiting)
	o.gathered, o.next = false, now.Add(waited-gathering/2)
	clear(o.waiting)
	// Callers that still wait come up again until then.
	time.AfterFunc(waited+2*gathering, func() {
		s.outages.mu.Lock()
		defer s.outages.mu.Unlock()
		if o := s.outages.all[cause]; o != nil && !o.gathered && !time.Now().Before(o.next) {
			delete(s.outages.all, cause)
		}
	})
	s.outages.mu.Unlock()
	if waiting == 0 {
		return // it has passed
	}
	if waiting > 1 {
		attrs = append(attrs, "waiting", waiting)
	}
	attrs = append(attrs, "waited", waited.Round(100*time.Millisecond))
	if name, known := driver.As[fmt.Stringer](s.Driver); known {
		attrs = append(attrs, "store", name.String())
	}
	log.Warn("holdfast: still waiting for the store", append(attrs, "error", reason)...)
}

// causeOf returns what errors with the same cause have in common: each connection has a port
// of its own.
func causeOf(err error) string {
	var network *net.OpError
	if errors.As(err, &network) && network.Addr != nil {
		return network.Op + " " + network.Addr.String()
	}
	text, _, _ := strings.Cut(err.Error(), " ")
	return text
}
