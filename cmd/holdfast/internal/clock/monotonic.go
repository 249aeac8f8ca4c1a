//go:build darwin || dragonfly || freebsd || linux || openbsd

package clock

import "golang.org/x/sys/unix"

// Now returns nanoseconds since a moment that all processes of this machine
// have in common, and never steps. The monotonic reading inside time.Time counts
// from the start of its own process, so it cannot be compared.
func Now() int64 {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		panic("holdfast: clock_gettime: " + err.Error())
	}
	return ts.Nano()
}
