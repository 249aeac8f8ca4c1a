package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/holdfast-go/holdfast/internal/redistest"
)

func init() { roles["shell"] = shell }

// shell is as much of a shell with job control as the tests need: it runs its
// arguments as a job in the foreground, tells when the job stops, and continues it
// in the foreground after a line of input.
func shell() int {
	job := exec.Command(os.Args[1], os.Args[2:]...)
	job.Env = append(os.Environ(), roleEnv+"=holdfast")
	job.Stdin, job.Stdout, job.Stderr = os.Stdin, os.Stdout, os.Stderr
	job.SysProcAttr = &syscall.SysProcAttr{Foreground: true, Ctty: 0}
	if err := job.Start(); err != nil {
		fmt.Println("shell:", err)
		return 1
	}
	signal.Ignore(unix.SIGTTOU) // not earlier, lest the job inherits it
	for {
		var status unix.WaitStatus
		if _, err := unix.Wait4(job.Process.Pid, &status, unix.WUNTRACED, nil); err != nil {
			continue
		}
		_ = unix.IoctlSetPointerInt(0, unix.TIOCSPGRP, unix.Getpgrp())
		if !status.Stopped() {
			fmt.Printf("shell: exit %d\n", status.ExitStatus())
			return 0
		}
		fmt.Println("shell: stopped")
		_, _ = os.Stdin.Read(make([]byte, 100))
		_ = unix.IoctlSetPointerInt(0, unix.TIOCSPGRP, job.Process.Pid)
		fmt.Println("shell: continues")
		_ = unix.Kill(-job.Process.Pid, unix.SIGCONT)
	}
}

// console is a terminal, with a process at it that leads the session.
type console struct {
	*process
	keyboard *os.File
}

func (p *process) onTerminal(columns, lines uint16) *console {
	p.t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(p.t, err)
	p.t.Cleanup(func() { _ = master.Close() })
	fd := int(master.Fd())
	require.NoError(p.t, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0))
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	require.NoError(p.t, err)
	require.NoError(p.t, unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Col: columns, Row: lines}))
	tty, err := os.OpenFile(fmt.Sprint("/dev/pts/", number), os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(p.t, err)
	defer func() { _ = tty.Close() }()

	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = tty, tty, tty
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	p.cmd.Env = append(p.cmd.Env, "TERM=xterm", "NO_COLOR=")
	read := make(chan struct{})
	// After p was killed. The end of a session's leader hangs up on its other processes.
	p.t.Cleanup(func() { <-read })
	p.start()
	go func() {
		defer close(read)
		_, _ = io.Copy(&p.stdout, master) // until nobody has the terminal open
	}()
	return &console{p, master}
}

func (c *console) types(keys string) {
	c.t.Helper()
	_, err := c.keyboard.WriteString(keys)
	require.NoError(c.t, err)
}

// atShell starts holdfast run from a shell with job control. redirect is what the
// shell does to its input and output, if anything.
func atShell(t *testing.T, s *redistest.Server, redirect string, args ...string) *console {
	t.Helper()
	p := under(t, s, "terminal", args...)
	self := p.cmd.Path
	job := append([]string{"sh", "-c", `exec "$@" ` + redirect, "sh", self}, p.cmd.Args[1:]...)
	p.cmd.Args = append([]string{self}, job...)
	p.cmd.Env = append(p.cmd.Env, roleEnv+"=shell")
	return p.onTerminal(80, 24)
}

const (
	ctrlC = "\x03"
	ctrlZ = "\x1a"
)

func TestCommandHasTheTerminal(t *testing.T) {
	t.Parallel()
	c := atShell(t, redistest.Mini(t), "", "--", "sh", "-c", "stty -echo; echo ready; exec cat")
	c.awaitOutput("ready")
	c.types("one\n")
	c.awaitOutput("one")

	c.types(ctrlZ)
	c.awaitOutput("shell: stopped")
	c.types("fg\n")
	c.awaitOutput("shell: continues")
	c.types("two\n")
	c.awaitOutput("two")

	c.types(ctrlC)
	c.awaitOutput("shell: exit 130")
}

// Its input is not the terminal, so it starts in the background: a pager behind it
// in a pipeline can have the terminal.
func TestCommandGetsTheTerminalWhenItAsksForIt(t *testing.T) {
	t.Parallel()
	c := atShell(t, redistest.Mini(t), "< /dev/null", "--", "sh", "-c",
		"ps -o stat= -p $$; stty -echo < /dev/tty; ps -o stat= -p $$; read x < /dev/tty; echo got $x")
	c.awaitOutput(`\b[DRS]N?\r\n`)
	c.awaitOutput(`\b[DRS]N?\+\r\n`) // the foreground, as ps shows it
	c.types("one\n")
	c.awaitOutput("got one")
	c.awaitOutput("shell: exit 0")
}

func TestKeysReachACommandInTheBackground(t *testing.T) {
	t.Parallel()
	c := atShell(t, redistest.Mini(t), "< /dev/null", "--", "sh", "-c", "echo ready; exec sleep 1000")
	c.awaitOutput("ready")
	c.types(ctrlZ)
	c.awaitOutput("shell: stopped")
	c.types("fg\n")
	c.awaitOutput("shell: continues")
	c.types(ctrlC)
	c.awaitOutput("shell: exit 130")
}

func TestCommandThatWasStoppedForTooLongIsEnded(t *testing.T) {
	t.Parallel()
	s := redistest.Mini(t)
	c := atShell(t, s, "", "--ttl", "1s", "--", "sh", "-c", "echo ready; exec cat")
	c.awaitOutput("ready")
	c.types(ctrlZ)
	c.awaitOutput("shell: stopped")
	m := locksOf(t, s).RWMutex("terminal")
	eventually(t, func() bool { return len(inspected(t, m).Holders) == 0 }, "the lease ends")
	c.types("fg\n")
	c.awaitOutput("shell: continues")
	c.awaitOutput(`the lease on "terminal" was lost`)
	c.awaitOutput(fmt.Sprint("shell: exit ", exitLost))
}

// Without a shell with job control nobody could continue what is stopped.
func TestStopIsDiscardedWithoutJobControl(t *testing.T) {
	t.Parallel()
	p := under(t, redistest.Mini(t), "terminal", "--", "sh", "-c", "stty -echo; echo ready; exec cat")
	c := p.onTerminal(80, 24)
	c.awaitOutput("ready")
	c.types(ctrlZ)
	c.types("one\n")
	c.awaitOutput("one")
	c.types(ctrlC)
	require.Equal(t, exitSignal+2, c.wait())
}

func TestRunSaysOnATerminalWhomItWaitsForAndWhenThatChanges(t *testing.T) {
	t.Parallel()
	s := redistest.Mini(t)
	m := locksOf(t, s).RWMutex("told")
	holder := func() string { return inspected(t, m).Holders[0].Holder }
	end := occupy(t, s, "told")
	next := under(t, s, "told", "--", "sh", "-c", "echo ready; read line")
	keyboard, err := next.cmd.StdinPipe()
	require.NoError(t, err)
	next.start()
	awaitWaiter(t, m)

	c := under(t, s, "told", "--", "true").onTerminal(100, 24)
	c.awaitOutput(`holdfast: waiting for "told", held by ` + holder() + " since .*\r\n")
	end()
	next.awaitOutput("ready")
	c.awaitOutput(`holdfast: waiting for "told", held by ` + holder() + " since .*\r\n")
	require.NoError(t, keyboard.Close())
	next.wait()
	require.Equal(t, 0, c.wait())
	c.awaitOutput(`holdfast: got "told" after \d+s\r\n`)
	require.Equal(t, 3, strings.Count(c.stdout.String(), "\n"), "only changes are told")

	quiet := under(t, s, "free", "--", "true").onTerminal(100, 24)
	require.Equal(t, 0, quiet.wait())
	require.Empty(t, quiet.stdout.String())
}

func TestDemoDrawsOnATerminal(t *testing.T) {
	t.Parallel()
	c := command(t, nil, "demo", "--duration", "1s").onTerminal(80, 30)
	require.Equal(t, 0, c.wait())
	c.awaitOutput("violations 0:")
	text := c.stdout.String()
	require.Contains(t, text, hideCursor)
	require.Contains(t, text, showCursor)
	require.Greater(t, strings.Count(text, "mean wait"), 5, "drawn again and again")
}

func TestUnlockAsksOnATerminal(t *testing.T) {
	t.Parallel()
	s := redistest.Mini(t)
	m := held(t, s, "asked")
	c := command(t, s, "unlock", "asked", "--force").onTerminal(80, 24)
	c.awaitOutput(`The rwmutex "asked" is held by .*\r\nTake it away\? \[y/N\] `)
	c.types("\n")
	require.Equal(t, 1, c.wait())
	require.Len(t, inspected(t, m).Holders, 1, "no answer is a no")

	c = command(t, s, "unlock", "asked", "--force").onTerminal(80, 24)
	c.awaitOutput(`\[y/N\] `)
	c.types("y\n")
	require.Equal(t, 0, c.wait())
	require.Empty(t, inspected(t, m).Holders)
}

// Nobody said yes to taking the lock from somebody else.
func TestUnlockAsksAgainIfTheHolderHasChanged(t *testing.T) {
	t.Parallel()
	s := redistest.Mini(t)
	end := occupy(t, s, "changed")
	c := command(t, s, "unlock", "changed", "--force").onTerminal(80, 24)
	c.awaitOutput(`\[y/N\] `)
	end()
	second := occupy(t, s, "changed")
	c.types("y\n")
	c.awaitOutput(`That has changed\.`)
	c.types("n\n")
	require.Equal(t, 1, c.wait())
	second()
}

func TestWatchDrawsAtTheSamePlaceOfATerminal(t *testing.T) {
	t.Parallel()
	s := redistest.Mini(t)
	c := command(t, s, "inspect", "--watch", "drawn").onTerminal(80, 24)
	c.awaitOutput(`nobody holds "drawn"`)
	held(t, s, "drawn")
	c.awaitOutput(`\x1b\[1A.*rwmutex "drawn": held`)
	c.types(ctrlC)
	require.Equal(t, 0, c.wait())
}

func TestWatchShowsOnATerminalHowOldTheStateIs(t *testing.T) {
	t.Parallel()
	s := redistest.Real(t)
	c := command(t, s, "inspect", "--watch", "drawn").onTerminal(100, 24)
	c.awaitOutput(`nobody holds "drawn"`)
	s.Kill()
	c.awaitOutput(`\x1b\[1A.*As it was \d+s ago: .*Redis at .*; trying again\S*\s+nobody holds "drawn"`)
	s.Restart()
	held(t, s, "drawn")
	c.awaitOutput(`\x1b\[2A.*rwmutex "drawn": held`)
	c.types(ctrlC)
	require.Equal(t, 0, c.wait())
}
