package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// began is when a test of these tests begins.
var began = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// story is a run of tests as go test tells it: lines of "ACTION TEST TEXT", one a second.
func story(t *testing.T, lines ...string) []*suite {
	t.Helper()
	var b strings.Builder
	for i, line := range lines {
		part := strings.SplitN(line+"  ", " ", 3)
		e := event{began.Add(time.Duration(i) * time.Second), part[0], "p", part[1], part[2]}
		if e.Test == "-" {
			e.Test = ""
		}
		e.Output = strings.TrimSpace(e.Output) + "\n"
		require.NoError(t, json.NewEncoder(&b).Encode(e))
	}
	suites, err := read(strings.NewReader(b.String()))
	require.NoError(t, err)
	return suites
}

// machine has a minute of seconds of that kind.
func machine(s second) (all []second) {
	for i := range 60 {
		s.Time = began.Add(time.Duration(i) * time.Second)
		all = append(all, s)
	}
	return all
}

var (
	well   = machine(second{Stood: 49 * time.Millisecond, Waited: 0.19})
	stood  = machine(second{Stood: 50 * time.Millisecond})
	waited = machine(second{Waited: 0.2})
)

func TestFailureThatIsAboutTimeOnALateMachineIsFlaky(t *testing.T) {
	late := []string{"run T", "output T too slow", "fail T", "fail -", "run T", "pass T", "pass -"}
	for name, m := range map[string][]second{"stood": stood, "waited": waited} {
		var out strings.Builder
		require.Equal(t, green, judge(&out, story(t, late...), m), name)
		require.Contains(t, out.String(), "flaky: p T: it passed alone")
	}
}

func TestDefectsAreRed(t *testing.T) {
	again := []string{"run T", "pass T", "pass -"}
	for name, c := range map[string]struct {
		machine []second
		lines   []string
		want    string
	}{
		"on a machine that was well": {well, append([]string{"run T", "output T too slow", "fail T", "fail -"}, again...), "the machine was well"},
		"that nobody watched":        {nil, append([]string{"run T", "output T too slow", "fail T", "fail -"}, again...), "nobody watched"},
		"late at another time":       {stood[30:], append([]string{"run T", "output T too slow", "fail T", "fail -"}, again...), "nobody watched"},
		"alone, too":                 {stood, []string{"run T", "fail T", "fail -", "run T", "fail T", "fail -"}, "failed again"},
		"not run again":              {stood, []string{"run T", "fail T", "fail -"}, "not run again"},
		"two holders":                {stood, append([]string{"run T", "output T Error: Should be zero", "output T Messages: FOUL: in at once", "fail T", "fail -"}, again...), "a promise is broken: FOUL"},
		"of a subtest":               {stood, append([]string{"run T", "run T/x", "output T/x 3 violations of it: violation", "fail T/x", "fail T", "fail -"}, again...), "a promise is broken: violation"},
		"a race":                     {stood, append([]string{"run T", "output T WARNING: DATA RACE", "fail T", "fail -"}, again...), "a race, a panic or a leak"},
		"a panic":                    {stood, append([]string{"run T", "output T panic: nil map", "fail T", "fail -"}, again...), "a race, a panic or a leak"},
		"in virtual time":            {stood, append([]string{"run T", "run T/bubble", "fail T/bubble", "fail T", "fail -"}, again...), "virtual time"},
		"a leak of the package":      {stood, []string{"run T", "pass T", "output - left goroutines behind", "fail -", "pass -"}, "none of its tests did"},
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			require.Equal(t, red, judge(&out, story(t, c.lines...), c.machine))
			require.Contains(t, out.String(), c.want)
		})
	}
}

// The names of tests and files are full of the words of promises.
func TestNamesAreNoMessages(t *testing.T) {
	lines := []string{"run T", "output T === RUN   TestNoSecondHolder", "output T --- FAIL: TestNoSecondHolder (0.1s)",
		"output T Error Trace: /x/overlap/second holder.go:12", "output T Test: TestFOUL", "output T Error: too slow", "fail T", "fail -", "run T", "pass T"}
	require.Equal(t, green, judge(&strings.Builder{}, story(t, lines...), stood))
}

func TestMoreThanFiveFlakyTestsAreRed(t *testing.T) {
	var lines []string
	for i := range budget + 1 {
		lines = append(lines, fmt.Sprintf("run T%d", i), fmt.Sprintf("fail T%d", i))
	}
	for i := range budget + 1 {
		lines = append(lines, fmt.Sprintf("run T%d", i), fmt.Sprintf("pass T%d", i))
	}
	var out strings.Builder
	require.Equal(t, red, judge(&out, story(t, lines...), stood))
	require.Contains(t, out.String(), "too much runs at the same time")
}

func TestCrashOfTheRaceDetectorIsToldApart(t *testing.T) {
	for _, words := range [][]string{
		{"output - ThreadSanitizer: CHECK failed: tsan_rtl.cpp:327"},
		{"output - ==3812==FATAL: ThreadSanitizer: internal allocator is out of memory trying to allocate 0xffffffff6d004e00 bytes"},
		{"output T SIGSEGV: segmentation violation", "output T PC=0x41c729 m=0 sigcode=1 addr=0x0"},
	} {
		crash := append(append([]string{"run T"}, words...), "fail -")
		require.Equal(t, crashed, judge(&strings.Builder{}, story(t, crash...), stood))
		again := append(append([]string{}, crash...), "run T", "output T ok", "pass T", "pass -")
		require.Equal(t, crashed, judge(&strings.Builder{}, story(t, again...), stood), "T passed alone, and the others did not run")
		beside := append([]string{"run S", "fail S"}, append(again, "run S", "pass S")...)
		require.Equal(t, crashed, judge(&strings.Builder{}, story(t, beside...), stood), "S was flaky before")
		require.Equal(t, red, judge(&strings.Builder{}, append(story(t, crash...), story(t, "run T", "fail T", "fail -")...), stood))
	}
	panicked := []string{"run T", "output - panic: runtime error: invalid memory address", "output - [signal SIGSEGV: segmentation violation code=0x1]", "fail -"}
	require.Equal(t, red, judge(&strings.Builder{}, story(t, panicked...), stood))
}

// What waits for its turn beside others is not responsible for the machine meanwhile.
func TestTestBeginsWhenItGoesOn(t *testing.T) {
	s := story(t, "run T", "pause T", "output U x", "output U x", "output U x", "output U x", "cont T", "fail T", "run T", "pass T")
	require.Equal(t, red, judge(&strings.Builder{}, s, stood[:2]))
}

func TestMachineIsWatched(t *testing.T) {
	file := filepath.Join(t.TempDir(), "machine")
	go func() { _ = watch(file) }() // it ends with the process
	from := time.Now()
	require.Eventually(t, func() bool {
		all, err := readMachine(file)
		_, watched := during(all, from, time.Now())
		return err == nil && watched
	}, time.Minute, 100*time.Millisecond)
}

func TestWaitingIsAPartOfTheTimeThatWasWanted(t *testing.T) {
	before := times{"a": {10 * time.Second, time.Second}}
	after := times{"a": {13 * time.Second, 2 * time.Second}, "new": {time.Second, 0}}
	require.InDelta(t, 0.2, after.since(before), 1e-9)
	require.Zero(t, times{}.since(before))
}
