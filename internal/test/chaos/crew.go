package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/holdfast-go/holdfast/internal/test/tied"
)

// crew is the processes that work. One that was killed comes back as another incarnation,
// with a history of its own.
type crew struct {
	plan assignment // of all, except for what tells them apart
	dir  string

	mu           sync.Mutex
	incarnations int
	workers      []*process
	killed       map[int]int64 // when an incarnation was
}

type process struct {
	incarnation int
	cmd         *exec.Cmd
	stdin       io.Closer
	exited      chan error
}

func newCrew(plan assignment, dir string, size int) (*crew, error) {
	c := &crew{plan: plan, dir: dir, workers: make([]*process, size), killed: map[int]int64{}}
	for i := range c.workers {
		if err := c.start(i); err != nil {
			return nil, err
		}
	}
	return c, nil
}

func (c *crew) historyOf(incarnation int) string {
	return filepath.Join(c.dir, fmt.Sprintf("worker-%d", incarnation))
}

// start puts a new process in the place of worker i.
func (c *crew) start(i int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	a := c.plan
	a.Worker, a.Incarnation = i, c.incarnations
	a.Seed = c.plan.Seed + uint64(c.incarnations)
	a.History = c.historyOf(c.incarnations)
	text, err := json.Marshal(a)
	if err != nil {
		return err
	}
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(exe)
	cmd.Env = append(os.Environ(), workerVar+"="+string(text))
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if err := tied.Start(cmd, syscall.SIGKILL); err != nil {
		return err
	}
	p := &process{incarnation: c.incarnations, cmd: cmd, stdin: stdin, exited: make(chan error, 1)}
	go func() { p.exited <- cmd.Wait() }()
	c.incarnations++
	c.workers[i] = p
	return nil
}

// freeze suspends worker i, which notices nothing of it.
func (c *crew) freeze(i int, d time.Duration) error {
	p := c.worker(i)
	if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	time.Sleep(d)
	return p.cmd.Process.Signal(syscall.SIGCONT)
}

// replace kills worker i, and starts another after d.
func (c *crew) replace(i int, d time.Duration) error {
	p := c.worker(i)
	c.mu.Lock()
	c.killed[p.incarnation] = clock()
	c.mu.Unlock()
	if err := p.cmd.Process.Kill(); err != nil {
		return err
	}
	<-p.exited
	time.Sleep(d)
	return c.start(i)
}

func (c *crew) worker(i int) *process {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.workers[i]
}

// stop has all workers end by themselves, and kills those that do not.
func (c *crew) stop() error {
	for _, p := range c.workers {
		_ = p.stdin.Close()
	}
	late := time.After(lastWait + 30*time.Second)
	var failed []error
	for _, p := range c.workers {
		select {
		case err := <-p.exited:
			failed = append(failed, err)
		case <-late:
			_ = p.cmd.Process.Signal(syscall.SIGQUIT) // its stacks tell why
			failed = append(failed, fmt.Errorf("worker %d does not end: %w", p.incarnation, <-p.exited))
		}
	}
	return errors.Join(failed...)
}

// testimony is what the workers wrote down.
type testimony struct {
	ops      []*op
	sentAt   map[uint64]int64 // when the store was first asked for a token
	queues   queues
	troubles []record

	goroutines, connections int // that were left
}

func (c *crew) testimony() (*testimony, error) {
	t := &testimony{sentAt: map[uint64]int64{}, queues: newQueues()}
	for i := range c.incarnations {
		done, err := testify(i, c.plan.Actors*voices, c.historyOf(i), func(r record) { t.take(i, r) })
		if _, dead := c.killed[i]; err != nil && !(dead && errors.Is(err, os.ErrNotExist)) { // killed at once
			return nil, err
		}
		t.ops = append(t.ops, done...)
	}
	return t, nil
}

func (t *testimony) take(incarnation int, r record) {
	switch r.what {
	case sent:
		t.sentAt[r.id] = r.at
	case queued:
		t.queues.asks[r.id] = append(t.queues.asks[r.id], span{r.seen, r.at})
	case trouble:
		t.troubles = append(t.troubles, r)
		if r.class == deafened {
			t.queues.ears[incarnation] = append(t.queues.ears[incarnation], r.at)
		}
	case leak:
		t.goroutines += max(0, int(r.weight))
		t.connections += max(0, int(r.fence))
	}
}
