package fault_test

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

// A server that stands still for a moment answers nobody. The connections that the application has
// in its pool are well nevertheless.
func TestStallOfTheServerCostsTheApplicationNoConnections(t *testing.T) {
	t.Parallel()
	redistest.RequireReal(t)
	const pool = 60
	s := redistest.Real(t)
	var dials atomic.Int64
	rdb := s.Client(t, func(o *redis.Options) {
		o.PoolSize, o.PipelinePoolSize = pool, pool
		dial := o.Dialer
		if dial == nil {
			dial = redis.NewDialer(o)
		}
		o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			dials.Add(1)
			return dial(ctx, network, addr)
		}
	})
	c := holdfast.New(rdb, holdfast.WithTTL(30*time.Second), holdfast.WithLogger(silent()))
	defer func() { assert.NoError(t, c.Close()) }()
	lease, err := c.Mutex("x").Lease(t.Context())
	require.NoError(t, err)
	idle(t, rdb, pool)
	before := dials.Load()
	for range 3 {
		s.Pause()
		answered := make(chan error, 1)
		go func() {
			_, err := c.Mutex("y").Inspect(context.Background())
			answered <- err
		}()
		time.Sleep(1500 * time.Millisecond) // A connection counts as silent after 250 ms to 1 s.
		s.Resume()
		require.NoError(t, <-answered)
	}
	require.NoError(t, lease.Err())
	// At each stall a few are made, to look. Without that all but one were closed.
	assert.Less(t, dials.Load()-before, int64(pool/2))
	assert.Greater(t, rdb.PoolStats().IdleConns, uint32(pool/2))
	require.NoError(t, lease.Release(t.Context()))
}
