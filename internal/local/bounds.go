package local

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/token"
)

// ErrHeldTooLong is why a lease is lost that has lasted for Options.MaxHold.
var ErrHeldTooLong = errors.New("held for as long as WithMaxHold allows")

// limit has the grant lost when the hold has lasted for Options.MaxHold. Other holds of the
// grant are of no interest: each is counted from its own beginning.
func (h *Hold) limit() {
	d := h.grant.opts.MaxHold
	if d == 0 {
		return
	}
	h.lives().limit = time.AfterFunc(d, func() { h.grant.lose(ErrHeldTooLong, h) })
}

// ending is how a grant ends that was held. If it was held for less than Options.MinHold, the
// store keeps the lock for the rest of that.
func (g *Grant) ending(tag string) token.Ending {
	e := token.Ending{Tag: tag, Last: g}
	if rest := g.rest(); rest > 0 {
		e.Later, e.Keeps = g.stay(), rest
	}
	return e
}

// rest is how much is left of Options.MinHold. It is never too little, since the grant is older than
// its turn.
func (g *Grant) rest() time.Duration {
	if g.opts.MinHold == 0 || g.waived.Load() {
		return 0
	}
	return g.opts.MinHold - time.Duration(now()-g.turn.began)
}

// Waive gives up Options.MinHold, since no caller has got the hold, which is released next. The holds that are
// nested in it, or that it is nested in, may have been of use.
func (h *Hold) Waive() {
	g := h.grant
	g.lock.mu.Lock()
	defer g.lock.mu.Unlock()
	if h == &g.first && len(g.holds) == 1 {
		g.waived.Store(true)
	}
}

// stay returns what gives the lock up later. A token that nobody has takes the lock over,
// with the rest as its TTL, so that it ends by itself, whatever becomes of this process.
// The first waiter is told when that is.
//
// The wrong version renews the lease for the rest. A renewal never shortens a lease, so
// the lock would stay taken for a TTL even if less than that is left. Until the store has
// agreed, however, the lease is renewed: else the lock is free after a TTL.
func (g *Grant) stay() token.Send {
	s := g.lock.r.Session
	d := s.Attacher
	ghost := s.NewToken()
	var asks atomic.Uint64
	return func(ctx context.Context, old driver.Lease) error {
		rest := g.rest()
		if rest <= 0 { // it took so long to tell the store, or to hear of it
			d.Detach(driver.Lease{Kind: g.lock.id.Kind, Name: g.lock.id.Name, Token: ghost})
			if err := s.Driver.Release(ctx, old); !errors.Is(err, driver.ErrNotHeld) {
				return err
			}
			return nil
		}
		r := driver.Request{
			Kind: g.lock.id.Kind, Name: g.lock.id.Name, Token: ghost, Holder: g.lock.holder(g.opts), Ask: asks.Add(1),
			TTL: min(max(rest.Truncate(time.Millisecond)+time.Millisecond, s.LeastTTL, driver.MinTTL), driver.MaxTTL),
		}
		_, err := d.Attach(ctx, old, &r)
		switch {
		case err == nil, errors.Is(err, driver.ErrNotHeld): // nobody is to hear of either any more
			d.Detach(old)
			d.Detach(driver.Lease{Kind: r.Kind, Name: r.Name, Token: r.Token, TTL: r.TTL})
		default:
			_ = s.Driver.Renew(ctx, []driver.Lease{old})
		}
		return err
	}
}
