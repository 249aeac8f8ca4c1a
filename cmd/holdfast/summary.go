package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// summary is the end of a demo.
type summary struct {
	demo    *demo
	ledger  *ledger
	took    time.Duration
	count   int // what the file says
	verdict verdict
	cut     bool // somebody did not want to see the end
}

func (s *summary) String() string {
	l := s.ledger
	var b strings.Builder
	fmt.Fprintf(&b, "\n %s of %s in %.1f s\n\n", plural(len(l.turns), "turn", "turns"),
		plural(s.demo.workers, "process", "processes"), s.took.Seconds())
	row := func(name string, d spread, note string) {
		fmt.Fprintf(&b, " %-10s p50 %-8s p99 %-8s max %-8s %s\n", name, brief(d.p50), brief(d.p99), brief(d.max), note)
	}
	row("hand-over", spreadOf(l.handovers),
		fmt.Sprintf("%d, from release to next", len(l.handovers)))
	row("wait", spreadOf(l.waits), "from ask to held")
	done := make([]int, len(l.members))
	for i, m := range l.members {
		done[i] = m.done
	}
	fmt.Fprintf(&b, " %-10s %s   fairness %.3f (1 is even)\n", "turns", strings.Trim(fmt.Sprint(done), "[]"), fairness(done))
	if l.lost > 0 {
		fmt.Fprintf(&b, " %-10s %d, noticed before the write\n", "lost", l.lost)
	}
	v := s.verdict
	if v.violations() == 0 {
		fmt.Fprintf(&b, " %-10s 0: no overlap in time, fences increase, the file counts %d of %d\n\n", "violations", s.count, len(l.turns))
	} else {
		fmt.Fprintf(&b, " %-10s %d: %s, %s,\n            %s (%d of %d)\n\n", "VIOLATIONS", v.violations(),
			plural(v.overlaps, "turn overlaps", "turns overlap"),
			plural(v.fences, "fence does not increase", "fences do not increase"),
			plural(v.counts, "count is wrong", "counts are wrong"), s.count, len(l.turns))
	}
	return b.String()
}

// failure is the end that the exit code tells.
func (s *summary) failure() error {
	switch {
	case s.verdict.violations() > 0:
		return &failure{exitViolation, errors.New("mutual exclusion was violated")}
	case len(s.ledger.turns) == 0 && !s.cut:
		return &failure{exitFailure, errors.New("nobody had a turn")}
	}
	return nil
}

// printNotes prints what the workers said besides their events.
func (c *crew) printNotes(w io.Writer) {
	for i, n := range c.notes {
		for line := range strings.Lines(n.String()) {
			fmt.Fprintf(w, "process %d: %s\n", i+1, strings.TrimSuffix(line, "\n"))
		}
	}
}
