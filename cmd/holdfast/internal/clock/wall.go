//go:build !(darwin || dragonfly || freebsd || linux || openbsd)

package clock

import "time"

// Now returns nanoseconds on the wall clock, the only one that processes have in
// common here. A step of that clock during a demo can look like a violation.
func Now() int64 { return time.Now().UnixNano() }
