package keepalive

import (
	"sync/atomic"
	"time"
)

// Planned returns when the keeper looks after its leases next.
func (k *Keeper) Planned() time.Time {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.planned
}

// step is when a test has set the wall clock forward, and by how much.
var step atomic.Pointer[struct {
	after time.Time
	by    time.Duration
}]

func init() {
	wallClock = func(at time.Time) int64 {
		if s := step.Load(); s != nil && at.After(s.after) {
			return at.UnixNano() + int64(s.by)
		}
		return at.UnixNano()
	}
}

// StepWallClock sets the wall clock, as Trust sees it, forward until the test ends. It is
// for tests that do not run beside others.
func StepWallClock(t interface{ Cleanup(func()) }, by time.Duration) {
	step.Store(&struct {
		after time.Time
		by    time.Duration
	}{time.Now(), by})
	time.Sleep(time.Nanosecond) // in a bubble it would still be the moment before
	t.Cleanup(func() { step.Store(nil) })
}
