package holdfast_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
)

// Locks that are kept for a while after they were unlocked.

// Only the store can say when its turn is over. In a bubble, time stands still for as long
// as anybody looks at the clock again and again.
func TestWhoWaitsForALingeringLockThatIsHeldForLongDoesNotSpin(t *testing.T) {
	inBubble(t, func(t *testing.T, l *lab) {
		c := l.mates(holdfast.WithLinger(time.Hour))
		held := l.lease(c, "x")
		w := l.wait(c, "x")
		l.keeps(held, 2*ages)
		require.NoError(t, held.Release(t.Context()))
		require.NoError(t, w.granted(soon).Release(t.Context()))
	})
}
