package session

import (
	"log/slog"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// An outage can cost a client all of its leases. One line of the log tells of the first, and
// another one, after this time, of those since.
const lossesGather = time.Second

// maxLostNames is how many locks that line names.
const maxLostNames = 20

// Loss is the loss of a lease.
type Loss struct {
	Kind  driver.Kind
	Name  string
	Fence int64
	Cause error
}

// losses are those that no line has told of yet.
type losses struct {
	mu    sync.Mutex
	until time.Time // when the next line may come
	names []string
	count int
	last  Loss
}

// Lost has the log tell of a loss.
func (s *Session) Lost(l Loss, log *slog.Logger) {
	now, ls := time.Now(), &s.losses
	ls.mu.Lock()
	alone := !now.Before(ls.until)
	if alone {
		ls.until = now.Add(lossesGather)
	} else {
		if ls.count == 0 {
			time.AfterFunc(ls.until.Sub(now), func() { s.tellLosses(log) })
		}
		if len(ls.names) < maxLostNames {
			ls.names = append(ls.names, l.Name)
		}
		ls.count, ls.last = ls.count+1, l
	}
	ls.mu.Unlock()
	if alone {
		l.tell(log)
	}
}

func (l Loss) tell(log *slog.Logger) {
	log.Warn("holdfast: lock lost", "kind", string(l.Kind), "lock", l.Name, "fence", l.Fence, "cause", l.Cause)
}

// tellLosses writes a line about the losses since the last one.
func (s *Session) tellLosses(log *slog.Logger) {
	ls := &s.losses
	ls.mu.Lock()
	names, count, last := ls.names, ls.count, ls.last
	ls.names, ls.count, ls.last = nil, 0, Loss{}
	ls.until = time.Now().Add(lossesGather)
	ls.mu.Unlock()
	if count == 1 {
		last.tell(log)
	} else {
		log.Warn("holdfast: more locks lost", "count", count, "locks", names, "cause", last.Cause)
	}
}
