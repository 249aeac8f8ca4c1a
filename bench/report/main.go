// Command report runs the works of package bench and writes the results: a page with a
// table for each work, and plots.
//
//	go run ./report           all of it, for up to 20 minutes
//	go run ./report -quick    enough to see that it works, not to believe a figure
//	go run ./report -json     one object per work and contender, no page
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/bench"
	"github.com/holdfast-go/holdfast/internal/test/awake"
)

type options struct {
	quick bool
	json  bool
	redis string
	dir   string
	only  *regexp.Regexp
}

func main() {
	var o options
	only := flag.String("works", "", "only the works whose names match this `regexp`")
	flag.BoolVar(&o.quick, "quick", false, "finish within 3 minutes")
	flag.BoolVar(&o.json, "json", false, "print one object per work and contender instead of the page")
	flag.StringVar(&o.dir, "dir", ".", "where RESULTS.md and its plots go")
	flag.StringVar(&o.redis, "redis", os.Getenv("HOLDFAST_REDIS_ADDR"), "`address` of a Redis that nobody else uses, instead of one of our own")
	flag.Parse()
	o.only = regexp.MustCompile(*only)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, o, os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options, out, progress io.Writer) (err error) {
	h := new(host)
	defer func() {
		if f, failed := recover().(failure); failed {
			err = f
		}
		h.close()
	}()
	if o.redis != "" {
		if err := os.Setenv("HOLDFAST_REDIS_ADDR", o.redis); err != nil {
			return err
		}
	}
	sleep, err := awake.Keep()
	if err != nil {
		return err
	}
	defer sleep()
	stage := bench.NewStage(h, o.redis)
	machine, err := describe(ctx, stage)
	if err != nil {
		return err
	}
	began := time.Now()
	var chapters []chapter
	for _, w := range slices.Concat(bench.Works(), bench.Sweep) {
		tooLong := o.quick && w.Name == "Waiters/10000" // which takes a third of the time
		if tooLong || !o.only.MatchString(w.Name) {
			continue
		}
		fmt.Fprintf(progress, "%6.0fs  %s\n", time.Since(began).Seconds(), w.Name)
		c, err := write(ctx, stage, w, o.quick)
		if err != nil {
			return err
		}
		chapters = append(chapters, c)
	}
	if o.json {
		return printJSON(out, chapters)
	}
	return publish(o.dir, page{machine, o.quick, time.Since(began), chapters})
}

// chapter is the result of a work.
type chapter struct {
	bench.Work
	results []bench.Result
	absent  []string
}

// of returns the result of a contender, nil if it has none.
func (c chapter) of(contender string) *bench.Result {
	for i, r := range c.results {
		if r.Contender == contender {
			return &c.results[i]
		}
	}
	return nil
}

func write(ctx context.Context, s *bench.Stage, w bench.Work, quick bool) (chapter, error) {
	turns, time := w.Turns, w.Time
	if quick {
		turns, time = (turns+9)/10, time/4
	}
	c := chapter{Work: w}
	all := map[string][]bench.Turn{}
	err := bench.Run(ctx, s, w, turns, time,
		func(of bench.Contender, t bench.Turn) { all[of.Name] = append(all[of.Name], t) },
		func(of bench.Contender, why error) { c.absent = append(c.absent, of.Name+": "+why.Error()) })
	for _, of := range w.Contenders {
		if len(all[of.Name]) > 0 {
			r := bench.Summary(all[of.Name])
			r.Work, r.Contender, r.Role = w.Name, of.Name, of.Role
			c.results = append(c.results, r)
		}
	}
	return c, err
}

func printJSON(out io.Writer, chapters []chapter) error {
	e := json.NewEncoder(out)
	for _, c := range chapters {
		for _, r := range c.results {
			if err := e.Encode(r); err != nil {
				return err
			}
		}
	}
	return nil
}
