// Package clock has a clock that all processes of a machine share, and pauses that end with a context.
package clock

import (
	"context"
	"time"
)

// Pause returns after d, or when ctx ends.
func Pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
