package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

// found is a lock of a store.
type found struct {
	kind driver.Kind
	holdfast.Info
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
		state += fmt.Sprintf(", %d of %s in use", f.used(), plural(int(f.Limit), "permit", "permits"))
	}
	fmt.Fprintf(w, "%s %q: %s, %s\n", f.kind, f.Name, state, plural(len(f.Queue), "waits", "wait"))
	if len(f.Holders) > 0 {
		t := newTable(w, "  HOLDER", "SINCE", "HELD", "LEFT", "FENCE")
		for _, h := range f.Holders {
			t.row("  "+printable(h.Holder)+part(h.Shared, h.Weight), since(h.Since), heldFor(h.Since, now), remaining(h.TimeLeft), fence(h))
		}
		if err := t.Flush(); err != nil {
			return err
		}
	}
	for i, q := range f.Queue {
		fmt.Fprintf(w, "  %2d. %s%s\n", i+1, printable(q.Holder), part(q.Shared, q.Weight))
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
}

// MarshalJSON gives the lock the form that holdfast inspect --help shows.
func (f *found) MarshalJSON() ([]byte, error) {
	l := lockJSON{Kind: f.kind, Info: f.Info}
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

// table writes rows with their columns one below the other.
type table struct{ *tabwriter.Writer }

func newTable(w io.Writer, heads ...string) table {
	t := table{tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)}
	t.row(heads...)
	return t
}

func (t table) row(cells ...string) { fmt.Fprintln(t, strings.Join(cells, "\t")) }

// printable returns text that was written by anybody so that it does nothing to a terminal.
func printable(s string) string {
	if s == "" || !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(s)
	}
	return s
}

// visible returns text with the characters that do something to a terminal as Go writes them.
func visible(s string) string {
	var b strings.Builder
	for _, r := range s {
		if unicode.IsPrint(r) {
			b.WriteRune(r)
		} else {
			b.WriteString(strings.Trim(strconv.QuoteRune(r), "'"))
		}
	}
	return b.String()
}

// whole is a duration to be read by people, such as 4m12s.
func whole(d time.Duration) string { return max(d, 0).Truncate(time.Second).String() }

// since and heldFor say when a holder got the lock, if the store knows.
func since(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.Local().Format(time.DateTime)
}

func heldFor(t, now time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return whole(now.Sub(t))
}

// remaining is the time that a lease has.
func remaining(d time.Duration) string {
	if d == math.MaxInt64 {
		return "no end"
	}
	return fmt.Sprintf("%.1fs", d.Seconds())
}

// fence is the fence of a holder, and how many more it may use.
func fence(h holdfast.Holder) string {
	if h.Fence == 0 {
		return "-"
	}
	if h.LastFence > h.Fence {
		return fmt.Sprintf("%d (+%d)", h.Fence, h.LastFence-h.Fence)
	}
	return strconv.FormatInt(h.Fence, 10)
}

// maxNamed is how many holders an error names. It is one line.
const maxNamed = 3

// describe says who holds a lock. If the caller does not wait, it also says whether others
// wait: readers can turn a reader away because a writer is next.
func describe(info holdfast.Info, queue bool) string {
	if len(info.Holders) == 0 {
		return "locked"
	}
	var b strings.Builder
	b.WriteString("held by ")
	if n := len(info.Holders); n > 1 {
		fmt.Fprintf(&b, "%d: ", n)
	}
	var used int64
	for i, h := range info.Holders {
		used += h.Weight
		if i < maxNamed {
			if i > 0 {
				b.WriteString(", ")
			}
			b.WriteString(printable(h.Holder))
			if !h.Since.IsZero() {
				b.WriteString(" since " + since(h.Since))
			}
			b.WriteString(part(h.Shared, h.Weight))
		}
	}
	if n := len(info.Holders) - maxNamed; n > 0 {
		fmt.Fprintf(&b, " and %s", plural(n, "other", "others"))
	}
	if info.Limit > 0 {
		fmt.Fprintf(&b, "; %d of %s in use", used, plural(int(info.Limit), "permit is", "permits are"))
	}
	if n := len(info.Queue); queue && n > 0 {
		fmt.Fprintf(&b, "; %s", plural(n, "waits", "wait"))
	}
	return b.String()
}

// part is what a holder or waiter has of a lock that it need not have all of.
func part(shared bool, weight int64) string {
	switch {
	case shared:
		return " (shared)"
	case weight > 1:
		return fmt.Sprintf(" (%d permits)", weight)
	}
	return ""
}
