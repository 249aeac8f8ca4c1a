package demo

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/show"
)

// picture turns a ledger into lines for a terminal:
//
//	  process   now             the last 0.4 s: █ holds  ┄ waits    …
//	1  12345    █ holds  12 ms  ┄┄┄┄┄█ ┄┄┄┄┄██                      …
type picture struct {
	demo   *demo
	start  int64
	colour bool
}

// pictureLines is how many lines a picture has besides those of the workers.
const pictureLines = 13

const (
	// A column of the chart is one moment, not a span: two turns within a span
	// would look like two holders at once.
	chartStep = 10 * time.Millisecond
	// An event this recent may still be on its way to us.
	chartLag  = 20 * time.Millisecond
	chartMin  = 12
	chartMax  = 100
	fixedCols = 57
	leftCols  = 29 // of them, those to the left of the chart
)

// Select Graphic Rendition.
const (
	bold   = "1"
	faint  = "2"
	red    = "1;31"
	green  = "1;32"
	yellow = "33"
	cyan   = "36"

	reverse = ";7" // after another
)

func (p *picture) paint(style, s string) string {
	if !p.colour || style == "" {
		return s
	}
	return "\x1b[" + style + "m" + s + "\x1b[0m"
}

func (p *picture) draw(l *ledger, now int64, width int) []string {
	elapsed := min(time.Duration(now-p.start), p.demo.duration)
	lock := "one " + p.demo.kind.name
	if p.demo.unlocked {
		lock = p.paint(red, "NO lock")
	}
	lines := []string{
		"",
		fmt.Sprintf("%s   %s, %s   %s", p.paint(bold, " holdfast demo"),
			show.Plural(p.demo.workers, "process", "processes"), lock, p.paint(faint, p.demo.server)),
		"",
		p.paint(faint, " "+p.demo.kind.story[0]),
		p.paint(faint, " "+p.demo.kind.story[1]),
		"",
	}
	columns := min(width-1-fixedCols, chartMax)
	if columns < chartMin {
		columns = 0
	}
	lines = append(lines, p.paint(bold, head(columns)))
	times := moments(now, columns)
	for i, m := range l.members {
		lines = append(lines, p.row(i+1, m, now, times))
	}
	if p.demo.kind.permits {
		lines = append(lines, p.inUse(l, times))
	}
	lines = append(lines, "")
	if l.fault != nil {
		lines = append(lines, p.paint(red, " "+l.fault.String()))
	}
	return append(lines, p.handovers(l), p.check(l),
		fmt.Sprintf(" %s %.1f of %v", p.bar(elapsed), elapsed.Seconds(), p.demo.duration))
}

func head(columns int) string {
	chart := ""
	if columns > 0 {
		chart = fmt.Sprintf("%-*s", columns+1, fmt.Sprintf("the last %v", time.Duration(columns)*chartStep))
	}
	return fmt.Sprintf("  process   now              %slast fence turns  mean wait", chart)
}

// moments are the times of the chart's columns, the latest first. They lie on a
// grid, so that the chart moves from frame to frame but does not change.
func moments(now int64, columns int) []int64 {
	last := (now - int64(chartLag)) / int64(chartStep) * int64(chartStep)
	times := make([]int64, columns)
	for i := range times {
		times[i] = last - int64(i)*int64(chartStep)
	}
	return times
}

func (p *picture) row(id int, m *member, now int64, times []int64) string {
	s, since := m.state()
	look := p.demo.kind.look(pose{s, m.now.weight})
	for_ := ""
	if since != 0 {
		for_ = age(time.Duration(now - since))
	}
	what := p.paint(look.style, fmt.Sprintf("%s %-6s %6s", look.glyph, look.word, for_))
	fence := "-"
	if m.fence != 0 {
		fence = fmt.Sprint(m.fence)
		if n := len(fence); n > 10 {
			fence = "…" + fence[n-9:] // the front part does not change within a demo
		}
	}
	wait := "-"
	if len(m.turns) > 0 {
		wait = show.Brief(m.meanWait())
	}
	return fmt.Sprintf(" %2d %-7d %s  %s%10s%6d%11s",
		id, m.pid, what, p.chart(m, times), fence, m.done, wait)
}

// age is d in 6 columns, up to 99 s.
func age(d time.Duration) string {
	if d < time.Second {
		return fmt.Sprintf("%d ms", d.Milliseconds())
	}
	return fmt.Sprintf("%.1f s", d.Seconds())
}

// chart is what the worker did at the given times, the latest at the right.
func (p *picture) chart(m *member, times []int64) string {
	if len(times) == 0 {
		return ""
	}
	var b, run strings.Builder
	poses := m.history(times)
	for i := len(poses) - 1; i >= 0; i-- {
		look := p.demo.kind.look(poses[i])
		run.WriteString(look.glyph)
		if i == 0 || poses[i-1] != poses[i] {
			style := look.style
			if p.demo.kind.permits && poses[i].state == holds {
				style += reverse
			}
			b.WriteString(p.paint(style, run.String()))
			run.Reset()
		}
	}
	return b.String() + " "
}

// inUse is the sum of the columns above it.
func (p *picture) inUse(l *ledger, times []int64) string {
	sums := make([]int64, len(times))
	for _, m := range l.members {
		for i, pose := range m.history(times) {
			if pose.state == holds {
				sums[i] += pose.weight
			}
		}
	}
	var b strings.Builder
	for _, sum := range slices.Backward(sums) {
		digit, style := strconv.FormatInt(sum, 10), ""
		if sum > maxPermits {
			digit = "+"
		}
		if sum > l.limit {
			style = red
		}
		b.WriteString(p.paint(style, digit))
	}
	return fmt.Sprintf("%*s%s", -leftCols, fmt.Sprintf("    in use, of %s", show.Plural(int(l.limit), "permit", "permits")), &b)
}

func (p *picture) handovers(l *ledger) string {
	if len(l.handovers) == 0 {
		return " waiting for the first hand-over"
	}
	s := spreadOf(l.handovers)
	return fmt.Sprintf(" %s   latest %s   p50 %s   p99 %s   release → next",
		p.paint(bold, show.Plural(len(l.handovers), "hand-over", "hand-overs")),
		show.Brief(l.handovers[len(l.handovers)-1]), show.Brief(s.p50), show.Brief(s.p99))
}

func (p *picture) check(l *ledger) string {
	n := inspect(l.turns, l.limit).violations()
	style := green
	if n > 0 {
		style = red
	}
	return fmt.Sprintf(" %s   of: %s", p.paint(style, show.Plural(n, "violation", "violations")), p.demo.kind.rule)
}

// bar shows how much of the time is over.
func (p *picture) bar(elapsed time.Duration) string {
	const width = 30
	full := int(int64(width) * int64(elapsed) / int64(p.demo.duration))
	return strings.Repeat("━", full) + p.paint(faint, strings.Repeat("─", width-full))
}
