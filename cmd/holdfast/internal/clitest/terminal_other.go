//go:build unix && !linux

package clitest

// shell is only there on Linux.
func shell() int { return 1 }
