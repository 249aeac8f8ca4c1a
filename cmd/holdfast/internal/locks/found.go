package locks

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/show"
	"github.com/holdfast-go/holdfast/driver"
)

// found is a lock of a store.
type found struct {
	kind driver.Kind
	holdfast.Info
	chains []string // what holders wait for, see chain
	circle bool     // see markCircles
}

// idle reports whether nobody holds the lock, nor waits for it.
func (f *found) idle() bool { return len(f.Holders) == 0 && len(f.Queue) == 0 }

// write shows the lock to people.
func (f *found) write(w io.Writer, now time.Time) error {
	state := "free"
	if n := len(f.Holders); n == 1 {
		state = "held"
	} else if n > 1 {
		state = fmt.Sprintf("held by %d", n)
	}
	if f.Limit > 0 {
		state += fmt.Sprintf(", %d of %s in use", f.used(), show.Plural(int(f.Limit), "permit", "permits"))
	}
	fmt.Fprintf(w, "%s %q: %s, %s\n", f.kind, f.Name, state, show.Plural(len(f.Queue), "waits", "wait"))
	if len(f.Holders) > 0 {
		t := show.NewTable(w, "  HOLDER", "SINCE", "HELD", "LEFT", "FENCE")
		for _, h := range f.Holders {
			t.Row("  "+show.Printable(h.Holder)+show.Part(h.Shared, h.Weight), show.Since(h.Since), show.HeldFor(h.Since, now), show.Remaining(h.TimeLeft), show.Fence(h))
		}
		if err := t.Flush(); err != nil {
			return err
		}
	}
	for _, c := range f.chains {
		fmt.Fprintf(w, "  %s\n", c)
	}
	for i, q := range f.Queue {
		fmt.Fprintf(w, "  %2d. %s%s%s\n", i+1, show.Printable(q.Holder), show.Part(q.Shared, q.Weight), show.WaitsFor(q.Since, now))
	}
	return nil
}

// used is how many permits the holders have.
func (f *found) used() (n int64) {
	for _, h := range f.Holders {
		n += h.Weight
	}
	return n
}

// lockJSON is the JSON form of a lock. Times are on the clock of the store.
type lockJSON struct {
	Kind driver.Kind `json:"kind"`
	holdfast.Info
	// Base64 is the name if it is no text, which JSON cannot have.
	Base64 []byte `json:"name_base64,omitempty"`
	Circle bool   `json:"circle,omitempty"`
}

// MarshalJSON gives the lock the form that holdfast inspect --help shows.
func (f *found) MarshalJSON() ([]byte, error) {
	l := lockJSON{Kind: f.kind, Info: f.Info, Circle: f.circle}
	if !utf8.ValidString(f.Name) {
		l.Base64 = []byte(f.Name)
	}
	l.Holders = append([]holdfast.Holder{}, f.Holders...) // never null
	l.Queue = append([]driver.Waiter{}, f.Queue...)
	return json.Marshal(l)
}

// writeJSON writes locks, one on a line. Characters that do something to a terminal, or change
// the order of what it shows, are escaped: they only stand in strings.
func writeJSON(w io.Writer, locks []*found) error {
	var b strings.Builder
	for _, l := range locks {
		text, err := json.Marshal(l)
		if err != nil {
			return err
		}
		for _, r := range string(text) {
			switch {
			case unicode.IsPrint(r):
				b.WriteRune(r)
			case r > 0xffff:
				high, low := utf16.EncodeRune(r)
				fmt.Fprintf(&b, `\u%04x\u%04x`, high, low)
			default:
				fmt.Fprintf(&b, `\u%04x`, r)
			}
		}
		b.WriteByte('\n')
	}
	_, err := io.WriteString(w, b.String())
	return err
}
