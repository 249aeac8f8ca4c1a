package redisson_test

import (
	"context"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver/redisson"
)

// A thread of a Java program holds the lock.
func Example() {
	server, err := miniredis.Run()
	if err != nil {
		panic(err)
	}
	defer server.Close()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer rdb.Close()
	locks := holdfast.Open(redisson.New(rdb), holdfast.WithTTL(30*time.Second)) // Redisson's default
	defer locks.Close()
	ctx := context.Background()

	rdb.HSet(ctx, "orders:42", "5d1f2c1e-7c6e-4f1e-9a51-0a4d4f8a9b6e:42", 1)
	rdb.PExpire(ctx, "orders:42", 30*time.Second)
	fmt.Println("while they hold it:", locks.Mutex("orders:42").TryLock())

	rdb.Del(ctx, "orders:42") // they unlock
	fmt.Println("afterwards:", locks.Mutex("orders:42").TryLock())
	locks.Mutex("orders:42").Unlock()
	// Output:
	// while they hold it: false
	// afterwards: true
}

// The Java programs have a NameMapper that puts "shop:" before all names, and tell of releases by
// SPUBLISH, as Redisson does on a Cluster of Redis 7.
func ExampleNew() {
	server, err := miniredis.Run()
	if err != nil {
		panic(err)
	}
	defer server.Close()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()}) // or a redis.ClusterClient
	defer rdb.Close()
	locks := holdfast.Open(redisson.New(rdb, redisson.WithPrefix("shop:"), redisson.WithShardedPubSub()),
		holdfast.WithTTL(30*time.Second))
	defer locks.Close()

	locks.Mutex("orders:42").Lock()
	defer locks.Mutex("orders:42").Unlock()
	fmt.Println(rdb.Keys(context.Background(), "*").Val())
	// Output: [shop:orders:42]
}
