package redlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/internal/redisscript"
)

// Acquire implements [driver.Driver]. It asks all nodes at the same time. It has the lock
// as soon as a majority grants it while there is validity left: TTL - elapsed - drift > 0.
//
// Without a majority, a request that does not wait gives everything back, on every node. A
// request that waits stays in the queues of the nodes, and keeps its votes for a little
// while.
func (d *redlock) Acquire(ctx context.Context, r *driver.Request) (driver.Grant, error) {
	if err := d.valid(r); err != nil {
		return driver.Grant{}, err
	}
	if err := ctx.Err(); err != nil {
		return driver.Grant{}, redisscript.Classify(err)
	}
	b := d.ballot(r)
	b.open()
	ask := r.Ask // the caller may change the request once we return
	d.each(ctx, b.lock(), d.limit(r.TTL), d.nodes, func(ctx context.Context, n *node) { d.ask(ctx, b, n, ask) }, b.decided(r.Ask))
	if g, ok := d.confirm(ctx, b); ok {
		return g, nil
	}
	if err := ctx.Err(); err != nil {
		return driver.Grant{}, redisscript.Classify(err)
	}
	return d.lost(ctx, b, r)
}

// ask asks one node, and notes the answer.
func (d *redlock) ask(ctx context.Context, b *ballot, n *node, ask uint64) {
	r, term, ok := b.begin(n, ask)
	if !ok {
		return
	}
	var age age
	g, err := send(ctx, n, func(ctx context.Context) (driver.Grant, error) {
		g, err := n.Acquire(ctx, r)
		if err == nil {
			age = d.age(ctx, n) // a node is watched from its first answer on, whatever that is
		}
		return g, err
	})
	if b.note(n, term, r.Ask, g, age, err) {
		b.mu.Lock()
		l := b.lease()
		b.mu.Unlock()
		d.releaseLater(n, l)
	}
	if g, l, ok := b.stray(n); ok {
		d.raise(ctx, b, n, l, g)
	}
}

// lost answers a request that did not get a majority.
func (d *redlock) lost(ctx context.Context, b *ballot, r *driver.Request) (driver.Grant, error) {
	answer, queued, err := b.verdict()
	switch {
	case answer.Status == driver.Granted: // meanwhile
		return answer, nil
	case b.stands():
		return answer, err
	case b.end(b.full):
		d.drop(ctx, b)
		return driver.Grant{Status: driver.Full, HolderTag: answer.HolderTag}, nil
	case r.Wait && b.end(b.hopeless): // who only tries gets no other token, and is told of the trouble
		d.drop(ctx, b)
		return driver.Grant{}, fmt.Errorf("%w: it is not known what became of too many votes of the token", driver.ErrNotHeld)
	case errors.Is(err, driver.ErrNotExecuted) && b.end(b.clean):
		d.forget(r.Token) // no ask has come to any node: the caller need not release
		return answer, err
	case final(err) && b.end(always):
		d.drop(ctx, b)
		return driver.Grant{}, err
	case !r.Wait && err != nil:
		d.giveBack(ctx, b) // the token may ask again, and is released in the end
		return answer, err
	case !r.Wait && b.end(always):
		d.drop(ctx, b)
		return answer, nil
	case queued || err != nil:
		b.arm()
		return answer, err
	}
	// No node has a queue, so nobody is woken, and nobody gains if we keep a vote.
	d.giveBack(ctx, b)
	if b.end(b.clean) {
		d.forget(r.Token)
		answer.Status = driver.Busy
	}
	return answer, err
}

// final reports whether it is of no use to ask again with this token.
func final(err error) bool {
	return errors.Is(err, driver.ErrNotHeld) || errors.Is(err, driver.ErrNotExecuted) && !errors.Is(err, driver.ErrTransient)
}

// verdict says why there is no majority: because the lock is taken, or an error. queued
// reports whether a node will wake us.
func (b *ballot) verdict() (answer driver.Grant, queued bool, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if t := b.tally(0); t.agreed && !b.over {
		return b.win(t), false, nil
	}
	var errs []error
	var after []time.Duration
	held, taken, released := 0, 0, 0
	for i := range b.votes {
		v := &b.votes[i]
		switch {
		case errors.Is(v.err, driver.ErrNotHeld):
			released++
		case v.err != nil:
		case v.held:
			held++
		default:
			taken++
			queued = queued || v.queued || v.given && !v.spoiled // which was not asked, or it would say that it has no queue
			if v.after > 0 {
				after = append(after, v.after)
			}
			if answer.HolderTag == "" {
				answer.HolderTag = v.tag
			}
		}
		errs = append(errs, b.reason(v))
	}
	majority := b.d.majority()
	// A holder that cannot make sure of it is still a holder: only others end its lease.
	b.won = b.won && len(b.votes)-taken-released >= majority
	switch {
	case len(b.votes)-released < majority:
		return driver.Grant{}, queued, errReleased
	case taken == 0 || held+taken < majority:
		return driver.Grant{}, queued, noMajority(errs)
	}
	answer.Status = driver.Busy
	if b.req.Wait {
		answer.Status = driver.Queued
	}
	// The time when enough nodes are free again, as far as is known.
	if slices.Sort(after); len(after) > 0 {
		answer.RetryAfter = after[min(len(after), max(1, majority-held))-1]
	}
	return answer, queued, nil
}

// reason is why a vote does not count, nil if it does or is another's. The caller holds mu.
func (b *ballot) reason(v *vote) error {
	switch {
	case v.err == errSilent && v.open > 0:
		return errUnheard // an older ask was sent
	case v.err != nil:
		return v.err
	case v.held && v.age.doubt() != nil:
		return v.age.doubt()
	case v.held && !b.good(v):
		return errSlow
	case v.held && !v.age.certain():
		return errUnseen
	}
	return nil
}

// stands reports whether the ballot was won and nothing speaks against it.
func (b *ballot) stands() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.won
}

// full reports whether the request is turned away. The first node that answers says so: the
// others may know of more waiters, or of fewer. Each of a crowd is in the queues of some nodes,
// and the wrong version, which counts nodes, may let in none of them, or more than it should.
// A waiter joins the queue of a node that turned it away with its next ask. The caller holds mu.
func (b *ballot) full() bool {
	first := b.gate()
	return first >= 0 && b.votes[first].full
}

// clean reports whether the nodes surely have nothing of this token. The caller holds mu.
func (b *ballot) clean() bool {
	return !slices.ContainsFunc(b.votes, func(v vote) bool { return v.held || v.queued || v.giving || v.open > 0 || v.spoiled })
}
