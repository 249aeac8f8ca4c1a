package crew

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/test/tied"
)

// Patience bounds the wait for a report, for a process that hangs. Nothing that a test is about takes as long.
const Patience = 2 * time.Minute

// Process is the outside of a worker.
type Process struct {
	tb     testing.TB
	role   string
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stderr bytes.Buffer
	lines  chan string

	waiting  sync.Once
	waited   chan struct{} // closed by the first Wait: maybe nobody reads lines
	exited   chan struct{}
	exitedBy error // of exec.Cmd.Wait, set before exited is closed
}

// lineBuffer is how many reports a process may be ahead of its test. After that it
// blocks in its write, until the test reads or waits.
const lineBuffer = 4096

// Start starts a process in that role, with env ("KEY=value") added to the environment. When the
// test ends the process is killed, if it still runs. If the test has failed, it tells what the process
// wrote to standard error.
func Start(tb testing.TB, role string, env ...string) *Process {
	tb.Helper()
	if !entered {
		tb.Fatal("crew: a process needs a main or a TestMain that calls crew.Enter")
	}
	if roles[role] == nil {
		tb.Fatalf("crew: no role called %q", role)
	}
	exe, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	p := &Process{
		tb:     tb,
		role:   role,
		cmd:    exec.Command(exe),
		lines:  make(chan string, lineBuffer),
		waited: make(chan struct{}),
		exited: make(chan struct{}),
	}
	p.cmd.Env = append(append(os.Environ(), env...), roleVar+"="+role)
	p.cmd.Stderr = &p.stderr
	stdin, err1 := p.cmd.StdinPipe()
	stdout, err2 := p.cmd.StdoutPipe()
	p.stdin = stdin
	if err := errors.Join(err1, err2); err != nil {
		tb.Fatal(err)
	}
	if err := tied.Start(p.cmd, syscall.SIGKILL); err != nil {
		tb.Fatalf("crew: %s: %v", role, err)
	}
	go p.follow(stdout)
	tb.Cleanup(func() {
		p.Kill()
		if tb.Failed() && p.stderr.Len() > 0 {
			tb.Logf("stderr of %s:\n%s", role, &p.stderr)
		}
	})
	return p
}

// follow reads the output first and waits afterwards: Wait closes the pipe.
func (p *Process) follow(stdout io.Reader) {
	scanner := bufio.NewScanner(stdout)
	scanner.Buffer(nil, 1<<26)
	for scanner.Scan() {
		p.deliver(scanner.Text())
	}
	_, _ = io.Copy(io.Discard, stdout) // after a line too long for the scanner
	close(p.lines)
	p.exitedBy = p.cmd.Wait()
	close(p.exited)
}

// deliver drops a line only if it does not fit and somebody waits.
func (p *Process) deliver(line string) {
	select {
	case p.lines <- line:
		return
	default:
	}
	select {
	case p.lines <- line:
	case <-p.waited:
	}
}

// Pid returns the process id.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Tell gives the process an order, and does not wait until it is carried out.
func (p *Process) Tell(order any) {
	p.tb.Helper()
	if err := json.NewEncoder(p.stdin).Encode(order); err != nil {
		p.tb.Fatalf("%s does not take orders: %v", p.role, err)
	}
}

// Dismiss ends the orders. A worker that waits for the next one returns.
func (p *Process) Dismiss() { _ = p.stdin.Close() }

// Why there is no report.
var (
	ErrEnded  = errors.New("the process has ended")
	ErrSilent = errors.New("the process says nothing")
)

// Listen returns the next report, [ErrEnded] after the last one, or [ErrSilent] if there is none before the end.
func Listen[T any](p *Process, end <-chan time.Time) (report T, err error) {
	select {
	case line, ok := <-p.lines:
		if !ok {
			return report, ErrEnded
		}
		return report, json.Unmarshal([]byte(line), &report)
	case <-end:
		return report, ErrSilent
	}
}

// Hear returns the next report of the process, which must come.
func Hear[T any](p *Process) T {
	p.tb.Helper()
	report, err := Listen[T](p, time.After(Patience))
	if err != nil {
		p.tb.Fatalf("%s: %v", p.role, err)
	}
	return report
}

// Said returns what the process has reported so far and nobody has heard. It does not wait.
func Said[T any](p *Process) (all []T) {
	p.tb.Helper()
	for len(p.lines) > 0 {
		all = append(all, Hear[T](p))
	}
	return all
}

// Kill ends the process with SIGKILL, even a paused one, and returns when it is gone.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill()
	_ = p.Wait()
}

// Exited is closed when the process is gone.
func (p *Process) Exited() <-chan struct{} { return p.exited }

// Wait returns when the process is gone, with the error of [exec.Cmd.Wait]. If more
// reports than fit were not heard, it throws the rest away.
func (p *Process) Wait() error {
	p.waiting.Do(func() { close(p.waited) })
	<-p.exited
	return p.exitedBy
}

// Stderr waits for the process and returns what it wrote to standard error.
func (p *Process) Stderr() string {
	_ = p.Wait()
	return p.stderr.String()
}
