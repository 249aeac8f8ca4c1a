package deadlock

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/tag"
)

// note is what a holder says of a wait of its.
type note struct {
	id     string    // of the wait: unique
	since  time.Time // on the clock of the waiter
	told   int       // how often this was told here, each time after the one before had arrived
	want   Lock
	shared bool
}

var kinds = map[string]driver.Kind{"m": driver.Mutex, "r": driver.RWMutex, "s": driver.RWMutex}

// text is the note without spaces: since, id, how often told, kind, name in base64.
func (n *note) text() string {
	return fmt.Sprintf("%s.%s.%d.%s", strconv.FormatInt(n.since.UnixMicro(), 36), n.id, n.told, n.subject())
}

// subject is kind and name.
func (n *note) subject() string {
	kind := "m"
	switch {
	case n.want.Kind == driver.RWMutex && n.shared:
		kind = "s"
	case n.want.Kind == driver.RWMutex:
		kind = "r"
	}
	return kind + "." + base64.RawURLEncoding.EncodeToString([]byte(n.want.Name))
}

// parse reads a note. Notes come from other processes, and may be anything.
func parse(text string) (n note, ok bool) {
	parts := strings.Split(text, ".")
	if len(parts) != 5 {
		return n, false
	}
	since, err := strconv.ParseInt(parts[0], 36, 64)
	told, err2 := strconv.Atoi(parts[2])
	kind, known := kinds[parts[3]]
	name, err3 := base64.RawURLEncoding.DecodeString(parts[4])
	if cmp.Or(err, err2, err3) != nil || !known || len(name) == 0 || len(name) > driver.MaxName {
		return n, false
	}
	return note{parts[1], time.UnixMicro(since), told, Lock{kind, string(name)}, parts[3] == "s"}, true
}

// younger reports whether the wait of n began after that of the other.
func (n *note) younger(than *note) bool {
	return cmp.Or(n.since.Compare(than.since), strings.Compare(n.id, than.id)) > 0
}

// notesOf returns what a holder says of its waits.
func notesOf(h driver.Holder) (notes []note) {
	for _, text := range tag.Notes(h.Tag) {
		if n, ok := parse(text); ok {
			notes = append(notes, n)
		}
	}
	return notes
}

// Waits returns what a holder says it waits for, of those of holdfast.Info: mostly nothing, or one
// lock. A wait is noted once it has lasted for the pause.
func Waits(h driver.Holder) (all []Wait) {
	for _, n := range notesOf(h) {
		all = append(all, Wait{n.want, n.shared, n.since})
	}
	return all
}

// Wait is what a holder waits for.
type Wait struct {
	For    Lock
	Shared bool
	Since  time.Time // on the clock of the waiter
}
