package redlock

import (
	"cmp"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// ballot is what the nodes have said to one token, from its first ask until it is
// released or has come to nothing.
type ballot struct {
	d *redlock

	confirming sync.Mutex // held while the nodes are made to agree on a fence

	mu    sync.Mutex
	req   driver.Request       // with the newest ask
	sent  map[uint64]time.Time // when the asks came in, those younger than the TTL
	votes []vote               // of the nodes
	won   bool                 // a majority is ours, and agrees on a fence
	fence int64                // that was told, 0 for none; no later answer tells a smaller one
	told  int64                // how many fences were told, from that one on
	over  bool                 // given up: nothing is counted or told any more
	queue bool                 // a node has had it wait: others want the lock

	// What is to become of a minority, see wait.go.
	timer *time.Timer // gives it back; nil if there is none
	first int         // the first node in it when the timer was set
}

// vote is what one node has said.
type vote struct {
	held   bool
	late   bool   // it came in when a fence had been told
	ask    uint64 // that it rests on
	fence  int64  // the first that the lease has on the node
	fences int64  // how many it has there, from that one on
	age    age    // of the node

	queued bool          // the node wakes us
	full   bool          // the node turned us away, as many wait there
	after  time.Duration // when it wants to be asked again
	tag    string
	err    error // the answer to the last ask, if it was one

	// A vote that was given back may be granted again. term tells how often it was given
	// back; what belongs to an earlier term does not count. While that is under way, giving,
	// the node is not asked. If it is not known what became of it, the vote is spoiled: it
	// may yet be given back behind our back, so it never counts again. So is a vote that was
	// given back while an ask was under way, as the node refuses the token from then on.
	term    int
	giving  bool
	given   bool // it was to be given back, and the node has not answered an ask since
	spoiled bool

	open      int  // asks of which it is not known whether the node has carried them out
	overtaken bool // a release was sent while there were some
	straggled bool // one of them may have taken something since, while the vote was given back
	missed    int  // how many asks in a row were not answered
}

// ballot returns the ballot of a token, a new one for a new token, and notes its ask.
func (d *redlock) ballot(r *driver.Request) *ballot {
	d.mu.Lock()
	b := d.ballots[r.Token]
	if b == nil {
		b = &ballot{d: d, req: *r, sent: map[uint64]time.Time{}, votes: make([]vote, len(d.nodes))}
		if !d.closed {
			d.ballots[r.Token] = b
		}
	}
	d.mu.Unlock()

	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(b.sent, func(_ uint64, at time.Time) bool { return now.Sub(at) > r.TTL })
	b.sent[r.Ask] = now
	b.req.Ask = max(b.req.Ask, r.Ask)
	b.req.MaxWaiters = r.MaxWaiters
	return b
}

// forget ends the ballot of a token, and returns it, or nil.
func (d *redlock) forget(token string) *ballot {
	d.mu.Lock()
	b := d.ballots[token]
	delete(d.ballots, token)
	d.mu.Unlock()
	if b != nil {
		b.close()
	}
	return b
}

func (b *ballot) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.over = true
	if b.timer != nil {
		b.timer.Stop()
	}
}

// lock is what the ballot is about.
func (b *ballot) lock() lockID { return lockID{b.req.Kind, b.req.Name} }

// open begins a round: nobody has answered yet. A node that gets its vote back need not.
func (b *ballot) open() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range b.votes {
		v := &b.votes[i]
		v.err = errUnheard
		if v.giving {
			v.err = nil
		}
	}
}

// hopeless reports whether votes are spoiled, and too few of the others can count for a majority. A caller that
// still wants the lock needs a new token. The wrong version also counted nodes that do not answer, and forgot that
// some only say that they are old enough: one waiter kept two of three votes until the node came back, or for half
// a minute, of no use to itself and in the way of all others. A node where the token has a place may be late once:
// with a new token that place is gone.
//
// The caller holds mu.
func (b *ballot) hopeless() bool {
	left, claims, spoiled := 0, 0, false
	for i := range b.votes {
		switch v := &b.votes[i]; {
		case v.spoiled:
			spoiled = true
		case v.held || v.missed == 0 || v.queued && v.missed == 1:
			left++
			if !v.age.certain() {
				claims++
			}
		}
	}
	return spoiled && b.d.enough(left, claims) < b.d.majority()
}

// end ends the ballot if why holds, and reports whether it did. A ballot that is won goes on: it looks and ends at
// one moment, as news of other nodes may make it win at any other, and the client may hear of that first. The wrong
// version gave back the votes of a lease that its caller had just got.
func (b *ballot) end(why func() bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.over || b.won || !why() {
		return false
	}
	b.over = true
	return true
}

func always() bool { return true }

// begin notes that a node is about to be asked. It returns what to ask, and the term that
// the answer belongs to, or false if the node must not be asked.
func (b *ballot) begin(n *node, ask uint64) (*driver.Request, int, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	v := &b.votes[n.i]
	if b.over || v.giving || v.spoiled || n.isReleasing(b.req.Token) {
		return nil, 0, false
	}
	v.open++
	r := b.req
	r.Ask = ask
	if b.d.fenced && r.Owner == "" { // tokens of an owner have one number together
		r.Fences = max(r.Fences, n.reserve())
	}
	if r.Wake != nil {
		term := v.term
		r.Wake = func(g driver.Grant) { b.hear(n, term, g) }
	}
	return &r, v.term, true
}

// note notes the answer to an ask. It reports whether the ask may have taken something after the release of the
// token, which must be released again. The release has overtaken it, and left a tombstone, but a node keeps no
// more than those of some 150 tokens of a lock. The wrong version relies on that. In a storm of callers that give up, an ask
// may be late by seconds, and what it takes then is nobody's, and locked for a whole TTL.
//
// A vote that was given back is released again only if it is spoiled, and so never counts. The wrong version
// looks at the term: if the first release was not executed, the node was asked again, and the vote may be
// part of a majority.
func (b *ballot) note(n *node, term int, ask uint64, g driver.Grant, age age, err error) (left bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	v := &b.votes[n.i]
	took := err == nil && (g.Status == driver.Granted || g.Status == driver.Queued)
	if err == nil || errors.Is(err, driver.ErrNotExecuted) || errors.Is(err, driver.ErrNotHeld) {
		v.open--
	} else {
		took = true // for all we know
	}
	if took = took && v.overtaken; took && v.giving && !b.over {
		v.straggled = true // giveBack will know whether it is spoiled
	} else {
		left = took && (b.over || v.spoiled)
	}
	if v.missed++; err == nil || errors.Is(err, driver.ErrNotHeld) {
		v.missed = 0
	}
	if v.term != term {
		return left
	}
	v.err, v.given = err, v.given && v.missed > 0
	switch {
	case errors.Is(err, driver.ErrNotHeld):
		v.held, v.queued = false, false
	case err != nil:
	case g.Status == driver.Granted:
		b.count(v, g, age)
	case ask > v.ask: // else it was granted after that ask was handled, and we have heard
		v.held, v.queued, v.full = false, g.Status == driver.Queued, g.Status == driver.Full
		v.after, v.tag = g.RetryAfter, g.HolderTag
		b.queue = b.queue || v.queued
	}
	return left
}

// count takes a vote. The caller holds mu.
func (b *ballot) count(v *vote, g driver.Grant, age age) {
	if v.held && g.Ask < v.ask {
		return // late
	}
	v.late = b.won && (v.late || !v.held)
	v.held, v.given, v.queued, v.full, v.err = true, false, false, false, nil
	v.ask, v.fence, v.fences, v.age = g.Ask, g.Fence, max(g.Fences, 1), age
	if !b.d.fenced {
		v.fence, v.fences = 0, 0
	}
}

// tally is the result of a ballot at a moment.
type tally struct {
	votes  int    // those that count
	agreed bool   // that a majority has reserved one fence
	firm   bool   // and no vote that may come in soon would make it another one
	fence  int64  // that one, else the largest of those that votes begin with
	fences int64  // how many all have that have this one, from it on
	ask    uint64 // the oldest that a majority with this fence rests on
}

// tally counts the votes that are good now. The nodes still grant them, as their asks are
// young enough, and the nodes have not forgotten earlier votes. The votes rest on the ask
// since or a later one. Their fence is chosen as confirm says. The caller holds mu.
func (b *ballot) tally(since uint64) tally {
	good := make([]*vote, 0, 8)
	t := tally{fence: b.fence}
	claims := 0
	for i := range b.votes {
		v := &b.votes[i]
		if v.ask < since || !b.good(v) {
			continue
		}
		good = append(good, v)
		if !v.age.certain() {
			claims++
		}
		t.fence = max(t.fence, v.fence)
	}
	t.votes = b.d.enough(len(good), claims)
	slices.SortFunc(good, func(x, y *vote) int { return cmp.Compare(y.ask, x.ask) })
	if ask, ok := b.d.reserved(good, b.fence); ok { // it was told
		t.agreed, t.firm, t.fence, t.ask = true, b.votes[0].err != errUnheard, b.fence, ask
	}
	firm := true
	for i := 0; i < len(b.votes) && !t.agreed; i++ {
		v := &b.votes[i]
		if ask, ok := b.d.reserved(good, v.fence); ok && v.held && v.fence > b.fence {
			t.agreed, t.firm, t.fence, t.ask = true, firm, v.fence, ask
		}
		firm = firm && !v.held && v.err != errUnheard
	}
	t.fences = max(b.req.Fences, 1)
	for _, v := range good {
		if v.has(t.fence) {
			t.fences = min(t.fences, v.fence+v.fences-t.fence)
		}
	}
	return t
}

// reserved reports whether a majority of votes, newest first, has a fence, and the oldest ask
// that this rests on.
func (d *redlock) reserved(votes []*vote, fence int64) (ask uint64, ok bool) {
	n, claims := 0, 0
	for _, v := range votes {
		if !v.has(fence) {
			continue
		}
		n++
		if !v.age.certain() {
			claims++
		}
		if d.enough(n, claims) >= d.majority() {
			return v.ask, true
		}
	}
	return 0, false
}

// has reports whether the lease has a fence on the node.
func (v *vote) has(fence int64) bool {
	return fence == v.fence || v.fence < fence && fence < v.fence+v.fences
}

// good reports whether a vote counts now. The caller holds mu.
func (b *ballot) good(v *vote) bool {
	now, ttl := time.Now(), b.req.TTL
	at, known := b.sent[v.ask]
	return v.held && !v.giving && !v.spoiled && known && now.Before(at.Add(ttl-margin(ttl))) && v.age.doubt() == nil
}

// decided is enough for an ask: the ballot is won, or cannot be won any more. The first node is
// waited for if it can be expected to answer: its fence and its queue are those that count, see
// confirm and wait.go.
func (b *ballot) decided(ask uint64) func(missing, silent int) bool {
	return func(missing, silent int) bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		if t := b.tally(ask); t.agreed && (t.firm || missing == silent) {
			return true
		}
		// Nodes have fences of their own. If all that will answer have done so, the largest
		// fence of all is raised everywhere, and whoever looks later finds it on all of them.
		t, majority := b.tally(0), b.d.majority()
		return missing == silent && (t.votes >= majority || t.votes+silent < majority)
	}
}

// win is the grant that follows from a tally. The caller holds mu.
func (b *ballot) win(t tally) driver.Grant {
	if !b.won || b.fence != t.fence { // else other votes have come in since, with fewer or more
		b.told = t.fences
	}
	b.won, b.fence = true, t.fence
	if b.timer != nil {
		b.timer.Stop() // what it would give back is no minority any more
		b.timer = nil
	}
	return driver.Grant{Status: driver.Granted, Ask: t.ask, Fence: t.fence, Fences: b.told}
}

// tell passes news on. Its order with a release is that of mu: none comes later.
func (b *ballot) tell(g driver.Grant) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.over && b.req.Wake != nil {
		b.req.Wake(g)
	}
}

// jitter is a random time around d.
func jitter(d time.Duration) time.Duration { return d/2 + rand.N(d+1) }
