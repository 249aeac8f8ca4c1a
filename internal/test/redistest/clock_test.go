package redistest_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

func TestClockStepsTimeAndExpiry(t *testing.T) {
	s, clock := redistest.RealWithClock(t)
	c := s.Client(t)
	offset := func() time.Duration { return time.Until(c.Time(t.Context()).Val()) }
	require.InDelta(t, 0, offset(), float64(5*time.Second))
	require.NoError(t, c.Set(t.Context(), "short", "", time.Minute).Err())
	require.NoError(t, c.Set(t.Context(), "long", "", time.Hour).Err())

	clock.Set(2*time.Minute + 500*time.Millisecond)
	assert.InDelta(t, 2*time.Minute, offset(), float64(5*time.Second))
	assert.Zero(t, c.Exists(t.Context(), "short").Val(), "a live key expires when the clock jumps ahead")
	assert.InDelta(t, 58*time.Minute, c.PTTL(t.Context(), "long").Val(), float64(5*time.Second))

	clock.Set(-time.Hour)
	assert.InDelta(t, -time.Hour, offset(), float64(5*time.Second))
	assert.InDelta(t, 2*time.Hour, c.PTTL(t.Context(), "long").Val(), float64(5*time.Second))

	// The offset belongs to the machine, not to the process.
	s.Restart()
	assert.InDelta(t, -time.Hour, offset(), float64(5*time.Second))
}
