package deadlock

import (
	"slices"

	"github.com/holdfast-go/holdfast/driver"
)

// walk finds a circle by looking again and again. It belongs to one wait. Its view of another:
//
//	       a reading         the next one           its note was told twice more
//	nothing --------> seen -----------------> counted ----------------------------> proven
//
// Waits in a circle that are all proven for one moment are a circle.
//
// # Why a circle is one
//
// A note is told by the renewal of what its waiter holds, by a process that waits and holds at that
// moment. It counts how often it was told, and each time waits for the answer of the time before.
// Say that a reading began at T, after an earlier one had seen a wait, and found the count n or a
// later one did. When the count is n + 2 after that, the answer to n + 1 had come, so it was told
// after T, and n + 2 was sent after that. So that wait began before T and went on after T. Where that
// holds for each member and one T, all of them waited and held at T. Such a circle does not open by
// itself.
//
// The wrong version read the circle twice and compared who waits. A note stays in the store until
// its lease ends if its process is killed or cut off, so both readings saw the wait of a process
// that had long given up.
//
// # Why it is found
//
// Counts grow each time that a member looks, however slow that is. Nobody needs to look at a certain
// moment, or at the moment of another. A sighting stays true, whatever readings in
// between show: one may fail, and a lease with which many goroutines wait tells now these notes and
// now those. A lock that cannot be read hides only the circles through it.
//
// The wrong version remembered the circle that it had read last. Of two circles, such as through two
// waits of one lease, each took the place of the other for ever.
type walk struct {
	me      note
	want    Lock
	inspect func(Lock) driver.Info         // without holders if it cannot be read
	mine    func(Lock, driver.Holder) bool // whether I have that hold
	reading int                            // how many there were
	view    map[Lock]driver.Info           // what the last one saw
	seen    map[edge]*sightings
}

// step is a holder of something that waits for something.
type step struct {
	on     Lock
	holder driver.Holder
	note   note // of the last step, which is mine, it is me
}

// edge is a wait beside a hold. A wait has one hold of a lock at most.
type edge struct {
	on Lock
	id string
}

func (s *step) edge() edge { return edge{s.on, s.note.id} }

// sightings are those of a wait.
type sightings struct {
	first  int      // the reading that saw it first
	counts [3]count // the last ones that differ, the latest first
}

// count is how often a note had been told, and the last reading that saw it so.
type count struct{ told, reading int }

func (s *sightings) add(c count) {
	if c.told != s.counts[0].told {
		copy(s.counts[1:], s.counts[:])
	}
	s.counts[0] = c
}

// at reports whether the wait is proven for the moment at which a reading began.
func (s *sightings) at(reading int) bool {
	return s.first < reading && slices.ContainsFunc(s.counts[1:], func(c count) bool {
		return c.reading >= reading && s.counts[0].told >= c.told+2
	})
}

// look reads what there is, and returns a circle, from the holder of what I wait for to me, if
// there is one and I am its youngest.
func (w *walk) look() []step {
	w.read()
	c := w.circle(func(*sightings) bool { return true })
	if c == nil {
		return nil
	}
	if slices.ContainsFunc(c[:len(c)-1], func(s step) bool { return w.seen[s.edge()].first == w.reading }) {
		w.read()
	}
	for at := w.reading; at > 1; at-- {
		if c := w.circle(func(s *sightings) bool { return s.at(at) }); c != nil {
			return c
		}
	}
	return nil
}

// way is one that a reading has gone.
type way struct {
	Lock
	shared bool
}

// read follows the notes once.
func (w *walk) read() {
	if w.seen == nil {
		w.seen = map[edge]*sightings{}
	}
	w.reading++
	w.view = map[Lock]driver.Info{}
	w.visit(way{w.want, w.me.shared}, map[way]bool{})
}

func (w *walk) visit(at way, been map[way]bool) {
	if been[at] {
		return
	}
	been[at] = true
	if _, known := w.view[at.Lock]; !known {
		w.view[at.Lock] = w.inspect(at.Lock)
	}
	for _, s := range w.steps(at) {
		e := s.edge()
		if w.seen[e] == nil {
			w.seen[e] = &sightings{first: w.reading}
		}
		w.seen[e].add(count{s.note.told, w.reading})
		w.visit(way{s.note.want, s.note.shared}, been)
	}
}

// steps returns who has to leave before one that waits goes on, and what for they wait, as far as
// these waits are older than mine: else another judges the circle.
func (w *walk) steps(at way) (all []step) {
	info := w.view[at.Lock]
	if !blocks(info, at.shared) {
		return nil
	}
	for _, h := range info.Holders {
		for _, n := range notesOf(h) {
			if !n.younger(&w.me) {
				all = append(all, step{at.Lock, h, n})
			}
		}
	}
	return all
}

// circle returns a circle of such waits that the last reading saw, if there is one.
func (w *walk) circle(such func(*sightings) bool) []step {
	return w.follow(way{w.want, w.me.shared}, such, nil, map[way]bool{})
}

func (w *walk) follow(at way, such func(*sightings) bool, path []step, been map[way]bool) []step {
	if been[at] {
		return nil // a circle of others, or a way that leads nowhere
	}
	been[at] = true
	info := w.view[at.Lock]
	if !blocks(info, at.shared) {
		return nil
	}
	for _, h := range info.Holders {
		if w.mine(at.Lock, h) {
			return append(slices.Clone(path), step{at.Lock, h, w.me})
		}
	}
	for _, s := range w.steps(at) {
		if such(w.seen[s.edge()]) {
			if c := w.follow(way{s.note.want, s.note.shared}, such, append(path, s), been); c != nil {
				return c
			}
		}
	}
	return nil
}

// blocks reports whether a waiter has to wait until the holders have left. A reader does not wait
// for readers, unless a writer waits between them.
func blocks(info driver.Info, shared bool) bool {
	return !shared ||
		slices.ContainsFunc(info.Holders, func(h driver.Holder) bool { return !h.Shared }) ||
		slices.ContainsFunc(info.Queue, func(q driver.Waiter) bool { return !q.Shared })
}
