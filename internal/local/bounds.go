package local

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/claim"
)

// ErrHeldTooLong is why a lease is lost that has lasted for Options.MaxHold.
var ErrHeldTooLong = errors.New("held for as long as WithMaxHold allows")

// bound has the grant lost when the hold has lasted for Options.MaxHold. Other holds of the
// grant are of no interest: each is counted from its own beginning.
func (h *Hold) bound() {
	d := h.grant.opts.MaxHold
	if d == 0 {
		return
	}
	timer := time.AfterFunc(d, func() { h.grant.lose(ErrHeldTooLong, h) })
	context.AfterFunc(h.Context(), func() { timer.Stop() })
}

// releaser is Releaser of a grant that was held. If it was held for less than
// Options.MinHold, the store keeps the lock for the rest of that.
func (g *Grant) releaser(ctx context.Context, tag string) claim.Releaser {
	r := g.Releaser(ctx, tag, g)
	if g.rest() > 0 {
		r.Instead(g.stay())
	}
	return r
}

// rest is how much is left of Options.MinHold. It is never too little, since the grant is
// older than since.
func (g *Grant) rest() time.Duration { return g.opts.MinHold - time.Duration(now()-g.since) }

// stay returns what gives the lock up later. A token that nobody has takes the lock over,
// with the rest as its TTL, so that it ends by itself, whatever becomes of this process.
// The first waiter is told when that is.
//
// The wrong version renews the lease for the rest. A renewal never shortens a lease, so
// the lock would stay taken for a TTL even if less than that is left.
func (g *Grant) stay() func(context.Context, driver.Lease) error {
	s := g.lock.r.Session
	d, _ := driver.As[driver.Attacher](s.Driver)
	least := driver.MinTTL
	if coarse, ok := driver.As[driver.Granular](s.Driver); ok {
		least, _ = coarse.Granularity()
	}
	r := driver.Request{
		Kind: g.ID.Kind, Name: g.ID.Name, Token: s.NewToken(), Holder: g.lock.holder(g.opts),
	}
	return func(ctx context.Context, old driver.Lease) error {
		rest := g.rest()
		if rest <= 0 {
			return s.Driver.Release(ctx, old) // it took so long to tell the store
		}
		again := r // nobody knows how long the driver looks at the last one
		r.Ask++
		again.Ask, again.TTL = r.Ask, min(max(rest.Truncate(time.Millisecond)+time.Millisecond, least), driver.MaxTTL)
		_, err := d.Attach(ctx, old, &again)
		if err == nil {
			d.Detach(old)
			d.Detach(driver.Lease{Kind: again.Kind, Name: again.Name, Token: again.Token, TTL: again.TTL})
		}
		return err
	}
}
