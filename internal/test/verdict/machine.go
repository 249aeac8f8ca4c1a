package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// second is how the machine was in one. Starvation and standing still are different diseases: with four
// threads for each processor nobody stands still for long, and everybody is late.
type second struct {
	Time   time.Time     // of its end
	Stood  time.Duration // by how much a thread that wanted to run after 5 ms was late, at worst
	Waited float64       // of the time that tests and servers wanted a processor, the part in which they had none
}

const (
	// A machine that stands still for less, or makes programs wait for less, is well.
	stands = 50 * time.Millisecond
	waits  = 0.2
)

func (s second) late() bool { return s.Stood >= stands || s.Waited >= waits }

// String implements [fmt.Stringer].
func (s second) String() string {
	return fmt.Sprintf("the machine stood still for %d ms, programs waited for %.0f %% of their time", s.Stood.Milliseconds(), 100*s.Waited)
}

// watch writes each second to a file until it is killed.
func watch(file string) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	out := json.NewEncoder(f)
	before := schedule()
	var now second
	for began := time.Now(); ; {
		asleep := time.Now()
		time.Sleep(5 * time.Millisecond)
		now.Stood = max(now.Stood, time.Since(asleep)-5*time.Millisecond)
		if time.Since(began) < time.Second {
			continue
		}
		after := schedule()
		now.Time, now.Waited = time.Now(), after.since(before)
		if err := out.Encode(now); err != nil {
			return err
		}
		now, before, began = second{}, after, time.Now()
	}
}

// times are for how long each thread has run, and has waited to.
type times map[string]struct{ ran, waited time.Duration }

// since is the part of the time between in which threads that could run had to wait.
func (after times) since(before times) float64 {
	var ran, waited time.Duration
	for thread, t := range after {
		ran += t.ran - before[thread].ran
		waited += t.waited - before[thread].waited
	}
	if ran+waited == 0 {
		return 0
	}
	return float64(waited) / float64(ran+waited)
}

// schedule reads the times of all threads, but of those with a nice value above 0: compilers wait by design.
// Where there is no /proc it is empty.
func schedule() times {
	all := times{}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat") // the pattern is good
	for _, stat := range stats {
		b, err := os.ReadFile(stat)
		if err != nil {
			continue // it has ended
		}
		// pid (name) state ...: the name may contain spaces and parentheses.
		fields := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
		if len(fields) < 17 {
			continue
		}
		if nice, _ := strconv.Atoi(fields[16]); nice > 0 {
			continue
		}
		threads, _ := filepath.Glob(filepath.Join(filepath.Dir(stat), "task", "[0-9]*", "schedstat"))
		for _, thread := range threads {
			var ran, waited int64
			b, err := os.ReadFile(thread)
			if _, err2 := fmt.Sscan(string(b), &ran, &waited); err == nil && err2 == nil {
				all[thread] = struct{ ran, waited time.Duration }{time.Duration(ran), time.Duration(waited)}
			}
		}
	}
	return all
}

// readMachine reads what watch has written. The last line may be half of one.
func readMachine(file string) ([]second, error) {
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // nobody watched, so no failure is excused
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	var all []second
	for in := json.NewDecoder(bufio.NewReader(f)); ; {
		var s second
		if err := in.Decode(&s); errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return all, nil
		} else if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		all = append(all, s)
	}
}

// during is the worst that the machine was between two moments, and whether it was watched then.
func during(all []second, from, to time.Time) (worst second, watched bool) {
	for _, s := range all {
		if s.Time.Before(from) || s.Time.Add(-2*time.Second).After(to) {
			continue
		}
		watched = true
		worst.Stood, worst.Waited = max(worst.Stood, s.Stood), max(worst.Waited, s.Waited)
	}
	return worst, watched
}
