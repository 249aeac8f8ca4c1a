//go:build unix

package redistest

import (
	"os"
	"path/filepath"
	"strconv"
	"syscall"
)

// oneAtATime waits until no other process has been here whose time is not over, and returns a function
// that ends the time of this one, as its end does.
func oneAtATime() (end func()) {
	name := filepath.Join(os.TempDir(), "holdfast-heavy-"+strconv.Itoa(os.Getuid()))
	f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return func() {} // two at a time are slower, not wrong
	}
	_ = syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
	return func() { _ = f.Close() }
}
