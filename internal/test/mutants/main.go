package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

func main() {
	run := flag.String("run", "", "only mutants whose name matches this `regexp`")
	jobs := flag.Int("jobs", 2, "mutants at a time")
	timeout := flag.Duration("timeout", 2*time.Minute, "for one test; a mutant for which it takes longer is found")
	list := flag.Bool("list", false, "say what the mutants are, and test nothing")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := hunt(ctx, *run, *jobs, *timeout, *list); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		stop()
		os.Exit(1)
	}
}

// hunter tries mutants.
type hunter struct {
	root    string // of the module
	scratch string
	timeout time.Duration
}

func hunt(ctx context.Context, run string, jobs int, timeout time.Duration, list bool) error {
	want, err := regexp.Compile(run)
	if err != nil {
		return err
	}
	root, err := moduleRoot(ctx)
	if err != nil {
		return err
	}
	all, err := mutantsIn(filepath.Join(root, "internal/test/mutants/testdata"))
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(m *mutant) bool { return !want.MatchString(m.name) })
	if len(all) == 0 {
		return fmt.Errorf("no mutant matches %q", run)
	}
	if list {
		for _, m := range all {
			fmt.Printf("%s: %s\n\t%s, found by %s\n", m.name, m.bug, m.file, m.test)
		}
		return nil
	}
	scratch, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(scratch) }()
	h := &hunter{root, scratch, timeout}
	if err := h.unharmed(ctx, all); err != nil {
		return err
	}
	return h.tryAll(ctx, all, jobs)
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

// tests are those of one package that run in one environment.
type tests struct {
	pkg  string
	soak bool
}

// unharmed sees all tests pass without a mutant.
func (h *hunter) unharmed(ctx context.Context, all []*mutant) error {
	needed := map[tests][]string{}
	for _, m := range all {
		needed[tests{m.pkg, m.soak}] = append(needed[tests{m.pkg, m.soak}], m.pattern())
	}
	for t, patterns := range needed {
		binary := filepath.Join(h.scratch, "unharmed.test")
		if err := h.build(ctx, t.pkg, "", binary); err != nil {
			return err
		}
		patient := *h
		patient.timeout *= time.Duration(len(patterns))
		failed, out, err := patient.run(ctx, binary, t, strings.Join(patterns, "|"))
		if err == nil && failed != "" {
			err = fmt.Errorf("%s fails in %s without a mutant:\n%s", failed, t.pkg, out)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// tryAll tries several mutants at a time, and says what became of each.
func (h *hunter) tryAll(ctx context.Context, all []*mutant, jobs int) error {
	todo := make(chan *mutant)
	var told sync.Mutex
	var done int
	var alive []string
	var wg sync.WaitGroup
	for range max(jobs, 1) {
		wg.Go(func() {
			for m := range todo {
				began := time.Now()
				by, err := h.try(ctx, m)
				told.Lock()
				done++
				switch {
				case err != nil:
					by = err.Error()
				case by == "":
					by = m.test + " FINDS NOTHING"
				}
				if err != nil || strings.HasSuffix(by, "NOTHING") {
					alive = append(alive, m.name)
				}
				fmt.Printf("%3d/%d %s: %s (%.1f s)\n", done, len(all), m.name, by, time.Since(began).Seconds())
				told.Unlock()
			}
		})
	}
	for _, m := range all {
		if ctx.Err() == nil {
			todo <- m
		}
	}
	close(todo)
	wg.Wait()
	if ctx.Err() == nil && len(alive) > 0 {
		return fmt.Errorf("%d of %d were not found: %s", len(alive), len(all), strings.Join(alive, ", "))
	}
	return context.Cause(ctx)
}

// try puts a mutant in, and runs its test. It returns what failed, or nothing.
func (h *hunter) try(ctx context.Context, m *mutant) (string, error) {
	dir, err := os.MkdirTemp(h.scratch, "mutant")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	file, text, err := m.mutate(h.root)
	if err != nil {
		return "", err
	}
	harmed, overlay := filepath.Join(dir, filepath.Base(file)), filepath.Join(dir, "overlay.json")
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {file: harmed}})
	err = errors.Join(err, os.WriteFile(harmed, []byte(text), 0o600), os.WriteFile(overlay, replace, 0o600))
	if err != nil {
		return "", err
	}
	binary := filepath.Join(dir, "mutant.test")
	if err := h.build(ctx, m.pkg, overlay, binary); err != nil {
		return "", err
	}
	failed, out, err := h.run(ctx, binary, tests{m.pkg, m.soak}, m.pattern())
	if err == nil && failed == "" && strings.Contains(out, "--- SKIP: "+m.test+" ") {
		err = fmt.Errorf("%s is skipped here", m.test)
	}
	return failed, err
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

// pattern is the test for -test.run.
func (m *mutant) pattern() string {
	return "^" + strings.ReplaceAll(m.test, "/", "$/^") + "$"
}

var (
	failure = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)
	panics  = regexp.MustCompile(`(?m)^(?:panic|fatal error): .*`)
)

// run runs tests of a binary, and returns the one that failed, or nothing, and what they say.
func (h *hunter) run(ctx context.Context, binary string, t tests, pattern string) (failed, said string, err error) {
	env := []string{"HOLDFAST_SOAK=", "HOLDFAST_LEGS="}
	if t.soak {
		env = []string{"HOLDFAST_SOAK=1", "HOLDFAST_LEGS=all"}
	}
	cmd := exec.CommandContext(ctx, binary, "-test.v", "-test.failfast", "-test.timeout", h.timeout.String(), "-test.run", pattern)
	cmd.Dir, cmd.Env = filepath.Join(h.root, t.pkg), append(os.Environ(), env...)
	b, err := cmd.CombinedOutput()
	out := string(b)
	if _, ended := errors.AsType[*exec.ExitError](err); ended && ctx.Err() == nil {
		if names := failure.FindAllStringSubmatch(out, -1); len(names) > 0 {
			return names[len(names)-1][1], out, nil // the last is the innermost
		}
		return cmp.Or(panics.FindString(out), "the end of the process"), out, nil
	}
	if err == nil && strings.Contains(out, "no tests to run") {
		err = fmt.Errorf("%s has no test %s", t.pkg, pattern)
	}
	return "", out, err
}
