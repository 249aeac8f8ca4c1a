// The program observability shows what holdfast tells OpenTelemetry: a small shop of three
// processes, and an account of its traces and metrics.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/extra/redisotel/v9"
	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/exporters/stdout/stdoutmetric"
	"go.opentelemetry.io/otel/exporters/stdout/stdouttrace"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast-go/holdfast"
)

const prefix = "holdfast-observability"

func main() {
	url := flag.String("redis", "", "`URL` of a Redis, such as redis://127.0.0.1:6379 (default: an embedded one)")
	asJSON := flag.Bool("json", false, "print what the standard exporters make of it")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	run := runAccount
	if *asJSON {
		run = runJSON
	}
	if err := run(ctx, *url, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// runAccount prints how many hold and wait while the shop is open, and then what happened.
func runAccount(ctx context.Context, url string, w io.Writer) error {
	var spans account
	reader := sdkmetric.NewManualReader()
	open, closed := context.WithCancel(ctx)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		watch(open, w, reader)
	}()
	err := run(ctx, url, &spans, reader)
	closed()
	<-watched
	spans.print(w)
	return errors.Join(err, printMetrics(w, reader))
}

func runJSON(ctx context.Context, url string, w io.Writer) error {
	spans, err := stdouttrace.New(stdouttrace.WithWriter(w), stdouttrace.WithPrettyPrint())
	if err != nil {
		return err
	}
	metrics, err := stdoutmetric.New(stdoutmetric.WithWriter(w), stdoutmetric.WithPrettyPrint())
	if err != nil {
		return err
	}
	reader := sdkmetric.NewPeriodicReader(metrics) // the last time is at its shutdown
	return errors.Join(run(ctx, url, spans, reader), reader.Shutdown(context.WithoutCancel(ctx)))
}

// run opens the shop for two seconds.
func run(ctx context.Context, url string, spans sdktrace.SpanExporter, reader sdkmetric.Reader) error {
	if url == "" {
		m := miniredis.NewMiniRedis()
		m.ClockTTL(true)
		if err := m.Start(); err != nil {
			return err
		}
		defer m.Close()
		url = "redis://" + m.Addr()
	}
	opts, err := redis.ParseURL(url)
	if err != nil {
		return err
	}
	// The processes share it only to be seen in one table.
	metrics := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
	var s shop
	for name, p := range map[string]**process{"web-1": &s.web1, "web-2": &s.web2, "batch": &s.batch} {
		if *p, err = newProcess(name, *opts, spans, metrics); err != nil {
			return err
		}
		defer (*p).close()
	}
	return s.open(ctx)
}

// process is what would be a program of its own.
type process struct {
	rdb    *redis.Client
	locks  *holdfast.Client
	tracer trace.Tracer
	wire   *wire
}

func newProcess(name string, opts redis.Options, spans sdktrace.SpanExporter, metrics *sdkmetric.MeterProvider) (*process, error) {
	traces := sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans), // a real program has WithBatcher
		sdktrace.WithResource(resource.NewSchemaless(semconv.ServiceName("shop"), semconv.ServiceInstanceID(name))))
	wire := &wire{dialer: redis.NewDialer(&opts)}
	opts.Dialer = wire.dial
	rdb := redis.NewClient(&opts)

	// NameHook names the spans of redisotel, and so has to come after it.
	err := redisotel.InstrumentTracing(rdb, redisotel.WithTracerProvider(traces), redisotel.WithDialFilter(true))
	if err != nil {
		return nil, err
	}
	rdb.AddHook(holdfast.NameHook())
	rdb.AddHook(holdfast.GuardHook())

	locks := holdfast.New(rdb, holdfast.WithPrefix(prefix), holdfast.WithLogger(slog.New(slog.DiscardHandler)))
	locks.AddHook(holdfast.NewTracingHook(
		holdfast.WithTracerProvider(traces),
		holdfast.WithMeterProvider(metrics),
		holdfast.WithHolderLinks(),
		holdfast.WithLockClass(class),
	))
	return &process{rdb, locks, traces.Tracer("shop"), wire}, nil
}

// class is "report" for the lock "report:daily".
func class(lock string) string {
	before, _, _ := strings.Cut(lock, ":")
	return before
}

func (p *process) close() {
	_ = p.locks.Close()
	_ = p.rdb.Close()
}

// pause is work that takes a while, unless ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}
