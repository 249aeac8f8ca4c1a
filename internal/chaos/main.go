// Chaos makes faults while processes use locks, and finds out from outside of the library
// whether it kept its promises.
//
//	go run ./internal/chaos -for 10m -topology single
//
// Workers are processes that take and release locks of all kinds. A nemesis stops, kills and
// confuses servers, links and workers, with one or two faults at a time. Each worker writes
// down what it does before and after, with a clock that all processes have in common. In the
// end that is judged by itself: nobody asks the library.
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
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"time"

	"github.com/redis/go-redis/v9/logging"
)

func main() {
	runWorker()
	logging.Disable()
	p := plan{}
	flag.DurationVar(&p.length, "for", time.Minute, "how long the workers work")
	flag.StringVar(&p.topology, "topology", "single", strings.Join(topologies, ", "))
	flag.IntVar(&p.workers, "workers", 4, "processes")
	flag.IntVar(&p.actors, "actors", 0, "goroutines of each; the default depends on the topology")
	flag.Uint64Var(&p.seed, "seed", rand.Uint64N(1<<32), "of the order of faults")
	flag.Float64Var(&p.load, "load", 0, "grants/s before the first fault, below which the run is void; the default depends on the topology")
	flag.StringVar(&p.sabotage, "sabotage", "", "a bug for the workers to have: "+ignoreLoss+" or "+releaseAnybody)
	flag.StringVar(&p.keep, "keep", "", "directory to keep the histories in")
	flag.StringVar(&p.only, "only", "", "what the kinds of faults to make begin with, such as \"link\"")
	report := flag.String("write", "", "report to put the table into, such as docs/reliability.md")
	verbose := flag.Bool("v", false, "say what is done")
	flag.Parse()
	p.log = func(format string, args ...any) {
		if *verbose {
			fmt.Fprintf(os.Stderr, format+"\n", args...)
		}
	}
	if err := p.play(*report); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func (p plan) play(report string) error {
	o, err := run(p)
	if err != nil {
		return err
	}
	fmt.Print(o.table())
	if report != "" {
		command := fmt.Sprintf("go run ./internal/chaos -for %v -topology %s", p.length, p.topology)
		if err := o.publish(report, command); err != nil {
			return err
		}
	}
	return o.err()
}
