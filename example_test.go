package holdfast_test

import (
	"context"
	"errors"
	"fmt"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast"
)

// connect returns a client of a Redis inside this process.
func connect() (rdb *redis.Client, close func()) {
	server, err := miniredis.Run()
	if err != nil {
		panic(err)
	}
	rdb = redis.NewClient(&redis.Options{Addr: server.Addr()})
	return rdb, func() { _ = rdb.Close(); server.Close() }
}

func Example() {
	rdb, disconnect := connect()
	defer disconnect()
	locks := holdfast.New(rdb)
	defer locks.Close()

	mu := locks.Mutex("orders:42")
	mu.Lock()
	fmt.Println("try while locked:", mu.TryLock())
	mu.Unlock()
	fmt.Println("try when unlocked:", mu.TryLock())
	mu.Unlock()
	// Output:
	// try while locked: false
	// try when unlocked: true
}

func ExampleMutex_Lease() {
	rdb, disconnect := connect()
	defer disconnect()
	locks := holdfast.New(rdb)
	defer locks.Close()
	ctx := context.Background()

	first, err := locks.Mutex("orders:42").Lease(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = locks.Mutex("orders:42").TryLease(ctx)
	fmt.Println("while held:", errors.Is(err, holdfast.ErrLocked))
	_ = first.Release(ctx)

	second, err := locks.Mutex("orders:42").Lease(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer second.Release(ctx)
	fmt.Println("fences increase:", second.Fence() > first.Fence())
	// Output:
	// while held: true
	// fences increase: true
}

func ExampleMutex_Do() {
	rdb, disconnect := connect()
	defer disconnect()
	locks := holdfast.New(rdb)
	defer locks.Close()

	mu := locks.Mutex("cache")
	err := mu.Do(context.Background(), func(ctx context.Context) error {
		_ = mu.ForceUnlock(ctx) // an operator takes the lock away
		_ = locks.Mutex("cache").Do(context.Background(), func(context.Context) error {
			fmt.Println("another holds it")
			return nil
		})
		return nil
	})
	fmt.Println("lost:", errors.Is(err, holdfast.ErrLost))
	// Output:
	// another holds it
	// lost: true
}

func ExampleMutex_Inspect() {
	rdb, disconnect := connect()
	defer disconnect()
	locks := holdfast.New(rdb)
	defer locks.Close()
	ctx := context.Background()

	mu := locks.Mutex("nightly")
	lease, err := mu.Lease(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer lease.Release(ctx)
	info, err := mu.Inspect(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("held by this lease:", info.Holders[0].Fence == lease.Fence(), "waiting:", len(info.Queue))
	// Output: held by this lease: true waiting: 0
}
