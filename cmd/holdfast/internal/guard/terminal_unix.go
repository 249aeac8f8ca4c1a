//go:build unix

package guard

import (
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Job control. A terminal has one foreground process group; others that read from
// it are stopped with SIGTTIN, or with SIGTTOU if they change its settings. Ours is
// in the foreground when a shell has started us there. The command has a group of
// its own, so that all of it can be ended, and must be given the foreground to
// work as if we were not there.

// terminal is the controlling terminal, if we have one.
type terminal struct {
	fd     int  // -1 without one
	given  bool // the command has it
	wanted bool // the command had it before it was stopped
}

func openTerminal() *terminal {
	fd, err := unix.Open("/dev/tty", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		fd = -1
	}
	return &terminal{fd: fd}
}

// isOurs says whether our process group is in the foreground.
func (t *terminal) isOurs() bool {
	if t.fd < 0 {
		return false
	}
	group, err := unix.IoctlGetInt(t.fd, unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}

// give puts another process group in the foreground.
func (t *terminal) give(group int) {
	t.given = t.setForeground(group)
	t.wanted = true
}

// take puts our own process group in the foreground again.
func (t *terminal) take() {
	if t.given {
		t.setForeground(unix.Getpgrp())
		t.given = false
	}
}

func (t *terminal) setForeground(group int) bool {
	// From the background this is answered with SIGTTOU, unless that is ignored.
	// The command has been started before, so it does not inherit the ignoring.
	signal.Ignore(unix.SIGTTOU)
	return unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, group) == nil
}

func (t *terminal) close() {
	t.take()
	if t.fd >= 0 {
		_ = unix.Close(t.fd)
	}
}

// stopped acts on a stop of the command.
func (j *job) stopped(sig syscall.Signal, l lease) {
	switch {
	case sig == unix.SIGSTOP:
		// Somebody sent it to the command, and may send SIGCONT to it. Until then
		// the lock stays held.
	case sig != unix.SIGTSTP && j.terminal.isOurs():
		j.terminal.give(j.group)
		j.signal(unix.SIGCONT)
	case l.Err() != nil && !j.carryOn:
		// It has got TERM, and will get KILL, for which we must be awake.
	default:
		j.suspend(l)
	}
}

// suspend stops us as the command was stopped, so that the shell takes over the
// terminal. The lease is not renewed meanwhile, and that is as it should be: what
// is stopped need not hold a lock, and cannot notice that it has lost it.
func (j *job) suspend(l lease) {
	j.terminal.take()
	select {
	case <-j.resumed: // of an earlier stop
	default:
	}
	// With our group: a script that called us, the rest of a pipeline. SIGTTIN, as
	// Go cannot go back to the default action of SIGTSTP (signal.Reset leaves a
	// handler that does nothing), and SIGSTOP would stop us without anybody to wake
	// us up if no shell with job control has started us. SIGTTIN is discarded then,
	// as the kernel would have done with the command's signal.
	_ = unix.Kill(0, unix.SIGTTIN)
	select {
	case <-j.resumed:
	case <-time.After(100 * time.Millisecond): // it was discarded
	}
	j.resume(l)
}

// resume lets the command go on. If the lease was lost while we were stopped, the command
// first gets TERM.
func (j *job) resume(l lease) {
	if l.Err() != nil && !j.carryOn {
		return
	}
	if j.terminal.wanted && j.terminal.isOurs() {
		j.terminal.give(j.group)
	}
	j.signal(unix.SIGCONT)
}
