package redisdriver_test

import (
	"context"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/redisdriver"
)

// holdfast.New makes a driver like this one. A program that makes its own can wrap it, or ask
// it what the locks of a client cannot tell.
func ExampleNew() {
	server, err := miniredis.Run()
	if err != nil {
		panic(err)
	}
	defer server.Close()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer rdb.Close()
	store := redisdriver.New(rdb, redisdriver.WithPrefix("shop"), redisdriver.WithRetention(10*time.Second))
	locks := holdfast.Open(store)
	defer locks.Close()

	locks.Mutex("orders:42").Lock()
	defer locks.Mutex("orders:42").Unlock()
	locks.Semaphore("reports", 5).TryAcquire(2)
	defer locks.Semaphore("reports", 5).Release(2)
	fmt.Println(store.List(context.Background(), "orders:", func(k driver.Kind, name string) error {
		fmt.Println(k, name)
		return nil
	}))
	// Output:
	// mutex orders:42
	// <nil>
}
