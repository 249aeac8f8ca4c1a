package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync/atomic"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver/memdriver"
)

// A program that ends leaves no lock behind.
func ExampleClient_Close() {
	rdb, disconnect := connect()
	defer disconnect()
	here, elsewhere := holdfast.New(rdb), holdfast.New(rdb)
	defer elsewhere.Close()

	lease, err := here.Mutex("orders:42").Lease(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("closed:", here.Close())
	fmt.Println("over:", lease.Err() != nil)
	fmt.Println("free:", elsewhere.Mutex("orders:42").TryLock())
	_, err = here.Mutex("orders:42").Lease(context.Background())
	fmt.Println(errors.Is(err, holdfast.ErrClosed))
	// Output:
	// closed: <nil>
	// over: true
	// free: true
	// true
}

// A store other than Redis has a driver.
func ExampleOpen() {
	store := memdriver.New() // or etcddriver.New(client), pgdriver.New(pool), redlock.New(nodes), ...
	locks := holdfast.Open(store, holdfast.WithTTL(30*time.Second))
	defer locks.Close() // and the driver with it

	err := locks.Mutex("orders:42").Do(context.Background(), func(ctx context.Context) error {
		fmt.Println("one at a time")
		return nil
	})
	fmt.Println(err)
	// Output:
	// one at a time
	// <nil>
}

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

// A command with the context of a lease is not sent to Redis when the lease is over.
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

// tagging tells waiters what the work under a lock belongs to, and what they waited for.
type tagging struct{ holdfast.HookBase }

func (tagging) AcquireHook(next holdfast.AcquireFunc) holdfast.AcquireFunc {
	return func(ctx context.Context, op *holdfast.AcquireOp) (*holdfast.Lease, error) {
		outer := op.Holding // of a hook outside of this one
		op.Holding = func(lease context.Context, fence int64) context.Context {
			if outer != nil {
				lease = outer(lease, fence)
			}
			return holdfast.WithHolderTag(lease, "ticket-4711")
		}
		lease, err := next(ctx, op)
		if len(op.Blockers) > 0 {
			fmt.Println(op.Name, "is held for", op.Blockers)
		}
		return lease, err
	}
}

// When next has returned, the hook knows what has happened.
func ExampleAcquireOp() {
	locks := holdfast.Open(memdriver.New())
	defer locks.Close()
	locks.AddHook(tagging{})

	ctx := context.Background()
	lease, err := locks.Mutex("orders:42").Lease(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer lease.Release(ctx)
	if err := lease.Renew(ctx); err != nil { // tells the store; by itself it does so soon
		fmt.Println(err)
	}
	fmt.Println(locks.Mutex("orders:42").TryLock())
	// Output:
	// orders:42 is held for [ticket-4711]
	// false
}

// counters count what is given back and renewed.
type counters struct {
	holdfast.HookBase
	released, renewed atomic.Int64
}

func (c *counters) ReleaseHook(next holdfast.ReleaseFunc) holdfast.ReleaseFunc {
	return func(ctx context.Context, op *holdfast.ReleaseOp) error {
		c.released.Add(1)
		return next(ctx, op)
	}
}

func (c *counters) RenewHook(next holdfast.RenewFunc) holdfast.RenewFunc {
	return func(ctx context.Context, op *holdfast.RenewOp) []error {
		c.renewed.Add(int64(len(op.Leases)))
		return next(ctx, op)
	}
}

// Reconnected makes it a ReconnectHook.
func (*counters) Reconnected(reason string) { log.Println("waiters may be told late:", reason) }

// A hook that embeds HookBase has no AcquireHook unless it wants one.
func ExampleHookBase() {
	locks := holdfast.Open(memdriver.New())
	defer locks.Close()
	var count counters
	locks.AddHook(&count)

	err := locks.Mutex("import").Do(context.Background(), func(ctx context.Context) error {
		time.Sleep(time.Millisecond)
		return nil
	})
	fmt.Println(err, count.released.Load(), "released,", count.renewed.Load(), "renewed")
	// Output: <nil> 1 released, 0 renewed
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
			holdfast.WithTracerProvider(provider), holdfast.WithHolderLinks(), holdfast.WithHoldSpans(holdfast.HoldSpansAlways)))
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
