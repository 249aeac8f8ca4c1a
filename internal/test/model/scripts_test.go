package model_test

import (
	"context"
	"net"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/redisdriver"
)

// reader is a hook of a client that reads what scripts would be sent, and sends none.
type reader map[string]string

type noScript struct{}

func (noScript) Error() string { return "NOSCRIPT the model only wants to read it" }
func (noScript) RedisError()   {}

func (r reader) DialHook(redis.DialHook) redis.DialHook {
	return func(context.Context, string, string) (net.Conn, error) { return nil, noScript{} }
}

func (r reader) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(_ context.Context, cmd redis.Cmder) error {
		if args := cmd.Args(); args[0] == "eval" {
			name, _ := cmd.(interface {
				Procedure() (string, context.Context)
			}).Procedure()
			r[name[strings.LastIndex(name, ".")+1:]] = args[1].(string)
		}
		cmd.SetErr(noScript{})
		return noScript{}
	}
}

func (r reader) ProcessPipelineHook(redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	one := r.ProcessHook(nil)
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			_ = one(ctx, cmd)
		}
		return noScript{}
	}
}

// readScripts returns the scripts that the driver sends to Redis, by what they do.
func readScripts(t testing.TB) map[string]string {
	scripts := reader{}
	rdb := redis.NewClient(&redis.Options{Addr: "127.0.0.1:1"})
	defer func() { _ = rdb.Close() }()
	rdb.AddHook(scripts)
	d := redisdriver.New(rdb)
	defer func() { _ = d.Close() }()
	ctx, lease := t.Context(), driver.Lease{Kind: driver.RWMutex, Name: "x", Token: "x", TTL: driver.MinTTL, Unsettled: true}
	_, err := d.Acquire(ctx, &driver.Request{Kind: lease.Kind, Name: lease.Name, Token: lease.Token, Ask: 1, TTL: lease.TTL})
	require.Error(t, err)
	require.Error(t, d.Renew(ctx, []driver.Lease{lease})[0])
	require.Error(t, d.Release(ctx, lease))
	require.Error(t, d.Downgrade(ctx, lease, 1))
	require.Error(t, d.ForceRelease(ctx, lease.Kind, lease.Name))
	require.Len(t, scripts, 5)
	for _, verb := range []string{"acquire", "renew", "release"} {
		head, rest, _ := strings.Cut(scripts[verb], "-- short/"+verb+".lua\n")
		_, rest, found := strings.Cut(rest, "-- lib/record.lua\n")
		require.True(t, found, verb)
		scripts[general+verb] = head + rest
	}
	return scripts
}

// general is what the scripts without their short ways are called by.
const general = "general "
