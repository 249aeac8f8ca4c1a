// Package trouble tells errors of a store that may pass from those that are known to be the same
// next time. Everything that waits for a store asks here.
//
// What nobody has heard of may pass: a proxy that has lost its upstream, a certificate that is
// renewed, a service of tokens that is down, a breaker that is open. A list of what passes is never
// complete, and a wait that ends for the rest of it ends a fleet at once. The errors that last can be listed.
// The price is a wait for what lasts and is not on that list. The log names it after 2 s.
package trouble

import (
	"errors"
	"slices"

	"github.com/holdfast-go/holdfast/driver"
)

// known are the errors that say something certain. ErrNotExecuted without ErrTransient is a refusal.
var known = []error{
	driver.ErrNotHeld, driver.ErrLimitConflict, driver.ErrLimitExceeded, driver.ErrNotConfirmed,
	driver.ErrClosed, driver.ErrDenied, driver.ErrNotExecuted, errors.ErrUnsupported,
}

// Passes reports whether an error may pass: it is not known to be the same next time.
func Passes(err error) bool {
	return errors.Is(err, driver.ErrTransient) || err != nil && !slices.ContainsFunc(known, func(k error) bool { return errors.Is(err, k) })
}

// Of returns an error of a driver as the callers of the store take it: if it may pass, it matches
// driver.ErrTransient.
func Of(err error) error {
	if Passes(err) && !errors.Is(err, driver.ErrTransient) {
		return Passing(err)
	}
	return err
}

// Passing returns the error as one that may pass, with the same text.
func Passing(err error) error { return passing{err} }

type passing struct{ error }

// Is makes the error match driver.ErrTransient.
func (passing) Is(target error) bool { return target == driver.ErrTransient }

// Unwrap returns what the store says.
func (e passing) Unwrap() error { return e.error }
