package model_test

import (
	"fmt"
	"hash/maphash"
	"strings"
)

// step is how a state was first reached: from which state, and by which of its moves.
type step struct {
	from uint32
	move uint16
}

// result is what a search has found.
type result struct {
	states int
	depth  int    // moves after which all states are known
	all    bool   // there are no more
	wrong  string // "" if nothing is
	trace  string // the shortest way there
}

// search looks at the states of a world in the order of their distance from the start, at most
// so many. It keeps of each only a hash of 128 bits and how it was reached, and the whole state
// only until it has been looked at.
func (w *world) search(most int) result {
	seeds := [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}
	seen := map[[2]uint64]struct{}{}
	start := w.start()
	steps := []step{{}}
	level := []state{start}
	first := uint32(0) // of the level
	depth := 0
	for ; len(level) > 0; depth++ {
		var next []state
		for i := range level {
			var found *result
			n := uint16(0)
			w.next(&level[i], func(m move, to *state) {
				n++
				if found != nil {
					return
				}
				id := [2]uint64{maphash.Comparable(seeds[0], *to), maphash.Comparable(seeds[1], *to)}
				if _, ok := seen[id]; ok && w.wrong == "" {
					return
				}
				seen[id] = struct{}{}
				steps = append(steps, step{first + uint32(i), n - 1})
				next = append(next, *to)
				if w.wrong == "" {
					w.wrong = w.check(to)
				}
				if w.wrong != "" {
					found = &result{states: len(steps), depth: depth + 1, wrong: w.wrong}
				}
			})
			if found != nil {
				found.trace = w.trace(steps, uint32(len(steps)-1))
				return *found
			}
			if len(steps) >= most {
				return result{states: len(steps), depth: depth}
			}
		}
		first += uint32(len(level))
		level = next
	}
	return result{states: len(steps), depth: depth, all: true}
}

// trace tells how a state was reached.
func (w *world) trace(steps []step, last uint32) string {
	var moves []uint16
	for at := last; at > 0; at = steps[at].from {
		moves = append(moves, steps[at].move)
	}
	var b strings.Builder
	s := w.start()
	for i := len(moves) - 1; i >= 0; i-- {
		n, before := uint16(0), s
		w.wrong = ""
		w.next(&before, func(m move, to *state) {
			if n == moves[i] {
				fmt.Fprintf(&b, "%3d. %s\n", len(moves)-i, m)
				if to.record != before.record || w.wrong != "" {
					fmt.Fprintf(&b, "       before  %v\n       after   %v\n", w.records[before.record], w.records[to.record])
				}
				s = *to
			}
			n++
			w.wrong = ""
		})
	}
	return b.String()
}
