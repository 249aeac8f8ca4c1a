package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
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
	doubles        int // fences that were given twice
	illegal        int // histories of a lock that no lock could have, by porcupine
	linear         int // histories that one could
	stuck          int // waits that did not end in time after all faults
	overtaken      int // waiters that a later one overtook while there were no faults
	queued         int // waits of which that is known
	recovery       time.Duration
	examples       map[string][]string
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

func byLock(all []*op) map[string][]*op {
	locks := map[string][]*op{}
	for _, o := range all {
		locks[o.lock] = append(locks[o.lock], o)
	}
	return locks
}

// judgeBelief looks for moments at which more than one believed. A holder believes from the
// moment at which it heard of the grant to the last one before which it looked and was
// right: the time was taken before the look.
func (f *findings) judgeBelief(all []*op, unsafe windows) {
	for _, ops := range byLock(all) {
		held := slices.DeleteFunc(slices.Clone(ops), func(o *op) bool { return !o.granted() || o.believed <= o.returned })
		slices.SortFunc(held, func(a, b *op) int { return cmp.Compare(a.returned, b.returned) })
		var present []*op
		for _, o := range held {
			present = slices.DeleteFunc(present, func(p *op) bool { return p.believed <= o.returned })
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
// the process does not know yet. So it counts when the store was asked for the lease.
func (f *findings) judgeFences(all []*op, sentAt map[uint64]int64, ordered bool, unsafe windows) {
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
			case sentAt[o.id] != 0 && sentAt[o.id] < before.returned && o.id != before.id && unsafe.touch(before.invoked, o.returned):
				f.lateHandOvers++
			default:
				f.inversions++
				f.example("fences", "%v after %v", o, before)
			}
		}
	}
}

// judgeProgress looks for waits that began before the faults were over, or in the calm, and
// did not end within patience.
func (f *findings) judgeProgress(all []*op, storms []storm, patience time.Duration, killed map[int]int64) {
	for _, s := range storms {
		for _, o := range all {
			from := max(o.invoked, s.heal)
			bound := from + int64(patience)
			at, dead := killed[o.incarnation]
			switch {
			case dead && at < s.end && o.returned == 0, bound > s.end, o.returned != 0 && o.returned < s.heal:
				continue
			case o.returned == 0 || o.returned > bound:
				f.stuck++
				f.example("stuck", "%v, all well since %d", o, s.heal)
			case o.invoked <= s.heal:
				f.recovery = max(f.recovery, time.Duration(o.returned-s.heal))
			}
		}
	}
}

// judgeOrder looks for grants that overtook a waiter which the store had queued before they
// were asked for, in the calm after a storm. Fences tell the order of the grants.
func (f *findings) judgeOrder(all []*op, queuedAt map[uint64]int64, calms [][2]int64) {
	for _, c := range calms {
		within := slices.DeleteFunc(slices.Clone(all), func(o *op) bool {
			return !o.granted() || !strings.Contains(o.lock, string(fifo)) || o.invoked < c[0] || o.returned > c[1]
		})
		for _, ops := range byLock(within) {
			waited := slices.DeleteFunc(slices.Clone(ops), func(o *op) bool { return queuedAt[o.id] == 0 })
			f.queued += len(waited)
			slices.SortFunc(waited, func(a, b *op) int { return cmp.Compare(queuedAt[a.id], queuedAt[b.id]) })
			slices.SortFunc(ops, func(a, b *op) int { return cmp.Compare(a.invoked, b.invoked) })
			var latest *op // of those that were queued so far, the one that was served last
			for _, o := range ops {
				for len(waited) > 0 && queuedAt[waited[0].id] < o.invoked {
					if latest == nil || waited[0].fence > latest.fence {
						latest = waited[0]
					}
					waited = waited[1:]
				}
				if latest != nil && o.fence < latest.fence {
					f.overtaken++
					f.example("overtaken", "%v, queued at %d, by %v", latest, queuedAt[latest.id], o)
				}
			}
		}
	}
}
