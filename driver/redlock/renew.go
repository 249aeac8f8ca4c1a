package redlock

import (
	"context"
	"errors"
	"sync"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/internal/redisscript"
)

// Renew implements [driver.Driver]. Each node gets the whole batch. A lease goes on if a
// majority says so. That includes nodes that were restarted, for what they remember is true;
// it does not include nodes whose vote is being given back, see vouched.
func (d *redlock) Renew(ctx context.Context, leases []driver.Lease) []error {
	errs := make([]error, len(leases))
	if err := ctx.Err(); err != nil {
		for i := range errs {
			errs[i] = redisscript.Classify(err)
		}
		return errs
	}
	var batch []driver.Lease
	var which []int
	limit := d.timeout
	for i, l := range leases {
		if errs[i] = d.lasting(l.TTL); errs[i] == nil {
			batch, which = append(batch, l), append(which, i)
			limit = min(limit, d.limit(l.TTL))
		}
	}
	if len(batch) == 0 {
		return errs
	}

	var mu sync.Mutex
	answers := make([][]error, len(d.nodes))
	d.each(ctx, lockID{}, limit, d.nodes, func(ctx context.Context, n *node) {
		of, err := send(ctx, n, func(ctx context.Context) ([]error, error) {
			return d.vouched(n, batch, func() []error { return n.Renew(ctx, batch) }), nil
		})
		if err != nil {
			return
		}
		mu.Lock()
		defer mu.Unlock()
		answers[n.i] = of
	}, d.settled)
	mu.Lock()
	defer mu.Unlock()
	for j, i := range which {
		errs[i] = d.renewed(answers, j)
	}
	return errs
}

// vouched has a node do something to leases that it holds, and takes back its word for those
// whose vote may be given back behind our back: the node says the truth, but a release that is
// under way can make it untrue at any time. A lease that another process has acquired has no
// ballot here, and the word of the node counts.
//
// Whether a release is under way is asked before the call and after it. The wrong version asks
// only afterwards: a release that began before the call may be done by then, and have come to
// the node second.
func (d *redlock) vouched(n *node, leases []driver.Lease, do func() []error) []error {
	terms := make([]int, len(leases))
	doubts := make([]error, len(leases))
	for i, l := range leases {
		terms[i], doubts[i] = d.voteOf(n, l.Token)
	}
	errs := do()
	for i, l := range leases {
		term, doubt := d.voteOf(n, l.Token)
		switch {
		case errs[i] != nil:
		case doubts[i] != nil:
			errs[i] = doubts[i]
		case doubt != nil:
			errs[i] = doubt
		case term != terms[i]:
			errs[i] = errGiving
		}
	}
	return errs
}

// voteOf returns the term of a node's vote for a token, and why the vote does not count
// even if the node still has it, nil if it does.
func (d *redlock) voteOf(n *node, token string) (term int, doubt error) {
	if n.isReleasing(token) {
		return 0, errGiving
	}
	d.mu.Lock()
	b := d.ballots[token]
	d.mu.Unlock()
	if b == nil {
		return 0, nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	v := &b.votes[n.i]
	switch {
	case v.spoiled: // it never counts again
		return v.term, driver.ErrNotHeld
	case v.giving:
		return v.term, errGiving
	}
	return v.term, nil
}

// renewed is what the nodes say of lease j of a batch.
func (d *redlock) renewed(answers [][]error, j int) error {
	errs := make([]error, len(d.nodes))
	held, lost := 0, 0
	for i, of := range answers {
		errs[i] = errUnheard
		if of != nil {
			errs[i] = of[j]
		}
		switch {
		case errs[i] == nil:
			held++
		case errors.Is(errs[i], driver.ErrNotHeld):
			lost++
		}
	}
	switch {
	case held >= d.majority():
		return nil
	case len(d.nodes)-lost < d.majority():
		return driver.ErrNotHeld
	}
	return noMajority(errs)
}
