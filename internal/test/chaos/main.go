// Chaos makes faults while processes use locks, and finds out from outside of the library
// whether it kept its promises.
//
//	go run ./internal/test/chaos -for 8m -topology single
//
// Workers are processes that take and release locks of all kinds. A nemesis stops, kills and
// confuses servers, links and workers, with one or two faults at a time. Each worker writes
// down what it does before and after, with a clock that all processes have in common. In the
// end that is judged by itself: nobody asks the library.
//
// A run of more than 8 min is several slices, which add up: see -continue.
//
// In a storm of safe faults all promises hold. There are also storms of faults in which the
// store forgets leases, or its clock steps; there fences must increase, and that is all.
// After each storm comes a calm, in which all who wait must get their turn.
//
// The program ends with 1 if a promise was broken, or if the run is void: there was too
// little load, or nobody felt the faults. With -write it puts its table into
// docs/reliability.md, in the section of the topology.
package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"time"

	"github.com/redis/go-redis/v9/logging"

	"github.com/holdfast-go/holdfast/internal/test/crew"
)

func main() {
	crew.Enter()
	logging.Disable()
	p, b := plan{}, books{}
	flag.DurationVar(&p.length, "for", time.Minute, "how long the workers work; a run of more than 8 min is several slices")
	flag.StringVar(&p.topology, "topology", "single", strings.Join(topologies, ", "))
	flag.IntVar(&p.worlds, "worlds", 1, "how many of them run side by side, each with faults of its own")
	flag.IntVar(&p.workers, "workers", 4, "processes of each")
	flag.IntVar(&p.actors, "actors", 0, "goroutines of each; the default depends on the topology")
	flag.Uint64Var(&p.seed, "seed", rand.Uint64N(1<<32), "of the order of faults")
	flag.Float64Var(&p.load, "load", 0, "grants/s before the first fault, below which the run is void; the default depends on the topology")
	flag.StringVar(&p.sabotage, "sabotage", "", "a bug for the workers to have: "+strings.Join(bugs, ", "))
	flag.StringVar(&p.keep, "keep", "", "directory to keep the histories in")
	flag.StringVar(&p.only, "only", "", "what the kinds of faults to make begin with, such as \"link\"")
	flag.BoolVar(&p.thefts, "thefts", false, "use only locks that may be stolen; not with -continue")
	flag.StringVar(&b.slices, "continue", "", "file of slices to add this run to, such as docs/reliability.jsonl; the table is of all that have its hash")
	flag.StringVar(&b.report, "write", "", "report to put the table into, such as docs/reliability.md")
	flag.BoolVar(&b.only, "sum", false, "run nothing: only add up what there is")
	verbose := flag.Bool("v", false, "say what is done")
	flag.Parse()
	p.log = func(format string, args ...any) {
		if *verbose {
			fmt.Fprintf(os.Stderr, format+"\n", args...)
		}
	}
	if p.thefts && b.slices != "" {
		fmt.Fprintln(os.Stderr, "-thefts: such slices do not count, as they have not all locks")
		os.Exit(2)
	}
	if err := b.play(p); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// books say where slices and tables are kept.
type books struct {
	slices, report string
	only           bool // no run
}

// play runs slices, one after the other, and tells what they found.
func (b books) play(p plan) error {
	version, err := commit(b.slices, b.report)
	if err != nil {
		return err
	}
	hash, err := matter()
	if err != nil {
		return err
	}
	t := &total{}
	var failed []error
	for left := p.length; left > 0 && !b.only; left -= sliceLength {
		one := p
		one.length = min(left, sliceLength)
		s, err := one.runSlice()
		if err != nil {
			return errors.Join(append(failed, err)...)
		}
		s.Commit, s.Hash, s.Date = version, hash, time.Now().Format(time.DateOnly)
		failed = append(failed, s.err())
		t.take(s, hash)
		if b.slices != "" {
			if err := keepSlice(b.slices, s); err != nil {
				return err
			}
		}
		fmt.Fprintf(os.Stderr, "%v, %d grants, %d steals, %v\n", s.Took.Round(time.Second), s.Counts["grants"], s.Counts["steals"], cmp.Or(s.err(), errFine))
		p.seed += uint64(p.worlds) * worldsApart
	}
	return errors.Join(append(failed, b.tell(p.topology, hash, t))...)
}

var errFine = errors.New("no promise was broken")

// tell prints and publishes the sum of all slices that count.
func (b books) tell(topology, hash string, t *total) (err error) {
	if b.slices != "" {
		if t, err = sumUp(b.slices, topology, hash); err != nil {
			return err
		}
	}
	if t.Slices == 0 {
		return errors.New("no slice counts")
	}
	fmt.Printf("%s\n\n%s", t.provenance(), t.table())
	if b.report == "" {
		return nil
	}
	command := "go run ./internal/test/chaos -topology " + topology
	return publish(b.report, topology, t.provenance()+": `"+command+"`", t.table())
}
