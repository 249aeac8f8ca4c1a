// Package awake keeps the cores of this machine awake while something is measured.
//
// To wake a sleeping core takes 30 µs and more, as much as a command of Redis. On a server
// that has other work its cores are awake. On one that has none a benchmark measures how
// often each contender wakes them, and a client that wakes more threads can even look faster.
package awake

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"syscall"

	"github.com/holdfast-go/holdfast/internal/test/tied"
)

// spinning is set in the environment of a process that does nothing else.
const spinning = "HOLDFAST_SPIN"

// A process of its own: threads of this one would keep its garbage collector waiting.
func init() {
	if os.Getenv(spinning) == "" {
		return
	}
	cores := runtime.NumCPU()
	runtime.GOMAXPROCS(cores)
	for range cores - 1 {
		go spin()
	}
	spin()
}

// spin never returns. The priority is that of a thread, so it keeps to one.
func spin() {
	runtime.LockOSThread()
	if err := yield(); err != nil {
		fmt.Fprintln(os.Stderr, "awake:", err)
		os.Exit(1)
	}
	//lint:ignore SA5002 that is its work
	for {
	}
}

// Keep starts a process that spins on each core at idle priority, so that it takes time from
// nobody else. The process ends when stop is called, or with this one. Only programs
// that import this package can be their own spinner.
func Keep() (stop func(), err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), spinning+"=1")
	cmd.Stderr = os.Stderr
	if err := tied.Start(cmd, syscall.SIGKILL); err != nil {
		return nil, err
	}
	return func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}, nil
}
