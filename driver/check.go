package driver

import (
	"errors"
	"fmt"
	"strings"
)

// Check returns an error if no store can serve the request, because of its Kind, Name, Token,
// Owner, TTL, Weight or Limit. It matches ErrNotExecuted, and for a Kind that is not known
// errors.ErrUnsupported. A driver calls it first, and then refuses what it cannot serve itself.
func (r *Request) Check() error {
	switch {
	case r.Kind != Mutex && r.Kind != RWMutex && r.Kind != Semaphore:
		return fmt.Errorf("driver: locks of kind %q: %w: %w", r.Kind, errors.ErrUnsupported, ErrNotExecuted)
	case r.Name == "" || len(r.Name) > MaxName:
		return fmt.Errorf("driver: a name of %d bytes: %w", len(r.Name), ErrNotExecuted)
	case r.Token == "" || strings.ContainsFunc(r.Token, func(c rune) bool { return c <= ' ' }):
		return fmt.Errorf("driver: a token with spaces, or none: %w", ErrNotExecuted)
	case len(r.Owner) > MaxOwner:
		return fmt.Errorf("driver: an owner of %d bytes: %w", len(r.Owner), ErrNotExecuted)
	case r.TTL < MinTTL || r.TTL > MaxTTL:
		return fmt.Errorf("driver: a TTL of %v: %w", r.TTL, ErrNotExecuted)
	case r.Kind == Semaphore && (r.Limit < 1 || r.Limit > MaxLimit || r.Weight < 1):
		return fmt.Errorf("driver: a weight of %d and a limit of %d: %w", r.Weight, r.Limit, ErrNotExecuted)
	}
	return nil
}

// Everything is how much there is to hold of an RWMutex: a writer holds all of it, a reader 1.
const Everything = 1 << 30

// Share returns how much of the lock the request wants, and how much there is: of a Mutex 1
// of 1, of an RWMutex see [Everything], of a Semaphore its Weight and Limit.
func (r *Request) Share() (weight, limit int64) {
	switch {
	case r.Kind == Semaphore:
		return r.Weight, r.Limit
	case r.Kind == Mutex:
		return 1, 1
	case r.Shared:
		return 1, Everything
	}
	return Everything, Everything
}
