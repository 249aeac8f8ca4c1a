package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"
)

// sliceLength is the longest run whose histories are judged together. They are on the disk and in
// memory until then.
const sliceLength = 8 * time.Minute

// worldsApart is how far the seeds of worlds that run side by side are from each other.
const worldsApart = 1_000_003

// runSlice runs some worlds side by side, each with its servers, workers and faults.
func (p plan) runSlice() (*sum, error) {
	before := used()
	outcomes, errs := make([]*outcome, p.worlds), make([]error, p.worlds)
	var worlds sync.WaitGroup
	for i := range p.worlds {
		worlds.Go(func() {
			world := p
			world.seed += uint64(i) * worldsApart
			if p.keep != "" {
				world.keep = fmt.Sprintf("%s/world-%d", p.keep, i)
			}
			outcomes[i], errs[i] = run(world)
		})
	}
	worlds.Wait()
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	s := outcomes[0].sum()
	for _, o := range outcomes[1:] {
		s.beside(o.sum())
	}
	s.CPU = used() - before
	return s, nil
}

// used is the time of processors that this process and those that have ended have used.
func used() (d time.Duration) {
	for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
		var u syscall.Rusage
		if syscall.Getrusage(who, &u) == nil {
			d += time.Duration(u.Utime.Nano() + u.Stime.Nano())
		}
	}
	return d
}

// keepSlice adds a slice to those of a file, in one line.
func keepSlice(name string, s *sum) error {
	text, err := json.Marshal(s)
	if err != nil {
		return err
	}
	f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(append(text, '\n'))
	return errors.Join(err, f.Close())
}

// total is the sum of those slices of a file that count.
type total struct {
	sum
	commits []string // of which they are, in the order in which they came
	void    int      // slices that say nothing, and do not count
	old     int      // slices of another hash, which do not count either
}

// sumUp adds up the slices of a topology that are of a hash.
func sumUp(name, topology, hash string) (*total, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	t := &total{}
	in := bufio.NewScanner(f)
	in.Buffer(nil, 1<<24)
	for in.Scan() {
		var s sum
		if err := json.Unmarshal(in.Bytes(), &s); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if s.Topology == topology {
			t.take(&s, hash)
		}
	}
	return t, in.Err()
}

// take adds a slice if it counts. One in which a promise was broken always does.
func (t *total) take(s *sum, hash string) {
	switch {
	case s.Hash != hash:
		t.old++
		return
	case len(s.Void) > 0 && len(s.Broken) == 0:
		t.void++
		return
	case t.Slices == 0:
		t.sum = *s
	default:
		t.add(s)
		t.Date = s.Date
	}
	if len(t.commits) == 0 || t.commits[len(t.commits)-1] != s.Commit {
		t.commits = append(t.commits, s.Commit)
	}
}

// provenance says in a sentence which slices are in the sum.
func (t *total) provenance() string {
	text := fmt.Sprintf("%s, %d slices, commit %s, hash %s", t.Date, t.Slices, strings.Join(t.commits, ", "), t.Hash)
	if t.void+t.old > 0 {
		text += fmt.Sprintf("; not in the sum: %d slices of other hashes, %d that say nothing", t.old, t.void)
	}
	return text
}
