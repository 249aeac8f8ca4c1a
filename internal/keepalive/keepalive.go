// Package keepalive renews the leases of a client and ends their trust in time, all
// on one timer goroutine.
package keepalive

import (
	"container/heap"
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

const (
	batchSize = 256
	// A node gets at most so many batches at a time. Those that a frozen node does not
	// answer would pile up otherwise, each with a connection.
	workersPerNode = 4
	// A suspended machine stops the timer, too. While anything is held it is looked
	// after at least this often.
	lookEvery = time.Second
	// A lease with a carrier is first renewed so soon: that is what tells it to those who
	// wait. Leases that are shorter tell it when they are released.
	announce = 10 * time.Millisecond
)

// Keeper keeps leases alive.
type Keeper struct {
	send  func(context.Context, []*Entry) []error
	route driver.Router // nil if all leases live on one node

	mu      sync.Mutex
	heap    entries
	planned time.Time // when the timer goroutine looks next
	looked  time.Time // when it last looked at every entry
	nodes   map[string]*node
	running bool

	kick chan struct{}
	done context.Context
	stop context.CancelFunc
	wg   sync.WaitGroup
}

// node is a store node that has renewals to do.
type node struct {
	queue   []*Entry
	workers int
	free    int // workers that have no batch under way
}

// New returns a keeper of leases that live in d and are renewed by send, which returns
// one error, or nil, for each of them.
func New(d driver.Driver, send func(context.Context, []*Entry) []error) *Keeper {
	k := &Keeper{send: send, nodes: map[string]*node{}, kick: make(chan struct{}, 1)}
	k.route, _ = driver.As[driver.Router](d)
	k.done, k.stop = context.WithCancel(context.Background())
	return k
}

// Entry is one lease in the care of a Keeper. Its exported fields are set before
// Add and not changed afterwards.
type Entry struct {
	Lease driver.Lease
	// Owner is for send, to tell whose entry it is.
	Owner any
	// Fixed leases are not renewed, only ended.
	Fixed bool
	// Lost is called once when the lease is lost: with an error that matches
	// driver.ErrNotHeld if the store says so, else with that of the last renewal, or
	// nil. It runs with no lock held on a goroutine of the keeper: it must not block.
	Lost func(cause error)

	// The rest is guarded by Keeper.mu.
	trust Trust
	next  time.Time     // when to renew, or to try again
	pause time.Duration // before that, if renewals fail
	err   error         // of the last renewal
	node  string
	place int // in the heap, counted from 1; 0 when not in care

	queued bool // in the queue of its node
}

// due is when the entry needs attention.
func (e *Entry) due() time.Time {
	if end := e.trust.Deadline(); e.Fixed || end.Before(e.next) {
		return end
	}
	return e.next
}

// Add takes e into care. trust is what the grant gave.
func (k *Keeper) Add(e *Entry, trust Trust) {
	if k.route != nil {
		e.node = k.route.Node(e.Lease.Kind, e.Lease.Name)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	// A pushed grant may rest on an ask from a while ago. The renewal is due a third
	// of a TTL after that ask: at once if so much has been used up.
	e.trust, e.next = trust, trust.sent.Add(e.Lease.TTL/3)
	if soon := time.Now().Add(announce); e.Lease.Carrier != "" && soon.Before(e.next) {
		e.next = soon
	}
	heap.Push(&k.heap, e)
	if !k.running {
		k.running = true
		k.wg.Go(k.run)
	}
	k.plan(e)
}

// Announce has e renewed soon, since there is something new to say of its holder.
func (k *Keeper) Announce(e *Entry) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if soon := time.Now().Add(announce); e.place > 0 && soon.Before(e.next) {
		e.next = soon
		k.plan(e)
	}
}

// Remove ends the care of e. It reports false if the lease was lost before; Lost has
// been called then, or is about to be. After true it will not be called.
func (k *Keeper) Remove(e *Entry) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.remove(e)
}

// Trust returns the present trust of e.
func (k *Keeper) Trust(e *Entry) Trust {
	k.mu.Lock()
	defer k.mu.Unlock()
	return e.trust
}

// Renewed notes that somebody else renewed e, with a request sent at that moment.
func (k *Keeper) Renewed(e *Entry, sent time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.renewed(e, sent)
}

// Close stops renewing and waits for what is under way. What is still in care is
// neither renewed nor lost any more.
func (k *Keeper) Close() {
	k.stop()
	k.wg.Wait()
}

// run is the timer goroutine.
func (k *Keeper) run() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-k.done.Done():
			return
		case <-k.kick:
		case <-timer.C:
		}
		timer.Reset(k.look())
	}
}

// look does all that is due and returns how long it has nothing to do.
func (k *Keeper) look() time.Duration {
	k.mu.Lock()
	now := time.Now()
	var lost []*Entry
	for len(k.heap) > 0 && !k.heap[0].due().After(now) {
		e := k.heap[0]
		if e.trust.Left() <= 0 {
			k.remove(e)
			lost = append(lost, e)
			continue
		}
		k.queue(e)
		// If there is no answer by then, the batch may hang; ask beside it.
		e.next = now.Add(e.Lease.TTL / 6)
		heap.Fix(&k.heap, 0)
	}
	lost = append(lost, k.suspended(now)...)
	k.planned = now.Add(time.Hour)
	if len(k.heap) > 0 {
		k.planned = now.Add(min(lookEvery, k.heap[0].due().Sub(now)))
	}
	wait := time.Until(k.planned)
	k.mu.Unlock()

	for _, e := range lost {
		e.Lost(e.err)
	}
	return max(wait, 0)
}

// suspended finds, once in a while, the entries whose trust has ended by the wall
// clock although the heap, which follows the monotonic one, does not show it.
// The caller holds mu.
func (k *Keeper) suspended(now time.Time) []*Entry {
	if now.Sub(k.looked) < lookEvery {
		return nil
	}
	k.looked = now
	var lost []*Entry
	for _, e := range append(entries(nil), k.heap...) {
		if e.trust.Left() <= 0 {
			k.remove(e)
			lost = append(lost, e)
		}
	}
	return lost
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
	if len(n.queue) > n.free*batchSize && n.workers < workersPerNode {
		n.workers++
		n.free++
		k.wg.Go(func() { k.work(e.node, n) })
	}
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
		k.renew(batch)
		k.mu.Lock()
		n.free++
	}
	n.free--
	if n.workers--; n.workers == 0 {
		delete(k.nodes, name)
	}
}

// renew sends one batch and notes the answers.
func (k *Keeper) renew(batch []*Entry) {
	longest := driver.MinTTL
	for _, e := range batch {
		longest = max(longest, e.Lease.TTL)
	}
	ctx, cancel := context.WithTimeout(k.done, longest)
	defer cancel()
	sent := time.Now()
	errs := k.send(ctx, batch)

	var lost []*Entry
	k.mu.Lock()
	for i, e := range batch {
		switch err := errs[i]; {
		case e.place == 0: // released or lost meanwhile
		case err == nil:
			k.renewed(e, sent)
		case errors.Is(err, driver.ErrNotHeld):
			k.remove(e)
			e.err = err
			lost = append(lost, e)
		default:
			e.err = err
			e.pause = min(max(2*e.pause, e.Lease.TTL/100), e.Lease.TTL/6)
			e.next = time.Now().Add(e.pause/2 + rand.N(e.pause))
			k.plan(e)
		}
	}
	k.mu.Unlock()
	for _, e := range lost {
		e.Lost(e.err)
	}
}

// renewed notes a renewal. The caller holds mu.
func (k *Keeper) renewed(e *Entry, sent time.Time) {
	if e.place == 0 {
		return
	}
	if trust := NewTrust(sent, e.Lease.TTL); trust.Deadline().After(e.trust.Deadline()) {
		e.trust, e.next = trust, sent.Add(e.Lease.TTL/3)
	}
	e.pause, e.err = 0, nil
	k.plan(e)
}

// plan puts e where it belongs in the heap and wakes the timer goroutine if it would
// look too late. The caller holds mu.
func (k *Keeper) plan(e *Entry) {
	heap.Fix(&k.heap, e.place-1)
	if due := e.due(); due.Before(k.planned) {
		k.planned = due
		select {
		case k.kick <- struct{}{}:
		default:
		}
	}
}

// remove takes e out of the heap. The caller holds mu.
func (k *Keeper) remove(e *Entry) bool {
	if e.place == 0 {
		return false
	}
	heap.Remove(&k.heap, e.place-1)
	return true
}

type entries []*Entry

func (h entries) Len() int           { return len(h) }
func (h entries) Less(i, j int) bool { return h[i].due().Before(h[j].due()) }
func (h entries) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i+1, j+1
}

func (h *entries) Push(x any) {
	e := x.(*Entry)
	*h = append(*h, e)
	e.place = len(*h)
}

func (h *entries) Pop() any {
	old := *h
	e := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	e.place = 0
	return e
}
