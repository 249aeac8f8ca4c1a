package etcdtest

import (
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast"
	etcddriver "github.com/holdfast-go/holdfast/driver/etcd"
	"github.com/holdfast-go/holdfast/internal/contend"
)

const (
	ttl      = contend.TTL
	patience = contend.Patience
	late     = contend.Late
)

func init() { contend.Register(open) }

// open returns a client of the store at those addresses, as a process has one.
func open(addrs []string) (*holdfast.Client, func()) {
	client, err := clientv3.New(clientv3.Config{
		Endpoints: addrs, Logger: zap.NewNop(), DialTimeout: 5 * time.Second,
		DialKeepAliveTime: time.Second, DialKeepAliveTimeout: time.Second,
	})
	if err != nil {
		panic(err)
	}
	return holdfast.Open(etcddriver.New(client), holdfast.WithTTL(ttl)), func() { _ = client.Close() }
}
