package stamp_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/holdfast-go/holdfast/internal/stamp"
)

const resolution = 40 * time.Millisecond

func TestTokenTellsForYearsWhenItWasMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		made, token := time.Now(), string(stamp.Append([]byte("0123-4")))
		assert.WithinDuration(t, made, stamp.Time(token), resolution)
		for range 4 {
			time.Sleep(365 * 24 * time.Hour)
			assert.WithinDuration(t, made, stamp.Time(token), resolution)
		}
	})
}

// Clocks of machines differ: a token of one that is ahead comes from the future.
func TestTokenOfAClockThatIsAheadTellsItsTime(t *testing.T) {
	var token string
	var made time.Time
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Minute)
		made, token = time.Now(), string(stamp.Append(nil))
	})
	synctest.Test(t, func(t *testing.T) { // begins a minute earlier
		assert.WithinDuration(t, made, stamp.Time(token), resolution)
	})
}

func TestOtherTokensTellNoTime(t *testing.T) {
	for _, token := range []string{
		"", ".", "0123456789abcdef-1-0123456789abcdef", "5a1b-uuid:17", "x." + strings.Repeat("!", 16), "x." + strings.Repeat("A", 15),
	} {
		assert.True(t, stamp.Time(token).IsZero(), token)
	}
}

func TestStampsAreDifferent(t *testing.T) {
	seen := map[string]bool{}
	for range 1000 {
		seen[string(stamp.Append(nil))] = true
	}
	assert.Len(t, seen, 1000)
}

func TestStampIsPrintable(t *testing.T) {
	for range 1000 {
		assert.NotContains(t, string(stamp.Append(nil)), " ")
	}
}
