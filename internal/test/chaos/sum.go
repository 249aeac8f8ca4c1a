package main

import (
	"cmp"
	"maps"
	"math/bits"
	"slices"
	"time"
)

// sum is what one slice found, in one world or several side by side, or several slices. It is
// what is kept of a slice.
type sum struct {
	Topology string
	Commit   string // of the program
	Hash     string // of what matters, see matter
	Date     string
	Seed     uint64

	Worlds, Workers, Actors int
	Slices                  int
	Took                    time.Duration // one slice after the other
	CPU                     time.Duration // of all processes, servers and judges too

	Load     float64 // grants/s before the first fault, the least of all worlds
	Patience time.Duration
	Recovery time.Duration  // the longest
	Counts   map[string]int // see outcome.counts
	Heard    []int          // how many victims believed for less than 1 µs, 2 µs, 4 µs, … after the theft, in a calm
	Yields   []int          // the same of holders that heard of a waiter
	Faults   map[string]tale

	Broken []string // promises that were, with examples
	Void   []string // why it says nothing
}

// tale is the faults of one kind.
type tale struct {
	Set        set
	Made, Felt int
	Total      time.Duration
}

// sum returns what the outcome adds to a sum.
func (o *outcome) sum() *sum {
	s := &sum{
		Topology: o.plan.topology, Seed: o.plan.seed, Worlds: 1, Workers: o.plan.workers, Actors: o.plan.actors, Slices: 1,
		Took: o.took, Load: o.load, Patience: o.patience, Recovery: o.recovery, Counts: o.counts(), Faults: map[string]tale{},
		Heard: histogram(o.heard), Yields: histogram(o.yields), Broken: o.broken(), Void: slices.Clone(o.void),
	}
	if o.errs != nil {
		s.Void = append(s.Void, "rig: "+o.errs.Error())
	}
	for _, e := range o.events {
		t := s.Faults[e.fault.kind]
		t.Set = e.fault.set
		t.Made++
		t.Total += time.Duration(e.end - e.start)
		if e.felt {
			t.Felt++
		}
		s.Faults[e.fault.kind] = t
	}
	return s
}

// beside adds another world of the same slice.
func (s *sum) beside(other *sum) {
	took, worlds := max(s.Took, other.Took), s.Worlds+other.Worlds
	s.add(other)
	s.Took, s.Worlds, s.Slices = took, worlds, 1
}

// add adds a slice that came afterwards, or before.
func (s *sum) add(other *sum) {
	s.Slices += other.Slices
	s.Took += other.Took
	s.CPU += other.CPU
	s.Load = min(s.Load, other.Load)
	s.Recovery = max(s.Recovery, other.Recovery)
	s.Worlds, s.Workers, s.Actors = max(s.Worlds, other.Worlds), max(s.Workers, other.Workers), max(s.Actors, other.Actors)
	for what, n := range other.Counts {
		s.Counts[what] += n
	}
	s.Heard, s.Yields = both(s.Heard, other.Heard), both(s.Yields, other.Yields)
	for kind, t := range other.Faults {
		before := s.Faults[kind]
		s.Faults[kind] = tale{Set: t.Set, Made: before.Made + t.Made, Felt: before.Felt + t.Felt, Total: before.Total + t.Total}
	}
	s.Broken = append(s.Broken, other.Broken...)
	s.Void = append(s.Void, other.Void...)
}

// kinds are those of the faults, the safe ones first.
func (s *sum) kinds() []string {
	return slices.SortedFunc(maps.Keys(s.Faults), func(a, b string) int {
		return cmp.Or(-cmp.Compare(s.Faults[a].Set, s.Faults[b].Set), cmp.Compare(a, b))
	})
}

// both adds up two histograms.
func both(a, b []int) []int {
	a = append(slices.Clone(a), make([]int, max(0, len(b)-len(a)))...)
	for i, n := range b {
		a[i] += n
	}
	return a
}

func histogram(all []time.Duration) (h []int) {
	for _, d := range all {
		i := bits.Len64(uint64(d.Microseconds()))
		h = append(h, make([]int, max(0, i+1-len(h)))...)
		h[i]++
	}
	return h
}

// within returns a time that a share of a histogram does not reach.
func within(h []int, share float64) time.Duration {
	total, seen := 0, 0
	for _, n := range h {
		total += n
	}
	for i, n := range h {
		if seen += n; float64(seen) >= share*float64(total) {
			return time.Microsecond << i
		}
	}
	return 0
}
