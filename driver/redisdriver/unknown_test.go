package redisdriver_test

import (
	"context"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/redisdriver"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

// freight counts what goes in pipelines.
type freight struct{ texts, hashes, bytes int }

func (f *freight) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (f *freight) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (f *freight) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			switch cmd.Name() {
			case "eval":
				f.texts++
			case "evalsha":
				f.hashes++
			}
			for _, arg := range cmd.Args() {
				f.bytes += len(fmt.Sprint(arg))
			}
		}
		return next(ctx, cmds)
	}
}

// After a failover, or SCRIPT FLUSH, the server knows no script. Every lease is renewed
// nevertheless, and the text is sent once to each node: 256 of them would be 6 MB. One server
// has 64 leases renewed by a command, and a Cluster one.
func TestRenewalsTeachAServerEachScriptOnce(t *testing.T) {
	t.Parallel()
	t.Run("server", func(t *testing.T) {
		redistest.Each(t, func(t *testing.T, s *redistest.Server) {
			rdb := s.Client(t)
			d := redisdriver.New(rdb, redisdriver.WithPrefix(s.Prefix()))
			t.Cleanup(func() { require.NoError(t, d.Close()) })
			renewAfterFlush(t, rdb, d, 1, 4, func() { require.NoError(t, rdb.ScriptFlush(t.Context()).Err()) })
		})
	})
	t.Run("cluster", func(t *testing.T) {
		c := redistest.NewCluster(t)
		rdb := c.Client(t)
		d := redisdriver.New(rdb)
		t.Cleanup(func() { require.NoError(t, d.Close()) })
		renewAfterFlush(t, rdb, d, 3, 256, func() {
			for _, node := range c.Nodes {
				require.NoError(t, node.Client(t).ScriptFlush(t.Context()).Err())
			}
		})
	})
}

func renewAfterFlush(t *testing.T, rdb redis.UniversalClient, d *redisdriver.Driver, nodes, commands int, flush func()) {
	t.Helper()
	var leases []driver.Lease
	for i := range 256 {
		r := driver.Request{Kind: driver.Mutex, Name: fmt.Sprint("lock", i), Token: fmt.Sprint("t", i), Ask: 1, TTL: time.Minute}
		if i%2 == 1 {
			r.Kind = driver.RWMutex
		}
		_, err := d.Acquire(t.Context(), &r)
		require.NoError(t, err)
		leases = append(leases, driver.Lease{Kind: r.Kind, Name: r.Name, Token: r.Token, TTL: r.TTL})
	}
	require.Len(t, d.Renew(t.Context(), leases), len(leases))
	flush()
	f := &freight{}
	rdb.AddHook(f)
	for i, err := range d.Renew(t.Context(), leases) {
		require.NoError(t, err, "lease %d", i)
	}
	require.Equal(t, nodes, f.texts)
	require.Equal(t, 2*commands-f.texts, f.hashes)
	require.Less(t, f.bytes, nodes*40_000+2*len(leases)*500)
}
