package pgdriver

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/puddle/v2"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/trouble"
)

// refusal is an error of the driver itself, which has sent nothing.
func refusal(format string, args ...any) error {
	return fmt.Errorf("pgdriver: "+format+": %w", append(args, driver.ErrNotExecuted)...)
}

// storeError adds to an error the sentinels that it matches.
type storeError struct {
	err                            error
	transient, denied, notExecuted bool
	advice                         string // what to do about it, empty for nothing in particular
}

// Error adds to the error what to do about it.
func (e *storeError) Error() string {
	if e.advice == "" {
		return "pgdriver: " + e.err.Error()
	}
	return "pgdriver: " + e.err.Error() + " (" + e.advice + ")"
}

// Unwrap returns the error itself.
func (e *storeError) Unwrap() error { return e.err }

// Is reports whether the error is known to be the sentinel.
func (e *storeError) Is(target error) bool {
	return target == driver.ErrTransient && e.transient || target == driver.ErrDenied && e.denied ||
		target == driver.ErrNotExecuted && e.notExecuted
}

// unsent is the error of a connection that could not be had.
func unsent(err error) error {
	e := classify(err)
	e.notExecuted = true
	return e
}

// classify says of an error of pgx whether it may pass, and whether the function that was
// called has surely had no effect.
func classify(err error) *storeError {
	e := &storeError{err: err, notExecuted: pgconn.SafeToRetry(err)}
	var answer *pgconn.PgError
	switch {
	case errors.As(err, &answer):
		e.denied = answer.Code[:2] == "28" || answer.Code == "42501" || refusedByPooler(answer) // the password, or a right
		e.transient = passes(answer.Code) && !e.denied
		e.advice = advices[answer.Code]
		// A function that fails is undone. But one that was told to stop may have been done
		// already, and only waiting for a replica.
		e.notExecuted = e.notExecuted || answer.Code[:2] != "57" && answer.Code[:2] != "08"
	case errors.Is(err, puddle.ErrClosedPool):
		e.notExecuted = true
	default: // also what the program's own dialer or hooks say
		e.transient = trouble.Passes(err)
	}
	return e
}

// refusedByPooler reports whether a PgBouncer has refused the password. It has the SQLSTATE of a
// broken connection for whatever it says.
func refusedByPooler(answer *pgconn.PgError) bool {
	return answer.Code == "08P01" && strings.HasPrefix(answer.Message, "password authentication failed")
}

// passes reports whether a server that answers with this SQLSTATE may do what was asked if it
// is asked again: it is not known to say the same. The first two characters are the class.
func passes(code string) bool {
	switch code[:2] {
	case "22", // data exception: an argument
		"28", // the user or the password
		"3D", // no such database
		"3F", // no such schema
		"42", // no such function, a right
		"P0": // raised by a function, as for the isolation level
		return false
	}
	return true
}

// refusesNews reports whether a server has undone a function because of what it was to tell others: at
// the call, or as it commits. So it is when the queue of notifications is full, or its disk, or where
// there is no right to pg_notify. The names are the same in all languages.
func refusesNews(err error) bool {
	var answer *pgconn.PgError
	return outOfRoom(err) || errors.As(err, &answer) && (answer.File == "async.c" ||
		strings.Contains(answer.Message+answer.Detail+answer.Where, "pg_notify") || strings.Contains(answer.Where, "tell(text"))
}

// outOfRoom reports whether a limit of the server is exceeded, such as the room for notifications.
func outOfRoom(err error) bool {
	var answer *pgconn.PgError
	return errors.As(err, &answer) && strings.HasPrefix(answer.Code, "54")
}

// ofSession reports whether a session refuses what another may do: its server is a standby, or it
// began with other settings, which it keeps. The codes are that it may only read, that it gives up early, and
// that its isolation level is another one, see open.sql.
func ofSession(err error) bool {
	var answer *pgconn.PgError
	return errors.As(err, &answer) && slices.Contains([]string{"25006", "57014", "P0001"}, answer.Code)
}

// ofDatabase reports whether what a call needs is not there: the database, the schema, something in it,
// or the isolation level.
func ofDatabase(err error) bool {
	var answer *pgconn.PgError
	return errors.As(err, &answer) && answer.Code != "42501" && slices.Contains([]string{"3D", "3F", "42", "P0"}, answer.Code[:2])
}

// unprepared reports whether a statement was not there, or another in its place, that had been
// prepared on this connection: a pooler has changed the session behind it. Nothing was executed.
func unprepared(err error) bool {
	var answer *pgconn.PgError
	return errors.As(err, &answer) && (answer.Code == "26000" || answer.Code == "42P05")
}

// advices say what to do about answers that do not pass by themselves.
var advices = map[string]string{
	"3F000": "run pgdriver.Migrate once, or holdfast migrate", // invalid schema name
	"42883": "run pgdriver.Migrate once, or holdfast migrate", // undefined function
	"42703": "run pgdriver.Migrate once, or holdfast migrate", // undefined column: the schema is older
	"54000": "if it is the queue of NOTIFY: a session that listens is idle in a transaction, see pg_stat_activity; " +
		"pg_notification_queue_usage() tells how full it is",
	"55P03": "a transaction that counts on the lease is open, see holdfast.fenced, or lock_timeout is short",
	"42501": "grant the user the rights that the documentation of package pgdriver lists",
}
