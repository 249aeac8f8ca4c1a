package redlock

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// maxPending is how many calls a node may leave unanswered once one of them is overdue. It
// gets no more then, so that a frozen one does not collect goroutines and connections.
const maxPending = 64

// node is one of the stores that vote.
type node struct {
	driver.Driver
	i      int
	raise  driver.FenceRaiser // nil if it is none
	uptime driver.Uptimer     // nil if it is none

	pending, stuck atomic.Int32 // calls, and those of them that are overdue

	mu     sync.Mutex
	debts  map[string]debt // by token
	paying bool
}

func newNode(i int, d driver.Driver) *node {
	n := &node{Driver: d, i: i, debts: map[string]debt{}}
	n.raise, _ = driver.As[driver.FenceRaiser](d)
	n.uptime, _ = driver.As[driver.Uptimer](d)
	return n
}

// call calls a node. The context that f gets ends after limit, but f may well not: only
// some clients can give up a command in flight.
func call[T any](ctx context.Context, d *redlock, n *node, limit time.Duration, f func(context.Context) (T, error)) (T, error) {
	if n.stuck.Load() > 0 && n.pending.Load() >= maxPending {
		var none T
		return none, errSilent
	}
	n.pending.Add(1)
	defer n.pending.Add(-1)
	overdue := time.AfterFunc(limit, func() { n.stuck.Add(1) })
	defer func() {
		if !overdue.Stop() {
			n.stuck.Add(-1)
		}
	}()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	defer context.AfterFunc(d.life, cancel)()
	return f(ctx)
}

// each calls nodes at the same time. It returns when all have answered, when enough says
// so, when limit has passed, or ctx has ended. A call that has not ended by then goes on.
//
// enough is told how many answers are missing, and how many of them from nodes that owe an
// older answer, too, and that are better not waited for.
func (d *redlock) each(ctx context.Context, limit time.Duration, nodes []*node, call func(context.Context, *node), enough func(missing, silent int) bool) {
	done := make(chan *node, len(nodes))
	waiting := map[*node]bool{}
	for _, n := range nodes {
		waiting[n] = d.background(func() {
			call(ctx, n)
			done <- n
		})
		if !waiting[n] {
			done <- n
		}
	}
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for len(waiting) > 0 {
		select {
		case n := <-done:
			delete(waiting, n)
		case <-timer.C:
			return
		case <-ctx.Done():
			return
		}
		silent := 0
		for n := range waiting {
			if n.stuck.Load() > 0 {
				silent++
			}
		}
		if enough(len(waiting), silent) {
			return
		}
	}
}

// settled is enough when a majority has answered, and all nodes that can be expected to.
func (d *redlock) settled(missing, silent int) bool {
	return missing == silent && len(d.nodes)-missing >= d.majority()
}

// all is enough when all have answered.
func all(missing, _ int) bool { return missing == 0 }
