package local

import (
	"fmt"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/session"
)

var (
	// ErrLost says that the lease ended before it was released.
	ErrLost error = &session.Sentinel{Kind: "lock_lost", Text: "lock lost"}
	// ErrNotHeld says that the lock is not held.
	ErrNotHeld error = &session.Sentinel{Kind: "not_held", Text: "lock not held", Same: driver.ErrNotHeld}
	// errClosed is how a lease has ended that Close has released.
	errClosed = fmt.Errorf("%w: %w", session.ErrClosed, ErrNotHeld)
	// ErrDeadlock says that the context already carries a lease on the lock.
	ErrDeadlock error = &session.Sentinel{Kind: "deadlock", Text: "already held by this context"}
)
