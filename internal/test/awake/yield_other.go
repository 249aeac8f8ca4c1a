//go:build !linux

package awake

import "syscall"

// yield gives this process the least priority.
func yield() error { return syscall.Setpriority(syscall.PRIO_PROCESS, 0, 19) }
