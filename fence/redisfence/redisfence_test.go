package redisfence_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/memdriver"
	"github.com/holdfast-go/holdfast/fence"
	"github.com/holdfast-go/holdfast/fence/redisfence"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

func TestMain(m *testing.M) { redistest.Main(m) }

func mutex(name string, number int64) fence.Fence {
	return fence.Fence{Kind: driver.Mutex, Name: name, Number: number}
}

func guarded(t *testing.T, s *redistest.Server) *redis.Client {
	rdb := s.Client(t)
	rdb.AddHook(redisfence.Hook())
	// Fences have keys of their own, whatever the prefix of a test.
	t.Cleanup(func() {
		plain := redis.NewClient(s.Options())
		keys, err := plain.Keys(context.Background(), "holdfast:fence:*").Result()
		require.NoError(t, err)
		if len(keys) > 0 {
			require.NoError(t, plain.Del(context.Background(), keys...).Err())
		}
		require.NoError(t, plain.Close())
	})
	return rdb
}

// write is one of the ways to write a value.
type write struct {
	name string
	run  func(ctx context.Context, rdb redis.UniversalClient, key, value string) error
}

var writes = []write{
	{"command", func(ctx context.Context, rdb redis.UniversalClient, key, value string) error {
		return rdb.Set(ctx, key, value, 0).Err()
	}},
	{"any command", func(ctx context.Context, rdb redis.UniversalClient, key, value string) error {
		return rdb.Do(ctx, "SET", key, value).Err()
	}},
	{"pipeline", func(ctx context.Context, rdb redis.UniversalClient, key, value string) error {
		_, err := rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
			p.Set(ctx, key, "before", 0)
			p.Set(ctx, key, value, 0)
			return nil
		})
		return err
	}},
	{"transaction", func(ctx context.Context, rdb redis.UniversalClient, key, value string) error {
		cmds, err := rdb.TxPipelined(ctx, func(p redis.Pipeliner) error {
			p.Set(ctx, key, "before", 0)
			p.Set(ctx, key, value, 0)
			return nil
		})
		for _, cmd := range cmds {
			err = errors.Join(err, cmd.Err())
		}
		return err
	}},
	{"watch", func(ctx context.Context, rdb redis.UniversalClient, key, value string) error {
		return rdb.Watch(ctx, func(tx *redis.Tx) error {
			if err := tx.Get(ctx, key).Err(); err != nil && err != redis.Nil {
				return err
			}
			_, err := tx.TxPipelined(ctx, func(p redis.Pipeliner) error { return p.Set(ctx, key, value, 0).Err() })
			return err
		}, key)
	}},
	{"connection", func(ctx context.Context, rdb redis.UniversalClient, key, value string) error {
		c := rdb.(*redis.Client).Conn()
		return errors.Join(c.Set(ctx, key, value, 0).Err(), c.Close())
	}},
}

func TestOnlyTheNewestHolderWrites(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		rdb, plain, key := guarded(t, s), s.Client(t), s.Prefix()+"value"
		ctx := t.Context()
		for i, w := range writes {
			t.Run(w.name, func(t *testing.T) {
				n := int64(1_800_000_000_000_000 + 10*i) // as they are
				holder := func(number int64) context.Context { return fence.With(ctx, mutex(s.Prefix(), number)) }
				if s.Mini() == nil { // the server does not know the script
					require.NoError(t, plain.ScriptFlush(ctx).Err())
				}
				require.NoError(t, w.run(holder(n), rdb, key, "first"))
				require.NoError(t, w.run(holder(n), rdb, key, "first again"))
				require.NoError(t, w.run(holder(n+1), rdb, key, "second"))
				err := w.run(holder(n), rdb, key, "late")
				require.ErrorIs(t, err, fence.ErrStale)
				assert.ErrorContains(t, err, fmt.Sprintf("has %d, but %d was seen", n, n+1))
				assert.ErrorIs(t, rdb.Get(holder(n), key).Err(), fence.ErrStale)
				assert.Equal(t, "second", plain.Get(ctx, key).Val())
				require.NoError(t, w.run(ctx, rdb, key, "without a lease"))
			})
		}
	})
}

// As a text 10 is less than 9.
func TestFencesAreComparedAsNumbers(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		rdb := guarded(t, s)
		holder := func(number int64) context.Context { return fence.With(t.Context(), mutex(s.Prefix(), number)) }
		require.NoError(t, redisfence.Check(holder(9), rdb))
		require.NoError(t, redisfence.Check(holder(10), rdb))
		require.ErrorIs(t, redisfence.Check(holder(9), rdb), fence.ErrStale)
	})
}

func TestWatchStillNoticesAChange(t *testing.T) {
	s := redistest.Shared(t)
	rdb, plain, key := guarded(t, s), s.Client(t), s.Prefix()+"value"
	ctx := fence.With(t.Context(), mutex(s.Prefix(), 5))
	err := rdb.Watch(ctx, func(tx *redis.Tx) error {
		require.NoError(t, plain.Set(t.Context(), key, "of another", 0).Err())
		_, err := tx.TxPipelined(ctx, func(p redis.Pipeliner) error { return p.Set(ctx, key, "lost", 0).Err() })
		return err
	}, key)
	require.ErrorIs(t, err, redis.TxFailedErr)
	assert.Equal(t, "of another", plain.Get(t.Context(), key).Val())
}

func TestRefusedTransactionDoesNothing(t *testing.T) {
	s := redistest.Shared(t)
	rdb, plain, key := guarded(t, s), s.Client(t), s.Prefix()+"value"
	require.NoError(t, redisfence.Check(fence.With(t.Context(), mutex(s.Prefix(), 6)), plain))
	late := fence.With(t.Context(), mutex(s.Prefix(), 5))
	cmds, err := rdb.TxPipelined(late, func(p redis.Pipeliner) error {
		p.Incr(late, key)
		p.RPush(late, key+"2", 1)
		return nil
	})
	require.ErrorIs(t, err, fence.ErrStale)
	for _, cmd := range cmds {
		assert.ErrorIs(t, cmd.Err(), fence.ErrStale)
	}
	assert.Zero(t, plain.Exists(t.Context(), key, key+"2").Val())
}

func TestReadersAreStaleOnlyAfterALaterWriterAndPermitsNever(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		rdb := guarded(t, s)
		write := func(number int64, shared bool) error {
			f := fence.Fence{Kind: driver.RWMutex, Name: s.Prefix(), Number: number, Shared: shared}
			return rdb.Set(fence.With(t.Context(), f), s.Prefix()+"v", number, 0).Err()
		}
		require.NoError(t, write(3, true))
		require.NoError(t, write(2, true))
		require.NoError(t, write(4, false))
		require.ErrorIs(t, write(3, true), fence.ErrStale)
		require.NoError(t, write(6, true))
		require.NoError(t, write(5, true))
		require.NoError(t, write(4, true), "the writer, downgraded")
		for _, number := range []int64{9, 8} {
			permit := fence.Fence{Kind: driver.Semaphore, Name: s.Prefix(), Number: number, Shared: true}
			require.NoError(t, rdb.Set(fence.With(t.Context(), permit), s.Prefix()+"v", number, 0).Err())
		}
	})
}

func TestAllLeasesOfAContextAreChecked(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		rdb := guarded(t, s)
		both := func(a, b int64) error {
			ctx := fence.With(t.Context(), mutex(s.Prefix()+"b", b), mutex(s.Prefix()+"a", a))
			return rdb.Set(ctx, s.Prefix()+"v", 1, 0).Err()
		}
		require.NoError(t, both(5, 7))
		require.ErrorIs(t, both(6, 6), fence.ErrStale)
		require.NoError(t, both(5, 7), "6 was not recorded")
		require.NoError(t, both(6, 7))
		require.ErrorIs(t, both(5, 8), fence.ErrStale)
		require.ErrorIs(t, redisfence.Check(fence.With(t.Context(), mutex(s.Prefix()+"a", 5)), rdb), fence.ErrStale)
	})
}

func TestKnownLossIsRefusedWithoutTheServer(t *testing.T) {
	locks := holdfast.Open(memdriver.New())
	t.Cleanup(func() { assert.NoError(t, locks.Close()) })
	lease, err := locks.Mutex("x").Lease(t.Context())
	require.NoError(t, err)
	require.NoError(t, lease.Release(t.Context()))
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1", MaxRetries: -1})
	t.Cleanup(func() { assert.NoError(t, rdb.Close()) })
	rdb.AddHook(redisfence.Hook())
	for _, w := range writes {
		if w.name == "watch" { // WATCH itself, and what ends it, is sent
			continue
		}
		assert.ErrorIs(t, w.run(context.WithoutCancel(lease.Context()), rdb, "k", "v"), holdfast.ErrLost, w.name)
	}
	assert.ErrorIs(t, redisfence.Check(context.WithoutCancel(lease.Context()), rdb), holdfast.ErrLost)
}

// The locks are kept by the server whose writes are guarded, and through one client.
func TestCommandsOfHoldfastAreNotGuarded(t *testing.T) {
	s := redistest.Shared(t)
	rdb := guarded(t, s)
	locks := holdfast.New(rdb, holdfast.WithPrefix(s.Prefix()), holdfast.WithReentrancy())
	t.Cleanup(func() { assert.NoError(t, locks.Close()) })
	err := locks.Mutex("a").Do(t.Context(), func(ctx context.Context) error {
		return locks.RWMutex("b").Do(ctx, func(ctx context.Context) error {
			return rdb.Set(ctx, s.Prefix()+"v", 1, time.Minute).Err()
		})
	})
	assert.NoError(t, err)
}

func TestWhatAScriptCannotRunIsRefused(t *testing.T) {
	s := redistest.Shared(t)
	rdb := guarded(t, s)
	ctx := fence.With(t.Context(), mutex(s.Prefix(), 5))
	for _, err := range []error{
		rdb.BLPop(ctx, time.Second, s.Prefix()+"l").Err(),
		rdb.XRead(ctx, &redis.XReadArgs{Streams: []string{s.Prefix() + "s", "0"}, Block: time.Second}).Err(),
		rdb.Eval(ctx, "return 1", nil).Err(),
		rdb.FCall(ctx, "f", nil).Err(),
	} {
		assert.ErrorIs(t, err, errors.ErrUnsupported)
	}
	cmds, err := rdb.Pipelined(ctx, func(p redis.Pipeliner) error {
		p.Set(ctx, s.Prefix()+"v", 1, 0)
		p.Eval(ctx, "return 1", nil)
		return nil
	})
	require.ErrorIs(t, err, errors.ErrUnsupported)
	require.ErrorIs(t, cmds[0].Err(), errors.ErrUnsupported, "all or nothing")
	for _, cmd := range []redis.Cmder{ // have no keys
		rdb.Ping(ctx), rdb.Do(ctx, "ACL", "WHOAMI"), rdb.FunctionList(ctx, redis.FunctionListQuery{}), rdb.SlowLogGet(ctx, 1), rdb.Do(ctx, "ROLE"),
		rdb.Do(ctx, "LATENCY", "RESET"), rdb.LastSave(ctx), rdb.Do(ctx, "MODULE", "LIST"),
	} {
		assert.NoError(t, cmd.Err(), cmd.Name())
	}
}

// replies are commands of all kinds of replies.
func replies(ctx context.Context, rdb *redis.Client, p string) []redis.Cmder {
	return []redis.Cmder{
		rdb.Del(ctx, p+"s", p+"h", p+"z", p+"l", p+"x", p+"set", p+"n"),
		rdb.Set(ctx, p+"s", "a\x00\xff", 0), rdb.Get(ctx, p+"s"), rdb.Get(ctx, p+"missing"), rdb.Append(ctx, p+"s", "b"),
		rdb.SetNX(ctx, p+"s", 1, 0), rdb.MSet(ctx, p+"s", 1, p+"n", 2), rdb.MGet(ctx, p+"s", p+"missing", p+"n"),
		rdb.Incr(ctx, p+"n"), rdb.IncrByFloat(ctx, p+"n", 1.5), rdb.Expire(ctx, p+"n", time.Minute), rdb.TTL(ctx, p+"n"),
		rdb.HSet(ctx, p+"h", "f", "v", "g", "w"), rdb.HGetAll(ctx, p+"h"), rdb.HExists(ctx, p+"h", "f"), rdb.HMGet(ctx, p+"h", "f", "?"),
		rdb.ZAdd(ctx, p+"z", redis.Z{Score: 1.25, Member: "m"}, redis.Z{Score: 2, Member: "n"}), rdb.ZScore(ctx, p+"z", "m"),
		rdb.ZRangeWithScores(ctx, p+"z", 0, -1), rdb.ZIncrBy(ctx, p+"z", 0.5, "m"), rdb.ZPopMin(ctx, p+"z"), rdb.ZRank(ctx, p+"z", "?"),
		rdb.RPush(ctx, p+"l", 1, 2, 3), rdb.LRange(ctx, p+"l", 0, -1), rdb.LPop(ctx, p+"l"), rdb.LPopCount(ctx, p+"missing", 2),
		rdb.SAdd(ctx, p+"set", "a"), rdb.SMembers(ctx, p+"set"), rdb.SIsMember(ctx, p+"set", "a"), rdb.SPop(ctx, p+"set"),
		rdb.XAdd(ctx, &redis.XAddArgs{Stream: p + "x", ID: "1-1", Values: []any{"f", "v"}}), rdb.XRange(ctx, p+"x", "-", "+"),
		rdb.XGroupCreate(ctx, p+"x", "g", "0"),
		rdb.XReadGroup(ctx, &redis.XReadGroupArgs{Group: "g", Consumer: "c", Streams: []string{p + "x", ">"}, Block: -1}),
		rdb.Type(ctx, p+"h"), rdb.Exists(ctx, p+"h", p+"missing"), rdb.LPush(ctx, p+"h", "wrong type"), rdb.Do(ctx, "nonsense", p+"h"),
		rdb.ObjectEncoding(ctx, p+"h"), rdb.BitOpNot(ctx, p+"bits", p+"s"), rdb.Publish(ctx, p+"channel", "m"),
	}
}

func TestRepliesAreThoseOfTheCommands(t *testing.T) {
	s := redistest.Shared(t)
	guarded(t, s)
	for _, protocol := range []int{2, 3} {
		t.Run(fmt.Sprint("RESP", protocol), func(t *testing.T) {
			speak := func(o *redis.Options) { o.Protocol = protocol }
			rdb, plain := s.Client(t, speak), s.Client(t, speak)
			rdb.AddHook(redisfence.Hook())
			replies(t.Context(), plain, s.Prefix()) // the first of them deletes what there is
			want := replies(t.Context(), plain, s.Prefix())
			got := replies(fence.With(t.Context(), mutex(s.Prefix(), 5)), rdb, s.Prefix())
			for i := range want {
				if want[i].Name() == "nonsense" {
					assert.Error(t, got[i].Err())
					continue
				}
				assert.Equal(t, want[i].String(), got[i].String())
			}
		})
	}

}

func TestFenceIsForgottenAWeekAfterItsLastUse(t *testing.T) {
	s := redistest.Shared(t)
	rdb := guarded(t, s)
	require.NoError(t, rdb.Set(fence.With(t.Context(), mutex(s.Prefix(), 5)), s.Prefix()+"v", 1, 0).Err())
	left, err := rdb.TTL(t.Context(), "holdfast:fence:{"+s.Prefix()+"}:mutex").Result()
	require.NoError(t, err)
	assert.InDelta(t, 7*24*time.Hour, left, float64(time.Minute))
}

func TestClusterHoldsOneSlotToTheRule(t *testing.T) {
	c := redistest.NewCluster(t)
	rdb := c.Client(t)
	rdb.AddHook(redisfence.Hook())
	rdb.OnNewNode(func(node *redis.Client) { node.AddHook(redisfence.Hook()) }) // for Watch
	ctx := t.Context()
	for name, lock := range map[string]string{"{order:42}": "order:42", "{user:7}": "{user:7}:edit"} {
		holder := func(n int64) context.Context { return fence.With(ctx, mutex(lock, n)) }
		p := name + ":"
		for _, w := range writes[:5] {
			require.NoError(t, w.run(holder(5), rdb, p+"v", "in time"), w.name)
		}
		require.NoError(t, rdb.MSet(holder(5), p+"a", 1, p+"b", 2).Err())
		require.NoError(t, rdb.Del(holder(5), p+"a", p+"b").Err())
		got, err := rdb.MGet(holder(5), p+"a", p+"v").Result()
		require.NoError(t, err)
		assert.Equal(t, []any{nil, "in time"}, got)
		require.NoError(t, redisfence.Check(holder(6), rdb))
		for _, w := range writes[:5] {
			require.ErrorIs(t, w.run(holder(5), rdb, p+"v", "late"), fence.ErrStale, w.name)
		}
		for i := range 20 { // some of them on the same node
			other := fmt.Sprint("{other", i, "}")
			require.Error(t, rdb.Set(holder(6), other, "x", 0).Err())
			assert.Zero(t, rdb.Exists(ctx, other).Val(), other)
		}
	}
}

// The first command has the script, but goes elsewhere, or is refused for itself.
func TestClusterPipelineDoesNotDependOnItsFirstCommand(t *testing.T) {
	c := redistest.NewCluster(t)
	rdb := c.Client(t)
	rdb.AddHook(redisfence.Hook())
	holder := fence.With(t.Context(), mutex("{a}lock", 10))
	channel := "ch"
	for i := 0; c.Owner(t, channel) == c.Owner(t, "{a}"); i++ {
		channel = fmt.Sprint("ch", i)
	}
	for name, first := range map[string]func(p redis.Pipeliner) error{
		"goes elsewhere": func(p redis.Pipeliner) error { return p.Publish(holder, channel, "m").Err() },
		"is refused":     func(p redis.Pipeliner) error { return p.Set(holder, "{b}other-slot", "v", 0).Err() },
	} {
		for _, run := range []func(context.Context, func(redis.Pipeliner) error) ([]redis.Cmder, error){rdb.Pipelined, rdb.TxPipelined} {
			for _, s := range c.Nodes {
				require.NoError(t, s.Client(t).ScriptFlush(t.Context()).Err())
			}
			require.NoError(t, rdb.Del(t.Context(), "{a}n").Err())
			cmds, err := run(holder, func(p redis.Pipeliner) error {
				_ = first(p)
				p.Incr(holder, "{a}n")
				return p.Incr(holder, "{a}n").Err()
			})
			for _, cmd := range cmds {
				assert.False(t, redis.HasErrorPrefix(cmd.Err(), "NOSCRIPT"), "%s: %v", name, cmd)
			}
			if name == "goes elsewhere" {
				require.NoError(t, err)
				assert.Equal(t, "2", rdb.Get(t.Context(), "{a}n").Val())
			}
		}
	}
}

// A replica can neither record a fence nor know the last one.
func TestClusterReadsFromTheMasterUnderALease(t *testing.T) {
	c := redistest.NewCluster(t)
	holder := fence.With(t.Context(), mutex("{a}lock", 10))
	require.NoError(t, c.Client(t).MSet(t.Context(), "{a}k", "v", "{a}l", "w").Err())
	for name, mod := range map[string]func(*redis.ClusterOptions){
		"ReadOnly":       func(o *redis.ClusterOptions) { o.ReadOnly = true },
		"RouteRandomly":  func(o *redis.ClusterOptions) { o.RouteRandomly = true },
		"RouteByLatency": func(o *redis.ClusterOptions) { o.RouteByLatency = true },
	} {
		rdb := c.Client(t, mod)
		rdb.AddHook(redisfence.Hook())
		for range 20 {
			got, err := rdb.Get(holder, "{a}k").Result()
			require.NoError(t, err, name)
			require.Equal(t, "v", got, name)
			all, err := rdb.MGet(holder, "{a}k", "{a}l").Result()
			require.NoError(t, err, name)
			require.Equal(t, []any{"v", "w"}, all, name)
			_, err = rdb.Pipelined(holder, func(p redis.Pipeliner) error {
				p.Get(holder, "{a}l")
				return p.Get(holder, "{a}k").Err()
			})
			require.NoError(t, err, name)
		}
	}
}

func BenchmarkSet(b *testing.B) {
	s := redistest.Shared(b)
	for _, guard := range []bool{false, true} {
		b.Run(fmt.Sprint("guarded ", guard), func(b *testing.B) {
			rdb := s.Client(b)
			rdb.AddHook(redisfence.Hook())
			ctx := b.Context()
			if guard {
				ctx = fence.With(ctx, mutex(s.Prefix(), 5))
			}
			for b.Loop() {
				if err := rdb.Set(ctx, s.Prefix()+"v", "value", 0).Err(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
