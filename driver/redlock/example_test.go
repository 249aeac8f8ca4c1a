package redlock_test

import (
	"fmt"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/redisdriver"
	"github.com/holdfast-go/holdfast/driver/redlock"
)

// One of three servers fails, and locks go on.
func ExampleNew() {
	var servers []*miniredis.Miniredis
	var nodes []driver.Driver
	for range 3 { // which have nothing in common
		server, err := miniredis.Run()
		if err != nil {
			panic(err)
		}
		defer server.Close()
		rdb := redis.NewClient(&redis.Options{Addr: server.Addr()})
		defer rdb.Close()
		servers, nodes = append(servers, server), append(nodes, redisdriver.New(rdb))
	}
	locks := holdfast.Open(redlock.New(nodes,
		redlock.WithTimeout(100*time.Millisecond),
		redlock.WithDelayedRestart(0))) // only since these servers are new, and forget nothing
	defer locks.Close()

	fmt.Println("locked:", locks.Mutex("orders:42").TryLock())
	servers[0].Close()
	locks.Mutex("orders:42").Unlock()
	fmt.Println("locked by two of three:", locks.Mutex("orders:42").TryLock())
	locks.Mutex("orders:42").Unlock()
	// Output:
	// locked: true
	// locked by two of three: true
}
