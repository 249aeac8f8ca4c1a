//go:build unix

package main

import (
	"os"

	"golang.org/x/sys/unix"
)

// sizeOf returns the columns and lines of the terminal behind f, and false if
// there is none.
func sizeOf(f *os.File) (width, height int, ok bool) {
	ws, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0, 0, false
	}
	return int(ws.Col), int(ws.Row), true
}
