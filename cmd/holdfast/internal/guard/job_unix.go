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
	watcher  *watcher       // nil if the command may outlive us
	carryOn  bool           // although the lease is lost
	resumed  chan os.Signal // SIGCONT
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
	return &job{group: cmd.Process.Pid, terminal: t, resumed: make(chan os.Signal, 1)}, nil
}

func cannotStart(err error) error {
	if errors.Is(err, exec.ErrNotFound) || errors.Is(err, fs.ErrNotExist) {
		return exit.With(exit.NotFound, err)
	}
	return exit.With(exit.CannotExecute, err)
}

// reap returns a child that has stopped or ended, and how, or 0. exec.Cmd.Wait would not tell that
// one was stopped. And not all children are ours: pid 1 of a container becomes the parent of all
// that have lost theirs, and when these end they stay in its table of processes until it asks for
// them. To ask for any child takes the status of the command as well, so nothing else may ask.
func reap() (pid int, status unix.WaitStatus) {
	for {
		pid, err := unix.Wait4(-1, &status, unix.WNOHANG|unix.WUNTRACED, nil)
		if !errors.Is(err, unix.EINTR) {
			return max(pid, 0), status // with an error there are no children
		}
	}
}

// reapStrangers is for when there is no command yet, or no more.
func reapStrangers() {
	for pid, _ := reap(); pid > 0; pid, _ = reap() {
	}
}

// lease is what a job needs of a holdfast.Lease.
type lease interface {
	Done() <-chan struct{}
	Err() error
}

// supervise returns when the command has ended. If the lease was lost, it also waits for
// the end of the process group, and reports lost.
func (j *job) supervise(l lease, g *guard, in inbox) (_ unix.WaitStatus, lost bool) {
	defer j.terminal.close()
	if j.watcher != nil {
		defer j.watcher.end()
	}
	notify(in.signals, unix.SIGTSTP)
	notify(j.resumed, unix.SIGCONT)
	defer signal.Stop(j.resumed)

	j.carryOn = g.onLost == "ignore"
	gone := l.Done()
	var killAt time.Time
	var kill <-chan time.Time
	for {
		select {
		case <-in.children:
			for pid, status := reap(); pid > 0; pid, status = reap() {
				switch {
				case pid != j.group:
				case status.Stopped():
					j.stopped(status.StopSignal(), l)
				default:
					if gone == nil && !j.carryOn {
						j.sweep(killAt)
					}
					return status, gone == nil
				}
			}
		case sig := <-in.signals:
			j.signal(sig.(syscall.Signal))
		case <-j.resumed:
			j.resume(l)
		case <-gone:
			gone = nil
			what := ""
			switch g.onLost {
			case "ignore":
				what = "goes on without the lock"
			case "kill":
				what = "gets KILL"
				j.signal(unix.SIGKILL)
			default:
				what = fmt.Sprintf("gets TERM, and after %v KILL", g.grace)
				j.signal(unix.SIGTERM)
				j.signal(unix.SIGCONT) // one that is stopped would not see it
				killAt, kill = time.Now().Add(g.grace), time.After(g.grace)
			}
			// Who reads our standard error may be stuck. That must keep no signal from the command.
			_, why, _ := strings.Cut(l.Err().Error(), "lock lost")
			told := make(chan struct{})
			go func() {
				defer close(told)
				exit.Say(fmt.Errorf("the lease on %q was lost%s; the command %s", g.lock, why, what))
			}()
			defer func() {
				select {
				case <-told:
				case <-time.After(time.Second):
				}
			}()
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
	for reapStrangers(); j.signal(0); reapStrangers() { // one that has ended is there as well until it is reaped
		if time.Now().After(until) {
			j.signal(unix.SIGKILL)
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
}
