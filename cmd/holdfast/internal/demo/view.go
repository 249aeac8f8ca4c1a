package demo

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/clock"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/exit"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/show"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/term"
)

const (
	pictureLines = 18 // at most, besides those of the workers
	fixedCols    = 57 // besides those of the chart
	// A column of the chart is one moment, not a span: two turns within a span
	// would look like two holders at once.
	chartStep = 10 * time.Millisecond
	chartLag  = 20 * time.Millisecond // a turn this recent may still be on its way to us
	chartMin  = 12
	chartMax  = 100
)

// Select Graphic Rendition.
const (
	bold    = "1"
	faint   = "2"
	red     = "1;31"
	green   = "1;32"
	yellow  = "33"
	cyan    = "36"
	reverse = ";7" // after another
)

// colour is false for pipes, and for those that have asked many programs for it.
var colour = term.Draws(os.Stdout) && os.Getenv("NO_COLOR") == ""

// paint gives text a style, on a terminal.
func paint(style, s string) string {
	if style == "" || !colour {
		return s
	}
	return "\x1b[" + style + "m" + s + "\x1b[0m"
}

// view shows a demo while it runs: a picture again and again at the same place of a terminal
// that has room for it, lines otherwise.
type view struct {
	*demo
	draws        bool
	width, lines int    // of the last picture, with the cursor below it
	told         string // of the loss
}

func newView(d *demo) *view {
	_, height, _ := term.Size(os.Stdout)
	return &view{demo: d, draws: term.Draws(os.Stdout) && height > d.workers+pictureLines}
}

func (v *view) begin() {
	if v.draws {
		fmt.Print(term.HideCursor)
		return
	}
	fmt.Printf("holdfast demo: %s want the %s %q for %v (%s)\n %s\n %s\n", show.Plural(v.workers, "process", "processes"),
		v.kind.name, v.lock, v.duration, v.server, v.kind.story[0], v.kind.story[1])
}

// every is how often to call show. Lines must not fill a CI log, however long the demo is.
func (v *view) every() time.Duration {
	if v.draws {
		return 100 * time.Millisecond
	}
	return max(250*time.Millisecond, v.duration/40)
}

func (v *view) show(now int64) {
	if v.draws {
		a := v.tally()
		v.draw(now, v.summary(a, inspect(a.finished, v.limit), time.Duration(now-v.start), -1))
		return
	}
	if loss := v.loss(); loss != v.told {
		v.told = loss
		fmt.Println(loss)
	}
	fmt.Println(v.line(now))
}

func (v *view) draw(now int64, summary string) {
	width, _, ok := term.Size(os.Stdout)
	if !ok || width == 0 {
		width = 80
	}
	text := term.NoWrap
	if v.lines > 0 && width == v.width { // after a change nobody knows where the old lines are: draw below
		text += fmt.Sprintf("\r\x1b[%dA", v.lines)
	}
	lines := strings.Split(v.picture(now, width)+summary, "\n")
	v.width, v.lines = width, len(lines)-1
	// One write, so that nothing flickers.
	fmt.Print(text + strings.Join(lines, term.ClearLine+"\r\n") + term.ClearBelow + term.Wrap)
}

// end shows the whole, and returns the error that the exit code tells. cut says that somebody
// did not want to see the end.
func (v *view) end(took time.Duration, counter int, cut bool) error {
	a := v.tally()
	found := inspect(a.finished, v.limit)
	found[counts] = a.wrong(counter)
	summary := v.summary(a, found, took, counter)
	if v.draws {
		v.draw(clock.Now(), summary)
	} else {
		fmt.Println(v.line(clock.Now()))
		fmt.Print("\n" + summary)
	}
	fmt.Println()
	switch {
	case found != (verdict{}):
		return exit.With(exit.Violation, errors.New(found.String()))
	case len(a.finished) == 0 && !cut:
		return exit.With(exit.Failure, errors.New("nobody had a turn"))
	}
	return nil
}

// close leaves the terminal as it was.
func (v *view) close() {
	if v.draws {
		fmt.Print(term.ShowCursor)
	}
}

// line is the demo at a moment, with a sign for each worker.
func (d *demo) line(now int64) string {
	var signs strings.Builder
	for _, m := range d.crew {
		s, t := m.at(now)
		signs.WriteString(d.kind.look(s, t.Weight).glyph)
	}
	last := "-"
	if n := len(d.handovers); n > 0 {
		last = show.Brief(d.handovers[n-1])
	}
	turns := d.tally().finished
	return fmt.Sprintf("%6.2f s  %s %5d turns %5d hand-overs, the last in %s, %v",
		time.Duration(now-d.start).Seconds(), &signs, len(turns), len(d.handovers), last, inspect(turns, d.limit))
}

// picture is the upper part of what a terminal shows:
//
//	  process   now              the last 220ms         last fence turns  mean wait
//	1 12345   █ HOLDS   12 ms  ┄┄┄┄┄█ ┄┄┄┄┄██         …596994449    27    61.6 ms
func (d *demo) picture(now int64, width int) string {
	lock := "one " + d.kind.name
	if d.unlocked {
		lock = paint(red, "NO lock")
	}
	columns, chart := min(width-1-fixedCols, chartMax), ""
	if columns < chartMin {
		columns = 0
	} else {
		chart = fmt.Sprintf("%-*s", columns+1, fmt.Sprintf("the last %v", time.Duration(columns)*chartStep))
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\n%s   %s, %s   %s\n\n%s\n%s\n\n%s\n", paint(bold, " holdfast demo"),
		show.Plural(d.workers, "process", "processes"), lock, paint(faint, d.server),
		paint(faint, " "+d.kind.story[0]), paint(faint, " "+d.kind.story[1]),
		paint(bold, "  process   now              "+chart+"last fence turns  mean wait"))
	times := moments(now, columns)
	for i, m := range d.crew {
		b.WriteString(d.row(i+1, m, now, times) + "\n")
	}
	if d.kind == semaphore {
		b.WriteString(d.inUse(times) + "\n")
	}
	const bar = 30
	elapsed := min(time.Duration(now-d.start), d.duration)
	full := int(bar * elapsed.Seconds() / d.duration.Seconds())
	fmt.Fprintf(&b, "\n %s%s %.1f of %v\n", strings.Repeat("━", full), paint(faint, strings.Repeat("─", bar-full)), elapsed.Seconds(), d.duration)
	return b.String()
}

// moments are the times of the chart's columns. They lie on a grid, so that the chart moves from
// frame to frame but does not change.
func moments(now int64, columns int) []int64 {
	last := (now - int64(chartLag)) / int64(chartStep) * int64(chartStep)
	times := make([]int64, columns)
	for i := range times {
		times[i] = last - int64(columns-1-i)*int64(chartStep)
	}
	return times
}

func (d *demo) row(id int, m *member, now int64, times []int64) string {
	s, t := m.at(now)
	look, age, fence, wait := d.kind.look(s, t.Weight), "", "-", "-"
	if s == holds || s == waits { // since the later of two times
		if since := time.Duration(now - max(t.Asked, t.Held)); since < time.Second {
			age = fmt.Sprintf("%d ms", since.Milliseconds())
		} else {
			age = fmt.Sprintf("%.1f s", since.Seconds())
		}
	}
	var done, held int
	var waited time.Duration
	for _, t := range m.turns {
		if t.finished() {
			done++
		}
		if t.Held != 0 {
			held++
			waited += time.Duration(t.Held - t.Asked)
			fence = strconv.FormatInt(t.Fence, 10)
		}
	}
	if n := len(fence); n > 10 {
		fence = "…" + fence[n-9:] // the front part does not change within a demo
	}
	if held > 0 {
		wait = show.Brief(waited / time.Duration(held))
	}
	return fmt.Sprintf(" %2d %-7d %s  %s%10s%6d%11s", id, m.pid,
		paint(look.style, fmt.Sprintf("%s %-6s %6s", look.glyph, look.word, age)), d.chart(m, times), fence, done, wait)
}

// chart is what the worker did at the given times.
func (d *demo) chart(m *member, times []int64) string {
	if len(times) == 0 {
		return ""
	}
	var b strings.Builder
	run, style := "", ""
	for _, at := range times {
		s, t := m.at(at)
		look := d.kind.look(s, t.Weight)
		if s == holds && d.kind == semaphore {
			look.style += reverse
		}
		if look.style != style {
			b.WriteString(paint(style, run))
			run, style = "", look.style
		}
		run += look.glyph
	}
	return b.String() + paint(style, run) + " "
}

// inUse is the sum of the columns above it.
func (d *demo) inUse(times []int64) string {
	var b strings.Builder
	for _, at := range times {
		var used int64
		for _, m := range d.crew {
			if s, t := m.at(at); s == holds {
				used += t.Weight
			}
		}
		digit, style := strconv.FormatInt(used, 10), ""
		if used > maxPermits {
			digit = "+"
		}
		if used > d.limit {
			style = red
		}
		b.WriteString(paint(style, digit))
	}
	return fmt.Sprintf("%-29s%s", "    in use, of "+show.Plural(int(d.limit), "permit", "permits"), &b)
}

// loss tells of the process that was killed while it had the lock.
func (d *demo) loss() string {
	if d.victim == 0 {
		return ""
	}
	m := d.crew[d.victim-1]
	who := fmt.Sprintf("holder %d was killed", d.victim)
	if t := m.turns[len(m.turns)-1]; t.Done != 0 {
		return who + "; the others went on after " + show.Brief(time.Duration(t.Done-m.ended))
	}
	return who + "; its lease lasts up to " + workerTTL.String()
}

// summary is what was measured and found. The counter is what the file says, or -1 as long as
// turns are under way.
func (d *demo) summary(a tally, v verdict, took time.Duration, counter int) string {
	var b strings.Builder
	fmt.Fprintf(&b, " %s of %s in %.1f s\n", show.Plural(len(a.finished), "turn", "turns"), show.Plural(d.workers, "process", "processes"), took.Seconds())
	row := func(name string, ds []time.Duration, note string) {
		n := len(ds)
		if n == 0 {
			return
		}
		ds = slices.Sorted(slices.Values(ds)) // a quantile is the smallest that so many do not exceed
		fmt.Fprintf(&b, " %-10s p50 %-8s p99 %-8s max %-8s %d, %s\n", name,
			show.Brief(ds[(n*50+99)/100-1]), show.Brief(ds[(n*99+99)/100-1]), show.Brief(ds[n-1]), n, note)
	}
	row("hand-over", d.handovers, "from release to next")
	done, waited := make([]int, d.workers), map[*role][]time.Duration{}
	for _, t := range a.finished {
		done[t.Worker-1]++
		r := d.kind.role(t.Weight)
		waited[r] = append(waited[r], time.Duration(t.Held-t.Asked))
	}
	for i := range d.kind.roles {
		row(d.kind.roles[i].wait, waited[&d.kind.roles[i]], "from ask to held")
	}
	fmt.Fprintf(&b, " %-10s %s   fairness %.3f (1 is even)\n", "turns", strings.Trim(fmt.Sprint(done), "[]"), fairness(done))
	if d.victim != 0 {
		fmt.Fprintf(&b, " %-10s %s\n", "fault", paint(red, d.loss()))
	}
	if a.lost > 0 {
		fmt.Fprintf(&b, " %-10s %d, noticed before the write\n", "lost", a.lost)
	}
	if v == (verdict{}) {
		fmt.Fprintf(&b, " %s 0: %s\n", paint(green, "violations"), d.kind.rule)
	} else {
		fmt.Fprintf(&b, " %s %d: %s\n", paint(red, "VIOLATIONS"), v.sum(), v.found(d.kind))
	}
	if counter >= 0 && d.kind != semaphore {
		fmt.Fprintf(&b, "            the file counts %d of %d\n", counter, a.written)
	}
	return b.String()
}

// fairness is Jain's index: 1 if all shares are equal, 1/n if one has everything.
// (Jain, Chiu, Hawe: A Quantitative Measure of Fairness, DEC TR-301, 1984.)
func fairness(shares []int) float64 {
	var sum, squares float64
	for _, s := range shares {
		sum += float64(s)
		squares += float64(s) * float64(s)
	}
	if squares == 0 {
		return 0
	}
	return sum * sum / (float64(len(shares)) * squares)
}
