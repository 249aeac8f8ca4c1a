//go:build unix

package term

import (
	"os"

	"golang.org/x/sys/unix"
)

// Size returns the columns and lines of the terminal behind f, and false if
// there is none.
func Size(f *os.File) (width, height int, ok bool) {
	ws, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0, 0, false
	}
	return int(ws.Col), int(ws.Row), true
}
