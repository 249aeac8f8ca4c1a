package etcdtest

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	etcddriver "github.com/holdfast-go/holdfast/driver/etcd"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

const authenticate = "/etcdserverpb.Auth/Authenticate"

// guarded starts etcd with authentication, and a user that may use the keys of locks alone.
func guarded(t *testing.T, opts ...func(*embed.Config)) (endpoint string) {
	t.Helper()
	cheap := func(cfg *embed.Config) { cfg.BcryptCost = 4 } // The race detector makes it dear.
	endpoint = embedded(t, append(opts, cheap)...)
	root, ctx := connect(t, endpoint), t.Context()
	for _, name := range []string{"root", "locks"} {
		_, err := root.RoleAdd(ctx, name)
		require.NoError(t, err)
		_, err = root.UserAdd(ctx, name, "secret")
		require.NoError(t, err)
		_, err = root.UserGrantRole(ctx, name, name)
		require.NoError(t, err)
	}
	_, err := root.RoleGrantPermission(ctx, "locks", "holdfast/", clientv3.GetPrefixRangeEnd("holdfast/"), clientv3.PermissionType(clientv3.PermReadWrite))
	require.NoError(t, err)
	_, err = root.AuthEnable(ctx)
	require.NoError(t, err)
	return endpoint
}

// login returns a client that has a password, and how often it has used that.
func login(t *testing.T, endpoint string, opts ...grpc.DialOption) (*clientv3.Client, *atomic.Int64) {
	t.Helper()
	var logins atomic.Int64
	count := grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		if method == authenticate {
			logins.Add(1)
		}
		return invoke(ctx, method, req, reply, cc, opts...)
	})
	c, err := clientv3.New(clientv3.Config{
		Endpoints: []string{endpoint}, Username: "locks", Password: "secret", Logger: zap.NewNop(),
		DialOptions: append(opts, count), DialTimeout: 5 * time.Second, DialKeepAliveTime: 2 * time.Second, DialKeepAliveTimeout: time.Second,
	})
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	return c, &logins
}

// A password is checked for some 65 ms of a processor, and by a write. If each heartbeat of a
// waiter cost that, a hundred of them would cost the holder its lease.
func TestWaitersDoNotAuthenticateAgainAndAgain(t *testing.T) {
	redistest.SoakOnly(t)
	t.Parallel()
	client, logins := login(t, guarded(t))
	locks := holdfast.Open(etcddriver.New(client), holdfast.WithStrictFIFO(), holdfast.WithLogger(slog.New(slog.DiscardHandler)))
	held, err := locks.Mutex("m").Lease(t.Context())
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var waiters sync.WaitGroup
	for range 100 {
		waiters.Go(func() {
			_, err := locks.Mutex("m").Lease(ctx)
			if ctx.Err() == nil {
				t.Errorf("a waiter has left: %v", err)
			}
		})
	}
	time.Sleep(12 * time.Second) // more than the TTL, in which each waiter asks three times
	require.NoError(t, held.Err())
	require.LessOrEqual(t, logins.Load(), int64(5))
	cancel()
	waiters.Wait()
	require.NoError(t, held.Release(t.Context()))
	require.NoError(t, locks.Close())
}

// A right that is taken away ends nobody who has had it: whoever waits goes on when it is back.
func TestRightThatIsTakenAwayIsWaitedFor(t *testing.T) {
	t.Parallel()
	endpoint := guarded(t)
	client, _ := login(t, endpoint)
	root, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, Username: "root", Password: "secret", Logger: zap.NewNop()})
	require.NoError(t, err)
	defer root.Close()
	locks := holdfast.Open(etcddriver.New(client), holdfast.WithLogger(slog.New(slog.DiscardHandler)))
	defer locks.Close()
	require.NoError(t, locks.Mutex("m").Do(t.Context(), func(context.Context) error { return nil }))
	_, err = root.UserRevokeRole(t.Context(), "locks", "locks")
	require.NoError(t, err)
	_, err = locks.Mutex("m").TryLease(t.Context())
	require.ErrorIs(t, err, driver.ErrDenied)
	done := make(chan error, 1)
	go func() { done <- locks.Mutex("m").Do(t.Context(), func(context.Context) error { return nil }) }()
	select {
	case err := <-done:
		t.Fatal("it has left: ", err)
	case <-time.After(500 * time.Millisecond):
	}
	_, err = root.UserGrantRole(t.Context(), "locks", "locks")
	require.NoError(t, err)
	select {
	case err := <-done:
		require.NoError(t, err)
	case <-time.After(30 * time.Second):
		t.Fatal("it still waits")
	}
}

// etcd forgets the token that it gave for a password, or the token says until when it is good.
// A stream keeps the one it was opened with, so it must be replaced: of the renewals, or a holder
// would lose its lease, and of the watches, or waiters would have to look again and again.
func TestForgottenTokenCostsNothing(t *testing.T) {
	redistest.SoakOnly(t)
	t.Parallel()
	secret := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(secret, []byte("for signatures"), 0o600))
	for name, tokens := range map[string]func(*embed.Config){
		"simple": func(cfg *embed.Config) { cfg.AuthTokenTTL = 1 },
		"jwt":    func(cfg *embed.Config) { cfg.AuthToken = "jwt,sign-method=HS256,ttl=2s,priv-key=" + secret },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var requests atomic.Int64
			client, _ := login(t, guarded(t, tokens), grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
				requests.Add(1)
				return invoke(ctx, method, req, reply, cc, opts...)
			}))
			d := etcddriver.New(client)
			news := make(chan driver.Grant, 8)
			ask := func(token string) driver.Status {
				g, err := d.Acquire(t.Context(), &driver.Request{
					Kind: driver.Mutex, Name: "m", Token: token, Ask: 1, TTL: time.Hour, Wait: true, Wake: func(g driver.Grant) { news <- g },
				})
				require.NoError(t, err)
				return g.Status
			}
			lease := func(token string) driver.Lease {
				return driver.Lease{Kind: driver.Mutex, Name: "m", Token: token, TTL: time.Hour}
			}
			require.Equal(t, driver.Granted, ask("t0"))
			require.NoError(t, d.Renew(t.Context(), []driver.Lease{lease("t0")})[0])
			for i := range 2 {
				holder, waiter := fmt.Sprint("t", i), fmt.Sprint("t", i+1)
				time.Sleep(4 * time.Second) // by then the token is forgotten, for which etcd looks once a second
				require.NoError(t, d.Renew(t.Context(), []driver.Lease{lease(holder)})[0])
				require.Equal(t, driver.Queued, ask(waiter))
				time.Sleep(2 * time.Second) // The watch has begun, or has failed.
				requests.Store(0)
				time.Sleep(3 * time.Second)
				require.Zero(t, requests.Load(), "the waiter has to look")
				require.NoError(t, d.Release(t.Context(), lease(holder)))
				require.Equal(t, driver.Granted, (<-news).Status)
			}
			require.NoError(t, d.Close())
		})
	}
}
