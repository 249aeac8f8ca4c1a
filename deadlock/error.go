package deadlock

import (
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

// Lock is the kind and name of a lock.
type Lock struct {
	Kind driver.Kind
	Name string
}

// String returns it as in mutex "a".
func (l Lock) String() string { return fmt.Sprintf("%s %q", l.Kind, l.Name) }

// Member is one that holds a lock and waits for another.
type Member struct {
	Holder string // its text for people, see holdfast.WithHolder
	Holds  Lock
	Fence  int64     // of that, see [holdfast.Holder]
	Since  time.Time // on the store's clock, since when it holds that

	WaitsFor   Lock
	WaitsSince time.Time // on the clock of its machine
}

// Error tells of a circle: each member waits for what the next one holds, and the last one for
// what the first holds. The first is the one that got the error.
type Error struct{ Circle []Member }

// Error returns a line for each member.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString("holdfast: deadlock:")
	now := time.Now()
	for i, m := range e.Circle {
		next := e.Circle[(i+1)%len(e.Circle)]
		fmt.Fprintf(&b, "\n  %q waits %v for %v, which is held by %q (fence %d) for %v", m.Holder, lasting(m.WaitsSince, now), m.WaitsFor,
			next.Holder, next.Fence, lasting(next.Since, now))
	}
	return b.String()
}

func lasting(since, now time.Time) time.Duration {
	return max(now.Sub(since), 0).Round(time.Millisecond)
}

// Unwrap returns [holdfast.ErrDeadlock].
func (e *Error) Unwrap() error { return holdfast.ErrDeadlock }
