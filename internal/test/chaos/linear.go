package main

import (
	"cmp"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/holdfast-go/holdfast/driver"
)

// A lock as a machine that does one thing at a time: it grants, and a hold ends. Porcupine
// looks for an order of these in which each takes place between its call and its return.
//
// An event at an unknown time is put where it allows most. A grant that nobody heard of is left out,
// for without it more is legal. A hold that was lost, or whose holder was killed, ends at
// the last moment at which the holder believed. So a history has no open ends, which would
// each double the search.
//
// Fences say in which order the grants took place, so there is little to search. Readers may
// be granted in any order between two writers.

// step is an input of the machine.
type step struct {
	o      *op
	grants bool // or ends
	rank   int  // of a grant: how many grants are before it, as far as there is an order
}

// held is the state of the machine.
type held struct {
	used    int64
	floor   int64 // fence of the last theft, which has ended all holds before it
	granted int   // how many grants were made: all of them, or of writers
	readers int   // since the last writer, where readers have no order
}

func model(ordered bool) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return held{} },
		Step: func(state, input, _ any) (bool, any) {
			h, s := state.(held), input.(step)
			weight, limit := s.o.room()
			switch {
			case !s.grants && s.o.theft() && s.o.fence > h.floor:
				return false, h // before it began
			case !s.grants && s.o.fence < h.floor:
				return true, h // a theft was first
			case !s.grants:
				h.used -= weight
				return h.used >= 0, h
			case s.o.theft():
				h.used, h.floor = 0, s.o.fence
			}
			h.used += weight
			if h.used > limit {
				return false, h
			}
			if ordered || !s.o.shared() {
				if s.rank != h.granted+h.readers {
					return false, h
				}
				h.granted += h.readers + 1
				h.readers = 0
				return true, h
			}
			if s.rank != h.granted {
				return false, h
			}
			h.readers++
			return true, h
		},
	}
}

// searchTime bounds the search of one history.
const searchTime = 20 * time.Second

// judgeHistory asks porcupine for each lock that was not in use while the store may have
// forgotten something. The end of one hold can be taken for that of another only if ended
// comes before granted, which an order of calls excludes.
func (f *findings) judgeHistory(all []*op, ordered bool, unsafe windows) {
	for lock, ops := range byLock(all) {
		var from, to int64
		for _, o := range ops {
			if from == 0 || o.invoked < from {
				from = o.invoked
			}
			to = max(to, o.invoked, o.returned, o.believed, o.gave)
		}
		if unsafe.touch(from, to) {
			continue
		}
		if len(theftsOf(ops).unclear) > 0 {
			f.unclear++
			continue
		}
		switch porcupine.CheckOperationsTimeout(model(ordered || ops[0].kind == driver.Mutex), calls(ops, ordered), searchTime) {
		case porcupine.Illegal:
			f.illegal++
			f.example("no lock could have that history", "%s", lock)
		case porcupine.Unknown:
			f.illegal++
			f.example("porcupine does not know", "after %v: %s", searchTime, lock)
		default:
			f.linear++
		}
	}
}

func calls(ops []*op, ordered bool) (h []porcupine.Operation) {
	ops = slices.DeleteFunc(slices.Clone(ops), func(o *op) bool { return !o.granted() || o.believed < o.returned && !o.theft() })
	slices.SortFunc(ops, func(a, b *op) int { return cmp.Compare(a.fence, b.fence) })
	ops = slices.DeleteFunc(ops, passedOn(ops))
	sinceWriter := 0
	for i, o := range ops {
		s := step{o: o, grants: true, rank: i}
		if !ordered && o.shared() {
			s.rank -= sinceWriter
			sinceWriter++
		} else {
			sinceWriter = 0
		}
		h = append(h, porcupine.Operation{ClientId: 2 * i, Input: s, Call: o.invoked, Return: o.returned})
		end := porcupine.Operation{ClientId: 2*i + 1, Input: step{o: o}, Call: o.believed, Return: o.believed}
		switch {
		case o.released == "ok":
			end.Call, end.Return = o.gives, o.gave
		case o.believed < o.returned: // a thief that never believed
			end.Call, end.Return = o.invoked, o.returned
		}
		h = append(h, end)
	}
	return h
}

// passedOn says of which grants nobody knows whether they came before or after a theft: a process
// passes on a lease that it does not know to be stolen.
func passedOn(byFence []*op) func(*op) bool {
	first := map[uint64]*op{}
	for _, o := range byFence {
		if first[o.id] == nil {
			first[o.id] = o
		}
	}
	return func(o *op) bool { return first[o.id] != o && o.robbed != 0 && o.robbed < o.returned }
}
