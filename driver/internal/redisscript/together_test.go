package redisscript_test

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver/internal/redisscript"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

// traffic counts commands and pipelines, and keeps back the first ones that are sent alone
// while there is a gate.
type traffic struct {
	alone, pipelines, piped atomic.Int64
	keep                    atomic.Int64 // so many
	gate                    atomic.Pointer[chan struct{}]
}

func (t *traffic) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (t *traffic) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "evalsha" {
			n := t.alone.Add(1)
			if gate := t.gate.Load(); gate != nil && n <= t.keep.Load() {
				<-*gate
			}
		}
		return next(ctx, cmd)
	}
}

func (t *traffic) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if cmds[0].Name() == "evalsha" {
			t.pipelines.Add(1)
			t.piped.Add(int64(len(cmds)))
		}
		return next(ctx, cmds)
	}
}

// crowd has n callers, of whom 15 are kept back by their hook; so there are always many.
func crowd(t *testing.T, together *redisscript.Together, seen *traffic, n int) {
	call := redisscript.New("one", "return 1").Call("test", 0, "key")
	_, err := together.Run(t.Context(), call) // an answer, and the script is known
	require.NoError(t, err)
	seen.alone.Store(0)
	gate := make(chan struct{})
	seen.gate.Store(&gate)
	seen.keep.Store(15)
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			c, err := together.Run(t.Context(), call)
			if err == nil {
				err = c.Err()
			}
			if err != nil {
				t.Error(err)
			}
		})
	}
	require.Eventually(t, func() bool { return seen.alone.Load()+seen.piped.Load() == int64(n) }, 10*time.Second, time.Millisecond)
	close(gate)
	wg.Wait()
}

func TestManyCallersAreSentTogether(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		rdb, seen := s.Client(t), &traffic{}
		rdb.AddHook(seen)
		crowd(t, redisscript.NewTogether(rdb), seen, 200)
		require.Less(t, seen.alone.Load(), int64(100), "until there are many, and where a pipeline has only one")
		require.Less(t, seen.pipelines.Load(), int64(100))
	})
}

func TestFewCallersAreSentAlone(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		rdb, seen := s.Client(t), &traffic{}
		rdb.AddHook(seen)
		crowd(t, redisscript.NewTogether(rdb), seen, 15)
		require.Zero(t, seen.piped.Load())
	})
}

func TestWhoDoesNotWantPipelinesGetsNone(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		rdb, seen := s.Client(t), &traffic{}
		rdb.AddHook(seen)
		together := redisscript.NewTogether(rdb)
		together.Batch(false)
		crowd(t, together, seen, 40)
		require.Zero(t, seen.piped.Load())
	})
}

// One connection that hangs must not take those along who come later.
func TestNobodyJoinsAPipelineOfAServerThatDoesNotAnswer(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		rdb, seen := s.Client(t), &traffic{}
		rdb.AddHook(seen)
		together := redisscript.NewTogether(rdb)
		gate := make(chan struct{})
		seen.gate.Store(&gate) // nothing was ever answered
		seen.keep.Store(40)
		call := redisscript.New("one", "return 1").Call("test", 0, "key")
		var wg sync.WaitGroup
		for range 40 {
			wg.Go(func() { _, _ = together.Run(context.Background(), call) })
		}
		require.Eventually(t, func() bool { return seen.alone.Load() == 40 }, 10*time.Second, time.Millisecond)
		close(gate)
		wg.Wait()
		require.Zero(t, seen.piped.Load())
	})
}
