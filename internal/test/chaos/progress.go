package main

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// judgeProgress looks for waits that began before the faults were over, or in the calm, and that
// are still there after patience without a reason. Good reasons are
//
//	holders    some hold a lock that is waited for during 3 TTL, and all must have their time
//	the queue  on a busy machine each hand-over takes some hundred ms, and many wait
//	thieves    they come before all who wait
//
// All these move the lock. So a wait is stuck if its lock stands still for so long: nobody holds
// it, and nobody is granted it. It is also stuck if it goes on for so long after somebody was
// served that came later, thieves apart: then the store, or the process, has forgotten it.
//
// Of a store without an order of waiters, a wait is stuck if it lasts for longer than patience.
func (f *findings) judgeProgress(all []*op, ordered bool, storms []storm, patience time.Duration, killed map[int]int64) {
	locks := byLock(all)
	for _, s := range storms {
		for _, o := range all {
			from := max(o.invoked, s.heal)
			bound := from + int64(patience)
			at, dead := killed[o.incarnation]
			switch {
			case dead && at < s.end && o.returned == 0, bound > s.end, o.returned != 0 && o.returned < s.heal:
				continue
			case o.returned != 0 && o.returned <= bound:
				if o.invoked <= s.heal {
					f.recovery = max(f.recovery, time.Duration(o.returned-s.heal))
				}
				continue
			}
			until := s.end
			if o.returned != 0 {
				until = min(until, o.returned)
			}
			others := locks[o.lock]
			if !ordered || max(still(others, from, until), until-passed(others, from)) >= int64(patience) {
				f.stuck++
				f.example("stuck", "%v, all well since %d", o, s.heal)
			}
		}
	}
}

// still returns the longest time in which nobody held a lock, or was granted it.
func still(ops []*op, from, until int64) (longest int64) {
	ops = slices.DeleteFunc(slices.Clone(ops), func(o *op) bool { return !o.granted() })
	slices.SortFunc(ops, func(a, b *op) int { return cmp.Compare(a.returned, b.returned) })
	for _, o := range ops {
		if end := max(o.returned, o.believed); end > from {
			longest = max(longest, min(o.returned, until)-from)
			from = end
		}
	}
	return max(longest, until-from)
}

// passed returns when the first was served that has asked after a moment.
func passed(ops []*op, after int64) int64 {
	first := int64(math.MaxInt64)
	for _, o := range ops {
		if o.granted() && !o.theft() && o.invoked > after {
			first = min(first, o.returned)
		}
	}
	return first
}

// awake has each storm end when no process was held up any more. That is what SIGSTOP does, too:
// a machine that is busy does it without being asked.
func awake(storms []storm, troubles []record) []storm {
	storms = slices.Clone(storms)
	for i := range storms {
		s := &storms[i]
		for _, r := range troubles {
			if r.class == suspended && s.heal < r.at && r.at <= s.end {
				s.heal = r.at
			}
		}
	}
	return storms
}
