package redlock

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Waiters wait in the queue of every node. A release is a push from each node to its
// first waiter. Waiters that came one after the other have the same order everywhere, so the
// first of them has all votes one trip after the release. Waiters that came at the same time
// may not. Then the votes are split, and nobody has a majority, though all votes are given.
//
// So a waiter gives its votes back if it has too few for longer than the pushes of one
// release take to come in. That time is random, and depends on the first node, in the order of
// New, whose vote the waiter has. With the vote of an earlier node it keeps its votes for
// several times as long. A waiter that gave way does not queue there again before it has the
// vote of the first node (or has to ask anyway, as a heartbeat).
//
// So of all waiters that share the votes, the one with that of the first node stays, and asks
// for all others. The rest give way, each at most once at each node. The same holds for the
// second node if the first is down, and so on. No two have to agree on anything. Four versions
// did not work. With no order among the nodes, 16 waiters at 5 of them did not find a majority
// in a minute; where they queued again at once, it took some seconds. Where a waiter asked the first node to
// whom it has given its vote, and gave way if that was another, they were not served in any order. Where
// the time doubled with each time that a waiter gave way, a crowd kept the other votes for longer
// together than the waiter with the vote of the first node kept that. After a storm of faults 24
// waiters at 5 nodes got the lock once or twice in a second, where they now get it more than a hundred times.
//
// A winner keeps its places at the nodes whose votes others have. When those give way it gets
// their votes, too, and nobody has votes to give back until it releases.

const (
	// Give way after this part of the timeout, or several times that.
	hasty = 25
	// The first node is worth this many times the patience, and each of those after it, as far as the middle,
	// less by the same factor.
	prefer = 64
)

// patience is how long a minority is kept if its first node is first. The caller holds mu.
func (b *ballot) patience(first int) time.Duration {
	d := b.d.limit(b.req.TTL) / hasty
	if before := b.d.majority() - first; before > 0 {
		worth := math.Pow(prefer, float64(before)/float64(b.d.majority()))
		d = time.Duration(min(worth*float64(d), float64(b.req.TTL/6)))
	}
	return jitter(d)
}

// hear passes on what a node says between two asks. The node may hold locks of its own
// now, so nothing else is done here.
func (b *ballot) hear(n *node, term int, g driver.Grant) {
	switch g.Status {
	case driver.Granted:
		b.d.background(func() { b.d.pushed(b, n, term, g) })
	case driver.Lost:
		b.d.background(func() { b.lose(n) })
	default:
		b.tell(g)
	}
}

// pushed takes the vote that a node has pushed.
func (d *redlock) pushed(b *ballot, n *node, term int, g driver.Grant) {
	if term > 0 {
		// The push may be an old one, of a vote that was given back since. Ask.
		b.mu.Lock()
		ask, fresh := b.req.Ask, b.fresh()
		b.mu.Unlock()
		if fresh {
			d.one(d.life, d.limit(b.req.TTL), n, func(ctx context.Context) { d.ask(ctx, b, n, ask) })
		}
	} else {
		var known age
		d.one(d.life, d.limit(b.req.TTL), n, func(ctx context.Context) {
			var err error
			known, err = send(ctx, n, func(ctx context.Context) (age, error) { return d.age(ctx, n), nil })
			known.err = errors.Join(known.err, err)
		})
		b.mu.Lock()
		if v := &b.votes[n.i]; v.term == term && !b.over {
			b.count(v, g, known)
		}
		b.mu.Unlock()
	}
	d.elect(b, g.HolderTag)
	if g, l, ok := b.stray(n); ok {
		d.one(d.life, d.limit(b.req.TTL), n, func(ctx context.Context) { d.raise(ctx, b, n, l, g) })
	}
}

// elect tells the client if it has won by now, and else keeps the minority for a while.
func (d *redlock) elect(b *ballot, tag string) {
	b.mu.Lock()
	known := b.won
	b.mu.Unlock()
	g, ok := d.confirm(d.life, b)
	if nodes, ask := b.absent(); !ok && len(nodes) > 0 {
		d.each(d.life, b.lock(), d.limit(b.req.TTL), nodes, func(ctx context.Context, n *node) { d.ask(ctx, b, n, ask) }, all)
		g, ok = d.confirm(d.life, b)
	}
	if ok && !known {
		g.HolderTag = tag
		b.tell(g)
	} else if !ok {
		b.arm()
	}
}

// absent returns the nodes where we do not queue any more but should, since we have the
// vote of the first node and so are next.
func (b *ballot) absent() (nodes []*node, ask uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	first := b.gate()
	if b.over || b.won || first < 0 || !b.votes[first].held || !b.fresh() {
		return nil, 0
	}
	for i, v := range b.votes {
		if !v.held && !v.queued && !v.giving && !v.spoiled {
			nodes = append(nodes, b.d.nodes[i])
		}
	}
	return nodes, b.req.Ask
}

// gate is the first node that answers, -1 for none. The caller holds mu.
func (b *ballot) gate() int {
	return slices.IndexFunc(b.votes, func(v vote) bool { return v.err == nil && !v.spoiled })
}

// lose notes that a node took the lease away.
func (b *ballot) lose(n *node) {
	b.mu.Lock()
	b.votes[n.i].held = false
	left := 0
	for _, v := range b.votes {
		if v.held {
			left++
		}
	}
	lost := b.won && left < b.d.majority()
	b.won = b.won && !lost
	b.mu.Unlock()
	if lost {
		b.tell(driver.Grant{Status: driver.Lost})
	}
}

// fresh reports whether the newest ask still keeps a place in a queue. A client that does
// not ask any more does not wait, and our own asks must not be its heartbeat. The caller
// holds mu.
func (b *ballot) fresh() bool { return time.Since(b.sent[b.req.Ask]) < b.req.TTL*2/3 }

// arm has a minority given back after a while.
func (b *ballot) arm() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.minority() {
		return
	}
	first := slices.IndexFunc(b.votes, func(v vote) bool { return v.held })
	if b.timer != nil {
		if first >= b.first {
			return
		}
		b.timer.Stop()
	}
	b.first = first
	b.timer = time.AfterFunc(b.patience(first), func() { b.d.background(func() { b.d.yield(b) }) })
}

// minority reports whether there are votes, but too few. The caller holds mu.
func (b *ballot) minority() bool {
	return !b.over && !b.won && b.tally(0).votes < b.d.majority() &&
		slices.ContainsFunc(b.votes, func(v vote) bool { return v.held })
}

// yield gives a minority back, and queues again at the first node. If the ballot cannot be won
// any more, the client is told to ask, so that it goes on under another token at once. The
// wrong version leaves that to the heartbeat: on a busy machine, where many votes are spoiled,
// whole crowds stood in no queue for a third of a TTL.
func (d *redlock) yield(b *ballot) {
	b.mu.Lock()
	b.timer = nil
	b.mu.Unlock()
	d.giveBack(d.life, b)
	b.mu.Lock()
	hopeless := b.hopeless()
	b.mu.Unlock()
	if hopeless {
		b.tell(driver.Grant{Status: driver.Queued})
		return
	}
	if n, ask := b.outside(); n != nil {
		d.one(d.life, d.limit(b.req.TTL), n, func(ctx context.Context) { d.ask(ctx, b, n, ask) })
	}
	d.elect(b, "")
}

// outside returns the first node, if we do not queue there.
func (b *ballot) outside() (n *node, ask uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	first := b.gate()
	if first < 0 || b.votes[first].held || b.votes[first].queued || b.votes[first].giving || !b.fresh() {
		return nil, 0
	}
	return b.d.nodes[first], b.req.Ask
}

// giveBack gives back a minority of votes.
//
// An ask that is still on its way to a node must not get the vote again when it arrives. The
// wrong version lets it: nobody gives that vote back a second time, so it keeps others out for
// a whole TTL. A node that refuses such an ask refuses all that follow it, too, so a vote that
// was given back in this way is spoiled. So is one of which it is not known whether it was
// given back; the release is repeated, lest the vote stay where it is of no use.
func (d *redlock) giveBack(ctx context.Context, b *ballot) {
	b.mu.Lock()
	var nodes []*node
	minority := b.minority()
	for i := range b.votes {
		if v := &b.votes[i]; minority && v.held && !v.giving {
			v.giving, v.given, v.held, v.queued, v.ask = true, true, false, false, 0
			v.term++
			nodes = append(nodes, d.nodes[i])
		}
	}
	lease := b.lease()
	b.mu.Unlock()
	d.each(ctx, b.lock(), d.limit(lease.TTL), nodes, func(ctx context.Context, n *node) {
		l := lease
		l.Unsettled = b.overtake(n)
		err := n.release(ctx, l)
		executed := !errors.Is(err, driver.ErrNotExecuted)
		if executed && !answered(err) {
			d.releaseLater(n, l)
		}
		b.mu.Lock()
		v := &b.votes[n.i]
		v.giving = false
		v.spoiled = executed && (l.Unsettled || err != nil && !errors.Is(err, driver.ErrNotHeld))
		again := v.spoiled && v.straggled
		b.mu.Unlock()
		if again {
			d.releaseLater(n, l)
		}
	}, all)
}
