package etcddriver_test

import (
	"context"
	"log"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast"
	etcddriver "github.com/holdfast-go/holdfast/driver/etcd"
)

// The client should find out soon when a member has gone silent, so that it asks another.
func Example() {
	client, err := clientv3.New(clientv3.Config{
		Endpoints:            []string{"a:2379", "b:2379", "c:2379"},
		DialKeepAliveTime:    3 * time.Second,
		DialKeepAliveTimeout: time.Second,
	})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	locks := holdfast.Open(etcddriver.New(client, etcddriver.WithPrefix("shop")), holdfast.WithTTL(5*time.Second)) // 2 s at least
	defer locks.Close()

	err = locks.Mutex("orders:42").Do(context.Background(), func(ctx context.Context) error {
		log.Println("one at a time, whichever member fails")
		return nil
	})
	if err != nil {
		log.Print(err)
	}
}
