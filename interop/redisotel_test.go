package interop_test

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/extra/redisotel/v9"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/codes"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

// telemetry is the spans that holdfast and redisotel have made.
type telemetry struct {
	*testing.T
	spans  *tracetest.SpanRecorder
	traces *sdktrace.TracerProvider
	tracer trace.Tracer
}

func newTelemetry(t *testing.T) *telemetry {
	e := &telemetry{T: t, spans: tracetest.NewSpanRecorder()}
	e.traces = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(e.spans))
	e.tracer = e.traces.Tracer("test")
	return e
}

// instrument has the commands of a client make spans, with the hooks of holdfast before
// or after those of redisotel.
func (e *telemetry) instrument(oursFirst bool, ours ...redis.Hook) func(*redis.Client) {
	add := func(c *redis.Client) {
		for _, h := range ours {
			c.AddHook(h)
		}
	}
	return func(c *redis.Client) {
		if oursFirst {
			add(c)
		}
		require.NoError(e, redisotel.InstrumentTracing(c, redisotel.WithTracerProvider(e.traces)))
		if !oursFirst {
			add(c)
		}
	}
}

// commands returns the spans of scripts on locks, however they are called.
func (e *telemetry) commands() (all []sdktrace.ReadOnlySpan) {
	for _, s := range e.spans.Ended() {
		if s.SpanKind() == trace.SpanKindClient && (strings.Contains(s.Name(), "eval") || strings.Contains(s.Name(), "holdfast.")) {
			all = append(all, s)
		}
	}
	return all
}

// counting counts renewals.
type counting struct {
	holdfast.HookBase
	renewed atomic.Int32
}

func (c *counting) RenewHook(next holdfast.RenewFunc) holdfast.RenewFunc {
	return func(ctx context.Context, op *holdfast.RenewOp) []error {
		defer c.renewed.Add(1)
		return next(ctx, op)
	}
}

// Everything that somebody asks for is within the trace of who did: a wait, a grant, also when the
// request is over, and the release. A command that nobody asks for is in no trace, and with
// WithBackgroundSpans it is within that one, too.
func TestCommandsAreWithinTheTraceOfTheRequest(t *testing.T) {
	t.Parallel()
	for _, oursFirst := range []bool{true, false} {
		t.Run(fmt.Sprint("ours first ", oursFirst), func(t *testing.T) {
			t.Parallel()
			background := oursFirst // or not; these do not depend on each other
			var opts []holdfast.Option
			if background {
				opts = append(opts, holdfast.WithBackgroundSpans())
			}
			redistest.OverCluster(t, func(t *testing.T, open func(func(*redis.Client)) redis.UniversalClient) {
				e := newTelemetry(t)
				c := holdfast.New(open(e.instrument(oursFirst, holdfast.GuardHook(), holdfast.NameHook())),
					append(opts, holdfast.WithTTL(3*time.Second))...)
				renewals := &counting{}
				c.AddHook(renewals)
				c.AddHook(holdfast.NewTracingHook(holdfast.WithTracerProvider(e.traces)))
				other := holdfast.New(open(func(*redis.Client) {}), holdfast.WithTTL(3*long))
				defer other.Close()
				held, err := other.Mutex("a").Lease(t.Context())
				require.NoError(t, err)

				ctx, request := e.tracer.Start(t.Context(), "request")
				waited := make(chan error, 1)
				var leases [3]*holdfast.Lease
				go func() {
					var err error
					leases[0], err = c.Mutex("a").Lease(ctx)
					waited <- err
				}()
				e.enough("heartbeats", func() bool { return len(e.commands()) >= 4 }) // of which the first asks are
				require.NoError(t, held.Release(ctx))
				require.NoError(t, <-waited)
				leases[1], err = c.RWMutex("b").RLease(ctx)
				require.NoError(t, err)
				leases[2], err = c.Semaphore("c", 2).Lease(ctx, 2)
				require.NoError(t, err)
				request.End()
				before, renewed := e.commands(), renewals.renewed.Load()
				e.enough("renewals", func() bool { return renewals.renewed.Load() >= renewed+4 })
				if background {
					e.enough("their spans", func() bool { return len(e.commands()) >= len(before)+4 })
				} else {
					require.Len(t, e.commands(), len(before), "FOUL: renewals are in a trace")
				}
				for _, l := range leases {
					require.NoError(t, l.Release(context.Background()))
				}
				require.NoError(t, c.Close())

				require.ElementsMatch(t, []string{"request"}, e.roots())
				for _, s := range e.commands() {
					assert.Equal(t, !oursFirst, strings.Contains(s.Name(), "holdfast."), s.Name())
					if !oursFirst { // else redisotel shows what it wants to
						requireNoToken(t, fmt.Sprint(s.Name(), s.Attributes(), s.Events(), s.Status()), leases[:]...)
					}
					assert.Equal(t, request.SpanContext().TraceID(), s.SpanContext().TraceID(), s.Name())
				}
			})
		})
	}
}

// number is what a part of a token looks like.
var number = regexp.MustCompile(`\b[0-9a-f]{16}\b`)

// requireNoToken requires that text has no part of a token of the leases.
func requireNoToken(t *testing.T, text string, leases ...*holdfast.Lease) {
	t.Helper()
	for _, l := range leases {
		parts := number.FindAllString(l.Token(), -1)
		require.NotEmpty(t, parts, "the test knows tokens no more")
		for _, part := range parts {
			require.NotContains(t, text, part)
		}
	}
}

func (e *telemetry) enough(what string, cond func() bool) {
	e.Helper()
	require.Eventually(e, cond, long, 5*time.Millisecond, what)
}

// roots returns the names of spans without a parent, but for those of what the Redis
// client does for itself when it connects.
func (e *telemetry) roots() (all []string) {
	for _, s := range e.spans.Ended() {
		switch s.Name() {
		case "redis.dial", "hello", "redis.pipeline client", "cluster slots", "command":
			continue
		}
		if !s.Parent().IsValid() {
			all = append(all, s.Name())
		}
	}
	return all
}

// The recipe of docs/telemetry.md: spans only below those of the program, and metrics of all.
func TestAProviderThatMakesNoRootsMakesSpansOnlyBelowAParent(t *testing.T) {
	e := newTelemetry(t)
	below := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(e.spans), sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.NeverSample())))
	reader := sdkmetric.NewManualReader()
	rdb := redistest.Shared(t).Client(t)
	require.NoError(t, redisotel.InstrumentTracing(rdb, redisotel.WithTracerProvider(below), redisotel.WithCallerEnabled(false)))
	rdb.AddHook(holdfast.NameHook())
	locks := holdfast.New(rdb)
	defer locks.Close()
	locks.AddHook(holdfast.NewTracingHook(holdfast.WithTracerProvider(below),
		holdfast.WithMeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)))))
	for range 10 { // in nobody's request
		lease, err := locks.Mutex("x").Lease(t.Context())
		require.NoError(t, err)
		require.NoError(t, lease.Release(t.Context()))
	}
	require.Empty(t, e.spans.Ended(), "FOUL: spans that have no parent")

	ctx, request := e.tracer.Start(t.Context(), "request")
	lease, err := locks.Mutex("x").Lease(ctx)
	require.NoError(t, err)
	require.NoError(t, lease.Release(ctx))
	request.End()
	names := map[string]bool{}
	for _, s := range e.spans.Ended() {
		names[s.Name()] = true
		assert.Equal(t, request.SpanContext().TraceID(), s.SpanContext().TraceID(), s.Name())
	}
	for _, want := range []string{"acquire mutex", "holdfast.mutex.acquire", "hold mutex", "release mutex", "holdfast.mutex.release"} {
		assert.True(t, names[want], "%s: %v", want, names)
	}
	var all metricdata.ResourceMetrics
	require.NoError(t, reader.Collect(t.Context(), &all))
	acquired := uint64(0)
	for _, m := range all.ScopeMetrics[0].Metrics {
		if h, ok := m.Data.(metricdata.Histogram[float64]); ok && m.Name == "holdfast.acquire.duration" {
			for _, p := range h.DataPoints {
				acquired += p.Count
			}
		}
	}
	require.EqualValues(t, 11, acquired, "metrics have all")
}

func TestNameHookNamesTheSpansOfScripts(t *testing.T) {
	redistest.OverCluster(t, func(t *testing.T, open func(func(*redis.Client)) redis.UniversalClient) {
		e := newTelemetry(t)
		locks := holdfast.New(open(e.instrument(false, holdfast.NameHook())))
		defer locks.Close()
		lease, err := locks.Mutex("x").Lease(t.Context())
		require.NoError(t, err)
		require.NoError(t, lease.Renew(t.Context()))
		require.NoError(t, lease.Release(t.Context()))
		reader, err := locks.RWMutex("x").RLease(t.Context())
		require.NoError(t, err)
		require.NoError(t, reader.Release(t.Context()))

		names := map[string]int{}
		for _, s := range e.spans.Ended() {
			names[s.Name()]++
			for _, a := range s.Attributes() {
				if a.Key == "db.stored_procedure.name" {
					assert.Contains(t, s.Name(), a.Value.AsString())
				}
			}
			if strings.Contains(s.Name(), "holdfast") {
				assert.NotEqual(t, codes.Error, s.Status().Code, "%s: %s", s.Name(), s.Status().Description)
				assert.Empty(t, s.Events())
			}
		}
		for _, want := range []string{"holdfast.mutex.acquire", "holdfast.mutex.release", "pipeline holdfast.mutex.renew"} {
			assert.Equal(t, 2, names[want], "%s, by its hash and by its text: %v", want, names)
		}
		for _, want := range []string{"holdfast.rwmutex.acquire", "holdfast.rwmutex.release"} { // the same scripts
			assert.Equal(t, 1, names[want], "%s, by its hash: %v", want, names)
		}
		assert.Zero(t, names["evalsha"])
	})
}

func TestNameHookInTheWrongOrderNamesNothing(t *testing.T) {
	redistest.OverCluster(t, func(t *testing.T, open func(func(*redis.Client)) redis.UniversalClient) {
		e := newTelemetry(t)
		locks := holdfast.New(open(e.instrument(true, holdfast.NameHook())))
		defer locks.Close()
		ctx, mine := e.tracer.Start(t.Context(), "mine")
		lease, err := locks.Mutex("x").Lease(ctx)
		require.NoError(t, err)
		require.NoError(t, lease.Release(ctx))
		mine.End()
		var found bool
		for _, s := range e.spans.Ended() {
			assert.NotContains(t, s.Name(), "holdfast")
			found = found || s.Name() == "mine"
		}
		assert.True(t, found)
	})
}
