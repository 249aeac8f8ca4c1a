package main

// Exit codes of our own. They differ from those that commands use, above all 0 to 2. The
// low ones are from sysexits.h, those from 126 on from the shell.
const (
	exitFailure       = 1   // something that should not happen, such as a demo without a turn
	exitUsage         = 64  // EX_USAGE: a wrong command line
	exitUnavailable   = 69  // EX_UNAVAILABLE: no answer from Redis, or a refusal
	exitViolation     = 70  // EX_SOFTWARE: the demo saw two holders at once
	exitNotAcquired   = 75  // EX_TEMPFAIL: somebody else holds the lock; try again later
	exitLost          = 76  // EX_PROTOCOL: the lease was lost while the command ran
	exitCannotExecute = 126 // the command was found but cannot be executed
	exitNotFound      = 127 // there is no such command
	exitSignal        = 128 // and the number of the signal that ended the command, or the waiting
)

// failure is an end with an exit code. Without err it is silent: the command that we ran
// has reported already.
type failure struct {
	code int
	err  error
}

func (f *failure) Error() string {
	if f.err == nil {
		return ""
	}
	return f.err.Error()
}

func (f *failure) Unwrap() error { return f.err }
