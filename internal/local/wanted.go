package local

import (
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/session"
	"github.com/holdfast-go/holdfast/internal/trouble"
)

// A holder hears that another waits for what it holds only if it wants to know. Goroutines of
// this process that wait in the queue of the lock are seen here. For all others the store is
// asked, once for each hold, and tells of those that come later. A hold for which nobody asks
// costs nothing.

// Wanted returns a channel that is closed as soon as another waits for what the hold holds.
func (h *Hold) Wanted() <-chan struct{} {
	g, l := h.grant, h.grant.lock
	l.mu.Lock()
	first := h.wanted == nil
	if first {
		h.wanted = make(chan struct{})
	}
	if first && h.end == nil && l.grant == g && (l.waiting.first != nil || l.atStore != nil) {
		h.want()
	}
	asks := first && h.end == nil && !h.sought
	l.mu.Unlock()
	if asks && l.r.Session.Notifier != nil && l.r.Session.Begin() {
		go h.askForNotice()
	}
	return h.wanted
}

// askForNotice has the store tell from now on when somebody waits. It is an operation, and tries
// until the store has answered or the hold is over. A driver that was asked once also hears of
// waiters when it renews.
func (h *Hold) askForNotice() {
	g, s := h.grant, h.grant.lock.r.Session
	defer s.Done()
	ctx := s.While(h.values)
	for pause := session.Pause(0); ; {
		wanted, err := s.Notifier.Notice(ctx, g.Leased())
		err = trouble.Of(err)
		switch {
		case err == nil:
			s.Answered()
			if wanted {
				g.Wanted()
			}
			return
		case errors.Is(err, driver.ErrNotHeld):
			g.Lost(err) // unless it was released meanwhile
			return
		case !errors.Is(err, driver.ErrTransient) && !errors.Is(err, driver.ErrDenied):
			return
		}
		select {
		case <-h.Context().Done():
			return
		case <-s.Closing():
			return
		case <-time.After(pause.Next(g.TTL / 6)):
		}
	}
}

// want tells a hold that it is wanted. The caller holds Lock.mu.
func (h *Hold) want() {
	if h.wanted != nil && !h.sought {
		h.sought = true
		close(h.wanted)
	}
}

// want tells all holds on a grant that they are wanted. The caller holds Lock.mu.
func (g *Grant) want() {
	for _, h := range g.holds {
		h.want()
	}
}
