package etcddriver_test

import (
	"log"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	etcddriver "github.com/holdfast-go/holdfast/driver/etcd"
)

// The client should find out soon when a member has gone silent, so that it asks another.
func ExampleNew() {
	client, err := clientv3.New(clientv3.Config{
		Endpoints:            []string{"a:2379", "b:2379", "c:2379"},
		DialKeepAliveTime:    3 * time.Second,
		DialKeepAliveTimeout: time.Second,
	})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	store := etcddriver.New(client, etcddriver.WithPrefix("shop"))
	defer store.Close() // locks := holdfast.Open(store, holdfast.WithTTL(5*time.Second)); locks.Close closes it
}
