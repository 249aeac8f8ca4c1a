package holdfast

import (
	"context"
	"slices"

	"github.com/holdfast-go/holdfast/driver"
)

// Readers that show their lease to nobody need not have one each. Those of one client go in
// together, as a party: one of them is at the store, and the others count on its lease.
//
// That is safe because to the store they are one reader. No writer gets in before the lease is
// released, which is done by the last of them to leave, or over, which they know from the
// same deadline as one alone would. That others joined does not make it last longer.
//
// It is fair because a party does not stay open. Who joins a lease that is there goes ahead of
// the writers that wait in the store's queue. So the lease has a turn, like that on a mutex,
// which passes from hand to hand: maxPasses joins or a part of the TTL, and another turn only
// if the store says that nobody waits. Who comes later asks the store, and queues there behind
// the writer, who has the lock when those inside have left. And when the store makes anybody
// else of this client wait, whoever comes after them must queue after them: that begins
// another party.

// party is readers of one client, with the same options, who go in together.
type party struct {
	key *config
	// The rest is guarded by Client.mu.
	lease   *Lease        // nil as long as one of them is at the store
	waiting []chan *party // the others, first in, first out, who hear that they are in (nil), or to ask
}

// joins reports whether readers go in together. Those on a lease that is not renewed would
// have what is left of it; who may count a lease again, or has it confirmed, has one to count.
func (c *config) joins() bool {
	return !c.strict && !c.fixed && !c.nested && c.owner == "" && c.copies.n == 0
}

// read is attempt for a reader whose lease nobody sees.
func (h *handle) read(ctx context.Context, want driver.Request, cfg config) error {
	c := h.c
	at, g, news := c.enlist(h.door(true), cfg.key, want.Wait)
	if news != nil {
		// When the client is closed whoever is at the store gives up, and then the next.
		g = <-news
	}
	if g == nil {
		return nil
	}
	want.Fences = maxPasses // for turns have fences, though readers need none
	l, err := h.enter(ctx, at, want, cfg, nil)
	switch {
	case err != nil:
		c.admit(at, g, nil)
		c.withdraw(at)
	case c.hold(at, l):
		c.admit(at, g, l)
	default:
		c.admit(at, g, nil)
		err = h.refused(ErrClosed)
	}
	return err
}

// enlist is how a reader finds its party. If there is g it is a user of the doorway, and has to
// ask the store on behalf of g. Otherwise it will hear by news which it is, or if there are
// none, it is in.
func (c *Client) enlist(d door, key *config, wait bool) (w *doorway, g *party, news chan *party) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if w = c.doors[d]; w != nil && w.party != nil && w.join(w.party.lease, key) {
		return w, nil, nil
	}
	w = c.used(d)
	asking := w.party != nil && w.party.lease == nil
	switch {
	case asking && !wait:
		g = &party{key: key} // of one
	case asking && *w.party.key == *key:
		news = make(chan *party, 1)
		w.party.waiting = append(w.party.waiting, news)
	default:
		g = &party{key: key}
		w.party = g
	}
	return w, g, news
}

// join lets a reader in on a lease. The caller holds Client.mu.
func (w *doorway) join(l *Lease, key *config) bool {
	if w.plain == nil {
		return false
	}
	i := slices.IndexFunc(w.plain.all, func(h hold) bool { return h.lease == l })
	if i < 0 || l.ended() != nil || !l.a.Suits(key) {
		return false
	}
	l.a.Pass()
	w.plain.all[i].left++
	return true
}

// admit lets those in who wait in a party, when the one at the store has put down the lease,
// or has failed: then it is nil. Those that are too many go on as a party that is as open as
// theirs was.
func (c *Client) admit(w *doorway, g *party, l *Lease) {
	c.mu.Lock()
	defer c.mu.Unlock()
	g.lease = l
	for len(g.waiting) > 0 && w.join(l, g.key) {
		g.waiting[0] <- nil
		g.waiting = g.waiting[1:]
		c.unused(w)
	}
	var rest *party
	if len(g.waiting) > 0 {
		rest = &party{key: g.key, waiting: g.waiting[1:]}
		g.waiting[0] <- rest
		g.waiting = nil
	}
	if w.party == g && (l == nil || rest != nil) {
		w.party = rest
	}
}

// queued notes that somebody has the lock or is before us. If that makes us wait, who comes to
// read from now on comes after us, and no party is open to them; unless it is one that waits.
func (a *acquisition) queued() {
	first, together := !a.busy, a.req.Shared && a.fences > 0
	a.err, a.busy = ErrLocked, true
	if !first || together || !a.wait || a.req.Kind != driver.RWMutex {
		return
	}
	a.c.mu.Lock()
	defer a.c.mu.Unlock()
	if w := a.c.doors[door{kind: a.req.Kind, name: a.req.Name}]; w != nil {
		w.party = nil
	}
}
