package bench

import (
	"context"
	"errors"
	"time"
)

// ttl is how long the lock of a holder that has gone lasts, for contenders that let one
// choose.
const ttl = 10 * time.Second

// retryDelay is how often contenders look again that have to poll. A lower value would not
// be faster: a timer of Go is no more exact.
const retryDelay = time.Millisecond

// Role is what a contender is in the comparison.
type Role string

const (
	Ours  Role = "ours"
	Peer  Role = "peer"
	Limit Role = "limit" // not a lock one would use, but what one could cost at least
)

// Contender is a way to lock.
type Contender struct {
	Name  string
	Role  Role
	Setup string // how it is used
	// Sends are the commands that it locks with. All other commands that Redis counts are
	// called by its scripts, or open a connection.
	Sends []string
	Open  func(ctx context.Context, s *Stage) (Process, error)
}

// Process is a client with connections of its own, as a process would have.
type Process interface {
	// Mutex returns a handle on a lock for one goroutine.
	Mutex(ctx context.Context, name string) (Locker, error)
	Close() error
}

// Locker is a handle on a lock.
type Locker interface {
	Lock(ctx context.Context) error
	Unlock(ctx context.Context) error
}

// Doer is a Locker whose natural form is to call what the lock is for.
type Doer interface {
	Do(ctx context.Context, f func()) error
}

// RWProcess is a process that also has read-write locks.
type RWProcess interface {
	RWMutex(ctx context.Context, name string) (read, write Locker, err error)
}

// SemaphoreProcess is a process that also has semaphores. The locker takes one permit.
type SemaphoreProcess interface {
	Semaphore(name string, limit int64) Locker
}

// All are the contenders of most works.
var All = []Contender{Holdfast, Raw, Redsync, Redislock, Rueidislock, InProcess}

// Absence is why a contender does not take part in a work.
type Absence string

func (a Absence) Error() string { return string(a) }

// Absent reports whether err is an [Absence].
func Absent(err error) bool {
	var a Absence
	return errors.As(err, &a)
}
