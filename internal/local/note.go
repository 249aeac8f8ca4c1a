package local

import (
	"slices"

	"github.com/holdfast-go/holdfast/internal/tag"
)

// Notes are what waiters do while they hold something: wait for something else. Each is told in
// the tag of what is held, to everybody that looks at the lock, see package tag. A note ends with
// its wait and with its hold.

// notes are those of a grant, in the order in which they were begun.
type notes struct{ all []note }

type note struct {
	hold    *Hold
	by      any    // whose it is
	subject string // what it is about
	text    string
}

// Note has renewals tell a text, in place of the last one by the same, and reports whether they
// will: not if the hold has ended, nor of a lease that is not renewed. Of the notes on one subject
// the oldest is told.
func (h *Hold) Note(by any, subject, text string) bool {
	g, l := h.grant, h.grant.lock
	l.mu.Lock()
	defer l.mu.Unlock()
	if h.end != nil || g.opts.Fixed {
		return false
	}
	if g.notes == nil {
		g.notes = &notes{}
	}
	is := func(n note) bool { return n.by == by && n.hold == h }
	if i := slices.IndexFunc(g.notes.all, is); i >= 0 {
		g.notes.all[i].text = text
		return true
	}
	g.notes.drop(h, by)
	g.notes.all = append(g.notes.all, note{h, by, subject, text})
	return true
}

// Unnote has the next renewal, which comes soon, tell the note no more.
func (h *Hold) Unnote(by any) {
	g, l := h.grant, h.grant.lock
	l.mu.Lock()
	defer l.mu.Unlock()
	if g.notes != nil {
		g.notes.drop(h, by)
		l.r.Keeper.Announce(&g.entry)
	}
}

func (n *notes) drop(h *Hold, by any) {
	n.all = slices.DeleteFunc(n.all, func(n note) bool { return n.by == by && n.hold == h || n.hold.end != nil })
}

// withNotes adds the notes of holds that have not ended to a tag. The caller holds Lock.mu.
func (g *Grant) withNotes(said string) string {
	if g.notes == nil {
		return said
	}
	var texts []string
	about := map[string]bool{}
	for _, n := range g.notes.all {
		if n.hold.end == nil && !about[n.subject] {
			about[n.subject] = true
			texts = append(texts, n.text)
		}
	}
	return tag.With(said, texts...)
}
