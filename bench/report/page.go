package main

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/bench"
)

// page is the report.
type page struct {
	machine  []fact
	quick    bool
	took     time.Duration
	chapters []chapter
}

// publish writes the page and its plots.
func publish(dir string, p page) error {
	drawn, err := drawAll(dir, p.chapters)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "RESULTS.md"), []byte(p.markdown(drawn)), 0o644)
}

const method = `Contenders take turns at each work, in random order, in one run. A thread at idle priority spins on each core, as other
work does on a server: to wake a core that sleeps takes as long as a command of Redis, and would hide all else. Figures are medians over turns, except that waits are those of all
turns together (p50, p99 within 1.6 %). A ratio among the targets is the median of those of turns that were beside each
other, as the machine has fast and slow times. A client with its own connections plays a process. Behind each lock is a room
that notices a visitor without the lock; *overlaps* says how often. A turn ends when the last waiter has had the lock,
or after 8 s more; then waiters that are left count as *stuck*. *failures* are calls that returned an error and were
repeated. Commands are those that clients send. CPU time of Redis is that of the whole server (INFO cpu), as the times
of commandstats leave out reading and writing. Allocations include those of the benchmark.
Jain's index is 1 if all get the lock equally often within a turn, 1/n if one of n always does.
`

func (p page) markdown(drawn []plotted) string {
	var b strings.Builder
	b.WriteString("# Results\n\nWritten by `go run ./report`; do not edit.\n")
	if p.quick {
		b.WriteString("\n**A trial run (`-quick`): turns are few and short, so do not rely on any figure; 10,000 waiters are left out.**\n")
	}
	b.WriteString("\n" + method + "\n## Targets\n\n")
	b.WriteString(p.goals())
	for _, d := range drawn {
		fmt.Fprintf(&b, "\n![%s](%s)\n", d.title, d.file)
	}
	for _, c := range p.chapters {
		b.WriteString("\n" + c.markdown())
	}
	b.WriteString("\n## Where and how\n\n")
	rows := [][]string{{"what", "which"}}
	for _, f := range p.machine {
		rows = append(rows, []string{f.name, f.value})
	}
	rows = append(rows, []string{"took", p.took.Round(time.Second).String()})
	b.WriteString(table(rows, 2) + "\n")
	rows = [][]string{{"contender", "used like this"}}
	for _, c := range append(bench.All, bench.HoldfastLock, bench.HoldfastDo, bench.HoldfastLinger, bench.HoldfastStrict, bench.RawPipelined, bench.SortedSet,
		bench.HoldfastPostgres, bench.RowLock, bench.AdvisoryLock, bench.LeaseRow, bench.HoldfastEtcd, bench.HoldfastZooKeeper) {
		rows = append(rows, []string{c.Name, c.Setup})
	}
	b.WriteString(table(rows, 2))
	return b.String()
}

// goals is the table of targets.
func (p page) goals() string {
	rows := [][]string{{"work", "figure of holdfast", "target", "measured", "reached"}}
	for _, t := range targets {
		for _, c := range p.chapters {
			if c.Name == t.work {
				v, ok := t.measure(c, t.by)
				want, have, reached := verdict(t.goal, v, t.most, ok)
				rows = append(rows, []string{t.work, t.by + ": " + t.text, want, have, reached})
			}
		}
	}
	// Of the others most hand over within a process, where there are many of them.
	v, ok := flat(p.chapters, strict)
	want, have, reached := verdict(1.3, v, true, ok)
	rows = append(rows, []string{"Waiters", strict + ": p50 of hand-over with 10,000 waiters ÷ with 10", want, have, reached})
	return table(rows, 2)
}

func (c chapter) markdown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "## %s\n\n%s (`%s`, %s each)\n\n", c.Title, c.About, c.Name, turns(c.results))
	header := []string{"contender"}
	columns := c.columns()
	for _, f := range columns {
		header = append(header, heading(f))
	}
	rows := [][]string{header}
	for _, r := range c.results {
		row := []string{r.Contender}
		for _, f := range columns {
			row = append(row, cell(r, f))
		}
		rows = append(rows, row)
	}
	b.WriteString(table(rows, 1))
	if len(c.absent) > 0 {
		fmt.Fprintf(&b, "\nAbsent: %s.\n", strings.Join(c.absent, "; "))
	}
	return b.String()
}

// columns adds what went wrong, if anything did.
func (c chapter) columns() []bench.Figure {
	columns := append([]bench.Figure(nil), c.Columns...)
	for _, f := range []bench.Figure{bench.Failures, bench.Stuck, bench.Overlaps} {
		for _, r := range c.results {
			if r.Figures[f] > 0 {
				columns = append(columns, f)
				break
			}
		}
	}
	return columns
}

func turns(results []bench.Result) string {
	if len(results) == 0 {
		return "no turns"
	}
	if n := results[0].Turns; n > 1 {
		return fmt.Sprint(n, " turns")
	}
	return "one turn"
}

// heading takes the unit of durations from the name, for cells have their own.
func heading(f bench.Figure) string {
	switch f {
	case bench.WaitP50, bench.WaitP99, bench.WaitMax:
		return strings.TrimSuffix(string(f), "-µs")
	case bench.RTT:
		return "rtt"
	case bench.RedisCPU:
		return "redis CPU/op"
	case bench.PostgresCPU:
		return "postgres CPU/op"
	case bench.ClientPerOp:
		return "client CPU/op"
	case bench.ClientCPU:
		return "client CPU"
	case bench.ServerCPU:
		return "redis CPU"
	}
	return string(f)
}

func cell(r bench.Result, f bench.Figure) string {
	v, ok := r.Figures[f]
	switch {
	case !ok:
		return "–"
	case f == bench.WaitP50 || f == bench.WaitP99 || f == bench.WaitMax || f == bench.RTT,
		f == bench.RedisCPU || f == bench.PostgresCPU || f == bench.ClientPerOp:
		return duration(v)
	case f == bench.ClientCPU || f == bench.ServerCPU:
		return number(v/10) + " %" // ms/s of one core
	case f == bench.Jain || f == bench.LoneShare || f == bench.CyclesPerRTT:
		return fmt.Sprintf("%.3f", v)
	}
	return number(v)
}

// duration has three digits and the unit that fits.
func duration(µs float64) string {
	switch {
	case µs >= 1e6:
		return digits(µs/1e6) + " s"
	case µs >= 1e3:
		return digits(µs/1e3) + " ms"
	case µs >= 1:
		return digits(µs) + " µs"
	}
	return digits(µs*1e3) + " ns"
}

// number has three digits, or fewer if it is small, and all before the point, with commas.
func number(v float64) string {
	s := digits(v)
	whole, fraction, _ := strings.Cut(s, ".")
	for i := len(whole) - 3; i > 0 && whole[i-1] != '-'; i -= 3 {
		whole = whole[:i] + "," + whole[i:]
	}
	if fraction != "" {
		return whole + "." + fraction
	}
	return whole
}

func digits(v float64) string {
	switch {
	case v == 0:
		return "0"
	case math.Abs(v) >= 100 || v == math.Trunc(v):
		return fmt.Sprintf("%.0f", v)
	case math.Abs(v) >= 10:
		return fmt.Sprintf("%.1f", v)
	case math.Abs(v) < 0.01:
		return fmt.Sprintf("%.*f", 1-int(math.Floor(math.Log10(math.Abs(v)))), v) // two digits that are not 0
	}
	return fmt.Sprintf("%.2f", v)
}

// table aligns cells, those after the first columns to the right.
func table(rows [][]string, left int) string {
	widths := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, text := range row {
			widths[i] = max(widths[i], len([]rune(text)), 3)
		}
	}
	var b strings.Builder
	for n, row := range rows {
		for i, text := range row {
			pad := strings.Repeat(" ", widths[i]-len([]rune(text)))
			if i < left {
				fmt.Fprintf(&b, "| %s%s ", text, pad)
			} else {
				fmt.Fprintf(&b, "| %s%s ", pad, text)
			}
		}
		b.WriteString("|\n")
		for i := 0; n == 0 && i < len(row); i++ {
			if i < left {
				fmt.Fprintf(&b, "|%s", strings.Repeat("-", widths[i]+2))
			} else {
				fmt.Fprintf(&b, "|%s:", strings.Repeat("-", widths[i]+1))
			}
		}
		if n == 0 {
			b.WriteString("|\n")
		}
	}
	return b.String()
}
