// Package tied starts processes that end with this one, for tests.
package tied

import (
	"os/exec"
	"runtime"
	"sync"
	"syscall"
)

// Start starts cmd so that it gets the signal end when this process is gone, whatever ends
// it: a test binary that was killed, or panicked in a timeout, runs no cleanup.
//
// On Linux the kernel does that (see tieToParent), but by "parent" it means the
// thread that forked, and Go ends threads when it likes. So all processes are
// started by one goroutine that keeps its thread until the end of the process.
func Start(cmd *exec.Cmd, end syscall.Signal) error {
	startStarter()
	tieToParent(cmd, end)
	result := make(chan error)
	starts <- start{cmd, result}
	return <-result
}

type start struct {
	cmd    *exec.Cmd
	result chan<- error
}

var (
	starts       = make(chan start)
	startStarter = sync.OnceFunc(func() { go starter() })
)

func starter() {
	runtime.LockOSThread() // and never unlock
	for s := range starts {
		s.result <- s.cmd.Start()
	}
}
