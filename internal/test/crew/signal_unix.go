//go:build unix

package crew

import (
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Pause stops the process, which notices nothing of it, and Resume lets it go on.
func (p *Process) Pause()  { p.tb.Helper(); p.must(syscall.SIGSTOP) }
func (p *Process) Resume() { p.tb.Helper(); p.must(syscall.SIGCONT) }

// Abort ends the process with its stacks on standard error.
func (p *Process) Abort() { _ = p.cmd.Process.Signal(syscall.SIGQUIT) }

func (p *Process) must(sig os.Signal) {
	p.tb.Helper()
	if err := p.cmd.Process.Signal(sig); err != nil {
		p.tb.Fatalf("%s: %v: %v", p.role, sig, err)
	}
}

// Clock is the time of CLOCK_MONOTONIC: all processes of a machine have it in common, no step of the
// wall clock moves it, and it goes on in a process that is paused. The monotonic reading inside of a
// time.Time counts from the start of its own process.
func Clock() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		panic(err)
	}
	return time.Duration(now.Nano())
}
