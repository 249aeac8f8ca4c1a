// Mutants puts known bugs into holdfast, one after the other, and shows which test finds each.
// A bug that no test finds is a hole in the tests.
//
//	go run ./internal/mutants              # all of them
//	go run ./internal/mutants -run redlock # those whose name matches
//	go run ./internal/mutants -sample 12   # so many of them, at random
//	go run ./internal/mutants -part 3/10   # the third tenth
//	go run ./internal/mutants -list        # what there is
//
// The bugs are data: text that stands in a file once, and text to put in its place. Nothing
// in the work tree changes, because the go command reads the changed file from an overlay
// (go help build). Before a bug is put in, the tests that must find it pass without it.
//
// Tests run as they do in the gate, and if these find nothing, as they do in the soak. The table says
// which it was.
//
// The program ends with 1 if a bug is not found, if its text has gone, or if a test fails
// without any bug.
package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"
)

func main() {
	run := flag.String("run", "", "only mutants whose name matches this `regexp`")
	jobs := flag.Int("jobs", 2, "mutants at a time")
	timeout := flag.Duration("timeout", 2*time.Minute, "for the tests of one tier; a mutant for which they take longer is found")
	sound := flag.Bool("sound", true, "first see the tests pass without a mutant")
	sample := flag.Int("sample", 0, "only so `many` of them, at random; 0 for all")
	seed := flag.Uint64("seed", rand.Uint64(), "which sample")
	part := flag.String("part", "1/1", "which of how many parts of them")
	list := flag.Bool("list", false, "say what the mutants are, and test nothing")
	flag.Parse()
	if *list {
		for _, m := range mutants {
			fmt.Printf("%s: %s\n\t%s, %s\n", m.name, m.bug, m.file, m.tests[0].tier)
		}
		return
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := hunt(ctx, *run, draw{*sample, *seed, *part}, *jobs, *timeout, *sound); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		stop()
		os.Exit(1)
	}
}

// mutant is a bug.
type mutant struct {
	name string // as -run selects it: the part of holdfast, and the bug in few words
	bug  string // in one sentence
	of   string // the rule or defect that it is, such as "rule 5" or "B4"; empty for none

	file     string // from the root of the module
	old, new string // old stands in the file once

	tests []tests // that must find it, the cheapest first
}

// tests are some tests of a package.
type tests struct {
	tier  tier
	pkg   string // from the root of the module
	names string // with spaces between; a slash comes before the name of a subtest
}

// inGate and inSoak are the environments of tests there.
var (
	inGate = []string{"HOLDFAST_SOAK=", "HOLDFAST_LEGS="}
	inSoak = []string{"HOLDFAST_SOAK=1", "HOLDFAST_LEGS=all"}
)

// tier says what kind of test finds a bug. A cheaper one comes first.
type tier string

const (
	unit     tier = "unit"     // of a package and what it stands on
	contract tier = "contract" // driver/drivertest, which all stores pass
	model    tier = "model"    // a store is compared with a model, or searched for bad states
	behavior tier = "behavior" // a promise to the user, seen from outside
	schedule tier = "schedule" // simulation: schedules and faults in virtual time
	chaos    tier = "chaos"    // processes that are killed, paused and cut off
)

// pattern is the names as a regular expression for -test.run.
func (t tests) pattern() string {
	var all []string
	for name := range strings.FieldsSeq(t.names) {
		all = append(all, "^"+strings.ReplaceAll(name, "/", "$/^")+"$")
	}
	return strings.Join(all, "|")
}

// result is what became of a mutant.
type result struct {
	*mutant
	found string // by which test; empty if by none
	soak  bool   // the gate does not find it
	tier  tier
	took  time.Duration // from the build to the end of the tests
	err   error         // why it could not be tried
}

// hunter tries mutants.
type hunter struct {
	root    string // of the module
	scratch string
	timeout time.Duration
}

// draw is how many mutants are tried, 0 for all, and which, or which part of them.
type draw struct {
	many int
	seed uint64
	part string // such as 3/10, or empty for all
}

// from returns the sample of all, in the order of all.
func (d draw) from(all []*mutant) []*mutant {
	var k, n int
	if _, err := fmt.Sscanf(d.part, "%d/%d", &k, &n); err == nil && 0 < k && k <= n {
		all = all[(k-1)*len(all)/n : k*len(all)/n]
	}
	if d.many == 0 || d.many >= len(all) {
		return all
	}
	fmt.Printf("%d of %d mutants: -sample %d -seed %d\n", d.many, len(all), d.many, d.seed)
	places := rand.New(rand.NewPCG(d.seed, 0)).Perm(len(all))[:d.many]
	slices.Sort(places)
	var some []*mutant
	for _, i := range places {
		some = append(some, all[i])
	}
	return some
}

func hunt(ctx context.Context, run string, sample draw, jobs int, timeout time.Duration, sound bool) error {
	want, err := regexp.Compile(run)
	if err != nil {
		return err
	}
	root, err := moduleRoot(ctx)
	if err != nil {
		return err
	}
	scratch, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(scratch) }()
	h := &hunter{root, scratch, timeout}
	var chosen []*mutant
	for i := range mutants {
		if m := &mutants[i]; want.MatchString(m.name) {
			chosen = append(chosen, m)
		}
	}
	if len(chosen) == 0 {
		return fmt.Errorf("no mutant matches %q", run)
	}
	chosen = sample.from(chosen)
	if sound {
		if err := h.unharmed(ctx, chosen); err != nil {
			return err
		}
	}

	results := make([]result, len(chosen))
	var next, told sync.Mutex
	var wg sync.WaitGroup
	i := 0
	for range max(jobs, 1) {
		wg.Go(func() {
			for {
				next.Lock()
				mine := i
				i++
				next.Unlock()
				if mine >= len(chosen) || ctx.Err() != nil {
					return
				}
				r := h.try(ctx, chosen[mine])
				told.Lock()
				fmt.Fprintf(os.Stderr, "%3d/%d %s\n", mine+1, len(chosen), r)
				told.Unlock()
				results[mine] = r
			}
		})
	}
	wg.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return report(results)
}

// moduleRoot is the folder of go.mod.
func moduleRoot(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	mod := strings.TrimSpace(string(out))
	if err != nil || filepath.Base(mod) != "go.mod" {
		return "", fmt.Errorf("no go.mod here: %q, %v", mod, err)
	}
	return filepath.Dir(mod), nil
}

// unharmed runs all tests that shall find the mutants, without any of them.
func (h *hunter) unharmed(ctx context.Context, chosen []*mutant) error {
	needed := map[string][]string{} // of a package
	for _, m := range chosen {
		for _, t := range m.tests {
			needed[t.pkg] = append(needed[t.pkg], strings.Fields(t.names)...)
		}
	}
	for pkg, names := range needed {
		slices.Sort(names)
		t := tests{pkg: pkg, names: strings.Join(slices.Compact(names), " ")}
		binary := filepath.Join(h.scratch, "unharmed.test")
		if err := h.build(ctx, t.pkg, "", binary); err != nil {
			return err
		}
		patient := *h
		patient.timeout = 10 * h.timeout // for the tests of many mutants
		for _, env := range [][]string{inGate, inSoak} {
			failed, out, err := patient.run(ctx, binary, t, env)
			if err == nil && failed != "" {
				err = fmt.Errorf("%s fails in %s without a mutant:\n%s", failed, pkg, out)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// try puts a mutant in, and runs its tests until one fails.
func (h *hunter) try(ctx context.Context, m *mutant) result {
	r, began := result{mutant: m}, time.Now()
	dir, err := os.MkdirTemp(h.scratch, "mutant")
	if err != nil {
		r.err = err
		return r
	}
	defer func() { _ = os.RemoveAll(dir) }()
	overlay, err := h.overlay(m, dir)
	for place, env := range [][]string{inGate, inSoak} {
		for i, t := range m.tests {
			binary := filepath.Join(dir, fmt.Sprint(i, ".test"))
			if _, built := os.Stat(binary); err == nil && built != nil {
				err = h.build(ctx, t.pkg, overlay, binary)
			}
			if err == nil && r.found == "" {
				r.found, _, err = h.run(ctx, binary, t, env)
				r.tier, r.soak = t.tier, place == 1
			}
		}
	}
	r.took, r.err = time.Since(began), err
	return r
}

// overlay writes the file with the bug, and what tells the go command to read it.
func (h *hunter) overlay(m *mutant, dir string) (string, error) {
	file := filepath.Join(h.root, m.file)
	text, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	mutated, err := m.mutate(string(text))
	if err != nil {
		return "", err
	}
	harmed, overlay := filepath.Join(dir, filepath.Base(file)), filepath.Join(dir, "overlay.json")
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {file: harmed}})
	return overlay, errors.Join(err, os.WriteFile(harmed, []byte(mutated), 0o600), os.WriteFile(overlay, replace, 0o600))
}

// mutate returns the text of a file with the bug in it.
func (m *mutant) mutate(text string) (string, error) {
	if n := strings.Count(text, m.old); n != 1 {
		return "", fmt.Errorf("%s: found %d times, not once: %q", m.file, n, m.old)
	}
	return strings.Replace(text, m.old, m.new, 1), nil
}

// build makes the test binary of a package. A mutant that does not build is no bug.
func (h *hunter) build(ctx context.Context, pkg, overlay, binary string) error {
	args := []string{"test", "-c", "-vet=off", "-ldflags=-s -w", "-o", binary} // links faster
	if overlay != "" {
		args = append(args, "-overlay", overlay)
	}
	cmd := exec.CommandContext(ctx, "go", append(args, "./"+pkg)...)
	cmd.Dir = h.root
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s does not build: %w\n%s", pkg, err, out)
	}
	return nil
}

var (
	failure = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)
	panics  = regexp.MustCompile(`(?m)^(?:panic|fatal error): .*`)
)

// run runs tests of a binary, and returns the one that failed, or nothing, and what it says.
func (h *hunter) run(ctx context.Context, binary string, t tests, env []string) (failed string, out []byte, err error) {
	cmd := exec.CommandContext(ctx, binary, "-test.failfast", "-test.timeout", h.timeout.String(), "-test.run", t.pattern())
	cmd.Dir, cmd.Env = filepath.Join(h.root, t.pkg), append(os.Environ(), env...)
	out, err = cmd.CombinedOutput()
	if _, ended := errors.AsType[*exec.ExitError](err); ended && ctx.Err() == nil {
		names := failure.FindAllSubmatch(out, -1)
		if len(names) > 0 { // the last is the innermost
			return string(names[len(names)-1][1]), out, nil
		}
		return cmp.Or(string(panics.Find(out)), "the end of the process"), out, nil
	}
	if err == nil && bytes.Contains(out, []byte("no tests to run")) {
		err = fmt.Errorf("%s has no test %s", t.pkg, t.names)
	}
	return "", out, err
}

// report prints a table, survivors last.
func report(results []result) error {
	rank := func(r result) int {
		switch {
		case r.err != nil:
			return 2
		case r.found == "":
			return 1
		}
		return 0
	}
	slices.SortStableFunc(results, func(a, b result) int { return cmp.Compare(rank(a), rank(b)) })
	w := tabwriter.NewWriter(os.Stdout, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "mutant\tof\ttier\tseconds\tfound by")
	bad, soaked := 0, 0
	for _, r := range results {
		by, tier := r.found, string(r.tier)
		if r.soak && r.found != "" {
			soaked++
			by += ", in the soak alone"
		}
		if rank(r) > 0 {
			bad++
			by, tier = "NOTHING", "-"
		}
		if r.err != nil {
			by = "ERROR: " + r.err.Error()
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%.1f\t%s\n", r.name, cmp.Or(r.of, "-"), tier, r.took.Seconds(), by)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if bad > 0 {
		return fmt.Errorf("%d of %d mutants were not found", bad, len(results))
	}
	fmt.Printf("%d of %d found, %d of them in the soak alone\n", len(results), len(results), soaked)
	return nil
}

func (r result) String() string {
	switch {
	case r.err != nil:
		return fmt.Sprintf("%s: %v", r.name, r.err)
	case r.found == "":
		return fmt.Sprintf("%s SURVIVES (%.1f s)", r.name, r.took.Seconds())
	}
	return fmt.Sprintf("%s: %s (%.1f s)", r.name, r.found, r.took.Seconds())
}
