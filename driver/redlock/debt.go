package redlock

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/trouble"
)

// maxDebts is how many releases are kept for a node. Beyond, leases end with their TTL.
const maxDebts = 4096

// debt is a release that a node has not answered. It is repeated in the background until
// it is answered, or the lease has ended by itself: one at a time, on one goroutine for
// each node, however many there are.
type debt struct {
	lease driver.Lease
	until time.Time
}

// owe has a token released on a node in the background.
func (d *redlock) owe(n *node, l driver.Lease) {
	l.Unsettled = true // the release itself may be overtaken by an ask
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.debts) >= maxDebts {
		return
	}
	n.debts[l.Token] = debt{l, time.Now().Add(max(l.TTL, time.Second) + time.Second)}
	if !n.paying {
		n.paying = d.background(func() { d.pay(n) })
	}
}

// owes reports whether a release of the token is under way. Its votes would be given up
// while they are counted, so the node is not asked.
func (n *node) owes(token string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	_, ok := n.debts[token]
	return ok
}

// pay releases what is owed to a node until there is no more.
func (d *redlock) pay(n *node) {
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		for l, ok := n.due(); ok; l, ok = n.due() {
			var err error
			d.one(d.life, d.limit(l.TTL), n, func(ctx context.Context) { err = n.release(ctx, l) })
			if !answered(err) {
				break // nor will it answer the others
			}
			n.paid(l.Token)
			pause = 10 * time.Millisecond
		}
		n.mu.Lock()
		n.paying = len(n.debts) > 0 && d.life.Err() == nil
		more := n.paying
		n.mu.Unlock()
		if !more {
			return
		}
		select {
		case <-d.life.Done():
		case <-time.After(pause/2 + rand.N(pause)):
		}
	}
}

// due returns one of the releases, and forgets those whose leases have ended.
func (n *node) due() (driver.Lease, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for token, debt := range n.debts {
		if time.Now().Before(debt.until) {
			return debt.lease, true
		}
		delete(n.debts, token)
	}
	return driver.Lease{}, false
}

func (n *node) paid(token string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.debts, token)
}

// release releases a token on one node.
func (n *node) release(ctx context.Context, l driver.Lease) error {
	_, err := send(ctx, n, func(ctx context.Context) (any, error) { return nil, n.Release(ctx, l) })
	return err
}

// answered reports whether a release needs no repetition: it is done, was not needed, or
// is refused.
func answered(err error) bool { return !trouble.Passes(err) }
