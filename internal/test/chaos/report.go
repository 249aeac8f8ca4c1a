package main

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
)

// table is a sum for people, in Markdown.
func (s *sum) table() string {
	var b strings.Builder
	s.tellFaults(&b)
	fmt.Fprintf(&b, "| | |\n|---|---|\n")
	line := func(what, format string, args ...any) {
		fmt.Fprintf(&b, "| %s | %s |\n", what, fmt.Sprintf(format, args...))
	}
	s.tellLoad(line)
	s.tellPromises(line)
	s.tellThefts(line)
	s.tellBounds(line)
	verdict := "no promise was broken"
	if v := violations(s.Counts); len(v) > 0 {
		verdict = strings.Join(v, "; ")
	}
	if len(s.Void) > 0 {
		verdict += "; void: " + strings.Join(s.Void, "; ")
	}
	line("verdict", "%s", verdict)
	return b.String()
}

func (s *sum) tellFaults(b *strings.Builder) {
	fmt.Fprintf(b, "| fault | set | times | felt | mean length |\n|---|---|---|---|---|\n")
	made, felt := 0, 0
	for _, kind := range s.kinds() {
		t := s.Faults[kind]
		made, felt = made+t.Made, felt+t.Felt
		mean := (t.Total / time.Duration(t.Made)).Round(10 * time.Millisecond)
		fmt.Fprintf(b, "| %s | %s | %d | %d | %v |\n", kind, t.Set, t.Made, t.Felt, mean)
	}
	fmt.Fprintf(b, "| all | | %d | %d | |\n\n", made, felt)
}

// teller writes a line of a table.
type teller func(what, format string, args ...any)

func (s *sum) tellLoad(line teller) {
	c := s.Counts
	line("length, worlds side by side, workers of each, goroutines of each", "%v, %d, %d, %d",
		s.Took.Round(time.Second), s.Worlds, s.Workers, s.Actors)
	line("grants/s before the first fault, in the slowest world", "%.0f", s.Load)
	line("grants/s, faults included; time of processors for a grant, servers and judges included", "%.0f; %v",
		float64(c["grants"])/s.Took.Seconds(), (s.CPU / time.Duration(max(1, c["grants"]))).Round(10*time.Microsecond))
	line("acquisitions asked for", "%d", c["asked"])
	line("grants", "%d (mutex %d, rwmutex %d, semaphore %d)", c["grants"], c["mutex"], c["rwmutex"], c["semaphore"])
	line("of these as parts of All", "%d", c["parts"])
	line("cancelled, busy, killed", "%d, %d, %d", c["cancelled"], c["busy"], c["killed"])
	line("leases lost", "%d", c["lost"])
}

func (s *sum) tellPromises(line teller) {
	c := s.Counts
	line("**overlaps of belief, safe set**", "**%d**", c[overlaps])
	line("overlaps of belief while data are lost or the clock steps", "%d", c["unsafe overlaps"])
	line("**fences out of order, or given twice, in all sets**", "**%d**", c[inversions]+c[doubles])
	line("late hand-overs within a process that lost the lock with the data, or to a thief (promise 5)", "%d", c["late hand-overs"])
	if n := c["clock losses"]; n > 0 {
		line("fences out of order over two steps of the clock by an hour, of which the first has lost data (no promise)", "%d", n)
	}
	line("histories that porcupine found linearizable, and not", "%d, **%d**", c["linear"], c[illegal])
	line(fmt.Sprintf("waits that did not end within %v of the last fault", s.Patience), "**%d**", c[stuck])
	line("longest recovery", "%v", s.Recovery.Round(time.Millisecond))
	if c["queued"] > 0 {
		line("waiters in a calm, and of these overtaken", "%d, **%d**", c["queued"], c[overtaken])
	}
	line("updates of the resource by holders that did not look", "%d", c["updates"])
	line("of these lost without a fence", "%d", c["lost updates"])
	line("of these lost with a fence; accesses refused by it", "**%d**; %d", c[fencedLost], c["refusals"])
	line("keys without TTL, keys that outlive their use", "%d, %d", c[eternal], c[forgotten])
	line("goroutines and connections left in the end", "%d, %d", c[goroutines], c[conns])
}

func (s *sum) tellThefts(line teller) {
	c := s.Counts
	if c["steals"] == 0 {
		return
	}
	line("steals, holders surely robbed, of these told by whom before they released", "%d, %d, %d", c["steals"], c["victims"], c["named"])
	line("**third holders, victims that heard too late, thieves named wrongly**", "**%d**, **%d**, **%d**", c[thirds], c[deaf], c[slandered])
	line("belief of a victim after the theft, in a calm: half, 99 % and all of them less than", "%v, %v, %v",
		within(s.Heard, 0.5), within(s.Heard, 0.99), within(s.Heard, 1))
	line("histories with a theft that nobody confirmed, not shown to porcupine", "%d", c["unclear"])
}

func (s *sum) tellBounds(line teller) {
	c := s.Counts
	if c["yields"] > 0 {
		line("holders that heard of a waiter in a calm: half, 99 % and all of them within", "%d: %v, %v, %v", c["yields"],
			within(s.Yields, 0.5), within(s.Yields, 0.99), within(s.Yields, 1))
		line("of holders in a calm, those that did not hear of a waiter", "**%d**", c[unheard])
		line("grants with WithMinHold in a calm, those too early", "%d, **%d**", c["ticks"], c[early])
		line("leases that WithMaxHold has ended, those in a calm that it has not", "%d, **%d**", c["ended"], c[hung])
		line("moments in a calm with more waiters than WithMaxWaiters allows", "**%d**", c[crowds])
	}
}

// titles of the sections of the report.
var titles = map[string]string{
	"single":   "One server",
	"sentinel": "Sentinel: a master and two replicas",
	"cluster":  "Cluster: three masters, a replica each",
	"redlock":  "Redlock: five servers",
}

// publish puts a sum into the section of its topology in the report.
func publish(name, topology, head, table string) error {
	old, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	begin, end := marks(topology)
	before, rest, ok := bytes.Cut(old, []byte(begin))
	_, after, ok2 := bytes.Cut(rest, []byte(end))
	if !ok || !ok2 {
		return fmt.Errorf("%s: no section between %s and %s", name, begin, end)
	}
	section := fmt.Sprintf("%s\n## %s\n\n%s\n\n%s\n%s", begin, titles[topology], head, table, end)
	return os.WriteFile(name, slices.Concat(before, []byte(section), after), 0o644)
}

func marks(topology string) (begin, end string) {
	return "<!-- chaos " + topology + " -->", "<!-- end of chaos " + topology + " -->"
}
