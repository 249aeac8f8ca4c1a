// Package exit has the exit codes of the command, and the one line that says why.
package exit

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/show"
)

// Exit codes of our own. They differ from those that commands use, above all 0 to 2. The
// low ones are from sysexits.h, those from 126 on from the shell.
const (
	Failure       = 1   // something that should not happen, such as a demo without a turn
	Usage         = 64  // EX_USAGE: a wrong command line
	Unavailable   = 69  // EX_UNAVAILABLE: no answer from the store, or a refusal
	Violation     = 70  // EX_SOFTWARE: the demo saw two holders at once
	NotAcquired   = 75  // EX_TEMPFAIL: somebody else holds the lock; try again later
	Lost          = 76  // EX_PROTOCOL: the lease was lost while the command ran
	CannotExecute = 126 // the command was found but cannot be executed
	NotFound      = 127 // there is no such command
	Signal        = 128 // and the number of the signal that ended the command, or the waiting
)

// Error is an end with an exit code.
type Error struct {
	code int
	err  error
}

// With is an end with that code, for a reason.
func With(code int, reason error) error { return &Error{code, reason} }

// Silent is an end without a word: what there is to say has been said.
func Silent(code int) error { return &Error{code: code} }

// WrongUsage is the end of a wrong command line.
func WrongUsage(reason error) error { return With(Usage, reason) }

// Error implements error.
func (e *Error) Error() string {
	if e.err == nil {
		return ""
	}
	return e.err.Error()
}

// Unwrap returns the reason.
func (e *Error) Unwrap() error { return e.err }

// Report prints err, if it has something to say, and returns its exit code.
func Report(err error) int {
	if err == nil {
		return 0
	}
	e, ok := errors.AsType[*Error](err)
	if !ok {
		// All our own errors carry a code; what is left was found by package cli
		// while it read flags and environment.
		e = &Error{Usage, err}
	}
	if e.err != nil {
		Say(e.err)
	}
	return e.code
}

// Say prints err after the name of the program, with which the library's errors begin
// already. It is one line, whatever of the command line it repeats.
func Say(err error) {
	fmt.Fprintln(os.Stderr, "holdfast:", show.Visible(strings.TrimPrefix(err.Error(), "holdfast: ")))
}
