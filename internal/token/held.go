package token

import (
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/session"
)

// ErrLocked says that another holds the lock.
var ErrLocked error = &session.Sentinel{Kind: "locked", Text: "held by another"}

// ErrQueueFull says that as many wait for a lock as may.
var ErrQueueFull error = &session.Sentinel{Kind: "queue_full", Text: "too many wait"}

// Held is ErrLocked with what the store says of a holder.
type Held struct {
	Holder string
	Fence  int64         // of its grant; 0 if the store does not say
	For    time.Duration // when it said so; 0 if it does not know
	At     time.Time     // on our clock
}

// behind is ErrLocked of a request for which there is room.
type behind struct{}

func (behind) Error() string { return "holdfast: others wait for it, and come first" }
func (behind) Unwrap() error { return ErrLocked }

// Now returns what is known now. As long as the store tells of nobody else, it is still the same holder.
func (h *Held) Now() *Held {
	now := *h
	now.At = time.Now()
	if h.For != 0 {
		now.For += now.At.Sub(h.At)
	}
	return &now
}

// Error says it with a precision that people can use.
func (h *Held) Error() string {
	if h.For == 0 {
		return fmt.Sprintf("holdfast: held by %q", h.Holder)
	}
	unit := time.Second
	if h.For < 10*time.Second {
		unit = time.Millisecond
	}
	return fmt.Sprintf("holdfast: held by %q for %v", h.Holder, h.For.Round(unit))
}

// Unwrap returns ErrLocked.
func (h *Held) Unwrap() error { return ErrLocked }

// ErrTakenAway is what the store tells a holder whose lock is taken by force.
var ErrTakenAway = fmt.Errorf("taken away: %w", driver.ErrNotHeld)

// ErrEnded is what the store tells a holder whose session at the store has ended.
var ErrEnded = fmt.Errorf("its session has ended: %w", driver.ErrNotHeld)

// Stolen is ErrTakenAway with what the store says of the thief.
type Stolen struct{ By string }

func (e *Stolen) Error() string { return fmt.Sprintf("stolen by %q", e.By) }

// Unwrap returns ErrTakenAway.
func (e *Stolen) Unwrap() error { return ErrTakenAway }

// errTooSlow is why a grant is of no use: its lease was over when we heard of it.
var errTooSlow = fmt.Errorf("%w: it takes longer to answer than a lease lasts", driver.ErrTransient)
