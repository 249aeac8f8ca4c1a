package redisdriver_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver/redisdriver"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

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
