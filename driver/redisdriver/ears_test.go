package redisdriver_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/redisdriver"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

// ears is a client whose subscriptions can be broken while its commands get through: an
// ACL, a half-open connection, a node of a Cluster that was cut off from the others.
type ears struct {
	redis.UniversalClient
	subscriber *redis.Client

	mu    sync.Mutex
	conns []net.Conn
	deaf  bool
}

func newEars(t *testing.T, s *redistest.Server) *ears {
	e := &ears{UniversalClient: s.Client(t)}
	e.subscriber = s.Client(t, func(o *redis.Options) {
		dial := o.Dialer
		if dial == nil {
			dial = new(net.Dialer).DialContext
		}
		o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			e.mu.Lock()
			defer e.mu.Unlock()
			if e.deaf {
				return nil, errors.New("deaf")
			}
			conn, err := dial(ctx, network, addr)
			e.conns = append(e.conns, conn)
			return conn, err
		}
	})
	return e
}

func (e *ears) Subscribe(ctx context.Context, channels ...string) *redis.PubSub {
	return e.subscriber.Subscribe(ctx, channels...)
}

func (e *ears) cut() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.deaf = true
	for _, conn := range e.conns {
		_ = conn.Close()
	}
	e.conns = nil
}

func (e *ears) mend() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.deaf = false
}

// warm returns a driver that has made its subscription: to make it can take time.
func warm(t *testing.T, rdb redis.UniversalClient, prefix string) *redisdriver.Driver {
	d := redisdriver.New(rdb, redisdriver.WithPrefix(prefix), redisdriver.WithRetention(retained))
	for i, want := range []driver.Status{driver.Granted, driver.Queued} {
		r := &driver.Request{Kind: driver.Mutex, Name: "warm", Token: fmt.Sprint(i), Ask: 1, TTL: time.Minute, Wait: true}
		g, err := d.Acquire(context.Background(), r)
		require.NoError(t, err)
		require.Equal(t, want, g.Status)
	}
	for _, token := range []string{"1", "0"} {
		require.NoError(t, d.Release(context.Background(), driver.Lease{Kind: driver.Mutex, Name: "warm", Token: token}))
	}
	return d
}
