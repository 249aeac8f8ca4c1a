package main

import (
	"cmp"
	"slices"
	"strings"
)

// judgeOrder looks for grants that overtook a waiter which the store had queued before they
// were asked for, in the calm after a storm. Fences tell the order of the grants. Thieves do not wait.
//
// A waiter that may have been away counts as one that comes when it is back.
func (f *findings) judgeOrder(all []*op, q queues, calms [][2]int64) {
	for _, c := range calms {
		within := slices.DeleteFunc(slices.Clone(all), func(o *op) bool {
			return !o.granted() || !strings.Contains(o.lock, string(fifo)) || o.invoked < c[0] || o.returned > c[1]
		})
		for _, ops := range byLock(within) {
			waited := slices.DeleteFunc(slices.Clone(ops), func(o *op) bool { return q.since(o) == 0 })
			f.queued += len(waited)
			for _, o := range ops {
				if i := slices.IndexFunc(waited, func(w *op) bool { return q.overtaken(w, o) }); i >= 0 {
					f.overtaken++
					f.example("overtaken", "%v, queued at %d, by %v", waited[i], q.since(waited[i]), o)
				}
			}
		}
	}
}

// queues is what the workers were told of their places in queues.
type queues struct {
	asks map[uint64][]span // of each token, those that were answered "it waits"
	ears map[int][]int64   // when the subscription of an incarnation ended
}

// span is when something began and when it was over.
type span struct{ from, to int64 }

func newQueues() queues { return queues{map[uint64][]span{}, map[int][]int64{}} }

// since returns when the store surely had queued what was granted later, or 0.
func (q queues) since(o *op) (at int64) {
	for _, a := range q.asks[o.id] {
		if at == 0 || a.to < at {
			at = a.to
		}
	}
	return at
}

// overtaken says that o should have come after w.
func (q queues) overtaken(w, o *op) bool {
	return !o.theft() && q.since(w) < o.invoked && o.fence < w.fence && !q.away(w, min(w.returned, o.returned))
}

// away says that the store may have dropped a waiter before a moment. Both are promised: it drops
// one that has not asked for 2/3 TTL, and one whose client was heard and is not any more (rules 2
// and 7). On a busy machine an ask can take as long. A subscription that a fault has made dumb is
// given up in the calm, as a ping has 2.5 s. Who is dropped comes back to its place.
//
// An ask that was answered says that the waiter is there from the answer on, and for 2/3 TTL after
// the ask was sent. The time up to the moment must be covered with that.
func (q queues) away(w *op, before int64) bool {
	const patience = int64(ttl * 2 / 3)
	at := q.since(w)
	from := at
	asks := slices.Clone(q.asks[w.id])
	slices.SortFunc(asks, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	for _, a := range asks {
		if a.to <= at {
			at = max(at, a.from+patience)
		}
	}
	return at < before || slices.ContainsFunc(q.ears[w.incarnation], func(end int64) bool {
		return from-int64(ttl) < end && end < before+int64(ttl) // the two ends of it do not know at once
	})
}
