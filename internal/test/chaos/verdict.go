package main

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// findings are what was found wrong, from outside of the library: by a clock, by numbers
// and their order, and by what a server has.
type findings struct {
	overlaps       int // moments at which more believed than may hold, while all promises hold
	unsafeOverlaps int // while they do not
	inversions     int // fences that are smaller than that of an earlier grant
	lateHandOvers  int // the same within one process that has not heard of its loss, see promise 5
	clockLosses    int // the same over two steps of the clock by an hour, of which the first has lost data
	doubles        int // fences that were given twice
	illegal        int // histories of a lock that no lock could have, by porcupine
	linear         int // histories that one could
	stuck          int // waits that did not end in time after all faults
	overtaken      int // waiters that a later one overtook while there were no faults
	queued         int // waits of which that is known
	recovery       time.Duration

	unheard int             // holders that did not hear that another waits
	yields  []time.Duration // how long after a waiter came its holder heard of it
	ticks   int             // pairs of grants with WithMinHold
	early   int             // of these, those with too little time between them
	fullest int             // how many have waited at a time with WithMaxWaiters
	crowds  int             // moments with too many of them
	ended   int             // leases that WithMaxHold has ended
	hung    int             // leases that it should have

	third     int             // moments with too many that believed, robbed ones not counted, of locks that are stolen
	deaf      int             // victims that believed for too long
	slandered int             // victims that named somebody who was no thief
	steals    int             // thefts that were confirmed
	victims   int             // holders that were surely robbed
	named     int             // of these, those that were told by whom
	heard     []time.Duration // in a calm, how long after the theft its victim still believed
	unclear   int             // histories with a theft of which nobody knows whether it happened
	examples  map[string][]string
}

// example keeps some of what was found, for people.
func (f *findings) example(of, format string, args ...any) {
	if f.examples == nil {
		f.examples = map[string][]string{}
	}
	if len(f.examples[of]) < 4 {
		f.examples[of] = append(f.examples[of], of+": "+fmt.Sprintf(format, args...))
	}
}

// everyone is a weight that leaves no room.
const everyone = 1 << 30

// room returns how much a hold takes, and how much there is.
func (o *op) room() (weight, limit int64) {
	switch {
	case o.kind == driver.Semaphore:
		return o.weight, permits
	case o.kind == driver.RWMutex && o.weight == 0:
		return 1, everyone
	}
	return everyone, everyone
}

// shared says that the hold is not alone.
func (o *op) shared() bool {
	weight, limit := o.room()
	return weight < limit
}

func (o *op) String() string {
	return fmt.Sprintf("%s #%d/%d %s weight %d fence %d id %x: %d..%d believed %d given %d..%d %s/%s", o.lock, o.incarnation,
		o.actor, o.mode, o.weight, o.fence, o.id, o.invoked, o.returned, o.believed, o.gives, o.gave, o.class, o.released)
}

// window is a time in which the store may have forgotten leases.
type windows [][2]int64

// after is how long a fault may matter after it is over: no lease is older.
const after = int64(2 * ttl)

func unsafeWindows(events []event) (w windows) {
	for _, e := range events {
		if e.fault.set != safe {
			w = append(w, [2]int64{e.start, e.end + after})
		}
	}
	return w
}

func (w windows) touch(from, to int64) bool {
	return slices.ContainsFunc(w, func(one [2]int64) bool { return one[0] <= to && from <= one[1] })
}

func (w windows) count(from, to int64) (n int) {
	for _, one := range w {
		if one[0] <= to && from <= one[1] {
			n++
		}
	}
	return n
}

// stepWindows are when the clock was an hour ahead or behind.
func stepWindows(events []event) (w windows) {
	for _, e := range events {
		if e.fault.set == times {
			w = append(w, [2]int64{e.start, e.end})
		}
	}
	return w
}

func byLock(all []*op) map[string][]*op {
	locks := map[string][]*op{}
	for _, o := range all {
		locks[o.lock] = append(locks[o.lock], o)
	}
	return locks
}

// counts is until when the holder counts as one.
func (o *op) counts() int64 {
	if o.robbed != 0 {
		return min(o.believed, o.robbed)
	}
	return o.believed
}

// judgeBelief looks for moments at which more than one believed. A holder believes from the
// moment at which it heard of the grant to the last one before which it looked and was
// right: the time was taken before the look.
func (f *findings) judgeBelief(all []*op, unsafe windows) {
	for _, ops := range byLock(all) {
		held := slices.DeleteFunc(slices.Clone(ops), func(o *op) bool { return !o.granted() || o.counts() <= o.returned })
		slices.SortFunc(held, func(a, b *op) int { return cmp.Compare(a.returned, b.returned) })
		var present []*op
		for _, o := range held {
			present = slices.DeleteFunc(present, func(p *op) bool { return p.counts() <= o.returned })
			used, limit := o.room()
			for _, p := range present {
				weight, _ := p.room()
				used += weight
			}
			present = append(present, o)
			switch {
			case used <= limit:
			case unsafe.touch(o.returned, o.returned):
				f.unsafeOverlaps++
			case slices.ContainsFunc(ops, (*op).theft):
				f.third++
				f.example("third holder", "%v while %v", o, present[:len(present)-1])
			default:
				f.overlaps++
				f.example("overlap", "%v while %v", o, present[:len(present)-1])
			}
		}
	}
}

// judgeFences looks for grants that were asked for after another one had been heard of, and
// have no larger fence. Where readers have no order, only readers and writers are compared.
//
// A process may have been granted a lease before the other grant, and pass it on to a goroutine
// that asked afterwards. That is no fault if the store has forgotten the lease meanwhile, and
// the process does not know yet. So it counts when the store was asked for the lease. It is the
// same if the lease was stolen.
//
// No order is promised over a loss of data while the clock is behind. A step of the clock by an
// hour and back loses keys; if another step follows, fences may be smaller than before the first.
func (f *findings) judgeFences(all []*op, sentAt map[uint64]int64, ordered bool, unsafe, steps windows) {
	for _, ops := range byLock(all) {
		granted := slices.DeleteFunc(slices.Clone(ops), func(o *op) bool { return !o.granted() })
		asked := slices.Clone(granted)
		slices.SortFunc(granted, func(a, b *op) int { return cmp.Compare(a.returned, b.returned) })
		slices.SortFunc(asked, func(a, b *op) int { return cmp.Compare(a.invoked, b.invoked) })
		seen := map[int64]bool{}
		for _, o := range granted {
			if seen[o.fence] {
				f.doubles++
				f.example("fence given twice", "%v", o)
			}
			seen[o.fence] = true
		}
		var largest, largestAlone *op // of those that were heard of so far
		for _, o := range asked {
			for len(granted) > 0 && granted[0].returned < o.invoked {
				g := granted[0]
				granted = granted[1:]
				if largest == nil || g.fence > largest.fence {
					largest = g
				}
				if !g.shared() && (largestAlone == nil || g.fence > largestAlone.fence) {
					largestAlone = g
				}
			}
			before := largest
			if o.shared() && !ordered {
				before = largestAlone
			}
			switch {
			case before == nil || o.fence > before.fence:
			case sentAt[o.id] != 0 && sentAt[o.id] < before.returned && o.id != before.id && (unsafe.touch(before.invoked, o.returned) || o.robbed != 0 && o.robbed < o.returned):
				f.lateHandOvers++
			case steps.count(before.invoked, o.returned) > 1:
				f.clockLosses++
			default:
				f.inversions++
				f.example("fences", "%v after %v", o, before)
			}
		}
	}
}
