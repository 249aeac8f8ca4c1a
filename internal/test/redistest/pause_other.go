//go:build !unix

package redistest

import "syscall"

// No process can be frozen here; sending these fails and says so.
const pause, resume = syscall.Signal(-1), syscall.Signal(-1)
