package holdfast_test

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver/memdriver"
)

// commandSpans makes a span for each command, as redisotel does.
type commandSpans struct{ tracer trace.Tracer }

func (h commandSpans) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		ctx, span := h.tracer.Start(ctx, cmd.FullName())
		defer span.End()
		return next(ctx, cmd)
	}
}

func (commandSpans) DialHook(next redis.DialHook) redis.DialHook { return next }

func (commandSpans) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// Without the hook, these spans are called evalsha.
func ExampleNameHook() {
	rdb, disconnect := connect()
	defer disconnect()
	spans := tracetest.NewInMemoryExporter()
	tracer := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans)).Tracer("redis")

	rdb.AddHook(commandSpans{tracer}) // or redisotel.InstrumentTracing(rdb)
	rdb.AddHook(holdfast.NameHook())  // after it
	locks := holdfast.New(rdb)
	defer locks.Close()

	locks.Mutex("orders:42").Lock()
	locks.Mutex("orders:42").Unlock()
	names := map[string]bool{}
	for _, s := range spans.GetSpans() {
		names[s.Name] = true
	}
	fmt.Println(names["holdfast.mutex.acquire"], names["holdfast.mutex.release"], names["evalsha"])
	// Output: true true false
}

// lockSpans makes a span for each acquisition.
type lockSpans struct {
	holdfast.HookBase
	tracer trace.Tracer
}

// MakesSpans makes it a SpanHook: commands of several callers would be in the span of one.
func (lockSpans) MakesSpans() {}

func (h lockSpans) AcquireHook(next holdfast.AcquireFunc) holdfast.AcquireFunc {
	return func(ctx context.Context, op *holdfast.AcquireOp) (*holdfast.Lease, error) {
		ctx, span := h.tracer.Start(ctx, "lock "+op.Name)
		defer span.End()
		return next(ctx, op)
	}
}

// A tracer other than NewTracingHook says that it makes spans.
func ExampleSpanHook() {
	spans := tracetest.NewInMemoryExporter()
	tracer := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans)).Tracer("shop")
	locks := holdfast.Open(memdriver.New())
	defer locks.Close()
	locks.AddHook(lockSpans{tracer: tracer})

	locks.Mutex("orders:42").Lock()
	locks.Mutex("orders:42").Unlock()
	fmt.Println(spans.GetSpans()[0].Name)
	// Output: lock orders:42
}
