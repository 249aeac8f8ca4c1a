//go:build unix

package guard

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/exit"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/term"
)

// job is a command in a process group of its own.
type job struct {
	group    int // the process group, and the process that leads it: the command
	terminal *terminal
	watcher  *watcher // nil if the command may outlive us
	carryOn  bool     // although the lease is lost
	signals  chan os.Signal
	resumed  chan os.Signal       // SIGCONT
	states   chan unix.WaitStatus // of the command: stopped any number of times, then ended
}

// startJob starts a command with more variables in its environment.
func startJob(command, env []string) (*job, error) {
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	t := openTerminal()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if t.isOurs() && term.Is(os.Stdin) && term.Is(os.Stdout) {
		// Some programs look once, at their start, whether they are in the foreground.
		cmd.SysProcAttr.Foreground, cmd.SysProcAttr.Ctty = true, t.fd
		t.given, t.wanted = true, true
	}
	if err := cmd.Start(); err != nil {
		t.close()
		return nil, cannotStart(err)
	}
	j := &job{
		group:    cmd.Process.Pid,
		terminal: t,
		resumed:  make(chan os.Signal, 1),
		states:   make(chan unix.WaitStatus),
	}
	go j.wait()
	return j, nil
}

func cannotStart(err error) error {
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		return exit.With(exit.NotFound, err)
	}
	return exit.With(exit.CannotExecute, err)
}

// wait reports what becomes of the command. exec.Cmd.Wait would not tell that it
// was stopped.
func (j *job) wait() {
	for {
		var status unix.WaitStatus
		_, err := unix.Wait4(j.group, &status, unix.WUNTRACED, nil)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			panic("holdfast: wait4: " + err.Error()) // it is our child, and nobody else waits for it
		}
		j.states <- status
		if !status.Stopped() {
			return
		}
	}
}

// lease is what a job needs of a holdfast.Lease.
type lease interface {
	Done() <-chan struct{}
	Err() error
}

// supervise returns when the command has ended. If the lease was lost, it also waits for
// the end of the process group, and reports lost.
func (j *job) supervise(l lease, g *guard, signals chan os.Signal) (_ unix.WaitStatus, lost bool) {
	defer j.terminal.close()
	if j.watcher != nil {
		defer j.watcher.end()
	}
	j.signals = signals
	notify(j.signals, unix.SIGTSTP)
	notify(j.resumed, unix.SIGCONT)
	defer signal.Stop(j.resumed)

	j.carryOn = g.onLost == "ignore"
	gone := l.Done()
	var killAt time.Time
	var kill <-chan time.Time
	for {
		select {
		case status := <-j.states:
			if !status.Stopped() {
				if gone == nil && !j.carryOn {
					j.sweep(killAt)
				}
				return status, gone == nil
			}
			j.stopped(status.StopSignal(), l)
		case sig := <-j.signals:
			j.signal(sig.(syscall.Signal))
		case <-j.resumed:
			j.resume(l)
		case <-gone:
			gone = nil
			_, why, _ := strings.Cut(l.Err().Error(), "lock lost")
			tell := func(what string) {
				exit.Say(fmt.Errorf("the lease on %q was lost%s; the command %s", g.lock, why, what))
			}
			switch g.onLost {
			case "ignore":
				tell("goes on without the lock")
			case "kill":
				tell("gets KILL")
				j.signal(unix.SIGKILL)
			default:
				tell(fmt.Sprintf("gets TERM, and after %v KILL", g.grace))
				j.signal(unix.SIGTERM)
				j.signal(unix.SIGCONT) // one that is stopped would not see it
				killAt, kill = time.Now().Add(g.grace), time.After(g.grace)
			}
		case <-kill:
			j.signal(unix.SIGKILL)
		}
	}
}

// signal sends sig to the process group. It returns false if nobody is there.
func (j *job) signal(sig syscall.Signal) bool {
	return unix.Kill(-j.group, sig) == nil
}

// sweep gives processes that outlived the command, in its group, until the given
// time. The lock is somebody else's by then.
func (j *job) sweep(until time.Time) {
	for j.signal(0) {
		if time.Now().After(until) {
			j.signal(unix.SIGKILL)
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}
