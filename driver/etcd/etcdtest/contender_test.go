package etcdtest

import (
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast"
	etcddriver "github.com/holdfast-go/holdfast/driver/etcd"
	"github.com/holdfast-go/holdfast/internal/test/contend"
)

const (
	ttl      = contend.TTL
	patience = contend.Patience
)

func init() { contend.Register(open) }

// open returns a client of the store at those addresses, as a process has one. Each may end in a slash and
// a prefix, so that tests share a server.
func open(addrs []string) (*holdfast.Client, func()) {
	var endpoints []string
	prefix := "holdfast"
	for _, a := range addrs {
		endpoint, own, found := strings.Cut(a, "/")
		endpoints = append(endpoints, endpoint)
		if found {
			prefix = own
		}
	}
	client, err := clientv3.New(clientv3.Config{
		Endpoints: endpoints, Logger: zap.NewNop(), DialTimeout: 5 * time.Second,
		DialKeepAliveTime: time.Second, DialKeepAliveTimeout: time.Second,
	})
	if err != nil {
		panic(err)
	}
	return holdfast.Open(etcddriver.New(client, etcddriver.WithPrefix(prefix)), holdfast.WithTTL(ttl)), func() { _ = client.Close() }
}
