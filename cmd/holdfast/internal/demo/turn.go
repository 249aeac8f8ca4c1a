package demo

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/show"
)

// turn is one passage of a worker, as it tells it: one JSON object a line on its standard
// output when it asks, when it has the lock, and before it gives it back. A time that has not
// come yet is 0, see clock. The first line of a worker is of no turn: it is ready.
//
// All workers of a demo write to one pipe. A line is shorter than PIPE_BUF, so the
// kernel keeps it in one piece, and the lines of all come in an order that respects
// cause and effect: a worker writes that a turn is done before it sends the release, so
// before anybody tells what follows from it.
type turn struct {
	Worker            int // from 1 on
	Weight, Fence     int64
	Asked, Held, Done int64
	End               end
}

// end is how a turn ended.
type end string

const (
	released end = "released"
	torn     end = "torn"   // the same, but the counter changed while it had the lock for reading
	lost     end = "lost"   // it found its lease lost, and did not write
	doomed   end = "doomed" // not yet: it has the lock, and waits to be killed
	gone     end = "gone"   // the process has ended; told by the parent
)

// finished tells whether the turn had the lock all along.
func (t turn) finished() bool { return t.End == released || t.End == torn }

type state int

const (
	idle state = iota
	waits
	holds
	ended // the process is no more
)

// at is what the worker did at a time, and in which turn.
func (m *member) at(at int64) (state, turn) {
	if m.ended != 0 && at >= m.ended {
		return ended, turn{}
	}
	for _, t := range slices.Backward(m.turns) {
		switch {
		case at < t.Asked:
			continue
		case t.Done != 0 && at >= t.Done:
			return idle, turn{}
		case t.Held != 0 && at >= t.Held:
			return holds, t
		}
		return waits, t
	}
	return idle, turn{}
}

// hear takes note of what a worker has told.
func (d *demo) hear(t turn) {
	m := d.crew[t.Worker-1]
	last := len(m.turns) - 1
	switch {
	case t.End == gone && !d.ending:
		m.ended = t.Done
	case t.End == gone:
		if last >= 0 && m.turns[last].Held == 0 {
			m.turns = m.turns[:last] // it asked no longer
		}
	case t.Asked == 0:
	case last >= 0 && m.turns[last].Asked == t.Asked:
		m.turns[last] = t
	default:
		m.turns = append(m.turns, t)
	}
	if t.End == doomed {
		d.victim = t.Worker
	}
	if t.Held != 0 && t.Done == 0 {
		d.bury(t.Held)
		if room := d.room(t); room != 0 {
			d.handovers = append(d.handovers, time.Duration(t.Held-room))
		}
	}
}

// bury ends the turns of processes that are no more, if there would be too many otherwise:
// others have what they had.
func (d *demo) bury(now int64) {
	tooMany := d.used(now+1) > d.limit
	for _, m := range d.crew {
		if n := len(m.turns); tooMany && m.ended != 0 && n > 0 {
			if t := &m.turns[n-1]; t.Held != 0 && t.Done == 0 {
				t.Done, t.End = now, gone
			}
		}
	}
}

// room is when the last turn gave back what t waited for. It is 0 if there was room from the
// start, or if the lock came free when a lease ran out.
func (d *demo) room(t turn) int64 {
	last := turn{Done: t.Asked}
	for _, m := range d.crew {
		for _, u := range slices.Backward(m.turns) {
			if u.Done != 0 && u.Done <= last.Done {
				break
			}
			if u.Done != 0 && u.Done <= t.Held && d.used(u.Done)+t.Weight > d.limit {
				last = u
			}
		}
	}
	if !last.finished() {
		return 0
	}
	return last.Done
}

// used is the weight of all turns that had the lock just before a time. Those of the dead have it
// until they are buried.
func (d *demo) used(at int64) (weight int64) {
	for _, m := range d.crew {
		for _, t := range slices.Backward(m.turns) {
			if t.Done != 0 && t.Done < at {
				break
			}
			if t.Held != 0 && t.Held < at {
				weight += t.Weight
			}
		}
	}
	return weight
}

// tally is what the turns of all workers come to.
type tally struct {
	finished            []turn // by their beginnings
	lost, written, open int    // open is turns that may have written: their process ended meanwhile
}

func (d *demo) tally() (a tally) {
	for _, m := range d.crew {
		for _, t := range m.turns {
			writes := t.Held != 0 && d.kind.role(t.Weight).writes
			switch {
			case t.finished():
				a.finished = append(a.finished, t)
				if writes {
					a.written++
				}
			case t.End == lost:
				a.lost++
			case writes:
				a.open++
			}
		}
	}
	slices.SortFunc(a.finished, func(a, b turn) int { return cmp.Compare(a.Held, b.Held) })
	return a
}

// wrong is how many increments the counter misses, or has too many.
func (a tally) wrong(counter int) int { return max(a.written-counter, counter-a.written-a.open, 0) }

// verdict counts violations, each found out from what lies outside the lock library: a clock, a
// file, and the order of numbers.
type verdict [4]int

const (
	excess = iota // turns that began while others had too many permits
	fences        // turns whose fence was not larger than those of all before them
	reads         // turns during which the counter changed, though they did not write
	counts        // increments of the counter that are missing, or too many
)

func (v verdict) sum() int { return v[excess] + v[fences] + v[reads] + v[counts] }

func (v verdict) String() string { return show.Plural(v.sum(), "violation", "violations") }

// found says what was found.
func (v verdict) found(k *kind) string {
	var found []string
	for i, words := range [][2]string{k.excess, {"fence does not increase", "fences do not increase"}, {"read saw a change", "reads saw a change"}, {"count is wrong", "counts are wrong"}} {
		if v[i] > 0 {
			found = append(found, show.Plural(v[i], words[0], words[1]))
		}
	}
	return strings.Join(found, ", ")
}

// inspect looks at finished turns on a lock of so many permits, in the order of their beginnings.
// A process that was paused for longer than its lease may find itself inside the turn of another.
// It must see so before it writes, and its turn is lost. If it does not, the counter tells.
//
// The times of a turn lie within the time that it had the lock: it begins after the grant
// and ends before the release. So turns that overlap really overlapped.
//
// The order of beginnings is that of grants only for turns that exclude each other: two readers
// may hear of their grants in either order. The order of two readers is known only if one had
// the lock before the other asked for it.
func inspect(turns []turn, limit int64) (v verdict) {
	seen, byWeight := map[int64]bool{}, map[int64]int64{} // the largest fence so far of each weight
	largest := make([]int64, len(turns)+1)                // of the fences before each turn
	var present []turn
	for i, t := range turns {
		present = append(slices.DeleteFunc(present, func(p turn) bool { return p.Done <= t.Held }), t)
		var used int64
		for _, p := range present {
			used += p.Weight
		}
		if used > limit {
			v[excess]++
		}
		before, _ := slices.BinarySearchFunc(turns, t.Asked, func(u turn, at int64) int { return cmp.Compare(u.Held, at) })
		floor := largest[before]
		for weight, fence := range byWeight {
			if weight+t.Weight > limit {
				floor = max(floor, fence)
			}
		}
		if t.Fence <= floor || seen[t.Fence] {
			v[fences]++
		}
		if t.End == torn {
			v[reads]++
		}
		seen[t.Fence], byWeight[t.Weight] = true, max(byWeight[t.Weight], t.Fence)
		largest[i+1] = max(largest[i], t.Fence)
	}
	return v
}
