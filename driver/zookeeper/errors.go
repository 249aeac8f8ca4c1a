package zkdriver

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"

	"github.com/holdfast-go/holdfast/driver"
)

var (
	errUnknown = errors.New("zkdriver: a lease of which nothing is known here")
	errClosed  = refusal("the driver is closed")
	errSilent  = fmt.Errorf("zkdriver: no answer for %v: %w", timeout, driver.ErrTransient)
	errCrowded = fmt.Errorf("zkdriver: the lock or the connection has changed at each attempt: %w", driver.ErrTransient)
)

func refusal(format string, args ...any) error {
	return fmt.Errorf("zkdriver: "+format+": %w", append(args, driver.ErrNotExecuted)...)
}

// foreign says that another program keeps something at that path, where only locks are.
type foreign struct{ path string }

func (e *foreign) Error() string {
	return fmt.Sprintf("zkdriver: another program keeps something at %q", e.path)
}

// ErrorType is what the face tells of an error that matches no sentinel.
func (e *foreign) ErrorType() string { return "wrong_type" }

func isForeign(err error) bool {
	_, is := errors.AsType[*foreign](err)
	return is
}

// unreachable is why no server could be asked. It passes, and has the text of its cause.
type unreachable struct{ cause error }

func (e unreachable) Error() string        { return e.cause.Error() }
func (e unreachable) Unwrap() error        { return e.cause }
func (e unreachable) Is(target error) bool { return target == driver.ErrTransient }

// unsent adds to an error of the first attempt at a call that nothing was sent, if it is that no server
// could be asked.
func unsent(err error, try int) error {
	if try == 0 && errors.As(err, &unreachable{}) {
		return fmt.Errorf("%w: %w", err, driver.ErrNotExecuted)
	}
	return err
}

// bounded bounds what a call does. The end of that time is an error of its own: it does not match
// context.DeadlineExceeded, which says that the time of the caller is up.
func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, timeout, errSilent)
}

// ended returns why a call was ended, nil if it was not.
func ended(ctx context.Context) error {
	if errors.Is(context.Cause(ctx), errSilent) {
		return errSilent
	}
	return ctx.Err()
}

// failure says of an error of ZooKeeper whether it may pass, and whether the request has surely had
// no effect.
func failure(err error) error {
	switch {
	case err == nil, errors.Is(err, driver.ErrNotHeld), errors.Is(err, driver.ErrNotExecuted), errors.Is(err, driver.ErrTransient):
		return err
	case errors.Is(err, zk.ErrNoAuth), errors.Is(err, zk.ErrAuthFailed), errors.Is(err, zk.ErrInvalidACL):
		return refusal("%w: %w", driver.ErrDenied, err)
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded), passes(err):
		return fmt.Errorf("%w: %w", driver.ErrTransient, err)
	case errors.Is(err, zk.ErrInvalidPath), errors.Is(err, zk.ErrShortBuffer), isForeign(err):
		return refusal("%w", err)
	}
	return err
}

// passes reports whether an error is one of the connection, or of a server that is not ready.
func passes(err error) bool {
	for _, e := range []error{
		zk.ErrConnectionClosed, zk.ErrNoServer, zk.ErrClosing, zk.ErrSessionExpired, zk.ErrSessionMoved, zk.ErrNothing, zk.ErrAPIError,
		zk.ErrNoNode, zk.ErrNodeExists, zk.ErrBadVersion, // Others were faster.
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	// The client has no names for the errors of the server itself, such as -4, a lost connection.
	return err != nil && len(err.Error()) > 0 && err.Error()[0] == 'u'
}
