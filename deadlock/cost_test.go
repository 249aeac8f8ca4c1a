package deadlock_test

import (
	"context"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/deadlock"
	"github.com/holdfast-go/holdfast/driver/memdriver"
	"github.com/holdfast-go/holdfast/driver/redisdriver"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

// nest takes a lock within another.
func nest(t testing.TB, c *holdfast.Client) {
	if err := c.Mutex("a").Do(context.Background(), func(ctx context.Context) error {
		return c.Mutex("b").Do(ctx, func(context.Context) error { return nil })
	}); err != nil {
		t.Fatal(err)
	}
}

// passing is a hook that does nothing.
type passing struct{ holdfast.HookBase }

func (passing) AcquireHook(next holdfast.AcquireFunc) holdfast.AcquireFunc {
	return func(ctx context.Context, op *holdfast.AcquireOp) (*holdfast.Lease, error) { return next(ctx, op) }
}

// contend takes a lock within another, which somebody else has for a while.
func contend(t testing.TB, c, other *holdfast.Client, last time.Duration) {
	held, err := other.Mutex("b").Lease(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(last, func() { _ = held.Release(context.Background()) })
	nest(t, c)
}

func TestShortWaitsAllocateNothing(t *testing.T) {
	least := func(hook func(*holdfast.Client) holdfast.Hook) (free, contended float64) {
		bubble(t, func(tn *town) { // so that a wait is one, however busy the machine
			c, other := holdfast.Open(tn.store), holdfast.Open(tn.store)
			defer c.Close()
			defer other.Close()
			c.AddHook(hook(c))
			nest(t, c)
			free, contended = 1e9, 1e9
			for range 200 {
				free = min(free, testing.AllocsPerRun(1, func() { nest(t, c) }))
				contended = min(contended, testing.AllocsPerRun(1, func() { contend(t, c, other, time.Millisecond) }))
			}
		})
		return free, contended
	}
	free, contended := least(func(*holdfast.Client) holdfast.Hook { return passing{} })
	freeWith, contendedWith := least(func(c *holdfast.Client) holdfast.Hook { return deadlock.New(c) })
	assert.Equal(t, free, freeWith)
	assert.LessOrEqual(t, contendedWith, contended)
	t.Log(free, contended)
}

func BenchmarkNested(b *testing.B) {
	for name, hook := range map[string]func(*holdfast.Client) holdfast.Hook{
		"without": func(*holdfast.Client) holdfast.Hook { return passing{} },
		"with":    func(c *holdfast.Client) holdfast.Hook { return deadlock.New(c) },
	} {
		b.Run(name, func(b *testing.B) {
			c := holdfast.Open(memdriver.New())
			defer c.Close()
			c.AddHook(hook(c))
			b.ReportAllocs()
			for b.Loop() {
				nest(b, c)
			}
		})
	}
}

// commands are what a client sends to Redis.
type commands struct {
	mu  sync.Mutex
	all []string
}

func (c *commands) add(cmds ...redis.Cmder) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, cmd := range cmds {
		if name := cmd.Name(); name != "hello" && name != "client" { // of go-redis, for each connection
			c.all = append(c.all, name)
		}
	}
}

func (c *commands) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (c *commands) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error { c.add(cmd); return next(ctx, cmd) }
}

func (c *commands) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error { c.add(cmds...); return next(ctx, cmds) }
}

// A nested lock that is free, one that another process has for a moment, and a wait that gives up.
func TestShortWaitsSendNothing(t *testing.T) {
	sent := func(hooked bool) (all []string) {
		redistest.Bubble(t, func(t *testing.T, s *redistest.Server) {
			var c commands
			rdb := s.Client(t)
			rdb.AddHook(&c)
			open := func(rdb *redis.Client) *holdfast.Client {
				locks := holdfast.Open(redisdriver.New(rdb, redisdriver.WithPrefix(s.Prefix())))
				t.Cleanup(func() { _ = locks.Close() })
				return locks
			}
			locks, other := open(rdb), open(s.Client(t))
			if hooked {
				locks.AddHook(deadlock.New(locks, deadlock.WithPause(pause)))
			} else {
				locks.AddHook(passing{})
			}
			nest(t, locks)
			for _, patience := range []time.Duration{time.Minute, pause / 4} {
				held, err := other.Mutex("b").Lease(t.Context())
				require.NoError(t, err)
				time.AfterFunc(pause/2, func() { _ = held.Release(context.Background()) })
				_ = locks.Mutex("a").Do(t.Context(), func(ctx context.Context) error {
					short, cancel := context.WithTimeout(ctx, patience)
					defer cancel()
					return locks.Mutex("b").Do(short, func(context.Context) error { return nil })
				})
				time.Sleep(pause)
			}
			c.mu.Lock()
			defer c.mu.Unlock()
			all = slices.Sorted(slices.Values(c.all)) // those of several connections come in any order
		})
		return all
	}
	without := sent(false)
	assert.Greater(t, len(without), 10)
	assert.Equal(t, without, sent(true))
}
