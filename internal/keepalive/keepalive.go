// Package keepalive renews the leases of a client and ends their trust in time. One goroutine
// looks at the time for all of them; a few more, which do not stay, carry renewals out.
package keepalive

import (
	"container/heap"
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

const (
	// A lease is renewed when this part of its TTL has passed since it was last proved,
	// never later.
	renewals = 3
	// A renewal that is not answered when this part of its TTL has passed is repeated beside.
	repeats = 6
	// It may be renewed by such a part of its TTL earlier, together with others.
	slack = 30
	// A suspended machine stops the monotonic clock, and timers with it. When it goes on, a
	// lease can long be over although its renewal is not due for hours. [Trust] shows that to
	// callers that ask; the context of a lease ends when the keeper looks at the clocks. It
	// looks whenever something is due, which for short leases is often enough. While anything
	// is held it also looks at least this often: for so long a holder may work on beside the
	// next one. To look every second would wake an idle machine three times as often as the
	// renewals of a lease of 10 s do.
	lookEvery = 5 * time.Second
	// A gain of the wall clock is of no interest below this.
	gain = time.Millisecond
	// A lease with a tag is first renewed so soon, since the renewal tells the tag to
	// waiters. Shorter leases tell it when they are released.
	announce = 10 * time.Millisecond
)

// Keeper keeps leases alive.
type Keeper struct {
	send  Send
	route driver.Router // nil if all leases live on one node

	mu      sync.Mutex
	heap    entries
	timer   *time.Timer   // nil until there is something to do
	planned time.Time     // when the timer goroutine looks next
	lead    time.Duration // of the wall clock, when it last looked
	late    lateness
	nodes   map[string]*node

	done context.Context
	stop context.CancelFunc
	wg   sync.WaitGroup
}

// Send renews leases, and returns one error or nil for each of them. It may call renewed, with the
// place of one that the store has renewed, before it knows of the others.
type Send func(ctx context.Context, entries []*Entry, renewed func(i int)) []error

// New returns a keeper of leases. route tells on which node each lives; nil if all are on one.
func New(route driver.Router, send Send) *Keeper {
	k := &Keeper{send: send, route: route, nodes: map[string]*node{}}
	k.done, k.stop = context.WithCancel(context.Background())
	return k
}

// Entry is one lease in the care of a Keeper. Its exported fields are set before
// Add and not changed afterwards.
type Entry struct {
	// Owner is the holder of the lease, also for send to know.
	Owner Owner
	// trust is replaced as a whole, under Keeper.mu, and read at any time: whoever looks at a
	// lease need not wait for the other leases of the client. nil before Add.
	trust atomic.Pointer[Trust]
	first Trust // room for the trust of the grant, since most leases are not renewed

	// Fixed leases are not renewed, only ended.
	Fixed bool

	// The rest is guarded by Keeper.mu.
	queued bool          // in the queue of its node
	place  int32         // in the heap, counted from 1; 0 when not in care
	next   time.Duration // when to renew, or to try again, after start
	failed *failure      // nil if the last renewal has not: thousands of leases may be held
	node   string        // that had the lock when it was last asked for
}

// failure is what came of renewals that have failed, or of a look at the clocks.
type failure struct {
	err   error         // of the last one
	pause time.Duration // before the next
}

// fail returns what is known of failures, for more to be noted.
func (e *Entry) fail() *failure {
	if e.failed == nil {
		e.failed = &failure{}
	}
	return e.failed
}

// lost tells the owner.
func (e *Entry) lost() {
	var cause error
	if e.failed != nil {
		cause = e.failed.err
	}
	e.Owner.Lost(cause)
}

// Owner is the holder of a lease.
type Owner interface {
	// Subject returns which lock the lease is on. It is called at any time.
	Subject() (driver.Kind, string)

	// Lost is called once when the lease is lost. cause matches driver.ErrNotHeld if the
	// store says so, or ErrClock. Otherwise it is the error of the last renewal, that the keeper
	// was late, or nil.
	// Lost runs on a goroutine of the keeper, with no lock held. It must not block.
	Lost(cause error)
}

// due is when the entry needs attention.
func (e *Entry) due() time.Time {
	next := start.Add(e.next)
	if end := e.trust.Load().Deadline(); e.Fixed || end.Before(next) {
		return end
	}
	return next
}

// Locate asks which node has the lock. It comes before Add, for it may take time.
func (k *Keeper) Locate(e *Entry, kind driver.Kind, name string) {
	if k.route != nil {
		e.node = k.route.Node(kind, name)
	}
}

// Add takes e, the entry of that lease, into care. trust is what the grant gave.
func (k *Keeper) Add(e *Entry, lease driver.Lease, trust Trust) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.timer == nil {
		k.lead = wallLead(time.Now())
		k.timer, k.planned = time.NewTimer(0), time.Now()
		k.wg.Go(k.run)
	}
	e.first = trust.caughtUp(time.Now())
	e.trust.Store(&e.first)
	// A pushed grant may rest on an ask from a while ago. The renewal is due a third
	// of a TTL after that ask: at once if so much has been used up.
	e.next = k.renewal(e.first) - k.early(e.first.ttl)
	if lease.HolderTag != "" {
		e.next = min(e.next, time.Since(start)+announce)
	}
	heap.Push(&k.heap, e)
	k.plan(e)
}

// renewal is when to renew a lease, after start. The caller holds mu.
func (k *Keeper) renewal(t Trust) time.Duration {
	return t.sent.Sub(start) + t.ttl/renewals - min(k.late.lately(time.Now()), t.ttl/repeats)
}

// Late returns how late the timer goroutine was at most, since Late was last called.
func (k *Keeper) Late() time.Duration {
	k.mu.Lock()
	defer k.mu.Unlock()
	late := k.late.untold
	k.late.untold = 0
	return late
}

// early is by how much to renew a lease earlier than it would be due, so that leases that
// came together do not stay together. It is 0 as long as one batch can take them all. If
// there are more, the first batch can be full at the end of the time that there is; the
// rest is spread evenly over all of it. The leases keep their distance from then on, until
// something disturbs it. The caller holds mu.
func (k *Keeper) early(ttl time.Duration) time.Duration {
	crowd := 1 - batchSize/float64(max(len(k.heap), batchSize))
	return time.Duration(rand.Float64() * crowd * float64(ttl/renewals))
}

// Announce has e renewed soon, since its holder has a new tag.
func (k *Keeper) Announce(e *Entry) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if soon := time.Since(start) + announce; e.place > 0 && soon < e.next {
		e.next = soon
		k.plan(e)
	}
}

// Remove ends the care of e. If it reports false, the lease was lost before, and Lost has
// been called or is about to be. If it reports true, Lost will not be called.
func (k *Keeper) Remove(e *Entry) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.remove(e)
}

// Owners returns the owners of the entries in care.
func (k *Keeper) Owners() []Owner {
	k.mu.Lock()
	defer k.mu.Unlock()
	owners := make([]Owner, len(k.heap))
	for i, e := range k.heap {
		owners[i] = e.Owner
	}
	return owners
}

// Trust returns the present trust of e: none before Add.
func (e *Entry) Trust() Trust {
	if t := e.trust.Load(); t != nil {
		return *t
	}
	return Trust{}
}

// Renewed notes that e was renewed by a caller, with a request sent at that moment.
func (k *Keeper) Renewed(e *Entry, sent time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.renewed(e, sent)
}

// Close stops renewing and waits for what is under way. From then on entries in care are
// neither renewed nor lost.
func (k *Keeper) Close() {
	k.stop()
	k.wg.Wait()
}

// run is the timer goroutine.
func (k *Keeper) run() {
	defer k.timer.Stop()
	for {
		select {
		case <-k.done.Done():
			return
		case <-k.timer.C:
			k.look()
		}
	}
}

// look does all that is due.
func (k *Keeper) look() {
	k.mu.Lock()
	now := time.Now()
	k.late.note(now, k.planned)
	k.catchUp(now)
	lost := k.act(now)
	k.schedule(now)
	k.mu.Unlock()

	for _, e := range lost {
		e.lost()
	}
}

// schedule sets the timer to when there is something to do. The caller holds mu.
func (k *Keeper) schedule(now time.Time) {
	if len(k.heap) == 0 {
		k.planned = now.Add(driver.MaxTTL) // nothing that is added will be due later
		k.timer.Stop()
		return
	}
	k.planned = now.Add(min(lookEvery, max(0, k.heap[0].due().Sub(now)))) // not before now: it would seem late
	k.timer.Reset(k.planned.Sub(now))
}

// catchUp has the heap, which follows the monotonic clock, follow the wall clock if that has
// gained on it. The caller holds mu.
func (k *Keeper) catchUp(now time.Time) {
	before := k.lead
	if k.lead = wallLead(now); k.lead-before <= gain {
		k.lead = min(k.lead, before) // or a slow gain would never show
		return
	}
	for _, e := range k.heap {
		trust := e.Trust()
		if cause := trust.Cause(); cause != nil {
			e.fail().err = cause
		}
		e.next -= trust.skipped(now) // or the lease may end before
		trust = trust.caughtUp(now)
		e.trust.Store(&trust)
	}
	heap.Init(&k.heap)
}

// act has the entries renewed that are due, and those that may join them. It returns the
// entries that are lost. The caller holds mu.
func (k *Keeper) act(now time.Time) (lost []*Entry) {
	for sends := false; len(k.heap) > 0; {
		e := k.heap[0]
		switch due := !e.due().After(now); {
		case due && e.Trust().Left() <= 0:
			if k.late.lately(now) > e.Trust().ttl/repeats && !e.Fixed && e.failed == nil {
				e.fail().err = fmt.Errorf("a timer of this process was late by %v", k.late.worst.Round(time.Millisecond))
			}
			k.remove(e)
			lost = append(lost, e)
			continue
		case !due && !(sends && k.joins(e, now)):
			return lost
		}
		sends = true
		k.queue(e)
		// If there is no answer by then, the batch may hang; ask beside it.
		e.next = now.Sub(start) + e.Trust().ttl/repeats
		heap.Fix(&k.heap, 0)
	}
	return lost
}

// joins reports whether to renew e now, since others are renewed now and e would be due
// soon. Otherwise leases that were spread out would be renewed one by one. An entry that
// waits for a retry does not join. The caller holds mu.
func (k *Keeper) joins(e *Entry, now time.Time) bool {
	retries := e.failed != nil && e.failed.pause > 0
	return !e.Fixed && !retries && e.next <= now.Sub(start)+e.Trust().ttl/slack && !k.full(e.node)
}

// renewed notes a renewal. The caller holds mu.
func (k *Keeper) renewed(e *Entry, sent time.Time) {
	if e.place == 0 {
		return
	}
	now, before := time.Now(), e.Trust()
	if trust := NewTrust(sent, before.ttl).caughtUp(now); trust.Deadline().After(before.caughtUp(now).Deadline()) {
		e.next = k.renewal(trust)
		if trust.sent.Sub(before.sent) > trust.ttl/renewals+trust.ttl/slack {
			// It was held up, and others with it: by an outage, or a pause of the process.
			e.next -= k.early(trust.ttl)
		}
		e.trust.Store(&trust)
	}
	e.failed = nil
	k.plan(e)
}

// plan puts e where it belongs in the heap, and ensures that the timer goroutine does not
// look too late. The caller holds mu.
func (k *Keeper) plan(e *Entry) {
	heap.Fix(&k.heap, int(e.place-1))
	if e.due().Before(k.planned) {
		k.schedule(time.Now())
	}
}

// remove takes e out of the heap. The caller holds mu.
func (k *Keeper) remove(e *Entry) bool {
	if e.place == 0 {
		return false
	}
	heap.Remove(&k.heap, int(e.place-1))
	return true
}
