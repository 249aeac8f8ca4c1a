package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/trouble"
)

// Sentinel is an error of this library that callers look for, with a word for it that is
// fit for telemetry.
type Sentinel struct {
	Kind, Text string
	Same       error // that of a driver which means the same; nil for none
}

func (e *Sentinel) Error() string { return "holdfast: " + e.Text }

// Is makes an error of a hook match what the driver's error matches.
func (e *Sentinel) Is(target error) bool { return e.Same != nil && target == e.Same }

// ErrSilent is the trouble of a caller to whom the store has not answered.
var ErrSilent = fmt.Errorf("%w: no answer", driver.ErrTransient)

// EndOf returns the error of a call that has ended with its context, nil as long as ctx goes on. It
// has the text of the cause, and matches both the cause and ctx.Err: most callers ask for one of
// context.Canceled and context.DeadlineExceeded, whatever the cause is.
func EndOf(ctx context.Context) error {
	cause, end := context.Cause(ctx), ctx.Err()
	if end == nil || errors.Is(cause, end) {
		return cause
	}
	return &ended{cause, end}
}

type ended struct{ cause, end error }

func (e *ended) Error() string   { return e.cause.Error() }
func (e *ended) Unwrap() []error { return []error{e.cause, e.end} }

// Silent is the trouble of a caller to whom the store has not answered: ErrSilent, unless the driver
// knows better.
func (s *Session) Silent() error { return cmp.Or(s.Explain(), ErrSilent) }

// Explain returns what a driver knows of why the store does not answer, or nil.
func (s *Session) Explain() error {
	if s.Explainer == nil {
		return nil
	}
	return trouble.Of(s.Explainer.Explain())
}

// Outage ends a wait, since the store has not answered for so long.
type Outage struct {
	For time.Duration
	Err error // what it says instead; nil for nothing
}

func (e *Outage) Error() string {
	text := driver.ErrTransient.Error() + " for " + e.For.String()
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Is makes an Outage match driver.ErrTransient, whatever the store says.
func (e *Outage) Is(target error) bool { return target == driver.ErrTransient }

// Unwrap returns what the store says.
func (e *Outage) Unwrap() error { return e.Err }

// ErrClosed says that the client is closed.
var ErrClosed error = &Sentinel{Kind: "closed", Text: "client closed"}
