package awake

import (
	"syscall"
	"unsafe"
)

// idle is SCHED_IDLE: a thread that runs only when no other wants the core.
const idle = 5

// yield gives this thread idle priority.
func yield() error {
	var priority int32 // of this policy it has to be 0
	if _, _, err := syscall.Syscall(syscall.SYS_SCHED_SETSCHEDULER, 0, idle, uintptr(unsafe.Pointer(&priority))); err != 0 {
		return err
	}
	return nil
}
