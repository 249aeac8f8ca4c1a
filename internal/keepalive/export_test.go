package keepalive

import "time"

// StepWallClock sets the wall clock, as Trust sees it, forward until the test ends.
func StepWallClock(t interface{ Cleanup(func()) }, d time.Duration) {
	step.Store(int64(d))
	t.Cleanup(func() { step.Store(0) })
}
