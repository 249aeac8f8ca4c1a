//go:build unix && !linux

package main

import "syscall"

// endWithParent does nothing: elsewhere a command outlives a holdfast that was
// killed, and must rely on its fence.
func endWithParent(*syscall.SysProcAttr) {}
