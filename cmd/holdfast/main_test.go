//go:build unix

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/redistest"
)

// roleEnv tells a process of the test binary what to be instead of a test.
const roleEnv = "HOLDFAST_TEST_ROLE"

var roles = map[string]func() int{
	"holdfast": func() int { return execute(os.Args) },
}

func TestMain(m *testing.M) {
	if role, ok := roles[os.Getenv(roleEnv)]; ok {
		os.Exit(role())
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

// generous bounds what takes milliseconds unless something is broken.
const generous = 30 * time.Second

// process is a holdfast in a process of its own.
type process struct {
	t              *testing.T
	cmd            *exec.Cmd
	stdout, stderr buffer
	exited         chan struct{}
}

// command prepares a call of holdfast that uses the server s, or none.
func command(t *testing.T, s *redistest.Server, args ...string) *process {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	p := &process{t: t, cmd: exec.Command(self, args...), exited: make(chan struct{})}
	// With -race each process would sleep for a second before it exits.
	p.cmd.Env = append(os.Environ(), roleEnv+"=holdfast", "GORACE=atexit_sleep_ms=0 "+os.Getenv("GORACE"))
	if s != nil {
		p.cmd.Env = append(p.cmd.Env, storeEnv+"="+urlOf(s), prefixEnv+"="+s.Prefix())
	}
	p.cmd.Stdout, p.cmd.Stderr = &p.stdout, &p.stderr
	// A process that it starts may keep the pipes open after it.
	p.cmd.WaitDelay = generous
	return p
}

func urlOf(s *redistest.Server) string {
	if s.Network() == "unix" {
		return "unix://" + s.Addr()
	}
	return "redis://" + s.Addr()
}

func (p *process) start() *process {
	p.t.Helper()
	require.NoError(p.t, p.cmd.Start())
	go func() {
		_ = p.cmd.Wait() // the exit code is in ProcessState
		close(p.exited)
	}()
	p.t.Cleanup(func() {
		_ = p.cmd.Process.Kill()
		<-p.exited
		if p.t.Failed() {
			p.t.Logf("%q\nstdout:\n%s\nstderr:\n%s", p.cmd.Args[1:], &p.stdout, &p.stderr)
		}
	})
	return p
}

// wait returns the exit code.
func (p *process) wait() int {
	p.t.Helper()
	select {
	case <-p.exited:
	case <-time.After(generous):
		require.Fail(p.t, "holdfast does not end")
	}
	status := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	require.False(p.t, status.Signaled(), "holdfast itself died of %v", status.Signal())
	return status.ExitStatus()
}

func (p *process) run() int { p.t.Helper(); return p.start().wait() }

func (p *process) signal(sig os.Signal) {
	p.t.Helper()
	require.NoError(p.t, p.cmd.Process.Signal(sig))
}

// inGroup gives the process a process group of its own.
func (p *process) inGroup() *process {
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return p
}

// signalGroup sends a signal as a terminal does.
func (p *process) signalGroup(sig syscall.Signal) {
	p.t.Helper()
	require.NoError(p.t, syscall.Kill(-p.cmd.Process.Pid, sig))
}

func (p *process) awaitGroupGone() {
	p.t.Helper()
	awaitGroupGone(p.t, p.cmd.Process.Pid)
}

// awaitOutput waits until the standard output matches pattern.
func (p *process) awaitOutput(pattern string) []byte {
	p.t.Helper()
	var found []byte
	re := regexp.MustCompile(pattern)
	eventually(p.t, func() bool {
		found = re.Find(p.stdout.Bytes())
		return found != nil
	}, "output %q", pattern)
	return found
}

// awaitGroupGone waits until nothing runs in that process group. A zombie does not:
// who has become its parent may take its time.
func awaitGroupGone(t *testing.T, group int) {
	t.Helper()
	running := regexp.MustCompile(fmt.Sprintf(`(?m)^ *%d +[^Z ]`, group))
	eventually(t, func() bool {
		list, err := exec.Command("ps", "-A", "-o", "pgid=,stat=").Output()
		return err == nil && !running.Match(list)
	}, "group %d is gone", group)
}

func eventually(t *testing.T, condition func() bool, format string, args ...any) {
	t.Helper()
	require.Eventuallyf(t, condition, generous, 2*time.Millisecond, format, args...)
}

func TestSplitLeavesWhatComesAfterTheFirstDashesAlone(t *testing.T) {
	own, command := split([]string{"holdfast", "run", "--lock", "a", "--", "git", "--", "-n"})
	assert.Equal(t, []string{"holdfast", "run", "--lock", "a"}, own)
	assert.Equal(t, []string{"git", "--", "-n"}, command)

	own, command = split([]string{"holdfast", "ls", "--", "-x"}) // where it ends the flags
	assert.Equal(t, []string{"holdfast", "ls", "--", "-x"}, own)
	assert.Empty(t, command)

	own, command = split([]string{"holdfast", "demo"})
	assert.Equal(t, []string{"holdfast", "demo"}, own)
	assert.Empty(t, command)
}

func TestWrongCommandLinesEndWith64(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"frobnicate"},
		{"completion"},
		{"completion", "nosuch"},
		{"completion", "bash", "zsh"},
		{"--frobnicate"},
		{"demo", "5s"},
		{"demo", "--kind", "sonnet"},
		{"demo", "--workers", "0"},
		{"demo", "--limit", "3"},
		{"demo", "--kind", "rwmutex", "--limit", "3"},
		{"demo", "--kind", "semaphore", "--limit", "0"},
		{"demo", "--kind", "semaphore", "--limit", "10"},
		{"demo", "--duration", "-1s"},
		{"demo", "--redis", "http://localhost"},
		{"demo", "--store", "frob://localhost"},
		{"inspect"},
		{"inspect", "a", "b"},
		{"inspect", "a", "--kind", "sonnet"},
		{"inspect", "a", "--store", "redis+sentinel://127.0.0.1:1"}, // which master?
		{"inspect", "a", "--cacert", "/dev/null"},                   // without TLS
		{"inspect", "a", "--store", "rediss://127.0.0.1:1", "--cacert", "/dev/null"},
		{"inspect", "a", "--store", "rediss://127.0.0.1:1", "--cert", "/dev/null"},
		{"inspect", "a", "--password-file", "/nonexistent"},
		{"inspect", "a", "--password-file", "/dev/null"},
		{"inspect", "a", "--prefix", "a:2:mutex"},
		{"unlock", "--force"},
		{"unlock", "--force", "--", "a", "b"},
		{"inspect", "--base64", "?"},
		{"run", "--", "true"},
		{"run", "--lock", "a"},
		{"run", "--lock", "a", "--"},
		{"run", "--lock", "a", "true"},
		{"run", "--lock", "a", "--ttl", "1ms", "--", "true"},
		{"run", "--lock", "a", "--timeout", "-1s", "--", "true"},
		{"run", "--lock", "a", "--timeout", "1s", "-n", "--", "true"},
		{"run", "--lock", "a", "--prefix", "", "--", "true"},
		{"run", "--lock", "a", "-w", "soon", "--", "true"},
		{"run", "--lock", "a", "-w", "-5", "--", "true"},
		{"run", "--lock", "a", "-w", "NaN", "--", "true"},
		{"run", "--lock", "a", "-E", "256", "--", "true"},
		{"run", "--lock", "a", "-c", "true", "--", "true"},
		{"run", "--lock", "a", "-c", ""},
		{"run", "--lock", "a", "--on-lost", "weep", "--", "true"},
		{"run", "--lock", "a", "-s", "-x", "--", "true"},
		{"run", "--lock", "a", "-s", "--limit", "3", "--", "true"},
		{"run", "--lock", "a", "-e", "--limit", "3", "--", "true"},
		{"run", "--lock", "a", "--limit", "0", "--", "true"},
		{"run", "--lock", "a", "--permits", "1", "--", "true"},
		{"run", "--lock", "a", "--permits", "0", "--limit", "3", "--", "true"},
		{"run", "--lock", "a", "--permits", "4", "--limit", "3", "--", "true"},
	} {
		p := command(t, nil, args...)
		assert.Equal(t, exitUsage, p.run(), "%q", args)
		assert.NotEmpty(t, p.stderr.String(), "%q says nothing", args)
		assert.NotContains(t, p.stderr.String(), "help topic", "%q", args)
		assert.Empty(t, p.stdout.String(), "%q", args)
	}
}

func TestErrorsNameFlagsAsTheyAreTyped(t *testing.T) {
	t.Parallel()
	for want, args := range map[string][]string{
		"flag provided but not defined: --lmit; see":                 {"run", "--lmit", "3", "--", "true"},
		"flag provided but not defined: -q; see":                     {"run", "-q", "--", "true"},
		`invalid value "soon" for flag --ttl: want seconds, such as`: {"run", "--lock", "a", "--ttl", "soon", "--", "true"},
		`invalid value "soon" for flag -w: want seconds, such as`:    {"run", "--lock", "a", "-w", "soon", "--", "true"},
		`invalid value "x" for flag --workers: invalid syntax; see`:  {"demo", "--workers", "x"},
		"flag needs an argument: -w; see":                            {"run", "--lock", "a", "-w", "--", "true"},
		"flag needs an argument: --kind; see":                        {"inspect", "a", "--kind"},
		"flag needs an argument: -E; see":                            {"run", "--lock", "a", "-nE", "--", "true"},
	} {
		p := command(t, nil, args...)
		assert.Equal(t, exitUsage, p.run(), "%q", args)
		assert.Contains(t, p.stderr.String(), "holdfast: "+want, "%q", args)
	}
}

func TestPasswordInAWrongURLIsNotShown(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{
		{"demo", "--redis", "redis://:secret/word@localhost"},
		{"ls", "--store", "postgres://u:secret/word@localhost/db"},
	} {
		p := command(t, nil, args...)
		assert.Equal(t, exitUsage, p.run())
		assert.NotContains(t, p.stderr.String(), "secret")
		assert.NotContains(t, p.stderr.String(), "%!")
	}
}

func TestHelpTellsTheCommandsAndTheExitCodes(t *testing.T) {
	t.Parallel()
	p := command(t, nil, "--help")
	assert.Equal(t, 0, p.run())
	assert.Contains(t, p.stdout.String(), "\n   completion  write a script")

	p = command(t, nil, "run", "--help")
	assert.Equal(t, 0, p.run())
	for _, code := range []string{"64", "69", "75", "76", "126", "127", "128+n"} {
		assert.Contains(t, p.stdout.String(), code)
	}
}

// Every command shows an example, and fits 80 columns.
func TestHelpOfEveryCommandIsWhole(t *testing.T) {
	for _, c := range append(root(nil).Commands, root(nil)) {
		assert.Contains(t, c.Description, "holdfast "+strings.TrimPrefix(c.Name, "holdfast"), "%s has no example", c.Name)
		for line := range strings.Lines(c.Description) {
			assert.LessOrEqual(t, len(line), 77+len("\n"), "%s: %s", c.Name, line) // it is shown with 3 spaces in front
		}
	}
}

func TestReportTakesTheCodeOfAWrappedFailure(t *testing.T) {
	assert.Equal(t, 0, report(nil))
	assert.Equal(t, 9, report(errors.Join(errors.New("and"), &failure{code: 9})))
}
