package redlock

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/trouble"
)

// maxUnreleased is how many releases are kept for a node. Beyond, leases end with their TTL.
const maxUnreleased = 4096

// pendingRelease is a release that a node has not answered. It is repeated in the background until
// it is answered, or the lease has ended by itself: one at a time, on one goroutine for
// each node, however many there are.
type pendingRelease struct {
	lease driver.Lease
	until time.Time
}

// releaseLater has a token released on a node in the background.
func (d *redlock) releaseLater(n *node, l driver.Lease) {
	l.Unsettled = true // the release itself may be overtaken by an ask
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.unreleased[l.Token] == nil && len(n.unreleased) >= maxUnreleased {
		return
	}
	n.unreleased[l.Token] = &pendingRelease{l, time.Now().Add(max(l.TTL, time.Second) + time.Second)}
	if !n.repeating {
		n.repeating = d.background(func() { d.releasePending(n) })
	}
}

// isReleasing reports whether a release of the token is under way. Its votes would be given up
// while they are counted, so the node is not asked.
func (n *node) isReleasing(token string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	_, ok := n.unreleased[token]
	return ok
}

// releasePending releases what a node has not answered until there is no more.
func (d *redlock) releasePending(n *node) {
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, time.Second) {
		for r := n.nextPending(); r != nil; r = n.nextPending() {
			var err error
			d.one(d.life, d.limit(r.lease.TTL), n, func(ctx context.Context) { err = n.release(ctx, r.lease) })
			if !answered(err) {
				break // nor will it answer the others
			}
			n.released(r)
			pause = 10 * time.Millisecond
		}
		n.mu.Lock()
		n.repeating = len(n.unreleased) > 0 && d.life.Err() == nil
		more := n.repeating
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

// nextPending returns one of the releases, or nil, and forgets those whose leases have ended.
func (n *node) nextPending() *pendingRelease {
	n.mu.Lock()
	defer n.mu.Unlock()
	for token, r := range n.unreleased {
		if time.Now().Before(r.until) {
			return r
		}
		delete(n.unreleased, token)
	}
	return nil
}

// released notes that a release was answered. Another one of the token may be due since, as an ask came in late.
func (n *node) released(r *pendingRelease) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.unreleased[r.lease.Token] == r {
		delete(n.unreleased, r.lease.Token)
	}
}

// release releases a token on one node.
func (n *node) release(ctx context.Context, l driver.Lease) error {
	_, err := send(ctx, n, func(ctx context.Context) (any, error) { return nil, n.Release(ctx, l) })
	return err
}

// answered reports whether a release needs no repetition: it is done, was not needed, or
// is refused.
func answered(err error) bool { return !trouble.Passes(err) }
