//go:build unix

// Package clitest runs commands in processes of their own, which are the binary of the test.
package clitest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/urfave/cli/v3"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/exit"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/flags"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/store"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

// RoleEnv tells a process of the test binary what to be instead of a test.
const RoleEnv = "HOLDFAST_TEST_ROLE"

// Role is what a process of the test binary can be. It returns an exit code.
type Role func() int

// Main is TestMain of a package with that program.
func Main(m *testing.M, program Role) {
	switch os.Getenv(RoleEnv) {
	case "holdfast":
		os.Exit(program())
	case "shell":
		os.Exit(shell())
	}
	// A shell without job control starts background jobs with these ignored, and
	// what we start would inherit it. Handled signals are not inherited.
	for _, sig := range []os.Signal{syscall.SIGINT, syscall.SIGQUIT, syscall.SIGHUP} {
		if signal.Ignored(sig) {
			signal.Notify(make(chan os.Signal, 1), sig)
		}
	}
	redistest.Main(m)
}

// Verbs is a program with these commands.
func Verbs(commands ...*cli.Command) Role {
	return func() int {
		root := flags.Program(&cli.Command{Name: "holdfast", Commands: commands})
		return exit.Report(root.Run(context.Background(), os.Args))
	}
}

// Generous bounds what takes seconds, or never ends if something is broken.
const Generous = 2 * time.Minute

// Process is a holdfast in a process of its own.
type Process struct {
	T              *testing.T
	Cmd            *exec.Cmd
	Stdout, Stderr Buffer
	Exited         chan struct{}
}

// Command prepares a call of holdfast that uses the server s, or none.
func Command(t *testing.T, s *redistest.Server, args ...string) *Process {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	p := &Process{T: t, Cmd: exec.Command(self, args...), Exited: make(chan struct{})}
	// With -race each process would sleep for a second before it exits.
	p.Cmd.Env = append(os.Environ(), RoleEnv+"=holdfast", "GORACE=atexit_sleep_ms=0 "+os.Getenv("GORACE"))
	if s != nil {
		p.Cmd.Env = append(p.Cmd.Env, store.URLEnv+"="+URL(s), store.PrefixEnv+"="+s.Prefix())
	}
	p.Cmd.Stdout, p.Cmd.Stderr = &p.Stdout, &p.Stderr
	// A process that it starts may keep the pipes open after it.
	p.Cmd.WaitDelay = Generous
	return p
}

// URL is how a command line names a server.
func URL(s *redistest.Server) string {
	if s.Network() == "unix" {
		return "unix://" + s.Addr()
	}
	return "redis://" + s.Addr()
}

// Nowhere is the URL of a Redis that is not there.
func Nowhere(t *testing.T) string { return "unix://" + filepath.Join(t.TempDir(), "none") }

// Start starts the process, which ends with the test.
func (p *Process) Start() *Process {
	p.T.Helper()
	require.NoError(p.T, p.Cmd.Start())
	go func() {
		_ = p.Cmd.Wait() // the exit code is in ProcessState
		close(p.Exited)
	}()
	p.T.Cleanup(func() {
		_ = p.Cmd.Process.Kill()
		<-p.Exited
		if p.T.Failed() {
			p.T.Logf("%q\nstdout:\n%s\nstderr:\n%s", p.Cmd.Args[1:], &p.Stdout, &p.Stderr)
		}
	})
	return p
}

// Wait returns the exit code.
func (p *Process) Wait() int {
	p.T.Helper()
	select {
	case <-p.Exited:
	case <-time.After(Generous):
		require.Fail(p.T, "holdfast does not end")
	}
	status := p.Cmd.ProcessState.Sys().(syscall.WaitStatus)
	require.False(p.T, status.Signaled(), "holdfast itself died of %v", status.Signal())
	return status.ExitStatus()
}

// Run starts the process and returns its exit code.
func (p *Process) Run() int { p.T.Helper(); return p.Start().Wait() }

// Signal sends the process a signal.
func (p *Process) Signal(sig os.Signal) {
	p.T.Helper()
	require.NoError(p.T, p.Cmd.Process.Signal(sig))
}

// InGroup gives the process a process group of its own.
func (p *Process) InGroup() *Process {
	p.Cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return p
}

// SignalGroup sends a signal as a terminal does.
func (p *Process) SignalGroup(sig syscall.Signal) {
	p.T.Helper()
	require.NoError(p.T, syscall.Kill(-p.Cmd.Process.Pid, sig))
}

// AwaitGroupGone waits until nothing runs in the group of the process.
func (p *Process) AwaitGroupGone() {
	p.T.Helper()
	AwaitGroupGone(p.T, p.Cmd.Process.Pid)
}

// AwaitOutput waits until the standard output matches pattern.
func (p *Process) AwaitOutput(pattern string) []byte {
	p.T.Helper()
	var found []byte
	re := regexp.MustCompile(pattern)
	Eventually(p.T, func() bool {
		found = re.Find(p.Stdout.Bytes())
		return found != nil
	}, "output %q", pattern)
	return found
}

// AwaitGroupGone waits until nothing runs in that process group. A zombie does not:
// who has become its parent may take its time.
func AwaitGroupGone(t *testing.T, group int) {
	t.Helper()
	running := regexp.MustCompile(fmt.Sprintf(`(?m)^ *%d +[^Z ]`, group))
	Eventually(t, func() bool {
		list, err := exec.Command("ps", "-A", "-o", "pgid=,stat=").Output()
		return err == nil && !running.Match(list)
	}, "group %d is gone", group)
}

// Eventually waits for a condition.
func Eventually(t *testing.T, condition func() bool, format string, args ...any) {
	t.Helper()
	require.Eventuallyf(t, condition, Generous, 2*time.Millisecond, format, args...)
}

// LocksOf returns a client that shares its locks with the calls of Command.
func LocksOf(t *testing.T, s *redistest.Server) *holdfast.Client {
	t.Helper()
	locks := holdfast.New(s.Client(t), holdfast.WithPrefix(s.Prefix()))
	t.Cleanup(func() { require.NoError(t, locks.Close()) })
	return locks
}

// Held returns a lock that another client holds.
func Held(t *testing.T, s *redistest.Server, lock string) *holdfast.RWMutex {
	t.Helper()
	m := LocksOf(t, s).RWMutex(lock)
	lease, err := m.TryLease(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { _ = lease.Release(context.Background()) })
	return m
}

// Inspector is a lock that can be looked at.
type Inspector interface {
	Inspect(context.Context) (holdfast.Info, error)
}

// Inspected looks at a lock.
func Inspected(t *testing.T, l Inspector) holdfast.Info {
	t.Helper()
	info, err := l.Inspect(t.Context())
	require.NoError(t, err)
	return info
}

// AwaitWaiter waits until somebody waits for a lock.
func AwaitWaiter(t *testing.T, l Inspector) {
	t.Helper()
	Eventually(t, func() bool { return len(Inspected(t, l).Queue) == 1 }, "a waiter in the queue")
}
