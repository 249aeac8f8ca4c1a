package demo

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/clock"
)

// crew is the worker processes of a demo.
type crew struct {
	events chan event // closed when all of them have ended and all is told
	cmds   []*exec.Cmd
	stdins []io.WriteCloser
	notes  []*note
}

// hire starts the workers.
func hire(workers []*exec.Cmd) (*crew, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	c := &crew{events: make(chan event, 64)}
	var tellers sync.WaitGroup
	for _, worker := range workers {
		if err = c.start(worker, w, &tellers); err != nil {
			break
		}
	}
	go func() {
		tellers.Wait()
		_ = w.Close() // and with it r ends
	}()
	go func() {
		c.read(r)
		close(c.events)
	}()
	if err != nil {
		c.killAll()
		for range c.events {
		}
		return nil, fmt.Errorf("cannot start a worker: %w", err)
	}
	return c, nil
}

// commands are those that start the workers.
func (d *demo) commands(counter string) ([]*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	all := make([]*exec.Cmd, d.workers)
	for i := range all {
		all[i] = d.worker(self, i+1, counter)
	}
	return all, nil
}

func (d *demo) worker(self string, id int, counter string) *exec.Cmd {
	args := append(slices.Clone(d.self), "worker", "--id", strconv.Itoa(id), "--kind", d.kind.name,
		"--limit", strconv.FormatInt(d.limit, 10), "--name", d.lock, "--counter", counter)
	if d.unlocked {
		args = append(args, "--no-lock")
	}
	cmd := exec.Command(self, args...)
	cmd.Env = append(os.Environ(), d.address.Environ()...)
	return cmd
}

func (c *crew) start(cmd *exec.Cmd, out *os.File, tellers *sync.WaitGroup) error {
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	said := &note{}
	cmd.Stdout, cmd.Stderr = out, said
	if err := cmd.Start(); err != nil {
		return err
	}
	c.cmds = append(c.cmds, cmd)
	c.stdins = append(c.stdins, stdin)
	c.notes = append(c.notes, said)
	id := len(c.cmds)
	tellers.Go(func() {
		if err := cmd.Wait(); err != nil {
			said.end(err)
		}
		// By the pipe, so that it comes after all that the worker has told. The parent may see the
		// end of a process before the last lines of it. The first byte ends half a line.
		line, _ := json.Marshal(event{Worker: id, What: gone, At: clock.Now()})
		_, _ = fmt.Fprintf(out, "\n%s\n", line)
	})
	return nil
}

func (c *crew) read(r *os.File) {
	defer func() { _ = r.Close() }()
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		var e event
		// A worker that panics may write half a line; it is missed elsewhere.
		if json.Unmarshal(lines.Bytes(), &e) == nil && e.Worker >= 1 && e.Worker <= len(c.cmds) {
			c.events <- e
		}
	}
}

// assemble waits until all workers are ready, so that none has a start.
func (c *crew) assemble(ctx context.Context, l *ledger) {
	for range c.cmds {
		// Until they are told to begin, each says one thing: it is ready, or gone.
		select {
		case e := <-c.events:
			l.apply(e)
		case <-ctx.Done():
			return
		}
	}
}

// begin lets the workers contend.
func (c *crew) begin() {
	for _, stdin := range c.stdins {
		_, _ = stdin.Write([]byte("\n")) // to one that is gone it fails, and need not succeed
	}
}

// doom has a worker wait in its next turn, with the lock, until it is killed.
func (c *crew) doom(worker int) { _, _ = c.stdins[worker-1].Write([]byte("\n")) }

// dismiss asks the workers to finish, and kills those that have not after a while.
// Somebody must go on to receive the events.
func (c *crew) dismiss() {
	for _, stdin := range c.stdins {
		_ = stdin.Close()
	}
	time.AfterFunc(workerTTL+3*time.Second, c.killAll)
}

func (c *crew) killAll() {
	for id := range c.cmds {
		c.kill(id + 1)
	}
}

func (c *crew) kill(worker int) { _ = c.cmds[worker-1].Process.Kill() }

// note keeps the beginning of what a worker says on its standard error. Shown at
// once it would tear the picture.
type note struct {
	mu   sync.Mutex
	text []byte
	err  error
}

const maxNote = 2000

func (n *note) Write(p []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.text = append(n.text, p[:min(len(p), maxNote-len(n.text))]...)
	return len(p), nil
}

func (n *note) end(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.err = err
}

func (n *note) String() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.err == nil {
		return string(n.text)
	}
	return fmt.Sprintf("%s%v\n", n.text, n.err)
}
