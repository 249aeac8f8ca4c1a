package redisdriver_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver/redisdriver"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

// A lease that the store has forgotten leaves nothing behind in the driver, also if it was to be
// kept for longer.
func TestLostLeaseThatWasToBeKeptLeavesNothingBehind(t *testing.T) {
	for _, least := range []time.Duration{10 * time.Millisecond, time.Hour} {
		t.Run(fmt.Sprint(least), func(t *testing.T) {
			s := redistest.Real(t)
			rdb := s.Client(t)
			d := redisdriver.New(rdb)
			c := holdfast.Open(d, holdfast.WithMinHold(least))
			defer c.Close()
			for i := range 10 {
				lease, err := c.Mutex(fmt.Sprint(i)).Lease(t.Context())
				require.NoError(t, err)
				time.Sleep(20 * time.Millisecond)
				require.NoError(t, rdb.FlushAll(t.Context()).Err())
				t.Log(lease.Release(t.Context()))
			}
			require.Zero(t, d.Watches())
		})
	}
}
