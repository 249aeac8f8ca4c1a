package redistest

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"

	"github.com/holdfast-go/holdfast/internal/test/tied"
)

// childVar names the function that a process started by Child runs.
const childVar = "HOLDFAST_TEST_CHILD"

var children = map[string]func(){}

// RegisterChild names a function that [Child] can run in a process of its own.
// Call it in an init function, or in TestMain before [Main].
func RegisterChild(name string, run func()) {
	if _, dup := children[name]; dup {
		panic("redistest: two children called " + name)
	}
	children[name] = run
}

// runChild does not return if this is the process of a child.
func runChild() {
	name, ok := os.LookupEnv(childVar)
	if !ok {
		return
	}
	children[name]()
	os.Exit(0)
}

// Process is a child of the test, running a function of the test binary.
type Process struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stderr bytes.Buffer
	lines  chan string

	waiting  sync.Once
	waited   chan struct{} // closed by the first Wait: maybe nobody reads lines
	exited   chan struct{}
	exitedBy error // of exec.Cmd.Wait, set before exited is closed
}

// lineBuffer is how many lines a child may be ahead of its test. After that it
// blocks in its write, until the test reads or waits.
const lineBuffer = 4096

// Child runs a function registered with [RegisterChild] in a new process of this
// test binary, with env ("KEY=value") added to the environment. When the test
// ends the process is killed, if it still runs.
func Child(tb testing.TB, name string, env ...string) *Process {
	tb.Helper()
	if !inMain {
		tb.Fatal("redistest: a child needs a TestMain that calls redistest.Main")
	}
	if children[name] == nil {
		tb.Fatalf("redistest: no child called %q", name)
	}
	exe, err := os.Executable()
	if err != nil {
		tb.Fatal(err)
	}
	p := &Process{
		cmd:    exec.Command(exe),
		lines:  make(chan string, lineBuffer),
		waited: make(chan struct{}),
		exited: make(chan struct{}),
	}
	p.cmd.Env = append(append(os.Environ(), env...), childVar+"="+name)
	p.cmd.Stderr = &p.stderr
	stdin, err1 := p.cmd.StdinPipe()
	stdout, err2 := p.cmd.StdoutPipe()
	p.stdin = stdin
	if err1 != nil || err2 != nil {
		tb.Fatal(err1, err2)
	}
	if err := tied.Start(p.cmd, syscall.SIGKILL); err != nil {
		tb.Fatalf("redistest: child %s: %v", name, err)
	}
	go p.follow(stdout)
	tb.Cleanup(func() {
		p.Kill()
		if tb.Failed() && p.stderr.Len() > 0 {
			tb.Logf("stderr of child %s:\n%s", name, &p.stderr)
		}
	})
	return p
}

// follow reads the output first and waits afterwards: Wait closes the pipe.
func (p *Process) follow(stdout io.Reader) {
	for scanner := bufio.NewScanner(stdout); scanner.Scan(); {
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

// Lines has the lines that the child prints, and is closed at the last one.
func (p *Process) Lines() <-chan string { return p.lines }

// Stdin is what the child reads. Closing it is a good way to end a child.
func (p *Process) Stdin() io.WriteCloser { return p.stdin }

// Signal sends a signal to the child. It returns [os.ErrProcessDone] if that has
// ended.
func (p *Process) Signal(sig os.Signal) error { return p.cmd.Process.Signal(sig) }

// Kill ends the child with SIGKILL, even a frozen one, and returns when it is gone.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill()
	_ = p.Wait()
}

// Wait returns when the child is gone, with the error of [exec.Cmd.Wait]. If more
// lines than fit the channel were not read, it throws the rest away.
func (p *Process) Wait() error {
	p.waiting.Do(func() { close(p.waited) })
	<-p.exited
	return p.exitedBy
}

// Stderr waits for the child and returns what it wrote to standard error.
func (p *Process) Stderr() string {
	_ = p.Wait()
	return p.stderr.String()
}
