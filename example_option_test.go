package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver/memdriver"
)

// Options of a client are for all its locks.
func ExampleOption() {
	rdb, disconnect := connect()
	defer disconnect()
	locks := holdfast.New(rdb,
		holdfast.WithPrefix("shop"),                               // of all keys and channels
		holdfast.WithLogger(slog.Default().With("part", "locks")), // losses and outages
		holdfast.WithPipelining(false),                            // behind Envoy
		holdfast.WithTTL(30*time.Second),                          // unless a lock says otherwise
	)
	defer locks.Close()

	locks.Mutex("orders:42").Lock()
	defer locks.Mutex("orders:42").Unlock()
	fmt.Println(rdb.Keys(context.Background(), "*").Val())
	// Output: [shop:2:mutex:orders:42]
}

// Options of a lock go before those of its client.
func ExampleLockOption() {
	locks := holdfast.Open(memdriver.New(), holdfast.WithTTL(time.Minute), holdfast.WithHolder("worker-3"))
	defer locks.Close()
	ctx := context.Background()

	mu := locks.Mutex("orders:42", holdfast.WithTTL(time.Hour), holdfast.WithWait(5*time.Second))
	err := mu.Do(ctx, func(ctx context.Context) error {
		info, err := mu.Inspect(ctx)
		if err == nil {
			fmt.Println(info.Holders[0].Holder, info.Holders[0].TimeLeft > time.Minute)
		}
		return err
	})
	fmt.Println(err)
	// Output:
	// worker-3 true
	// <nil>
}

// A caller that cannot have the lock learns who has it.
func ExampleWithHolder() {
	locks := holdfast.Open(memdriver.New())
	defer locks.Close()
	ctx := context.Background()

	held, err := locks.Mutex("deploy", holdfast.WithHolder("release 4711 in worker-3")).Lease(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer held.Release(ctx)
	_, err = locks.Mutex("deploy").TryLease(ctx)
	var locked *holdfast.LockError
	if errors.As(err, &locked) {
		fmt.Printf("locked by %s for %v\n", locked.Holder, locked.HeldFor.Truncate(time.Minute))
	}
	// Output: locked by release 4711 in worker-3 for 0s
}

// Work that hangs keeps the lock from others for no longer than a bound.
func ExampleWithMaxHold() {
	quiet := slog.New(slog.DiscardHandler) // it would say that the lock is lost
	locks := holdfast.Open(memdriver.New(), holdfast.WithLogger(quiet))
	defer locks.Close()

	mu := locks.Mutex("import", holdfast.WithMaxHold(50*time.Millisecond)) // an hour, say
	err := mu.Do(context.Background(), func(ctx context.Context) error {
		<-ctx.Done() // it hangs
		return context.Cause(ctx)
	})
	fmt.Println("lost:", errors.Is(err, holdfast.ErrLost))
	fmt.Println("held too long:", errors.Is(err, holdfast.ErrHeldTooLong))
	// Output:
	// lost: true
	// held too long: true
}

// A caller that finds the queue full is turned away at once, while there is time to say so.
func ExampleWithMaxWaiters() {
	locks := holdfast.Open(memdriver.New())
	defer locks.Close()
	ctx, cancel := context.WithCancel(context.Background())
	mu := locks.Mutex("report", holdfast.WithMaxWaiters(1))
	mu.Lock()
	defer mu.Unlock()

	waited := make(chan error)
	go func() {
		_, err := mu.Lease(ctx)
		waited <- err
	}()
	for info, err := mu.Inspect(ctx); err == nil && len(info.Queue) == 0; info, err = mu.Inspect(ctx) {
	}
	_, err := mu.Lease(ctx)
	fmt.Println("full:", errors.Is(err, holdfast.ErrQueueFull))
	cancel()
	fmt.Println("the one that waits:", errors.Is(<-waited, context.Canceled))
	// Output:
	// full: true
	// the one that waits: true
}

// Each goroutine has a place of its own in the queue, where others can see it.
func ExampleWithStrictFIFO() {
	locks := holdfast.Open(memdriver.New(), holdfast.WithStrictFIFO())
	defer locks.Close()
	ctx := context.Background()
	mu := locks.Mutex("report")
	mu.Lock()

	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() { _ = mu.Do(ctx, func(context.Context) error { return nil }) })
	}
	waiting := 0 // without the option never more than 1
	for waiting < 3 {
		info, err := mu.Inspect(ctx)
		if err != nil {
			fmt.Println(err)
			break
		}
		waiting = len(info.Queue)
	}
	fmt.Println(waiting)
	mu.Unlock()
	wg.Wait()
	// Output: 3
}

// Between two holds the lock stays with the process, unless another process wants it.
func ExampleWithLinger() {
	rdb, disconnect := connect()
	defer disconnect()
	here, elsewhere := holdfast.New(rdb, holdfast.WithLinger(time.Hour)), holdfast.New(rdb)
	defer func() { _, _ = here.Close(), elsewhere.Close() }()

	mu := here.Mutex("counters")
	mu.Lock()
	mu.Unlock() // mu.Lock() would now take no command
	fmt.Println("free for one that does not wait:", elsewhere.Mutex("counters").TryLock())
	elsewhere.Mutex("counters").Lock()
	fmt.Println("given to one that waits")
	elsewhere.Mutex("counters").Unlock()
	// Output:
	// free for one that does not wait: false
	// given to one that waits
}

// A lease that is not renewed by itself lasts for as long as the work says that it goes on.
func ExampleWithoutRenewal() {
	locks := holdfast.Open(memdriver.New())
	defer locks.Close()
	ctx := context.Background()

	lease, err := locks.Mutex("import", holdfast.WithoutRenewal(), holdfast.WithTTL(time.Minute)).Lease(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer lease.Release(ctx)
	for range 3 { // pages to import
		before := lease.Deadline()
		time.Sleep(time.Millisecond)
		fmt.Println("goes on:", lease.Renew(ctx) == nil && lease.Deadline().After(before))
	}
	// Output:
	// goes on: true
	// goes on: true
	// goes on: true
}

// A replica has the lock before its holder begins.
func ExampleWithReplicas() {
	rdb := redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "shop", SentinelAddrs: []string{"a:26379", "b:26379"}})
	defer rdb.Close()
	locks := holdfast.New(rdb, holdfast.WithReplicas(1, time.Second))
	defer locks.Close()

	lease, err := locks.Mutex("orders:42").TryLease(context.Background())
	if errors.Is(err, holdfast.ErrNotConfirmed) {
		fmt.Println("no replica has confirmed, so the lock was given back")
		return
	}
	if err != nil {
		fmt.Println(err)
		return
	}
	defer lease.Release(context.Background())
}

// A crash of the server's machine loses no lock, although appendfsync is everysec.
func ExampleWithFsync() {
	rdb := redis.NewClient(&redis.Options{Addr: "localhost:6379"})
	defer rdb.Close()
	locks := holdfast.New(rdb)
	defer locks.Close()

	ledger := locks.Mutex("ledger", holdfast.WithFsync(0, 3*time.Second)) // the disk may take a second
	err := ledger.Do(context.Background(), func(context.Context) error { return nil })
	if errors.Is(err, errors.ErrUnsupported) {
		fmt.Println("no WAITAOF: this is Redis before 7.2, or appendonly is no")
	}
}

// Metrics have a class instead of the name of the lock, of which there are too many. Spans
// have both.
func ExampleTracingOption() {
	spans := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans)) // by default the global one
	locks := holdfast.Open(memdriver.New())
	defer locks.Close()
	locks.AddHook(holdfast.NewTracingHook(
		holdfast.WithTracerProvider(provider),
		holdfast.WithLockClass(func(name string) string { class, _, _ := strings.Cut(name, ":"); return class }),
		holdfast.WithAttributes(attribute.String("shop.region", "eu")),
		holdfast.WithFilter(func(_ context.Context, op *holdfast.AcquireOp) bool { return op.Wait }),
		holdfast.WithHoldSpans(holdfast.HoldSpansNever)))

	fmt.Println("not traced:", locks.Mutex("orders:42").TryLock())
	locks.Mutex("orders:43").Lock()
	for _, span := range spans.GetSpans() {
		attrs := attribute.NewSet(span.Attributes...)
		class, _ := attrs.Value("holdfast.lock.class")
		fmt.Println(span.Name, class.AsString())
	}
	// Output:
	// not traced: true
	// acquire mutex orders
}
