package keepalive

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

const (
	batchSize = 256
	// A node gets at most so many batches at a time, and as many again beside those that hang.
	// The batches that a frozen node does not answer would pile up otherwise, each with a
	// connection.
	workersPerNode = 4
)

// node is a store node that has renewals to do.
type node struct {
	queue   []*Entry
	workers int
	free    int // workers that have no batch under way
	hung    int // workers whose batch is not answered in time
}

// queue hands e to the workers of its node. The caller holds mu.
func (k *Keeper) queue(e *Entry) {
	n := k.nodes[e.node]
	if n == nil {
		n = &node{}
		k.nodes[e.node] = n
	}
	if !e.queued {
		e.queued = true
		n.queue = append(n.queue, e)
	}
	k.hire(e.node, n)
}

// hire has another worker work for a node if one is missing. A worker whose batch hangs does
// not count: one connection that has fallen silent may hold up each of them, while others are
// well. The caller holds mu.
func (k *Keeper) hire(name string, n *node) {
	if len(n.queue) > n.free*batchSize && n.workers-n.hung < workersPerNode && n.workers < 2*workersPerNode {
		n.workers++
		n.free++
		k.wg.Go(func() { k.work(name, n) })
	}
}

// full reports whether a batch for the node is full that a worker is about to take.
// The caller holds mu.
func (k *Keeper) full(name string) bool {
	n := k.nodes[name]
	return n != nil && n.free > 0 && len(n.queue) >= n.free*batchSize
}

// work renews what is queued for a node, and ends when there is no more.
func (k *Keeper) work(name string, n *node) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for len(n.queue) > 0 {
		var batch []*Entry
		for len(n.queue) > 0 && len(batch) < batchSize {
			e := n.queue[0]
			n.queue = n.queue[1:]
			e.queued = false
			if e.place > 0 { // not released meanwhile
				batch = append(batch, e)
			}
		}
		if len(batch) == 0 {
			break
		}
		n.free--
		k.mu.Unlock()
		if batch = k.stay(batch, name); len(batch) > 0 {
			k.renew(batch, name, n)
		}
		k.mu.Lock()
		n.free++
	}
	n.free--
	if n.workers--; n.workers == 0 {
		delete(k.nodes, name)
	}
}

// stay returns those of a batch that the node still has. The others are handed to the nodes
// that their locks have moved to, so that a node that does not answer delays only its own.
// The wrong version asked once, when the lease was granted. After a slot of a Cluster had
// moved, one frozen node cost leases on all the others.
func (k *Keeper) stay(batch []*Entry, name string) (here []*Entry) {
	if k.route == nil {
		return batch
	}
	nodes := make([]string, len(batch))
	for i, e := range batch {
		nodes[i] = k.route.Node(e.Owner.Subject()) // may take time, so without the mutex
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for i, e := range batch {
		switch {
		case nodes[i] == name:
			here = append(here, e)
		case e.place > 0: // not released meanwhile
			e.node = nodes[i]
			k.queue(e)
		}
	}
	return here
}

// renew sends one batch and notes the answers.
func (k *Keeper) renew(batch []*Entry, name string, n *node) {
	shortest, longest := driver.MaxTTL, driver.MinTTL
	for _, e := range batch {
		ttl := e.Trust().ttl
		shortest, longest = min(shortest, ttl), max(longest, ttl)
	}
	answered, hung := false, 0
	timer := time.AfterFunc(shortest/repeats, func() {
		k.mu.Lock()
		defer k.mu.Unlock()
		if !answered {
			hung = 1
			n.hung++
			k.hire(name, n)
		}
	})
	defer timer.Stop()
	ctx, cancel := context.WithTimeout(k.done, longest)
	defer cancel()
	sent := time.Now()
	// A lease goes on when its own answer is there. The wrong version waits for the answers of
	// all: a batch that takes several trips has leases end that were renewed in the first.
	errs := k.send(ctx, batch, func(i int) {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.renewed(batch[i], sent)
	})

	var lost []*Entry
	jitter := rand.Float64() // the same for all, which stay one batch
	k.mu.Lock()
	answered = true
	n.hung -= hung
	for i, e := range batch {
		switch err := errs[i]; {
		case e.place == 0: // released or lost meanwhile
		case err == nil:
			k.renewed(e, sent)
		case errors.Is(err, driver.ErrNotHeld):
			k.remove(e)
			e.fail().err = err
			lost = append(lost, e)
		default:
			f, ttl := e.fail(), e.Trust().ttl
			f.err, f.pause = err, min(max(2*f.pause, ttl/100), ttl/6)
			e.next = time.Since(start) + f.pause/2 + time.Duration(jitter*float64(f.pause))
			k.plan(e)
		}
	}
	k.schedule(time.Now()) // not for those that were to be asked for again without an answer
	k.mu.Unlock()
	for _, e := range lost {
		e.lost()
	}
}
