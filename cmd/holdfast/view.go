package main

import (
	"cmp"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"
)

// view shows a demo while it runs.
type view interface {
	every() time.Duration // how often to call show
	show(l *ledger, now int64)
	close() // can be called again
}

// newView returns a picture for a terminal that has room for it, lines otherwise.
func newView(d *demo, start int64) view {
	_, height, ok := sizeOf(os.Stdout)
	if ok && os.Getenv("TERM") != "dumb" && height > d.workers+pictureLines {
		return newScreen(os.Stdout, &picture{demo: d, start: start, colour: os.Getenv("NO_COLOR") == ""})
	}
	return newLog(os.Stdout, d, start)
}

// log writes one line now and then.
type log struct {
	out   io.Writer
	demo  *demo
	start int64
}

func newLog(out io.Writer, d *demo, start int64) *log {
	fmt.Fprintf(out, "holdfast demo: %s want the lock %q for %v (%s)\n",
		plural(d.workers, "process", "processes"), d.lock, d.duration, d.server)
	return &log{out, d, start}
}

// every keeps a long demo from filling a CI log.
func (g *log) every() time.Duration { return max(250*time.Millisecond, g.demo.duration/40) }

func (g *log) show(l *ledger, now int64) {
	who := map[state][]int{}
	for i, m := range l.members {
		s, _ := m.state()
		who[s] = append(who[s], i+1)
	}
	// As they stand in the queue.
	slices.SortFunc(who[waits], func(a, b int) int {
		return cmp.Compare(l.members[a-1].now.requested, l.members[b-1].now.requested)
	})
	last := "-"
	if n := len(l.handovers); n > 0 {
		last = brief(l.handovers[n-1])
	}
	fmt.Fprintf(g.out, "%6.2f s  holds %-2s waits %-*s %5d turns %5d hand-overs, the last in %s, %s\n",
		time.Duration(now-g.start).Seconds(), list(who[holds]), 2*len(l.members), list(who[waits]),
		len(l.turns), len(l.handovers), last, plural(inspect(l.turns).violations(), "violation", "violations"))
}

func (g *log) close() {}

func list(ids []int) string {
	if len(ids) == 0 {
		return "-"
	}
	return strings.Trim(fmt.Sprint(ids), "[]")
}
