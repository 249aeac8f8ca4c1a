package flags

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTimesAreInSecondsOrHaveUnits(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{"5": 5 * time.Second, "0.5": 500 * time.Millisecond, "0": 0, "2m": 2 * time.Minute, "1h30m": 90 * time.Minute, "-1": -time.Second} {
		var got timeValue
		require.NoError(t, got.Set(text))
		assert.Equal(t, want, got.Get())
	}
	for _, wrong := range []string{"", "soon", "NaN", "Inf", "1e30", "-1e30"} {
		assert.ErrorContains(t, new(timeValue).Set(wrong), "want seconds", wrong)
	}
}
