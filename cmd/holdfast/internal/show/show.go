// Package show writes what people read: durations, numbers, names, tables, and who holds a lock.
package show

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/holdfast-go/holdfast"
)

// Table writes rows with their columns one below the other.
type Table struct{ *tabwriter.Writer }

// NewTable returns a table with a head.
func NewTable(w io.Writer, heads ...string) Table {
	t := Table{tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)}
	t.Row(heads...)
	return t
}

// Row adds a row.
func (t Table) Row(cells ...string) { fmt.Fprintln(t, strings.Join(cells, "\t")) }

// least is what Fit leaves of a cell while there is a column to leave out, and then.
const least, atLeast = 12, 6

// Fit returns rows that are no wider than width, if that can be. It cuts cells in the middle, in the
// columns cut and the longest first. If that is not enough it leaves columns out: those of spare, one
// after the other.
func Fit(rows [][]string, width int, cut, spare []int) [][]string {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	longest := func() int {
		return slices.MaxFunc(cut, func(a, b int) int { return cmp.Compare(widths[a], widths[b]) })
	}
	out := map[int]bool{}
	over := -2 - width
	for _, w := range widths {
		over += w + 2
	}
	for ; over > 0; over-- {
		i := longest()
		if widths[i] <= least && len(spare) > 0 {
			over -= widths[spare[0]] + 2 - 1
			out[spare[0]], spare = true, spare[1:]
			continue
		}
		if widths[i] <= atLeast {
			break
		}
		widths[i]--
	}
	fit := make([][]string, len(rows))
	for n, row := range rows {
		for i, cell := range row {
			if slices.Contains(cut, i) {
				cell = middle(cell, widths[i])
			}
			if !out[i] {
				fit[n] = append(fit[n], cell)
			}
		}
	}
	return fit
}

// middle returns s in at most width characters: what names differ by is at their ends.
func middle(s string, width int) string {
	r := []rune(s)
	if len(r) <= width {
		return s
	}
	head := width / 2
	return string(r[:head]) + "…" + string(r[len(r)-(width-1-head):])
}

// Printable returns text that was written by anybody so that it does nothing to a terminal.
func Printable(s string) string {
	if s == "" || !utf8.ValidString(s) || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(s)
	}
	return s
}

// Visible returns text with the characters that do something to a terminal as Go writes them.
func Visible(s string) string {
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

// Whole is a duration to be read by people, such as 4m12s.
func Whole(d time.Duration) string { return max(d, 0).Truncate(time.Second).String() }

// Since says when a holder got the lock, if the store knows.
func Since(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.Local().Format(time.DateTime)
}

// HeldFor says for how long a holder has had the lock, if the store knows.
func HeldFor(t, now time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return Whole(now.Sub(t))
}

// WaitsFor says for how long a waiter has waited, if the store knows.
func WaitsFor(t, now time.Time) string {
	if t.IsZero() {
		return ""
	}
	return " waits " + Whole(now.Sub(t))
}

// Remaining is the time that a lease has.
func Remaining(d time.Duration) string {
	if d == math.MaxInt64 {
		return "no end"
	}
	return fmt.Sprintf("%.1fs", d.Seconds())
}

// Fence is the fence of a holder, and how many more it may use.
func Fence(h holdfast.Holder) string {
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

// Describe says who holds a lock. If the caller does not wait, it also says whether others
// wait: readers can turn a reader away because a writer is next.
func Describe(info holdfast.Info, queue bool) string {
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
			b.WriteString(Printable(h.Holder))
			if !h.Since.IsZero() {
				b.WriteString(" since " + Since(h.Since))
			}
			b.WriteString(Part(h.Shared, h.Weight))
		}
	}
	if n := len(info.Holders) - maxNamed; n > 0 {
		fmt.Fprintf(&b, " and %s", Plural(n, "other", "others"))
	}
	if info.Limit > 0 {
		fmt.Fprintf(&b, "; %d of %s in use", used, Plural(int(info.Limit), "permit is", "permits are"))
	}
	if n := len(info.Queue); queue && n > 0 {
		fmt.Fprintf(&b, "; %s", Plural(n, "waits", "wait"))
	}
	return b.String()
}

// Part is what a holder or waiter has of a lock that it need not have all of.
func Part(shared bool, weight int64) string {
	switch {
	case shared:
		return " (shared)"
	case weight > 1:
		return fmt.Sprintf(" (%d permits)", weight)
	}
	return ""
}

// Brief writes d with the three digits that a reader takes in.
func Brief(d time.Duration) string {
	switch ms := float64(d) / float64(time.Millisecond); {
	case ms < 10:
		return fmt.Sprintf("%.2f ms", ms)
	case ms < 100:
		return fmt.Sprintf("%.1f ms", ms)
	case ms < 1000:
		return fmt.Sprintf("%.0f ms", ms)
	}
	return fmt.Sprintf("%.2f s", d.Seconds())
}

// Plural puts a number before its noun.
func Plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
