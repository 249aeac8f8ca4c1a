package redlock

import (
	"context"
	"errors"
	"math/rand/v2"

	"github.com/holdfast-go/holdfast/driver"
)

// rounds is how often the nodes are asked to agree on a fence.
const rounds = 8

// reserve is how many numbers each node is asked for, so that a majority has one in common.
// Those of redisdriver are the last so many µs of its server's clock, as far as they lie
// beyond the last that was given. So the ranges meet if the servers' clocks, and the times when
// the asks come to them, differ by no more than that, nor than the time since the last grant.
//
// The first node is asked for fewer. So its first number is mostly in the midst of what the others
// reserve, and they all have it, see confirm.
const reserve = 1024

func (n *node) reserve() int64 {
	if n.i == 0 {
		return reserve / 4
	}
	return reserve
}

// confirm makes the nodes that voted agree on a fence, if they are a majority, and returns
// the grant that rests on it.
//
// Each node has fences of its own, which increase there and nowhere else. A vote reserves a
// range of them. A fence is handed out only when a majority has reserved it for our lease,
// with validity left. Mostly the ranges meet, see reserve, and no second trip is needed. If
// not, the largest of the numbers that they begin with is written back to the others. Then
//
//   - it is larger than all that were handed out before. The majority that had an earlier
//     one meets ours in some node. That node granted us its lease after it had reserved the
//     earlier fence, and what it reserves for us lies beyond that.
//   - it is smaller than all that will be handed out, for the same reason.
//   - nobody else has it, not even a reader that was granted the lock at the same time. A
//     node never reserves one fence for two leases, and their majorities meet.
//
// The same is true of each number that follows it, as far as all votes that have the first
// have it, too. The wrong version hands out the numbers of one vote: the next majority can
// do without that node, and begins with a smaller one.
//
// All this holds for every number that a majority has reserved. But whoever looks later has to find
// the one that was told: Inspect, and another token of the owner, which the resource would refuse
// with a smaller one. So all go by one rule: the fence is the first number of the first node, in
// the order of New, whose first number a majority has. It is told as soon as no further
// vote can change it, mostly when the first node and as many others as make a majority have
// voted. The wrong version takes the smallest number that a majority has, which any further vote
// may change.
//
// A node that was slow, or pushed its vote last, may vote when the fence has been told without it,
// and change what the rule leads to. Then this vote is raised out of the way, see stray. Votes
// that the told fence rests on are left as they are.
//
// The fence need not be on the nodes that did not vote. A node that loses its memory is left
// out until its clock, from which its next fences begin, is beyond the fences it has lost.
// That holds if the clocks of the nodes differ by less than the delay; see WithDelayedRestart.
//
// Two readers that raise at the same time can push each other up: a node that has given out
// more since answers with a new fence. From the second round on a random lead decides
// between them.
func (d *redlock) confirm(ctx context.Context, b *ballot) (driver.Grant, bool) {
	if b.result().votes < d.majority() {
		return driver.Grant{}, false
	}
	b.confirming.Lock()
	defer b.confirming.Unlock()
	for round := range rounds {
		g, lease, behind, ok := b.claim(round)
		if ok || len(behind) == 0 {
			return g, ok
		}
		d.each(ctx, b.lock(), d.limit(lease.TTL), behind, func(ctx context.Context, n *node) { d.raise(ctx, b, n, lease, g) },
			func(missing, _ int) bool { return missing == 0 || b.result().agreed })
		if ctx.Err() != nil {
			break
		}
	}
	return driver.Grant{}, false
}

func (b *ballot) result() tally {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.tally(0)
}

// claim returns the grant if the ballot is won, else one with the fence to agree on, and
// the nodes that have to raise theirs.
func (b *ballot) claim(round int) (g driver.Grant, l driver.Lease, behind []*node, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.tally(0)
	if b.over || t.votes < b.d.majority() {
		return g, l, nil, false
	}
	if t.agreed {
		return b.win(t), l, nil, true
	}
	g.Fence, g.Fences = t.fence, t.fences
	if round > 0 {
		g.Fence += rand.Int64N(500 << round)
	}
	for i := range b.votes {
		if v := &b.votes[i]; b.good(v) && !v.has(g.Fence) {
			behind = append(behind, b.d.nodes[i])
		}
	}
	return g, b.lease(), behind, false
}

// stray returns the grant that a late vote has to be raised to, if the rule of confirm leads to
// another fence with it than the one that was told. Then either the vote has in its range the
// first number of another node, or others have its own. If it begins below the told fence it is
// raised to that, else beyond all numbers of the others. With three nodes, the rule leads to
// the told fence then. With more, several votes that come late can lead to another.
func (b *ballot) stray(n *node) (g driver.Grant, l driver.Lease, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	v := &b.votes[n.i]
	late := v.late
	v.late = false
	if !late || !v.held || b.over || !b.won || !b.d.fenced || v.fence == b.fence || b.shown() == b.fence {
		return g, l, false
	}
	g = driver.Grant{Fence: b.fence, Fences: b.told}
	if v.fence > b.fence {
		for i := range b.votes {
			if o := &b.votes[i]; o.held && o != v {
				g.Fence = max(g.Fence, o.fence+o.fences)
			}
		}
	}
	return g, b.lease(), true
}

// shown is the fence that the nodes show to others, 0 for none. The caller holds mu.
func (b *ballot) shown() int64 {
	for i := range b.votes {
		have := 0
		for j := range b.votes {
			if b.votes[j].held && b.votes[j].has(b.votes[i].fence) {
				have++
			}
		}
		if b.votes[i].held && have >= b.d.majority() {
			return b.votes[i].fence
		}
	}
	return 0
}

// lease is what the ballot is for. The caller holds mu, or nobody else has the ballot.
func (b *ballot) lease() driver.Lease {
	return driver.Lease{Kind: b.req.Kind, Name: b.req.Name, Token: b.req.Token, TTL: b.req.TTL, Owner: b.req.Owner}
}

// raise raises the fence of the lease on one node to that of a grant.
func (d *redlock) raise(ctx context.Context, b *ballot, n *node, l driver.Lease, g driver.Grant) {
	b.mu.Lock()
	term := b.votes[n.i].term
	b.mu.Unlock()
	fence, err := send(ctx, n, func(ctx context.Context) (int64, error) {
		return n.raise.RaiseFence(ctx, l, g.Fence, g.Fences)
	})
	b.mu.Lock()
	defer b.mu.Unlock()
	v := &b.votes[n.i]
	switch {
	case v.term != term:
	case errors.Is(err, driver.ErrNotHeld):
		v.held = false
	case err == nil && fence > v.fence:
		v.fence, v.fences = fence, g.Fences
	}
}
