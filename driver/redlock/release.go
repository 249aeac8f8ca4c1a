package redlock

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/internal/redisscript"
)

// Release implements [driver.Driver]. It releases on every node, and waits for the first and as
// many others as make a majority. The release goes on in the background on the rest, and on a
// node that does not answer in time.
//
// A token that had to wait is released on all nodes first. The wrong version leaves some behind
// there, too: the next ask of the process then comes later to these nodes, behind asks of others
// that it precedes elsewhere. Waiters with other places at each node split the votes of every
// release, and a crowd that needs all the nodes that are left is served once a second.
func (d *redlock) Release(ctx context.Context, l driver.Lease) error {
	if err := ctx.Err(); err != nil {
		return redisscript.Classify(err)
	}
	b := d.forget(l.Token)
	errs := d.releaseOn(ctx, b, l, d.nodes, func(errs []error) bool {
		if b.waited() {
			return false
		}
		had := 0
		for _, err := range errs {
			if err == nil {
				had++
			}
		}
		return had >= d.majority() && errs[0] != errUnheard
	})
	answers, free := 0, 0
	for i, err := range errs {
		if errors.Is(err, driver.ErrNotHeld) {
			free++
			errs[i] = nil
		}
		if errs[i] == nil {
			answers++
		}
	}
	switch {
	case answers < d.majority():
		return noMajority(errs)
	case len(d.nodes)-free < d.majority(): // one that still had it did not know that it was over
		return driver.ErrNotHeld
	}
	return nil
}

// drop gives up all that a ballot has or may yet get.
func (d *redlock) drop(ctx context.Context, b *ballot) {
	d.forget(b.req.Token)
	var nodes []*node
	b.mu.Lock()
	for i, v := range b.votes {
		if v.held || v.queued || v.open > 0 || v.giving {
			nodes = append(nodes, d.nodes[i])
		}
	}
	b.mu.Unlock()
	d.releaseOn(ctx, b, b.lease(), nodes, func([]error) bool { return false })
}

// releaseOn releases a token on some nodes, and returns what they say. It does not wait for the
// rest if that is enough. b is the token's ballot, nil if there is none.
func (d *redlock) releaseOn(ctx context.Context, b *ballot, l driver.Lease, nodes []*node, enough func(errs []error) bool) []error {
	var mu sync.Mutex
	errs := make([]error, len(d.nodes))
	for i := range errs {
		errs[i] = errUnheard
	}
	d.each(ctx, lockID{l.Kind, l.Name}, d.limit(l.TTL), nodes, func(ctx context.Context, n *node) {
		l := l
		overtakes := b.overtake(n)
		l.Unsettled = l.Unsettled || overtakes
		err := n.release(ctx, l)
		if !answered(err) {
			d.releaseLater(n, l)
		}
		mu.Lock()
		defer mu.Unlock()
		errs[n.i] = err
	}, func(missing, silent int) bool {
		mu.Lock()
		defer mu.Unlock()
		return enough(errs) || d.settled(missing, silent)
	})
	mu.Lock()
	defer mu.Unlock()
	return slices.Clone(errs)
}

// waited reports whether the token had to wait.
func (b *ballot) waited() bool {
	if b == nil {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.queue
}

// overtake notes that a release is sent to a node, and reports whether an ask of the token may reach it later.
func (b *ballot) overtake(n *node) bool {
	if b == nil {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	v := &b.votes[n.i]
	v.overtaken = v.overtaken || v.open > 0
	return v.open > 0
}
