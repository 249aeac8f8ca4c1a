package main

import (
	"bytes"
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// table is the outcome for people, in Markdown.
func (o *outcome) table() string {
	var b strings.Builder
	type row struct {
		set        set
		made, felt int
		total      time.Duration
	}
	rows := map[string]*row{}
	for _, e := range o.events {
		r := rows[e.fault.kind]
		if r == nil {
			r = &row{set: e.fault.set}
			rows[e.fault.kind] = r
		}
		r.made++
		r.total += time.Duration(e.end - e.start)
		if e.felt {
			r.felt++
		}
	}
	kinds := make([]string, 0, len(rows))
	for kind := range rows {
		kinds = append(kinds, kind)
	}
	slices.SortFunc(kinds, func(a, b string) int {
		return cmp.Or(-cmp.Compare(rows[a].set, rows[b].set), cmp.Compare(a, b))
	})
	fmt.Fprintf(&b, "| fault | set | times | felt | mean length |\n|---|---|---|---|---|\n")
	made, felt := 0, 0
	for _, kind := range kinds {
		r := rows[kind]
		made, felt = made+r.made, felt+r.felt
		mean := (r.total / time.Duration(r.made)).Round(10 * time.Millisecond)
		fmt.Fprintf(&b, "| %s | %s | %d | %d | %v |\n", kind, r.set, r.made, r.felt, mean)
	}
	fmt.Fprintf(&b, "| all | | %d | %d | |\n\n", made, felt)

	fmt.Fprintf(&b, "| | |\n|---|---|\n")
	line := func(what, format string, args ...any) {
		fmt.Fprintf(&b, "| %s | %s |\n", what, fmt.Sprintf(format, args...))
	}
	line("length, workers, goroutines of each", "%v, %d, %d", o.took.Round(time.Second), o.plan.workers, o.plan.actors)
	line("seed", "%d", o.plan.seed)
	line("grants/s before the first fault", "%.0f", o.load)
	var byKind []string
	for _, kind := range []string{"mutex", "rwmutex", "semaphore"} {
		if n := o.grantsByKind[kind]; n > 0 {
			byKind = append(byKind, fmt.Sprintf("%s %d", kind, n))
		}
	}
	line("acquisitions asked for", "%d", o.asked)
	line("grants", "%d (%s)", o.grants, strings.Join(byKind, ", "))
	line("cancelled, busy, killed", "%d, %d, %d", o.cancels, o.busy, o.killed)
	line("leases lost", "%d", o.losses)
	line("**overlaps of belief, safe set**", "**%d**", o.overlaps)
	line("overlaps of belief while data are lost or the clock steps", "%d", o.unsafeOverlaps)
	line("**fences out of order, or given twice, in all sets**", "**%d**", o.inversions+o.doubles)
	line("late hand-overs within a process that lost the lock with the data (promise 5)", "%d", o.lateHandOvers)
	line("histories that porcupine found linearizable, and not", "%d, **%d**", o.linear, o.illegal)
	line(fmt.Sprintf("waits that did not end within %v of the last fault", o.patience), "**%d**", o.stuck)
	line("longest recovery", "%v", o.recovery.Round(time.Millisecond))
	if o.queued > 0 {
		line("waiters in a calm, and of these overtaken", "%d, **%d**", o.queued, o.overtaken)
	}
	line("updates of the resource by holders that did not look", "%d", o.writes)
	line("of these lost without a fence", "%d", o.lostUpdates)
	line("of these lost with a fence; accesses refused by it", "**%d**; %d", o.fencedLost, o.refusals)
	line("keys without TTL, keys that outlive their use", "%d, %d", len(o.eternal), len(o.forgotten))
	line("goroutines and connections left in the end", "%d, %d", o.goroutines, o.connections)
	verdict := "no promise was broken"
	if v := o.violations(); len(v) > 0 {
		verdict = strings.Join(v, "; ")
	}
	if len(o.void) > 0 {
		verdict += "; void: " + strings.Join(o.void, "; ")
	}
	line("verdict", "%s", verdict)
	return b.String()
}

// titles of the sections of the report.
var titles = map[string]string{
	"single":   "One server",
	"sentinel": "Sentinel: a master and two replicas",
	"cluster":  "Cluster: three masters, a replica each",
	"redlock":  "Redlock: five servers",
}

// publish puts the outcome into its section of the report.
func (o *outcome) publish(name, command string) error {
	old, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	begin, end := marks(o.plan.topology)
	before, rest, ok := bytes.Cut(old, []byte(begin))
	_, after, ok2 := bytes.Cut(rest, []byte(end))
	if !ok || !ok2 {
		return fmt.Errorf("%s: no section between %s and %s", name, begin, end)
	}
	commit, err := exec.Command("git", "rev-parse", "--short", "HEAD").Output()
	if err != nil {
		return err
	}
	if exec.Command("git", "diff", "--quiet", "HEAD", "--", ":/", ":!/"+name).Run() != nil {
		commit = append(bytes.TrimSpace(commit), " with changes"...)
	}
	section := fmt.Sprintf("%s\n## %s\n\n%s, commit %s: `%s`\n\n%s%s", begin, titles[o.plan.topology],
		time.Now().Format(time.DateOnly), bytes.TrimSpace(commit), command, o.table(), end)
	return os.WriteFile(name, slices.Concat(before, []byte(section), after), 0o644)
}

func marks(topology string) (begin, end string) {
	return "<!-- chaos " + topology + " -->", "<!-- end of chaos " + topology + " -->"
}
