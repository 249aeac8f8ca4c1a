package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver/memdriver"
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

// A Mutex is a sync.Locker, for code that was written for one process.
func ExampleMutex() {
	rdb, disconnect := connect()
	defer disconnect()
	locks := holdfast.New(rdb)
	defer locks.Close()

	count := 0
	add := func(mu sync.Locker) {
		mu.Lock()
		defer mu.Unlock()
		count++
	}
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(func() { add(locks.Mutex("counter")) })
	}
	wg.Wait()
	fmt.Println(count)
	// Output: 100
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

// Many processes may read the configuration at a time, and one may write it.
func ExampleRWMutex() {
	rdb, disconnect := connect()
	defer disconnect()
	locks := holdfast.New(rdb)
	defer locks.Close()

	rw := locks.RWMutex("config")
	rw.RLock()
	fmt.Println("another reads:", rw.TryRLock())
	fmt.Println("another writes:", rw.TryLock())
	rw.RUnlock()
	rw.RUnlock()
	fmt.Println("another writes when nobody reads:", rw.TryLock())
	rw.Unlock()
	// Output:
	// another reads: true
	// another writes: false
	// another writes when nobody reads: true
}

// A writer goes on to read what it wrote, beside others, before the next writer.
func ExampleLease_Downgrade() {
	rdb, disconnect := connect()
	defer disconnect()
	locks := holdfast.New(rdb)
	defer locks.Close()
	ctx := context.Background()

	config := locks.RWMutex("config")
	lease, err := config.Lease(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer lease.Release(ctx)
	fmt.Println("write; another reads:", config.TryRLock())
	if err := lease.Downgrade(ctx); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("read what was written; another reads:", config.TryRLock())
	config.RUnlock()
	fmt.Println("another writes:", config.TryLock())
	// Output:
	// write; another reads: false
	// read what was written; another reads: true
	// another writes: false
}

// All processes together call the service at most three times at once.
func ExampleSemaphore() {
	rdb, disconnect := connect()
	defer disconnect()
	locks := holdfast.New(rdb)
	defer locks.Close()
	ctx := context.Background()

	calls := locks.Semaphore("geocoder", 3)
	if err := calls.Acquire(ctx, 2); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("two more:", calls.TryAcquire(2))
	calls.Release(1)
	fmt.Println("two more, after one was released:", calls.TryAcquire(2))
	calls.Release(3)

	err := calls.Do(ctx, 3, func(ctx context.Context) error {
		return calls.Acquire(ctx, 4)
	})
	fmt.Println("more than there are:", errors.Is(err, holdfast.ErrLimitExceeded))
	// Output:
	// two more: false
	// two more, after one was released: true
	// more than there are: true
}

// First the limit is changed, while the semaphore is in use, and then the programs.
func ExampleSemaphore_Resize() {
	rdb, disconnect := connect()
	defer disconnect()
	locks := holdfast.New(rdb)
	defer locks.Close()

	calls := locks.Semaphore("geocoder", 3)
	fmt.Println("five of three:", calls.TryAcquire(3) && calls.TryAcquire(2))
	if err := calls.Resize(context.Background(), 5); err != nil {
		fmt.Println(err)
	}
	fmt.Println("the other two of five:", calls.TryAcquire(2))
	calls.Release(5)
	// Output:
	// five of three: false
	// the other two of five: true
}

func ExampleWithReentrancy() {
	rdb, disconnect := connect()
	defer disconnect()
	locks := holdfast.New(rdb)
	defer locks.Close()
	account := locks.Mutex("account:7", holdfast.WithReentrancy())

	audit := func(ctx context.Context) error {
		return account.Do(ctx, func(context.Context) error {
			fmt.Println("audited")
			return nil
		})
	}
	err := account.Do(context.Background(), func(ctx context.Context) error {
		return audit(ctx) // with this ctx, it need not wait for what we hold
	})
	fmt.Println(err)
	// Output:
	// audited
	// <nil>
}

// Several processes have the same schedule, and clocks that differ a little.
func ExampleWithMinHold() {
	rdb, disconnect := connect()
	defer disconnect()
	here, elsewhere := holdfast.New(rdb), holdfast.New(rdb)
	defer func() { _, _ = here.Close(), elsewhere.Close() }()

	hourly := func(locks *holdfast.Client) {
		tick := locks.Mutex("report:hourly", holdfast.WithMinHold(5*time.Minute))
		lease, err := tick.TryLease(context.Background())
		if errors.Is(err, holdfast.ErrLocked) {
			fmt.Println("another has done it")
			return
		}
		defer lease.Release(context.Background())
		fmt.Println("report")
	}
	hourly(here)
	hourly(elsewhere) // a second later
	// Output:
	// report
	// another has done it
}

// Code that takes any sync.Locker can read.
func ExampleRWMutex_RLocker() {
	rdb, disconnect := connect()
	defer disconnect()
	here, elsewhere := holdfast.New(rdb), holdfast.New(rdb)
	defer func() { _, _ = here.Close(), elsewhere.Close() }()

	under := func(l sync.Locker, work func()) {
		l.Lock()
		defer l.Unlock()
		work()
	}
	under(here.RWMutex("prices").RLocker(), func() {
		fmt.Println("others may read:", elsewhere.RWMutex("prices").TryRLock())
		fmt.Println("others may write:", elsewhere.RWMutex("prices").TryLock())
	})
	elsewhere.RWMutex("prices").RUnlock()
	// Output:
	// others may read: true
	// others may write: false
}

// The leases of several locks have one context, and a fence each.
func ExampleLeases() {
	locks := holdfast.Open(memdriver.New())
	defer locks.Close()
	ctx := context.Background()

	both, err := holdfast.All(ctx, locks.Mutex("account:8"), locks.Mutex("account:7"))
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, lease := range both.Each() {
		fmt.Println(lease.Name(), "with a fence:", lease.Fence() > 0)
	}
	fmt.Println("released:", both.Release(ctx) == nil)
	<-both.Context().Done()
	fmt.Println("over:", errors.Is(both.Err(), holdfast.ErrNotHeld))
	// Output:
	// account:8 with a fence: true
	// account:7 with a fence: true
	// released: true
	// over: true
}

// Two transfers in opposite directions do not wait for each other for ever.
func ExampleAll() {
	rdb, disconnect := connect()
	defer disconnect()
	locks := holdfast.New(rdb)
	defer locks.Close()

	transfer := func(from, to string) error {
		both, err := holdfast.All(context.Background(), locks.Mutex(from), locks.Mutex(to))
		if err != nil {
			return err
		}
		defer both.Release(context.Background())
		fmt.Println("transfer under both locks:", both.Err() == nil)
		return nil
	}
	fmt.Println(transfer("account:7", "account:8"))
	fmt.Println(errors.Is(transfer("account:7", "account:7"), holdfast.ErrDeadlock))
	// Output:
	// transfer under both locks: true
	// <nil>
	// true
}
