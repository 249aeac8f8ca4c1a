package redisson

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// Form is which lock of Redisson a Mutex is.
type Form int

// The forms. Java programs get them by getLock, getFencedLock and getFairLock.
const (
	Lock       Form = iota // RLock
	FencedLock             // RFencedLock: each grant has a fence, from Redisson's own counter
	FairLock               // RFairLock: those that wait are served in order, here and in Java
)

// WithMutex sets which lock of Redisson a Mutex is: the one that the Java programs take under that
// name. Only with [Lock] has the driver the kind RWMutex. For an RReadWriteLock beside locks of
// another form, open a second client. The default is [Lock].
func WithMutex(f Form) Option {
	return optionFunc(func(d *Driver) { d.form = f })
}

// WithFairLockWaitTimeout sets how long the first waiter for a [FairLock] may leave a free lock
// lying before the next one gets it, if it is a program in Java, or if no program of ours waits. It
// must be the fairLockWaitTimeout of the Java programs. The default is theirs, 5 minutes.
func WithFairLockWaitTimeout(timeout time.Duration) Option {
	return optionFunc(func(d *Driver) { d.turn = timeout })
}

// kinds are those of the locks that there are.
func (d *Driver) kinds() []driver.Kind {
	if d.form == Lock {
		return []driver.Kind{driver.Mutex, driver.RWMutex}
	}
	return []driver.Kind{driver.Mutex}
}

func (d *Driver) knows(k driver.Kind) bool { return slices.Contains(d.kinds(), k) }

// counted appends the counter of fences to the keys of a lock, if it has one.
func (d *Driver) counted(name string, keys ...string) []string {
	if d.form == FencedLock {
		keys = append(keys, "redisson_lock_token:"+tagged(d.key(name)))
	}
	return keys
}

// granted is the answer to a token that has the lock, with the fence that a script answers.
func granted(r *driver.Request, fence string) (driver.Grant, error) {
	g := driver.Grant{Status: driver.Granted, Ask: r.Ask}
	if fence == "" {
		return g, nil
	}
	var err error
	if g.Fence, err = strconv.ParseInt(fence, 10, 64); err != nil || g.Fence < 1 {
		return driver.Grant{}, fmt.Errorf("redisson: the counter of fences is %q", fence)
	}
	return g, nil
}

// number tells holders of their fences, which stand before the owners.
func number(holders []driver.Holder) {
	for i := range holders {
		h := &holders[i]
		fence, owner, _ := strings.Cut(h.Owner, " ")
		h.Fence, _ = strconv.ParseInt(fence, 10, 64)
		h.LastFence, h.Owner = h.Fence, owner
	}
}
