package main

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// What options and Wanted promise, in a calm: nothing is cut then, and nobody is suspended.
//
//	yielding   a holder hears that another process waits
//	ticking    WithMinHold: the next grant is not too early
//	crowded    WithMaxWaiters: no more wait
//	long       WithMaxHold, of a mutex: nobody holds for longer
const (
	minHold    = 200 * time.Millisecond
	maxHold    = 2 * ttl
	maxWaiters = 3

	// hearing is how long a holder may not know that somebody waits: until the next renewal, and
	// what a busy machine takes. Nor may it notice later that it has held for too long.
	hearing = ttl
)

// calmly says which holds were within a calm. A holder may have asked before.
type calmly func(*op) bool

// judgeBounds judges each kind of slot by its own rule.
func (f *findings) judgeBounds(all []*op, q queues, calms [][2]int64) {
	calm := func(o *op) bool {
		return slices.ContainsFunc(calms, func(c [2]int64) bool { return c[0] <= o.returned && o.over() <= c[1] })
	}
	granted := slices.DeleteFunc(slices.Clone(all), func(o *op) bool { return !o.granted() })
	for lock, ops := range byLock(granted) {
		slices.SortFunc(ops, func(a, b *op) int { return cmp.Compare(a.fence, b.fence) })
		switch {
		case strings.Contains(lock, string(yielding)):
			f.judgeYielding(ops, q, calm)
		case strings.Contains(lock, string(ticking)):
			f.judgeTicks(ops, calm)
		case strings.Contains(lock, string(crowded)):
			f.judgeCrowd(ops, q, calm)
		case strings.HasPrefix(lock, nameBegin(longMutex)):
			f.judgeLength(ops, calm)
		}
	}
}

// judgeYielding looks for holders that were not told of a waiter of another process, which was in
// the queue before they gave the lock back.
func (f *findings) judgeYielding(ops []*op, q queues, calm calmly) {
	for i, o := range ops {
		if !calm(o) {
			continue
		}
		var since int64 // a waiter has been there
		for _, w := range ops[i+1:] {
			at := max(q.since(w), o.returned)
			if q.since(w) != 0 && w.id != o.id && w.incarnation != o.incarnation && (since == 0 || at < since) {
				since = at
			}
		}
		heard := cmp.Or(o.heard, o.gives)
		switch {
		case since == 0 || heard < since:
		case heard > since+int64(hearing):
			f.unheard++
			f.example("unheard", "%v, another waits since %d", o, since)
		case o.heard != 0:
			f.yields = append(f.yields, time.Duration(heard-since))
		}
	}
}

func (f *findings) judgeTicks(ops []*op, calm calmly) {
	for i, o := range ops[:max(0, len(ops)-1)] {
		next := ops[i+1]
		if !calm(o) || !calm(next) {
			continue
		}
		f.ticks++
		if o.released == "ok" && next.returned < o.invoked+int64(minHold) {
			f.early++
			f.example("too early", "%v after %v", next, o)
		}
	}
}

// judgeCrowd counts who surely waits while a holder does not give the lock back yet. One that was
// away comes back, although others have been let in.
func (f *findings) judgeCrowd(ops []*op, q queues, calm calmly) {
	for i, o := range ops {
		if !calm(o) {
			continue
		}
		n := 0
		for _, w := range ops[i+1:] {
			if at := q.since(w); at != 0 && at < o.believed && !q.away(w, o.believed) {
				n++
			}
		}
		f.fullest = max(f.fullest, n)
		if n > maxWaiters {
			f.crowds++
			f.example("crowd", "%d wait for %v", n, o)
		}
	}
}

func (f *findings) judgeLength(ops []*op, calm calmly) {
	for _, o := range ops {
		if o.cause == overdue {
			f.ended++
		}
		if calm(o) && o.believed > o.returned+int64(maxHold+hearing) {
			f.hung++
			f.example("held too long", "%v", o)
		}
	}
}
