package etcddriver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/holdfast-go/holdfast/driver"
)

var (
	errUnknown  = errors.New("etcddriver: a lease of which nothing is known here")
	errElection = fmt.Errorf("etcddriver: a leader was elected meanwhile: %w", driver.ErrTransient)
	errForeign  = errors.New("another program keeps something")
	errClosed   = refusal("the driver is closed")
	errCrowded  = fmt.Errorf("etcddriver: the lock or the leader has changed at each attempt: %w", driver.ErrTransient)
)

func refusal(format string, args ...any) error {
	return fmt.Errorf("etcddriver: "+format+": %w", append(args, driver.ErrNotExecuted)...)
}

// failure says of an error of etcd whether it may pass, and whether the request has surely had
// no effect.
func (d *Driver) failure(err error) error {
	if err == nil || errors.Is(err, driver.ErrNotHeld) || errors.Is(err, driver.ErrNotExecuted) || errors.Is(err, driver.ErrTransient) {
		return err
	}
	if d.client.Ctx().Err() != nil {
		return refusal("%w: %w", driver.ErrClosed, err)
	}
	code := status.Code(err)
	if e := (rpctypes.EtcdError{}); errors.As(err, &e) {
		code = e.Code()
	}
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded), errors.Is(err, io.EOF):
		return fmt.Errorf("%w: %w", driver.ErrTransient, err)
	case errors.Is(err, rpctypes.ErrLeaseNotFound): // It ended between two steps, such as in a pause.
		return fmt.Errorf("%w: %w", driver.ErrTransient, err)
	case outdated(err): // The next stream has another token.
		return fmt.Errorf("%w: %w", driver.ErrTransient, err)
	}
	if code == codes.PermissionDenied || code == codes.Unauthenticated || errors.Is(err, rpctypes.ErrAuthFailed) {
		return refusal("%w: %w", driver.ErrDenied, err)
	}
	switch code {
	case codes.ResourceExhausted: // too many requests, or no space until somebody makes some
		return fmt.Errorf("%w: %w: %w", driver.ErrTransient, driver.ErrNotExecuted, err)
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.Aborted, codes.Internal:
		return fmt.Errorf("%w: %w", driver.ErrTransient, err)
	case codes.InvalidArgument, codes.FailedPrecondition, codes.Unimplemented:
		return refusal("%w", err)
	}
	return err
}

// begun is failure for a step that comes after one which has had an effect.
func (d *Driver) begun(err error) error {
	err = d.failure(err)
	switch {
	case !errors.Is(err, driver.ErrNotExecuted):
		return err
	case errors.Is(err, driver.ErrDenied):
		return fmt.Errorf("%w: half-way: %v", driver.ErrDenied, err)
	}
	return fmt.Errorf("%w: half-way: %v", driver.ErrTransient, err)
}

// outdated reports whether etcd does not know a token any more that the client got for its
// password. The error of a watch is a text.
func outdated(err error) bool {
	return err != nil && (strings.Contains(err.Error(), rpctypes.ErrInvalidAuthToken.Error()) || strings.Contains(err.Error(), rpctypes.ErrAuthOldRevision.Error()))
}
