//go:build unix

package redistest

import "syscall"

const pause, resume = syscall.SIGSTOP, syscall.SIGCONT
