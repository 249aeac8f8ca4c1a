// Package tag is what a holder says of itself, see driver.Lease.HolderTag: a tag of the user's, and
// notes about what it waits for.
//
//	tag~~note~~note
//
// A driver takes an empty tag for the one before. So a holder that has nothing to note any more
// says the tag and an empty note.
package tag

import (
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
)

const mark = "~~"

// With returns a tag with the notes that there is room for. If that is not all, it begins at any of
// them, so that each is seen sooner or later.
func With(tag string, notes ...string) string {
	if said, all := with(tag, notes); all || len(notes) == 0 {
		return said
	}
	first := rand.IntN(len(notes))
	said, _ := with(tag, slices.Concat(notes[first:], notes[:first]))
	return said
}

func with(tag string, notes []string) (said string, all bool) {
	said, all = tag+mark, true
	sep := ""
	for _, n := range notes {
		if len(said)+len(sep)+len(n) > driver.MaxHolderTag {
			all = false
			continue
		}
		said += sep + n
		sep = mark
	}
	return said, all
}

// Own returns a tag without notes.
func Own(said string) string {
	own, _, _ := strings.Cut(said, mark)
	return own
}

// Notes returns the notes of a tag.
func Notes(said string) []string {
	_, notes, _ := strings.Cut(said, mark)
	if notes == "" {
		return nil
	}
	return strings.Split(notes, mark)
}
