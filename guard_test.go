package holdfast_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/extra/redisotel/v9"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

// overCluster runs body with a client of one server and with one of a Cluster, which is
// one server, too. equip equips each client that talks to a server.
func overCluster(t *testing.T, body func(t *testing.T, open func(equip func(*redis.Client)) redis.UniversalClient)) {
	t.Helper()
	t.Run("client", func(t *testing.T) {
		s := redistest.Real(t)
		body(t, func(equip func(*redis.Client)) redis.UniversalClient {
			rdb := s.Client(t)
			equip(rdb)
			return rdb
		})
	})
	t.Run("cluster", func(t *testing.T) {
		s := redistest.Real(t, "--cluster-enabled", "yes")
		node := s.Client(t)
		require.NoError(t, node.ClusterAddSlotsRange(t.Context(), 0, 16383).Err())
		require.Eventually(t, func() bool {
			info, err := node.ClusterInfo(t.Context()).Result()
			return err == nil && strings.Contains(info, "cluster_state:ok")
		}, 10*time.Second, 5*time.Millisecond)
		body(t, func(equip func(*redis.Client)) redis.UniversalClient {
			rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{s.Addr()}})
			rdb.OnNewNode(equip)
			t.Cleanup(func() { _ = rdb.Close() })
			return rdb
		})
	})
}

func TestGuardRefusesCommandsOfALeaseThatIsOver(t *testing.T) {
	overCluster(t, func(t *testing.T, open func(func(*redis.Client)) redis.UniversalClient) {
		rdb := open(func(c *redis.Client) { c.AddHook(holdfast.GuardHook()) })
		locks := holdfast.New(rdb)
		defer locks.Close()
		ctx := t.Context()
		for name, end := range map[string]func(*holdfast.Lease){
			"released": func(l *holdfast.Lease) { require.NoError(t, l.Release(ctx)) },
			"lost": func(l *holdfast.Lease) {
				require.NoError(t, locks.Mutex("x").ForceUnlock(ctx))
				require.ErrorIs(t, l.Renew(ctx), holdfast.ErrLost)
			},
		} {
			l, err := locks.Mutex("x").Lease(ctx)
			require.NoError(t, err)
			held := context.WithoutCancel(l.Context()) // it is the lease that counts
			require.NoError(t, rdb.Set(held, "value", "held", 0).Err(), name)
			inner, err := locks.Mutex("inner").Lease(held)
			require.NoError(t, err)
			within := context.WithoutCancel(inner.Context())
			end(l)

			require.ErrorIs(t, rdb.Set(held, "value", name, 0).Err(), holdfast.ErrLost)
			require.ErrorIs(t, rdb.Set(within, "value", name, 0).Err(), holdfast.ErrLost, "also within another")
			cmds, err := rdb.Pipelined(held, func(p redis.Pipeliner) error {
				p.Set(held, "value", name, 0)
				p.Get(held, "value")
				return nil
			})
			require.ErrorIs(t, err, holdfast.ErrLost)
			for _, cmd := range cmds {
				require.ErrorIs(t, cmd.Err(), holdfast.ErrLost)
			}
			_, err = rdb.TxPipelined(held, func(p redis.Pipeliner) error { return p.Set(held, "value", name, 0).Err() })
			require.ErrorIs(t, err, holdfast.ErrLost)
			err = rdb.Watch(held, func(tx *redis.Tx) error { return tx.Set(held, "value", name, 0).Err() }, "value")
			require.ErrorIs(t, err, holdfast.ErrLost)

			assert.Equal(t, "held", rdb.Get(ctx, "value").Val(), "nothing was sent")
			require.NoError(t, inner.Release(within), "the library's own commands are not refused")
			again, err := locks.Mutex("x").Lease(held)
			require.NoError(t, err)
			require.NoError(t, again.Release(held))
		}
	})
}

// traced returns a client with redisotel, and NameHook in either order, and what spans
// it has made.
func traced(open func(func(*redis.Client)) redis.UniversalClient, t *testing.T, nameFirst bool) (redis.UniversalClient, *tracetest.SpanRecorder) {
	t.Helper()
	spans := tracetest.NewSpanRecorder()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
	rdb := open(func(c *redis.Client) {
		if nameFirst {
			c.AddHook(holdfast.NameHook())
		}
		require.NoError(t, redisotel.InstrumentTracing(c, redisotel.WithTracerProvider(provider)))
		if !nameFirst {
			c.AddHook(holdfast.NameHook())
		}
	})
	return rdb, spans
}

func TestNameHookNamesTheSpansOfScripts(t *testing.T) {
	overCluster(t, func(t *testing.T, open func(func(*redis.Client)) redis.UniversalClient) {
		rdb, spans := traced(open, t, false)
		locks := holdfast.New(rdb)
		defer locks.Close()
		lease, err := locks.Mutex("x").Lease(t.Context())
		require.NoError(t, err)
		require.NoError(t, lease.Renew(t.Context()))
		require.NoError(t, lease.Release(t.Context()))
		reader, err := locks.RWMutex("x").RLease(t.Context())
		require.NoError(t, err)
		require.NoError(t, reader.Release(t.Context()))

		names := map[string]int{}
		for _, s := range spans.Ended() {
			names[s.Name()]++
			for _, a := range s.Attributes() {
				if a.Key == "db.stored_procedure.name" {
					assert.Contains(t, s.Name(), a.Value.AsString())
				}
			}
			if strings.Contains(s.Name(), "holdfast") {
				assert.NotEqual(t, codes.Error, s.Status().Code, "%s: %s", s.Name(), s.Status().Description)
				assert.Empty(t, s.Events())
			}
		}
		for _, want := range []string{"holdfast.mutex.acquire", "holdfast.mutex.release", "pipeline holdfast.mutex.renew",
			"holdfast.rwmutex.acquire", "holdfast.rwmutex.release"} {
			assert.Equal(t, 2, names[want], "%s, by its hash and by its text: %v", want, names)
		}
		assert.Zero(t, names["evalsha"])
	})
}

func TestNameHookInTheWrongOrderNamesNothing(t *testing.T) {
	overCluster(t, func(t *testing.T, open func(func(*redis.Client)) redis.UniversalClient) {
		rdb, spans := traced(open, t, true)
		locks := holdfast.New(rdb)
		defer locks.Close()
		ctx, mine := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)).Tracer("test").Start(t.Context(), "mine")
		lease, err := locks.Mutex("x").Lease(ctx)
		require.NoError(t, err)
		require.NoError(t, lease.Release(ctx))
		mine.End()
		var found bool
		for _, s := range spans.Ended() {
			assert.NotContains(t, s.Name(), "holdfast")
			found = found || s.Name() == "mine"
		}
		assert.True(t, found)
	})
}
