package demo

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/show"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/term"
)

// view shows a demo while it runs.
type view interface {
	every() time.Duration // how often to call show
	show(l *ledger, now int64)
	close() // can be called again
}

// newView returns a picture for a terminal that has room for it, lines otherwise.
func newView(d *demo, start int64) view {
	_, height, _ := term.Size(os.Stdout)
	if term.Draws(os.Stdout) && height > d.workers+pictureLines {
		return newScreen(os.Stdout, &picture{demo: d, start: start, colour: os.Getenv("NO_COLOR") == ""})
	}
	return newLog(os.Stdout, d, start)
}

// log writes one line now and then.
type log struct {
	out   io.Writer
	told  string // of a fault
	demo  *demo
	start int64
}

func newLog(out io.Writer, d *demo, start int64) *log {
	fmt.Fprintf(out, "holdfast demo: %s want the %s %q for %v (%s)%s\n",
		show.Plural(d.workers, "process", "processes"), d.kind.name, d.lock, d.duration, d.server, d.kind.tags)
	return &log{out: out, demo: d, start: start}
}

// every keeps a long demo from filling a CI log.
func (g *log) every() time.Duration { return max(250*time.Millisecond, g.demo.duration/40) }

func (g *log) show(l *ledger, now int64) {
	if f := l.fault; f != nil && f.String() != g.told {
		g.told = f.String()
		fmt.Fprintln(g.out, g.told)
	}
	last := "-"
	if n := len(l.handovers); n > 0 {
		last = show.Brief(l.handovers[n-1])
	}
	fmt.Fprintf(g.out, "%6.2f s  holds %-*s waits %-*s %5d turns %5d hand-overs, the last in %s, %s\n",
		time.Duration(now-g.start).Seconds(), 2*len(l.members), g.list(l.holders()), 2*len(l.members), g.list(l.queue()),
		len(l.turns), len(l.handovers), last, show.Plural(inspect(l.turns, l.limit).violations(), "violation", "violations"))
}

func (g *log) close() {}

func (g *log) list(members []*member) string {
	if len(members) == 0 {
		return "-"
	}
	tags := make([]string, len(members))
	for i, m := range members {
		tags[i] = fmt.Sprintf(g.demo.kind.role(m.now.weight).tag, m.now.worker, m.now.weight)
	}
	return strings.Join(tags, " ")
}
