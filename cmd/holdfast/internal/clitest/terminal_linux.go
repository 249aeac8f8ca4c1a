package clitest

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// shell is as much of a shell with job control as the tests need: it runs its
// arguments as a job in the foreground, tells when the job stops, and continues it
// in the foreground after a line of input.
func shell() int {
	job := exec.Command(os.Args[1], os.Args[2:]...)
	job.Env = append(os.Environ(), RoleEnv+"=holdfast")
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

// Console is a terminal, with a process at it that leads the session.
type Console struct {
	*Process
	Keyboard *os.File
}

// OnTerminal starts the process on a terminal of that size.
func (p *Process) OnTerminal(columns, lines uint16) *Console {
	p.T.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(p.T, err)
	p.T.Cleanup(func() { _ = master.Close() })
	fd := int(master.Fd())
	require.NoError(p.T, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0))
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	require.NoError(p.T, err)
	require.NoError(p.T, unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Col: columns, Row: lines}))
	tty, err := os.OpenFile(fmt.Sprint("/dev/pts/", number), os.O_RDWR|unix.O_NOCTTY, 0)
	require.NoError(p.T, err)
	defer func() { _ = tty.Close() }()

	p.Cmd.Stdin, p.Cmd.Stdout, p.Cmd.Stderr = tty, tty, tty
	p.Cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	p.Cmd.Env = append(p.Cmd.Env, "TERM=xterm", "NO_COLOR=")
	read := make(chan struct{})
	// After p was killed. The end of a session's leader hangs up on its other processes.
	p.T.Cleanup(func() { <-read })
	p.Start()
	go func() {
		defer close(read)
		_, _ = io.Copy(&p.Stdout, master) // until nobody has the terminal open
	}()
	return &Console{p, master}
}

// Types has somebody press keys.
func (c *Console) Types(keys string) {
	c.T.Helper()
	_, err := c.Keyboard.WriteString(keys)
	require.NoError(c.T, err)
}

// Keys.
const (
	CtrlC = "\x03"
	CtrlZ = "\x1a"
)
