package redisdriver_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

// A lease lasts until the end of a millisecond, and Inspect must not say before that nobody
// holds the lock, or who looks and then asks is surprised.
func TestInspectSaysFreeWhenTheLockIs(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T, s *redistest.Server) {
		d := open(t, s.Client(t), s)
		holder, other := join(t, d, "holder", 100*time.Millisecond), join(t, d, "other", time.Second)
		other.req.Wait = false
		time.Sleep(300 * time.Microsecond)
		holder.must(driver.Granted)
		time.Sleep(105 * time.Millisecond) // with the grace, in the last ms
		for _, held := range []bool{true, false} {
			info, err := d.Inspect(t.Context(), driver.Mutex, "rule")
			require.NoError(t, err)
			require.Equal(t, held, len(info.Holders) == 1)
			want := driver.Granted
			if held {
				want = driver.Busy
			}
			other.must(want)
			time.Sleep(time.Millisecond)
		}
	})
}
