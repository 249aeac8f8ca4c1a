package etcdtest

import (
	"flag"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/holdfast-go/holdfast/internal/redistest"
)

// Most of the time of these tests is waiting for leases to end, so many run at a time.
func TestMain(m *testing.M) {
	flag.Parse()
	_ = flag.Set("test.parallel", "16")
	redistest.Main(m)
}

// embedded starts a cluster of one member in this process, which ends with the test.
func embedded(tb testing.TB, opts ...func(*embed.Config)) (endpoint string) {
	tb.Helper()
	cfg := embed.NewConfig()
	cfg.Dir = tb.TempDir()
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	somewhere := []url.URL{{Scheme: "http", Host: "127.0.0.1:0"}}
	cfg.ListenClientUrls, cfg.ListenPeerUrls = somewhere, somewhere
	cfg.UnsafeNoFsync = true // what is tested here is not the disk
	for _, o := range opts {
		o(cfg)
	}
	e, err := embed.StartEtcd(cfg)
	require.NoError(tb, err)
	tb.Cleanup(e.Close)
	select {
	case <-e.Server.ReadyNotify():
	case <-time.After(time.Minute):
		tb.Fatal("etcd does not start")
	}
	return e.Clients[0].Addr().String()
}

// connect returns a client of a member, which ends with the test.
func connect(tb testing.TB, endpoint string, opts ...grpc.DialOption) *clientv3.Client {
	tb.Helper()
	c, err := clientv3.New(clientv3.Config{
		Endpoints: []string{endpoint}, DialOptions: opts, Logger: zap.NewNop(), DialTimeout: 5 * time.Second,
		DialKeepAliveTime: 2 * time.Second, DialKeepAliveTimeout: time.Second,
	})
	require.NoError(tb, err)
	tb.Cleanup(func() { _ = c.Close() })
	return c
}
