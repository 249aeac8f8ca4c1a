package redisdriver_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/redisdriver"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
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

// A client lives as long as its process. It must not remember every lock it ever
// wanted, in whatever way that ended.
func TestNothingIsRememberedOfTokensThatAreOver(t *testing.T) {
	t.Parallel()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		d := redisdriver.New(s.Client(t), redisdriver.WithPrefix(s.Prefix()))
		const ttl = 60 * time.Millisecond
		locks := holdfast.Open(d, holdfast.WithTTL(ttl))
		defer locks.Close()
		forgotten := func(but int) {
			t.Helper()
			require.Eventually(t, func() bool { return d.Watches() == but }, 10*time.Second, 10*time.Millisecond)
		}
		mu := locks.Mutex("x", holdfast.WithTTL(time.Minute))
		held, err := mu.Lease(t.Context())
		require.NoError(t, err)
		_, err = mu.TryLease(t.Context())
		require.ErrorIs(t, err, holdfast.ErrLocked)
		forgotten(1)

		// Their patience ends just when they ask again.
		var wg sync.WaitGroup
		for range 100 {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), ttl/3)
				defer cancel()
				_, err := locks.Mutex("x").Lease(ctx)
				require.ErrorIs(t, err, context.DeadlineExceeded)
			})
		}
		wg.Wait()
		forgotten(1)
		require.NoError(t, held.Release(t.Context()))
		forgotten(0)

		// Nobody releases a lease that was meant to run out.
		_, err = locks.Mutex("y", holdfast.WithoutRenewal()).Lease(t.Context())
		require.NoError(t, err)
		forgotten(0)
	})
}

// The driver keeps what it has said of a token. Its requests are for the lock that they name.
func TestTokenIsForTheLockThatIsNamed(t *testing.T) {
	each(t, func(t *testing.T, s *redistest.Server, d *redisdriver.Driver) {
		for _, name := range []string{"one", "other"} {
			r := askFor(name)
			r.Token = "the-same"
			g, err := d.Acquire(t.Context(), r)
			require.NoError(t, err)
			require.Equal(t, driver.Granted, g.Status)
			info, err := d.Inspect(t.Context(), r.Kind, name)
			require.NoError(t, err)
			require.Len(t, info.Holders, 1)
		}
		for _, name := range []string{"other", "one"} {
			require.NoError(t, d.Release(t.Context(), driver.Lease{Kind: driver.Mutex, Name: name, Token: "the-same"}))
		}
	})
}
