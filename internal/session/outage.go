package session

import (
	"cmp"
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

// outage is trouble with one cause. It lasts for as long as somebody waits.
type outage struct {
	began   time.Time               // for the caller that has waited longest
	next    time.Time               // no line before that
	waiting map[*Complaint]struct{} // that came up, and have not left
	due     bool                    // a line is
}

// complain has the log tell of a complaint.
func (s *Session) complain(c *Complaint) {
	reason, now := c.reason, time.Now()
	if reason == nil {
		reason = cmp.Or(s.Explain(), errSilent)
	}
	s.appease(c) // It may have had another cause.
	s.outages.mu.Lock()
	defer s.outages.mu.Unlock()
	if s.outages.all == nil {
		s.outages.all = map[string]*outage{}
	}
	cause := CauseOf(reason)
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
		log, attrs := c.Log.Log(), []any{"op", c.Op, "kind", string(c.Kind), "lock", c.Name}
		time.AfterFunc(o.next.Sub(now), func() { s.tell(o, log, attrs, reason) })
	}
}

// appease takes a complaint back. With the last one its outage is over: a line about the next must
// not wait for the time of this one.
func (s *Session) appease(c *Complaint) {
	s.outages.mu.Lock()
	defer s.outages.mu.Unlock()
	for cause, o := range s.outages.all { // mostly one
		if delete(o.waiting, c); len(o.waiting) == 0 {
			delete(s.outages.all, cause)
		}
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
	if name, known := driver.As[fmt.Stringer](s.Driver); known {
		attrs = append(attrs, "store", name.String())
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
