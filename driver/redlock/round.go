package redlock

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/leasectx"
)

// lockID is the lock that a call is about, nothing if it is about several.
type lockID struct {
	driver.Kind
	name string
}

// round is a call to each of some nodes, all at the same time.
//
// The caller does not wait for all of them, see each. The next round on the same lock waits, node
// by node, for the calls that were left behind. The wrong version does not: a release overtakes the ask of
// its own token, so that the node has to keep a tombstone, or an ask the release before it,
// so that it waits in the queue of a lock that is free.
type round struct {
	lock  lockID
	calls context.Context // what the contexts of calls are made of; it ends with the driver
	ctx   context.Context // of calls that need not wait; it ends when the limit has passed
	end   context.CancelFunc
	stop  func() bool   // of overdue
	done  chan struct{} // gets one for each call that has ended; has room for all

	mu    sync.Mutex
	under []*call // those that have not ended
	over  bool    // the limit has passed
}

// call is the call to one node.
type call struct {
	*node
	before []chan struct{} // calls that were left behind before
	over   chan struct{}   // closed when it has ended, or its round is over; nil unless it was left behind
	late   bool            // the node has had its time
}

// round begins a round. The context of its calls ends after limit, but they may well not: only
// some clients can give up a command in flight.
func (d *redlock) round(ctx context.Context, lock lockID, limit time.Duration, nodes ...*node) *round {
	r := &round{lock: lock, under: make([]*call, len(nodes)), done: make(chan struct{}, len(nodes))}
	for i, n := range nodes {
		n.unanswered.Add(1)
		r.under[i] = &call{node: n, before: n.leftBehind(lock)}
	}
	r.calls = leasectx.Merged(d.life, ctx)
	r.ctx, r.end = context.WithTimeout(r.calls, limit)
	r.stop = context.AfterFunc(r.ctx, r.overdue)
	return r
}

// overdue notes that calls that have not ended are late, but for those that had to wait. Nobody
// waits for any of them any more.
func (r *round) overdue() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.over = true
	for _, c := range r.under {
		if len(c.before) == 0 {
			c.late = true
			c.overdue.Add(1)
		}
		c.pass(r.lock)
	}
}

// do makes a call. A node has the whole limit for its answer, however long the call has waited for
// those before it. The wrong version counts from the beginning of the round: on a slow machine
// one call has used up the time of the next, so that waiters take nodes for silent, and
// do not know any more what became of their votes.
func (r *round) do(c *call, limit time.Duration, f func(context.Context, *node)) {
	defer r.ended(c)
	if len(c.before) == 0 {
		f(r.ctx, c.node)
		return
	}
	c.wait()
	ctx, end := context.WithTimeout(r.calls, limit)
	defer end()
	stop := context.AfterFunc(ctx, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		if slices.Contains(r.under, c) {
			c.late = true
			c.overdue.Add(1)
		}
	})
	defer stop()
	f(ctx, c.node)
}

// ended notes that a call has ended, or was not made.
func (r *round) ended(c *call) {
	r.mu.Lock()
	i := slices.Index(r.under, c)
	r.under = slices.Delete(r.under, i, i+1)
	if c.late {
		c.overdue.Add(-1)
	}
	c.pass(r.lock)
	last := len(r.under) == 0
	r.mu.Unlock()
	c.unanswered.Add(-1)
	r.done <- struct{}{}
	if last {
		r.stop()
		r.end()
	}
}

// leave leaves behind the calls that have not ended.
func (r *round) leave() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over || r.lock == (lockID{}) {
		return
	}
	for _, c := range r.under {
		c.over = make(chan struct{})
		c.mu.Lock()
		c.behind[r.lock] = append(c.behind[r.lock], c.over)
		c.mu.Unlock()
	}
}

// leftBehind returns the calls on a lock that were left behind.
func (n *node) leftBehind(lock lockID) []chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.behind[lock])
}

// pass lets those go on that wait for a call. The caller holds the mu of its round.
func (c *call) pass(lock lockID) {
	if c.over == nil {
		return
	}
	close(c.over)
	c.mu.Lock()
	defer c.mu.Unlock()
	others := slices.DeleteFunc(c.behind[lock], func(o chan struct{}) bool { return o == c.over })
	if c.behind[lock] = others; len(others) == 0 {
		delete(c.behind, lock)
	}
	c.over = nil
}

// wait waits for calls that were left behind before, unless the node is silent.
func (c *call) wait() {
	for _, over := range c.before {
		if c.overdue.Load() == 0 {
			<-over
		}
	}
}

// drain waits for calls that were left behind: until they are late at most.
func (n *node) drain() {
	n.mu.Lock()
	behind := slices.Concat(slices.Collect(maps.Values(n.behind))...)
	n.mu.Unlock()
	for _, over := range behind {
		<-over
	}
}

// silent counts the nodes that owe an older answer, too.
func (r *round) silent() (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.under {
		if c.overdue.Load() > 0 {
			n++
		}
	}
	return n
}

// each calls nodes at the same time. It returns when all have answered, when enough says
// so, when limit has passed, or ctx has ended. A call that has not ended by then goes on.
//
// enough is told how many answers are missing, and how many of them from nodes that owe an
// older answer, too, and that are better not waited for.
func (d *redlock) each(ctx context.Context, lock lockID, limit time.Duration, nodes []*node, f func(context.Context, *node), enough func(missing, silent int) bool) {
	if len(nodes) == 0 {
		return
	}
	r := d.round(ctx, lock, limit, nodes...)
	defer r.leave()
	for _, c := range slices.Clone(r.under) {
		begun := d.background(func() {
			r.do(c, limit, f)
		})
		if !begun {
			r.ended(c)
		}
	}
	for missing := len(nodes) - 1; ; missing-- {
		select {
		case <-r.done:
		case <-r.ctx.Done():
			return
		case <-ctx.Done():
			return
		}
		if missing == 0 || enough(missing, r.silent()) {
			return
		}
	}
}

// one calls one node, and returns when the call has ended.
func (d *redlock) one(ctx context.Context, limit time.Duration, n *node, f func(context.Context)) {
	r := d.round(ctx, lockID{}, limit, n)
	defer r.ended(r.under[0])
	f(r.ctx)
}

// send does what a call is for, unless too much is unanswered.
func send[T any](ctx context.Context, n *node, do func(context.Context) (T, error)) (T, error) {
	if n.overdue.Load() > 0 && n.unanswered.Load() > maxUnanswered {
		var none T
		return none, errSilent
	}
	return do(ctx)
}

// settled is enough when a majority has answered, and all nodes that can be expected to.
func (d *redlock) settled(missing, silent int) bool {
	return missing == silent && len(d.nodes)-missing >= d.majority()
}

// all is enough when all have answered.
func all(missing, _ int) bool { return missing == 0 }
