package main

import (
	"cmp"
	"slices"
)

// verdict is what was found wrong. All of it is found out by the parent from what
// lies outside the lock library: a clock, a file, and the order of numbers.
type verdict struct {
	overlaps int // turns that began before an earlier one had ended
	fences   int // turns whose fence was not larger than that of all before them
	counts   int // increments of the counter that are missing, or too many
}

func (v verdict) violations() int { return v.overlaps + v.fences + v.counts }

// inspect looks for overlaps in time and for fences that do not increase.
//
// Lost turns are not among the turns: a process that was paused for longer than its
// lease may well find itself inside somebody else's turn. What matters is that it
// sees so before it writes, and if it does not, the counter tells.
func inspect(turns []turn) verdict {
	turns = slices.Clone(turns)
	slices.SortFunc(turns, func(a, b turn) int { return cmp.Compare(a.acquired, b.acquired) })
	var v verdict
	var end, fence int64
	for _, t := range turns {
		if t.acquired < end {
			v.overlaps++
		}
		end = max(end, t.released)
		if t.fence == 0 {
			continue // there was no lock
		}
		if t.fence <= fence {
			v.fences++
		}
		fence = max(fence, t.fence)
	}
	return v
}

// miscounts compares the counter with the number of finished turns. Each of those
// wrote once; the open ones may have.
func miscounts(counter, finished, open int) int {
	switch {
	case counter < finished:
		return finished - counter
	case counter > finished+open:
		return counter - finished - open
	}
	return 0
}
