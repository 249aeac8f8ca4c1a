package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"time"
)

// event is a line of go test -json, see go doc test2json.
type event struct {
	Time                          time.Time
	Action, Package, Test, Output string
}

// budget is how many flaky tests a run may have. More are a machine with too much to do at once.
const budget = 5

// Exit codes.
const (
	green   = 0
	red     = 1
	crashed = 3 // the race detector ended a package by a check of its own state or a signal, and nothing else failed
)

// run is a test, with all its subtests, from its beginning to its end.
type run struct {
	began, ended time.Time
	failed       bool
	virtual      bool // a part in virtual time failed
	output       strings.Builder
}

// suite is a package.
type suite struct {
	name   string
	order  []string          // of tests at the top
	runs   map[string][]*run // of each; the second run was alone
	failed bool
	output strings.Builder // of no test
}

func judgeFiles(out io.Writer, tests, machine string) (code int, err error) {
	seconds, err := readMachine(machine)
	if err != nil {
		return 0, err
	}
	f, err := os.Open(tests)
	if err != nil {
		return 0, err
	}
	defer func() { _ = f.Close() }()
	suites, err := read(f)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", tests, err)
	}
	return judge(out, suites, seconds), nil
}

// read sorts events. A test that begins again after its end runs once more.
func read(r io.Reader) ([]*suite, error) {
	var all []*suite
	suites := map[string]*suite{}
	for in := json.NewDecoder(bufio.NewReader(r)); ; {
		var e event
		if err := in.Decode(&e); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		if e.Package == "" {
			continue // of a build, which fails the run by itself
		}
		s := suites[e.Package]
		if s == nil {
			s = &suite{name: e.Package, runs: map[string][]*run{}}
			suites[e.Package], all = s, append(all, s)
		}
		s.note(e)
	}
}

// crashed reports whether the detector has ended the package, in a test perhaps, which then has no end, and may have run
// again since.
func (s *suite) crashed() bool {
	for _, runs := range s.runs {
		for _, r := range runs {
			if detector.MatchString(r.output.String()) {
				return true
			}
		}
	}
	return detector.MatchString(s.output.String())
}

func (s *suite) note(e event) {
	root, _, _ := strings.Cut(e.Test, "/")
	if root == "" {
		s.failed = s.failed || e.Action == "fail"
		s.output.WriteString(e.Output)
		return
	}
	runs := s.runs[root]
	if len(runs) == 0 {
		s.order = append(s.order, root)
	}
	if len(runs) == 0 || e.Action == "run" && e.Test == root {
		runs = append(runs, &run{began: e.Time, ended: e.Time})
		s.runs[root] = runs
	}
	r := runs[len(runs)-1]
	r.ended = e.Time
	r.output.WriteString(e.Output)
	switch {
	case e.Action == "cont" && e.Test == root: // it waited for its turn beside others
		r.began = e.Time
	case e.Action == "fail":
		r.failed = true
		r.virtual = r.virtual || inVirtualTime.MatchString(e.Test)
	}
}

var (
	// What runs in virtual time does not know the machine: if it fails, and then passes, that is a race.
	inVirtualTime = regexp.MustCompile(`/bubble(/|$)|InVirtualTime(/|$)`)

	// A race may need other tests beside it to show, and a panic ends them.
	hopeless = regexp.MustCompile(`(?m)WARNING: DATA RACE|race detected during|^panic: |^fatal error: |left goroutines behind`)

	// FOUL is in each message about a promise that was broken. The other words are for messages without it.
	foul = regexp.MustCompile(`FOUL|(?i:\b(overlap|two holders|second holder|lost update|linearizable|violation|beyond the limit)\b)`)

	// Lines of testify that name files and tests, not what happened.
	where = regexp.MustCompile(`(?m)^\s*(Error Trace|Test):.*$|^\s*--- FAIL:.*$|^\s*=== .*$|^\s+\S*/\S+\.go:\d+$`)

	// A check of the detector, or a signal in it: one in Go is a panic, and begins with that.
	detector = regexp.MustCompile(`(?m)^ThreadSanitizer: CHECK failed|^==\d+==FATAL: ThreadSanitizer|^SIGSEGV: segmentation violation\s*PC=`)
)

// judge writes what failed, and returns the exit code.
func judge(out io.Writer, suites []*suite, machine []second) (code int) {
	var reds, crashes, flaky int
	say := func(format string, args ...any) { _, _ = fmt.Fprintf(out, format+"\n", args...) }
	for _, s := range suites {
		failed := 0
		for _, test := range s.order {
			runs := s.runs[test]
			if !runs[0].failed {
				continue
			}
			failed++
			worst, watched := during(machine, runs[0].began, runs[0].ended)
			if why := defect(runs, worst, watched); why != "" {
				reds++
				say("red: %s %s: %s", s.name, test, why)
			} else {
				flaky++
				say("flaky: %s %s: it passed alone; %v", s.name, test, worst)
			}
		}
		switch {
		case !s.failed:
		case s.crashed(): // and the tests behind that one did not run
			crashes++
			say("crashed: %s", s.name)
		case failed == 0:
			// A leak that TestMain found, a panic, a timeout. To run no test once more would pass.
			reds++
			say("red: %s: it failed, and none of its tests did", s.name)
		}
	}
	if flaky > budget {
		reds++
		say("red: %d tests are flaky, and %d are the most that may be: too much runs at the same time", flaky, budget)
	}
	switch {
	case reds > 0:
		return red
	case crashes > 0:
		return crashed
	}
	return green
}

// defect says why the failure of a test is one, or "".
func defect(runs []*run, worst second, watched bool) string {
	first, text := runs[0], runs[0].output.String()
	said := where.ReplaceAllString(text, "")
	switch {
	case hopeless.MatchString(text):
		return "a race, a panic or a leak: " + hopeless.FindString(text)
	case foul.MatchString(said):
		return "a promise is broken: " + foul.FindString(said)
	case first.virtual:
		return "it failed in virtual time, which no machine makes late"
	case len(runs) == 1:
		return "it was not run again"
	case runs[len(runs)-1].failed:
		return "it failed again, alone"
	case !watched:
		return "nobody watched the machine"
	case !worst.late():
		return fmt.Sprintf("it passed alone, but the machine was well: %v", worst)
	}
	return ""
}
