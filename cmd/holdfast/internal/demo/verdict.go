package demo

import (
	"cmp"
	"slices"
)

// verdict is what was found wrong. The parent finds all of it out from what lies outside
// the lock library: a clock, a file, and the order of numbers.
type verdict struct {
	overlaps int // turns that began while others had too many permits
	fences   int // turns whose fence was not larger than that of all before them
	torn     int // readers that saw the counter change
	counts   int // increments of the counter that are missing, or too many
}

func (v verdict) violations() int { return v.overlaps + v.fences + v.torn + v.counts }

// inspect looks at turns on a lock of so many permits, see kind.
//
// Lost turns are not among them. A process that was paused for longer than its lease may
// find itself inside the turn of another. It must see so before it writes. If it does not,
// the counter tells.
//
// The times of a turn lie within the time that it had the lock: it begins after the grant
// and ends before the release. So turns that overlap really overlapped.
func inspect(turns []turn, limit int64) verdict {
	turns = slices.Clone(turns)
	slices.SortFunc(turns, func(a, b turn) int { return cmp.Compare(a.acquired, b.acquired) })
	v := verdict{fences: disorder(turns, limit)}
	together(turns, func(present []turn) {
		var used int64
		for _, t := range present {
			used += t.weight
		}
		if used > limit {
			v.overlaps++
		}
	})
	for _, t := range turns {
		if t.end == torn {
			v.torn++
		}
	}
	return v
}

// together calls f at the beginning of each turn, with all turns that are under way,
// including that one. The turns are in the order of their beginnings.
func together(turns []turn, f func(present []turn)) {
	var present []turn
	for _, t := range turns {
		present = slices.DeleteFunc(present, func(p turn) bool { return p.released <= t.acquired })
		present = append(present, t)
		f(present)
	}
}

// disorder counts fences that are not larger than those of all earlier grants. The turns
// are in the order of their beginnings. That is the order of their grants only for turns
// that exclude each other: two readers may hear of their grants in either order. The order
// of two readers is known only if one had the lock before the other asked for it.
func disorder(turns []turn, limit int64) (n int) {
	seen := map[int64]bool{}
	byWeight := map[int64]int64{}        // the largest fence so far of each weight
	largest := make([]int64, len(turns)) // of the fences up to and with each turn
	for i, t := range turns {
		before, _ := slices.BinarySearchFunc(turns, t.requested, func(u turn, at int64) int { return cmp.Compare(u.acquired, at) })
		var floor int64
		if before > 0 {
			floor = largest[before-1]
		}
		for weight, fence := range byWeight {
			if weight+t.weight > limit {
				floor = max(floor, fence)
			}
		}
		if t.fence != 0 && (t.fence <= floor || seen[t.fence]) { // 0 is no lock
			n++
		}
		seen[t.fence] = true
		byWeight[t.weight] = max(byWeight[t.weight], t.fence)
		largest[i] = max(t.fence, largest[max(i-1, 0)])
	}
	return n
}

// miscounts compares the counter with the number of finished turns that write. Each of them
// wrote once; the open turns may have.
func miscounts(counter, finished, open int) int {
	switch {
	case counter < finished:
		return finished - counter
	case counter > finished+open:
		return counter - finished - open
	}
	return 0
}
