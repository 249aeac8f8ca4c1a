package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"
)

// nemesis makes faults.
type nemesis struct {
	rng  *rand.Rand
	log  func(format string, args ...any)
	deck []string // kinds that this storm has yet to make, shuffled

	mu     sync.Mutex
	events []event
	active map[string]fault // by part
}

// event is a fault that happened.
type event struct {
	fault      fault
	start, end int64 // clock
	felt       bool
	err        error
}

// storm is a time of faults, and the calm after it.
type storm struct {
	set         set
	start, heal int64 // heal: its faults are over
	end         int64 // of the calm
}

// atOnce is how many faults there are at a time.
const atOnce = 2

// rage makes faults of the safe set and of another one until a moment, and returns when the
// last of them is over.
func (n *nemesis) rage(faults []fault, class set, until time.Time) storm {
	s := storm{set: class, start: clock()}
	var under sync.WaitGroup
	n.deck = nil
	for time.Now().Before(until) {
		if f, ok := n.draw(faults, class); ok {
			seed := n.rng.Uint64()
			under.Go(func() { n.make(f, rand.New(rand.NewPCG(seed, 0))) })
		}
		time.Sleep(between(n.rng, 300*time.Millisecond, 800*time.Millisecond))
	}
	under.Wait()
	s.heal = clock()
	return s
}

// draw takes a kind from the deck, and does it to a part where nothing is done yet.
func (n *nemesis) draw(faults []fault, class set) (fault, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.active) >= atOnce {
		return fault{}, false
	}
	if len(n.deck) == 0 {
		n.shuffle(faults, class)
	}
	for i, kind := range n.deck {
		free := slices.DeleteFunc(slices.Clone(faults), func(f fault) bool {
			_, busy := n.active[f.part]
			return busy || f.kind != kind
		})
		if len(free) > 0 {
			n.deck = slices.Delete(n.deck, i, i+1)
			f := free[n.rng.IntN(len(free))]
			n.active[f.part] = f
			return f, true
		}
	}
	return fault{}, false
}

// rarity is how often a kind that is not safe is in the deck. There are few of them.
const rarity = 3

// shuffle fills the deck with the kinds that may happen in a storm.
func (n *nemesis) shuffle(faults []fault, class set) {
	seen := map[string]bool{}
	for _, f := range faults {
		switch {
		case seen[f.kind] || slices.Contains(f.never, class) || f.set != safe && f.set != class:
			continue
		case f.set != safe:
			n.deck = append(n.deck, slices.Repeat([]string{f.kind}, rarity)...)
		default:
			n.deck = append(n.deck, f.kind)
		}
		seen[f.kind] = true
	}
	n.rng.Shuffle(len(n.deck), func(i, j int) { n.deck[i], n.deck[j] = n.deck[j], n.deck[i] })
}

// make makes a fault that was drawn.
func (n *nemesis) make(f fault, rng *rand.Rand) {
	e := event{fault: f, start: clock()}
	e.err = attempt(func() (err error) {
		e.felt, err = f.do(rng)
		return err
	})
	e.end = clock()
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.active, f.part)
	n.events = append(n.events, e)
	n.log("%d %d %s %s: %v", e.start, e.end, f.part, f.kind, e.err)
}

// unasked is an election that no fault asked for: a slow machine looks like a dead master to
// Sentinels and to a Cluster. Nobody knows what data that costs.
const unasked = "failover that nobody asked for"

// watchElections notes when other servers are masters, or more of them, without a fault that
// does so. It ends when stop is closed.
func (n *nemesis) watchElections(roles func() string, stop <-chan struct{}) {
	const every = 100 * time.Millisecond
	const unaware = int64(4 * time.Second) // from the loss of a master to what we see
	const master = "master"
	first := roles()
	for last := first; ; {
		select {
		case <-stop:
			return
		case <-time.After(every):
		}
		now := roles()
		if now == "" || now == last && strings.Count(now, master) == strings.Count(first, master) {
			continue
		}
		last = now
		n.elected(event{
			fault: fault{kind: unasked, set: data},
			start: clock() - unaware, end: clock(), felt: true,
		})
	}
}

// elected adds an election to the events, unless a fault has asked for it, or it is there.
func (n *nemesis) elected(e event) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, f := range n.active {
		if f.elects {
			return
		}
	}
	for i, other := range slices.Backward(n.events) {
		switch {
		case other.fault.elects && other.end > e.end-int64(time.Second):
			return
		case other.fault.kind == unasked && other.end > e.start:
			n.events[i].end = e.end // the same goes on
			return
		}
	}
	n.log("%d %s", e.end, unasked)
	n.events = append(n.events, e)
}

// undisturbed returns the storms after which no election disturbed the calm.
func undisturbed(storms []storm, events []event) []storm {
	return slices.DeleteFunc(slices.Clone(storms), func(s storm) bool {
		return slices.ContainsFunc(events, func(e event) bool {
			return e.fault.kind == unasked && e.start < s.end && s.heal < e.end
		})
	})
}

// err tells of faults that could not be made.
func (n *nemesis) err() error {
	var failed []error
	for _, e := range n.events {
		if e.err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", e.fault.kind, e.err))
		}
	}
	return errors.Join(failed...)
}
