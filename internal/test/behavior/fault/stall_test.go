package fault_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
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

// flicker is a server that stands still again and again, for off, and goes on for a moment, on, in between.
type flicker struct {
	mu      sync.Mutex
	off, on time.Duration
	since   time.Time // zero while it does not
	closed  int       // connections that were there before
}

// reads returns when the server reads what arrives at t.
func (f *flicker) reads(t time.Time) time.Time {
	f.mu.Lock()
	defer f.mu.Unlock()
	if into := t.Sub(f.since) % (f.off + f.on); !f.since.IsZero() && into < f.off {
		return t.Add(f.off - into)
	}
	return t
}

func (f *flicker) over(dial dialer) dialer {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		c := &flickering{conn, f, time.Now(), make(chan []byte, 1000), make(chan struct{}), sync.Once{}}
		go c.send()
		return c, nil
	}
}

type flickering struct {
	net.Conn
	f      *flicker
	made   time.Time
	queue  chan []byte
	closed chan struct{}
	once   sync.Once
}

func (c *flickering) Write(p []byte) (int, error) {
	c.queue <- bytes.Clone(p)
	return len(p), nil
}

func (c *flickering) send() {
	for {
		select {
		case p := <-c.queue:
			time.Sleep(time.Millisecond) // of the network
			time.Sleep(time.Until(c.f.reads(time.Now())))
			_, _ = c.Conn.Write(p)
		case <-c.closed:
			return
		}
	}
}

func (c *flickering) Close() error {
	c.once.Do(func() {
		close(c.closed)
		c.f.mu.Lock()
		defer c.f.mu.Unlock()
		if !c.f.since.IsZero() && c.made.Before(c.f.since) {
			c.f.closed++
		}
	})
	return c.Conn.Close()
}

// So it is if the server stands still again as soon as it has answered, however long it goes on in between.
func TestStallsInARowCostTheApplicationNoConnections(t *testing.T) {
	t.Parallel()
	for _, off := range []time.Duration{400 * time.Millisecond, 700 * time.Millisecond} {
		for on := range 10 {
			t.Run(fmt.Sprintf("%v, %d ms in between", off, on+1), func(t *testing.T) {
				redistest.Bubble(t, func(t *testing.T, s *redistest.Server) {
					const pool = 20
					f := &flicker{off: off, on: time.Duration(on+1) * time.Millisecond}
					rdb := s.Client(t, func(o *redis.Options) {
						o.PoolSize = 2 * pool // see forgetful
						o.Dialer = f.over(o.Dialer)
					})
					c := holdfast.New(rdb, holdfast.WithTTL(30*time.Second), holdfast.WithLogger(silent()))
					defer func() { assert.NoError(t, c.Close()) }()
					lease, err := c.Mutex("x").Lease(t.Context())
					require.NoError(t, err)
					idle(t, rdb, pool)
					f.mu.Lock()
					f.since = time.Now()
					f.mu.Unlock()
					for ctx := context.Background(); time.Since(f.since) < 10*time.Second; {
						var wg sync.WaitGroup
						for i := range 4 {
							wg.Go(func() {
								_, err := c.Mutex(fmt.Sprint("y", i)).Inspect(ctx)
								assert.NoError(t, err)
							})
						}
						wg.Wait()
					}
					f.mu.Lock()
					f.since = time.Time{}
					closed := f.closed
					f.mu.Unlock()
					assert.Zero(t, closed)
					assert.LessOrEqual(t, int(rdb.PoolStats().TotalConns), pool+4)
					require.NoError(t, lease.Release(t.Context()))
				})
			})
		}
	}
}
