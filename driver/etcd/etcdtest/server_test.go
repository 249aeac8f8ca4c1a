package etcdtest

import (
	"flag"
	"net/url"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

// Most of the time of these tests is waiting for leases to end, so many run at a time, most of them on one
// server.
func TestMain(m *testing.M) {
	flag.Parse()
	_ = flag.Set("test.parallel", "24")
	redistest.Main(m)
}

// places are for tests with a server of their own. More servers at a time keep each other from answering.
// A test has one server at most: it would wait for its own end.
var places = make(chan struct{}, 6)

// embedded starts a cluster of one member in this process, which ends with the test.
func embedded(tb testing.TB, opts ...func(*embed.Config)) (endpoint string) {
	tb.Helper()
	redistest.RequireReal(tb)
	places <- struct{}{}
	tb.Cleanup(func() { <-places })
	e := serve(tb, tb.TempDir(), opts...)
	tb.Cleanup(e.Close)
	return e.Clients[0].Addr().String()
}

// common is the server of tests that do nothing to it and do not count what is in it. They do not meet:
// each has names or a prefix of its own.
var common struct {
	sync.Mutex
	users int
	dir   string
	*embed.Etcd
}

// shared returns the endpoint of a server that ends with the last test that uses it.
func shared(tb testing.TB) (endpoint string) {
	tb.Helper()
	redistest.RequireReal(tb)
	c := &common
	c.Lock()
	defer c.Unlock()
	if c.users == 0 {
		var err error
		c.dir, err = os.MkdirTemp("", "holdfast-etcd-")
		require.NoError(tb, err)
		c.Etcd = serve(tb, c.dir)
	}
	c.users++
	tb.Cleanup(func() {
		c.Lock()
		defer c.Unlock()
		if c.users--; c.users == 0 {
			c.Etcd.Close()
			_ = os.RemoveAll(c.dir)
		}
	})
	return c.Clients[0].Addr().String()
}

func serve(tb testing.TB, dir string, opts ...func(*embed.Config)) *embed.Etcd {
	tb.Helper()
	cfg := embed.NewConfig()
	cfg.Dir = dir
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	somewhere := []url.URL{{Scheme: "http", Host: "127.0.0.1:0"}}
	cfg.ListenClientUrls, cfg.ListenPeerUrls = somewhere, somewhere
	cfg.UnsafeNoFsync = true // what is tested here is not the disk
	for _, o := range opts {
		o(cfg)
	}
	e, err := embed.StartEtcd(cfg)
	require.NoError(tb, err)
	select {
	case <-e.Server.ReadyNotify():
	case <-time.After(time.Minute):
		e.Close()
		tb.Fatal("etcd does not start")
	}
	return e
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
