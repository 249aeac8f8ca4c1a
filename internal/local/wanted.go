package local

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/session"
	"github.com/holdfast-go/holdfast/internal/trouble"
)

// A holder hears that another waits for what it holds only if it wants to know. Goroutines of
// this process that wait in the lane of the lock are seen here. For all others the store is
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
	if ln := g.lane; first && h.end == nil && ln != nil && ln.grant == g && (ln.waiting.first != nil || ln.atStore != nil) {
		h.want()
	}
	asks := first && h.end == nil && !h.sought
	l.mu.Unlock()
	if asks && l.r.Session.Notifier != nil && l.r.Session.Begin() {
		go h.askForNotice()
	}
	return h.wanted
}

// askForNotice asks the store until it has answered or the hold is over. It is an operation.
func (h *Hold) askForNotice() {
	g, s := h.grant, h.grant.lock.r.Session
	defer s.Done()
	for pause := session.Pause(0); ; {
		err := g.notice(s.UntilClose(h.values))
		if !errors.Is(err, driver.ErrTransient) && !errors.Is(err, driver.ErrDenied) {
			return
		}
		select {
		case <-h.Context().Done():
			return
		case <-s.Closing():
			return
		case <-time.After(pause.Next(g.opts.TTL / 6)):
		}
	}
}

// notice has the store tell from now on when somebody waits for the grant, and notes whether
// somebody does. From then on a renewal tells it, too.
func (g *Grant) notice(ctx context.Context) error {
	s := g.lock.r.Session
	wanted, err := s.Notifier.Notice(ctx, g.Leased())
	err = trouble.Of(err)
	switch {
	case err == nil:
		s.Answered()
		g.lock.r.told.Store(true)
		g.lock.mu.Lock()
		g.turn.heard(wanted)
		g.lock.mu.Unlock()
	case errors.Is(err, driver.ErrNotHeld):
		g.Lost(err) // unless it was released meanwhile
	case errors.Is(err, errors.ErrUnsupported):
		g.lock.r.told.Store(false)
	}
	if wanted {
		g.Wanted()
	}
	return err
}

// Deaf notes that news of the store may have been missed, and may not come in any more. Whether somebody waits, it
// is asked again with a command, which tells that.
func (r *Registry) Deaf() { r.told.Store(false) }

// askIfWanted asks the store, once and on another goroutine, whether anybody waits, for the turn. The
// caller holds Lock.mu.
func (g *Grant) askIfWanted() {
	s := g.lock.r.Session
	if s.Notifier == nil || !s.Begin() {
		g.turn.unheard()
		return
	}
	values := g.values()
	go func() {
		defer s.Done()
		ctx, cancel := context.WithTimeout(s.Unasked(s.UntilClose(values)), g.opts.TTL)
		defer cancel()
		if g.notice(ctx) == nil {
			return
		}
		l := g.lock
		l.mu.Lock()
		defer l.mu.Unlock()
		g.turn.unheard()
		if ln := g.lane; ln != nil && ln.grant == g {
			l.next(ln)
		}
	}()
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
