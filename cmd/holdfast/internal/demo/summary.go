package demo

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/exit"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/show"
)

// summary is the end of a demo.
type summary struct {
	demo    *demo
	ledger  *ledger
	took    time.Duration
	count   int // what the file says
	written int // what it has to say
	verdict verdict
	cut     bool // somebody did not want to see the end
}

func newSummary(d *demo, l *ledger, count int) *summary {
	s := &summary{demo: d, ledger: l, count: count, verdict: inspect(l.turns, d.limit)}
	for _, t := range l.turns {
		if d.kind.role(t.weight).access == writes {
			s.written++
		}
	}
	// Nobody knows of those that ended while they had the lock whether they had written.
	open := 0
	for _, m := range l.members {
		if m.now.acquired != 0 && d.kind.role(m.now.weight).access == writes {
			open++
		}
	}
	s.verdict.counts = miscounts(count, s.written, open)
	return s
}

func (s *summary) String() string {
	l := s.ledger
	var b strings.Builder
	fmt.Fprintf(&b, "\n %s of %s in %.1f s\n\n", show.Plural(len(l.turns), "turn", "turns"),
		show.Plural(s.demo.workers, "process", "processes"), s.took.Seconds())
	row := func(name string, ds []time.Duration, note string) {
		if d := spreadOf(ds); len(ds) > 0 {
			fmt.Fprintf(&b, " %-10s p50 %-8s p99 %-8s max %-8s %d, %s\n",
				name, show.Brief(d.p50), show.Brief(d.p99), show.Brief(d.max), len(ds), note)
		}
	}
	row("hand-over", l.handovers, "from release to next")
	for i, r := range s.demo.kind.roles {
		row(r.wait, s.waits(i), "from ask to held")
	}
	done := make([]int, len(l.members))
	for i, m := range l.members {
		done[i] = m.done
	}
	fmt.Fprintf(&b, " %-10s %s   fairness %.3f (1 is even)\n", "turns", strings.Trim(fmt.Sprint(done), "[]"), fairness(done))
	if f := l.fault; f != nil {
		fmt.Fprintf(&b, " %-10s %s\n", "fault", f)
	}
	if l.lost > 0 {
		fmt.Fprintf(&b, " %-10s %d, noticed before the write\n", "lost", l.lost)
	}
	return b.String() + s.violations() + "\n"
}

// waits are how long the turns in one role had to wait.
func (s *summary) waits(role int) (ds []time.Duration) {
	for _, t := range s.ledger.turns {
		if s.demo.kind.index(t.weight) == role {
			ds = append(ds, t.wait())
		}
	}
	return ds
}

// violations tells what was found, or what was looked for.
func (s *summary) violations() string {
	file := ""
	if s.demo.kind.writes() {
		file = fmt.Sprintf("\n            the file counts %d of %d", s.count, s.written)
	}
	v := s.verdict
	if v.violations() == 0 {
		return fmt.Sprintf(" violations 0: %s%s\n", s.demo.kind.rule, file)
	}
	var found []string
	for _, f := range []struct {
		n         int
		one, many string
	}{
		{v.overlaps, s.demo.kind.excess[0], s.demo.kind.excess[1]},
		{v.fences, "fence does not increase", "fences do not increase"},
		{v.torn, "read saw a change", "reads saw a change"},
		{v.counts, "count is wrong", "counts are wrong"},
	} {
		if f.n > 0 {
			found = append(found, show.Plural(f.n, f.one, f.many))
		}
	}
	return fmt.Sprintf(" VIOLATIONS %d: %s%s\n", v.violations(), strings.Join(found, ", "), file)
}

// failure is the end that the exit code tells.
func (s *summary) failure() error {
	switch {
	case s.verdict.violations() > 0:
		return exit.With(exit.Violation, errors.New(show.Plural(s.verdict.violations(), "violation", "violations")))
	case len(s.ledger.turns) == 0 && !s.cut:
		return exit.With(exit.Failure, errors.New("nobody had a turn"))
	}
	return nil
}

// printNotes prints what the workers said besides their events.
func (c *crew) printNotes(w io.Writer, killed *fault) {
	for i, n := range c.notes {
		if killed != nil && killed.worker == i+1 {
			continue // as it was meant to be
		}
		for line := range strings.Lines(n.String()) {
			fmt.Fprintf(w, "process %d: %s\n", i+1, strings.TrimSuffix(line, "\n"))
		}
	}
}
