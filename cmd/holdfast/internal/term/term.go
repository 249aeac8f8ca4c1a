// Package term finds terminals, and has what they obey.
package term

import "os"

// Control sequences of ECMA-48 and DEC terminals, which all terminals know.
const (
	HideCursor = "\x1b[?25l"
	ShowCursor = "\x1b[?25h"
	NoWrap     = "\x1b[?7l" // a line that is too long is cut, and stays one line
	Wrap       = "\x1b[?7h"
	ClearLine  = "\x1b[K"
	ClearBelow = "\x1b[J"
)

// Is reports whether f is a terminal.
func Is(f *os.File) bool {
	_, _, ok := Size(f)
	return ok
}

// Draws reports whether f is a terminal that obeys control sequences.
func Draws(f *os.File) bool { return Is(f) && os.Getenv("TERM") != "dumb" }
