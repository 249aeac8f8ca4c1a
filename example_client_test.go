package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast-go/holdfast"
)

// One request takes the lock, and another one, in another process, gives it back.
func ExampleClient_Attach() {
	rdb, disconnect := connect()
	defer disconnect()
	first, second := holdfast.New(rdb), holdfast.New(rdb)
	defer first.Close()
	defer second.Close()
	ctx := context.Background()

	lease, err := first.Mutex("checkout:7").Lease(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	token, err := lease.Detach(ctx) // keep it where the other request finds it; it is a secret
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("still locked:", !first.Mutex("checkout:7").TryLock())

	lease, err = second.Attach(ctx, token)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("released:", lease.Release(ctx) == nil)
	// Output:
	// still locked: true
	// released: true
}

// The store of the balance remembers the largest fence, so a holder that is late is refused.
func ExampleLease() {
	rdb, disconnect := connect()
	defer disconnect()
	locks := holdfast.New(rdb)
	defer locks.Close()
	ctx := context.Background()

	var newest int64
	write := func(who string, lease *holdfast.Lease) {
		if lease.Fence() < newest {
			fmt.Println(who, "is refused")
			return
		}
		newest = lease.Fence()
		fmt.Println(who, "writes")
	}

	mu := locks.Mutex("balance")
	early, err := mu.Lease(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := mu.ForceUnlock(ctx); err != nil { // or it was paused for longer than its TTL
		fmt.Println(err)
		return
	}
	late, err := mu.Lease(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer late.Release(ctx)
	write("the new holder", late)
	write("the old holder", early)
	// Output:
	// the new holder writes
	// the old holder is refused
}

// What is sent to Redis with the context of a lease is not sent when the lease is over.
func ExampleGuardHook() {
	rdb, disconnect := connect()
	defer disconnect()
	rdb.AddHook(holdfast.GuardHook())
	locks := holdfast.New(rdb)
	defer locks.Close()
	ctx := context.Background()

	lease, err := locks.Mutex("order:42").Lease(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("while held:", rdb.Set(lease.Context(), "order:42", "paid", 0).Err())
	_ = lease.Release(ctx)
	err = rdb.Set(lease.Context(), "order:42", "sent", 0).Err()
	fmt.Println("refused afterwards:", errors.Is(err, holdfast.ErrLost))
	// Output:
	// while held: <nil>
	// refused afterwards: true
}

// slowLog tells of acquisitions that had to wait.
type slowLog struct{ holdfast.HookBase }

func (slowLog) AcquireHook(next holdfast.AcquireFunc) holdfast.AcquireFunc {
	return func(ctx context.Context, op *holdfast.AcquireOp) (*holdfast.Lease, error) {
		lease, err := next(ctx, op)
		if op.Contended {
			fmt.Println("contended:", op.Kind, op.Name, err != nil)
		}
		return lease, err
	}
}

// A hook embeds HookBase, and has the methods that it is interested in.
func ExampleHook() {
	rdb, disconnect := connect()
	defer disconnect()
	locks := holdfast.New(rdb)
	defer locks.Close()
	locks.AddHook(slowLog{})

	mu := locks.Mutex("orders:42")
	mu.Lock()
	defer mu.Unlock()
	mu.TryLock()
	// Output: contended: mutex orders:42 true
}

// The error of a wait says what was waited for, and why the wait ended.
func ExampleLockError() {
	rdb, disconnect := connect()
	defer disconnect()
	locks := holdfast.New(rdb)
	defer locks.Close()

	locks.Mutex("orders:42").Lock()
	defer locks.Mutex("orders:42").Unlock()
	_, err := locks.Mutex("orders:42", holdfast.WithWait(10*time.Millisecond)).Lease(context.Background())

	var failed *holdfast.LockError
	if errors.As(err, &failed) {
		fmt.Println(failed.Op, failed.Name, failed.ErrorType())
	}
	fmt.Println("held by another:", errors.Is(err, holdfast.ErrLocked))
	fmt.Println("time is over:", errors.Is(err, context.DeadlineExceeded))
	// Output:
	// acquire mutex orders:42 timeout
	// held by another: true
	// time is over: true
}

// The steps of one transfer may run in any process, and are one holder.
func ExampleWithOwner() {
	rdb, disconnect := connect()
	defer disconnect()
	here, elsewhere := holdfast.New(rdb), holdfast.New(rdb)
	defer here.Close()
	defer elsewhere.Close()

	here.Mutex("account:7", holdfast.WithOwner("transfer-4711")).Lock()
	fmt.Println("the same transfer:", elsewhere.Mutex("account:7", holdfast.WithOwner("transfer-4711")).TryLock())
	fmt.Println("another transfer:", elsewhere.Mutex("account:7", holdfast.WithOwner("transfer-4712")).TryLock())
	// Output:
	// the same transfer: true
	// another transfer: false
}

// The span of an acquisition that had to wait is linked to the span of the holder.
func ExampleNewTracingHook() {
	rdb, disconnect := connect()
	defer disconnect()
	spans := tracetest.NewInMemoryExporter()
	provider := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans)) // by default the global one
	batch, web := holdfast.New(rdb), holdfast.New(rdb)
	defer batch.Close()
	defer web.Close()
	for _, locks := range []*holdfast.Client{batch, web} {
		locks.AddHook(holdfast.NewTracingHook(
			holdfast.WithTracerProvider(provider), holdfast.WithHolderLinks(), holdfast.WithHoldSpans(holdfast.Always)))
	}
	ctx := context.Background()

	waited := make(chan error, 1)
	_ = batch.Mutex("report").Do(ctx, func(ctx context.Context) error {
		go func() {
			waited <- web.Mutex("report").Do(context.Background(), func(context.Context) error { return nil })
		}()
		for {
			info, err := batch.Mutex("report").Inspect(ctx)
			if err != nil || len(info.Queue) > 0 {
				return err
			}
		}
	})
	<-waited

	holds := map[trace.SpanID]bool{}
	for _, s := range spans.GetSpans() {
		holds[s.SpanContext.SpanID()] = s.Name == "hold mutex"
	}
	for _, s := range spans.GetSpans() {
		for _, link := range s.Links {
			if s.Name == "acquire mutex" {
				fmt.Println("waited for a hold:", holds[link.SpanContext.SpanID()])
			}
		}
	}
	// Output: waited for a hold: true
}
