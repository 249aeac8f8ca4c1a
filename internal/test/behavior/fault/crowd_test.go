package fault_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/test/behavior/lab"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

// crowded is how many connections the program has, all of which wait for jobs.
const crowded = 10

// nosy looks at all commands before they are sent, as hooks for tracing do.
type nosy struct{}

func (nosy) DialHook(next redis.DialHook) redis.DialHook { return next }
func (nosy) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		_ = cmd.Args()
		return next(ctx, cmd)
	}
}
func (nosy) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// The program has all connections of its pool wait for jobs, for longer than the test lasts.
func TestLocksAreHadAndGivenUpThoughOthersHaveAllConnections(t *testing.T) {
	t.Parallel()
	redistest.RequireReal(t)
	s := redistest.Real(t)
	one := func(mods ...func(*redis.Options)) func(t *testing.T) (rdb, other redis.UniversalClient) {
		return func(t *testing.T) (rdb, other redis.UniversalClient) {
			return s.Client(t, append([]func(*redis.Options){func(o *redis.Options) {
				o.PoolSize, o.PoolTimeout = crowded, time.Hour
			}}, mods...)...), s.Client(t)
		}
	}
	for name, c := range map[string]struct {
		connect func(t *testing.T) (rdb, other redis.UniversalClient)
		opts    []holdfast.Option
	}{
		"many in a call":       {one(), nil},
		"one in a call":        {one(), []holdfast.Option{holdfast.WithPipelining(false)}},
		"a limit of them all":  {one(func(o *redis.Options) { o.PoolSize, o.MaxActiveConns = 2*crowded, crowded }), nil},
		"a short pool timeout": {one(func(o *redis.Options) { o.PoolTimeout = time.Millisecond }), nil},
		"a hook that looks": {func(t *testing.T) (rdb, other redis.UniversalClient) {
			rdb, other = one()(t)
			rdb.AddHook(nosy{})
			return rdb, other
		}, nil},
		"a cluster": {func(t *testing.T) (rdb, other redis.UniversalClient) {
			c := redistest.Masters(t)
			return c.Client(t, func(o *redis.ClusterOptions) { o.PoolSize, o.PoolTimeout = crowded, time.Hour }), c.Client(t)
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			prefix := "crowd" + fmt.Sprint(time.Now().UnixNano())
			rdb, direct := c.connect(t)
			opts := append(c.opts, holdfast.WithPrefix(prefix), holdfast.WithTTL(30*time.Second), holdfast.WithLogger(silent()))
			locks, other := holdfast.New(rdb, opts...), holdfast.New(direct, opts...)
			defer func() { assert.NoError(t, other.Close()) }()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			held, err := locks.Mutex("{x}held").Lease(ctx)
			require.NoError(t, err)

			var served atomic.Int64
			var workers sync.WaitGroup
			jobs := prefix + "{x}jobs" // on a Cluster the node is that of the locks
			for range 2 * crowded {
				workers.Go(func() {
					for ctx.Err() == nil {
						if rdb.BLPop(ctx, time.Hour, jobs).Err() == nil {
							served.Add(1)
							return
						}
					}
				})
			}
			require.Eventually(t, func() bool { return rdb.PoolStats().TotalConns >= crowded }, time.Minute, time.Millisecond)

			for i := range 3 {
				lease, err := locks.Mutex(fmt.Sprint("{x}free", i)).Lease(ctx)
				require.NoError(t, err)
				require.NoError(t, lease.Release(ctx))
			}
			next := make(chan error, 1)
			go func() { next <- other.Mutex("{x}held").Do(ctx, func(context.Context) error { return nil }) }()
			require.Eventually(t, func() bool {
				info, err := other.Mutex("{x}held").Inspect(ctx)
				return err == nil && len(info.Queue) == 1
			}, time.Minute, time.Millisecond)
			require.NoError(t, held.Release(ctx))
			require.NoError(t, <-next)
			_, err = locks.Semaphore("{x}some", 3).Lease(ctx, 1)
			require.NoError(t, err)
			require.NoError(t, locks.Close())
			info, err := other.Semaphore("{x}some", 3).Inspect(ctx)
			require.NoError(t, err)
			require.Empty(t, info.Holders)

			require.NoError(t, ctx.Err())
			require.Zero(t, served.Load(), "they wait still")
			for range 2 * crowded {
				require.NoError(t, direct.LPush(t.Context(), jobs, "job").Err())
			}
			cancel()
			workers.Wait()
		})
	}
}

// With no connections for pipelines there is nothing but to wait. The store is well meanwhile.
func TestFullPoolOfTheProgramIsToldFromASilentStore(t *testing.T) {
	t.Parallel()
	redistest.RequireReal(t)
	s := redistest.Real(t)
	rdb := s.Client(t, func(o *redis.Options) {
		o.PoolSize, o.PipelinePoolSize, o.PoolTimeout = crowded, -1, time.Hour
	})
	var log lab.Log
	locks := holdfast.New(rdb, holdfast.WithTTL(10*time.Minute), holdfast.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
	_, err := locks.Mutex("held").Lease(t.Context())
	require.NoError(t, err)
	working, stop := context.WithCancel(t.Context())
	var workers sync.WaitGroup
	for range 2 * crowded {
		workers.Go(func() { rdb.BLPop(working, time.Hour, "jobs") })
	}
	require.Eventually(t, func() bool {
		stats := rdb.PoolStats()
		return stats.TotalConns >= crowded && stats.IdleConns == 0
	}, time.Minute, time.Millisecond)

	var calls sync.WaitGroup
	for what, call := range map[string]func(context.Context) error{
		"acquire": func(ctx context.Context) error { _, err := locks.Mutex("free").Lease(ctx); return err },
		"inspect": func(ctx context.Context) error { _, err := locks.Mutex("free").Inspect(ctx); return err },
	} {
		calls.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second)
			defer cancel()
			err := call(ctx)
			assert.ErrorIs(t, err, redis.ErrPoolTimeout, what)
			assert.ErrorIs(t, err, holdfast.ErrUnavailable, what)
			assert.ErrorIs(t, err, context.DeadlineExceeded, what)
		})
	}
	calls.Wait()
	assert.ErrorIs(t, locks.Close(), redis.ErrPoolTimeout)
	assert.Contains(t, log.String(), `error="redis: connection pool timeout"`)
	assert.NotContains(t, log.String(), "does not answer")
	direct := s.Client(t)
	for range 2 * crowded {
		require.NoError(t, direct.LPush(t.Context(), "jobs", "job").Err())
	}
	stop()
	workers.Wait()
}
