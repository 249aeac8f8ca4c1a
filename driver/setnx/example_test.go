package setnx_test

import (
	"context"
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver/setnx"
)

// Another program holds the lock as the documentation of Redis has it.
func Example() {
	server, err := miniredis.Run()
	if err != nil {
		panic(err)
	}
	defer server.Close()
	rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer rdb.Close()
	locks := holdfast.Open(setnx.New(rdb, setnx.WithPrefix("shop:lock:")))
	defer locks.Close()
	ctx := context.Background()

	rdb.Do(ctx, "SET", "shop:lock:orders:42", "their token", "NX", "PX", 30*time.Second.Milliseconds())
	fmt.Println("while they hold it:", locks.Mutex("orders:42").TryLock())

	rdb.Del(ctx, "shop:lock:orders:42") // they unlock
	fmt.Println("afterwards:", locks.Mutex("orders:42").TryLock())
	locks.Mutex("orders:42").Unlock()
	// Output:
	// while they hold it: false
	// afterwards: true
}
