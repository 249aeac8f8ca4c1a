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
func hire(d *demo, counter string) (*crew, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	c := &crew{events: make(chan event, 64)}
	var tellers sync.WaitGroup
	for id := range d.workers {
		if err = c.start(d.worker(self, id+1, counter), w, &tellers); err != nil {
			break
		}
	}
	_ = w.Close() // so that r ends with the last worker
	tellers.Go(func() { c.read(r) })
	go func() {
		tellers.Wait()
		close(c.events)
	}()
	if err != nil {
		c.kill()
		for range c.events {
		}
		return nil, fmt.Errorf("cannot start a worker: %w", err)
	}
	return c, nil
}

// worker is the command that starts a worker.
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
		c.events <- event{Worker: id, What: gone, At: clock.Now()}
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

// dismiss asks the workers to finish, and kills those that have not after a while.
// Somebody must go on to receive the events.
func (c *crew) dismiss() {
	for _, stdin := range c.stdins {
		_ = stdin.Close()
	}
	time.AfterFunc(demoTTL+3*time.Second, c.kill)
}

func (c *crew) kill() {
	for _, cmd := range c.cmds {
		_ = cmd.Process.Kill()
	}
}

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
