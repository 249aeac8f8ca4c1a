package holdfast

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/local"
	"github.com/holdfast-go/holdfast/internal/session"
	"github.com/holdfast-go/holdfast/internal/token"
)

// The errors of this package. An error matches, by [errors.Is], one or several of these,
// the Err and the cause of a context, or an error of the store. Most are wrapped in a [*LockError].
var (
	// ErrLocked says that another holds the lock.
	ErrLocked = token.ErrLocked // "held by another"
	// ErrLost says that the lease ended before it was released: it could not be
	// renewed in time, or it was taken away. Another may hold the lock now.
	ErrLost = local.ErrLost // "lock lost"
	// ErrExpired says that a lost lease was over by the clock: it was not renewed in time,
	// or a clock was set forward. The store tells of other losses.
	ErrExpired = local.ErrExpired // "not renewed in time"
	// ErrHeldTooLong says that a lost lease had lasted for as long as [WithMaxHold] allows.
	ErrHeldTooLong = local.ErrHeldTooLong // "held for as long as WithMaxHold allows"
	// ErrQueueFull says that as many wait for a lock as [WithMaxWaiters] allows. The error
	// also matches ErrLocked.
	ErrQueueFull = token.ErrQueueFull // "too many wait"
	// ErrNotHeld says that the lock is not held: the lease was released before.
	ErrNotHeld = local.ErrNotHeld // "lock not held"
	// ErrClosed says that the client is closed.
	ErrClosed = session.ErrClosed // "client closed"
	// ErrDeadlock says that the context already carries a lease on the lock. The caller
	// would wait for itself for ever.
	ErrDeadlock = local.ErrDeadlock // "already held by this context"
	// ErrLimitConflict says that a semaphore is in use with another limit.
	ErrLimitConflict = driver.ErrLimitConflict
	// ErrLimitExceeded says that a request was for more than the limit of a semaphore.
	ErrLimitExceeded = driver.ErrLimitExceeded
	// ErrNotConfirmed says that too few replicas or disks had a lease in time, see [WithReplicas]
	// and [WithFsync].
	ErrNotConfirmed = driver.ErrNotConfirmed
	// ErrUnavailable says that the store did not answer, or refused for now: it cannot be reached, is
	// silent, loads its data, has lost its master, is full, or says what is not known to last.
	// Nobody knows whether the lock is held.
	// The error of a wait that only another holder outlasted never matches it; that matches
	// ErrLocked. See [WithOutageWait].
	ErrUnavailable = driver.ErrTransient // "store unavailable"
	// ErrInvalidName says that a name is empty or longer than 512 bytes.
	ErrInvalidName error = &session.Sentinel{Kind: "invalid_name", Text: "name must have 1 to 512 bytes"}
)

// LockError says which operation failed on which lock. It contains no token, except as Holder
// of a store that keeps nothing else.
type LockError struct {
	Op   string      // such as "acquire mutex"
	Kind driver.Kind // of the lock; empty if it is not known, as of a token that is none, and for List
	Name string      // of the lock
	Err  error

	// Of an error that matches ErrLocked: a holder's text, see [WithHolder], and for how
	// long it has held the lock, unless somebody else has got it since the store last told.
	// Of several holders it is any. Empty and 0 if there was room, but others wait and come first,
	// such as a writer before a reader. Also if the store does not tell: those on Redis, PostgreSQL
	// and etcd, and in memory, do. etcd keeps no times, so HeldFor is 0. The old forms on Redis keep
	// no text either. So driver/setnx, getset and redisson tell the content of the key instead, such as
	// a token.
	Holder  string
	HeldFor time.Duration
}

// lockError returns the error of an operation on a lock. The kind may be empty.
func lockError(op string, k driver.Kind, name string, err error) *LockError {
	if k != "" {
		op += " " + string(k)
	}
	e := &LockError{Op: op, Kind: k, Name: name, Err: err}
	var held *token.Held
	if errors.As(err, &held) {
		e.Holder, e.HeldFor = held.Holder, held.For
	}
	return e
}

// Error returns "holdfast: <op> <name>: <cause>". It shows only the beginning of a name
// longer than 64 bytes.
func (e *LockError) Error() string {
	name := e.Name
	if len(name) > 64 {
		name = name[:64] + "…"
	}
	cause := e.Err
	if inner, ok := cause.(*LockError); ok && inner.Name == e.Name {
		cause = inner.Err
	}
	return "holdfast: " + e.Op + " " + strconv.Quote(name) + ": " +
		strings.ReplaceAll(cause.Error(), "holdfast: ", "")
}

// Unwrap returns the cause.
func (e *LockError) Unwrap() error { return e.Err }

// ErrorType returns a word for the cause, fit for the OpenTelemetry attribute error.type.
// The words are locked, lock_lost, not_held, closed, deadlock, invalid_name,
// limit_conflict, limit_exceeded, not_confirmed, queue_full, timeout, canceled, unavailable, denied and
// wrong_type. A timeout is the end of the call's context while another held the lock, or while no
// grant was confirmed; if the store was unavailable, the word is that. It is denied if the store
// refuses the user, see [driver.ErrDenied], and wrong_type if another program keeps something else
// under the key of the lock. An error that has an ErrorType itself, as one of a hook, has the last
// word. Anything else from the store is store.
func (e *LockError) ErrorType() string {
	var known *session.Sentinel
	isKnown := errors.As(e.Err, &known)
	switch {
	case isKnown && error(known) != ErrLocked: // that only says what was waited for
		return known.Kind
	case errors.Is(e.Err, context.Canceled):
		return "canceled"
	case errors.Is(e.Err, driver.ErrDenied):
		return "denied"
	case errors.Is(e.Err, ErrUnavailable):
		return "unavailable"
	case errors.Is(e.Err, context.DeadlineExceeded):
		return "timeout"
	case isKnown:
		return known.Kind
	case errors.Is(e.Err, ErrLimitConflict):
		return "limit_conflict"
	case errors.Is(e.Err, ErrLimitExceeded):
		return "limit_exceeded"
	case errors.Is(e.Err, ErrNotConfirmed):
		return "not_confirmed"
	}
	if typed, is := errors.AsType[interface {
		error
		ErrorType() string
	}](e.Err); is {
		return typed.ErrorType()
	}
	return "store"
}
