package telemetry_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/test/behavior/lab"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

// telemetry is what a tracing hook has made.
type telemetry struct {
	t      *testing.T
	spans  *tracetest.SpanRecorder
	reader *sdkmetric.ManualReader
	tracer trace.Tracer
	hook   holdfast.Hook

	traces  *sdktrace.TracerProvider
	metrics *sdkmetric.MeterProvider
}

func newTelemetry(t *testing.T, opts ...holdfast.TracingOption) *telemetry {
	e := &telemetry{t: t, spans: tracetest.NewSpanRecorder(), reader: sdkmetric.NewManualReader()}
	e.traces = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(e.spans))
	e.metrics = sdkmetric.NewMeterProvider(sdkmetric.WithReader(e.reader))
	e.tracer = e.traces.Tracer("test")
	e.hook = holdfast.NewTracingHook(append([]holdfast.TracingOption{
		holdfast.WithTracerProvider(e.traces), holdfast.WithMeterProvider(e.metrics),
	}, opts...)...)
	return e
}

// ended waits for a span with that name, and returns it.
func (e *telemetry) ended(name string) sdktrace.ReadOnlySpan {
	e.t.Helper()
	var found sdktrace.ReadOnlySpan
	require.Eventually(e.t, func() bool {
		for _, s := range e.spans.Ended() {
			if s.Name() == name {
				found = s
				return true
			}
		}
		return false
	}, lab.Soon, time.Millisecond, "no span %q", name)
	return found
}

func attrsOf(s sdktrace.ReadOnlySpan) map[attribute.Key]any {
	all := map[attribute.Key]any{}
	for _, a := range s.Attributes() {
		all[a.Key] = a.Value.AsInterface()
	}
	return all
}

// metrics returns the data of one metric, with a reading of all.
func (e *telemetry) metric(name string) metricdata.Metrics {
	e.t.Helper()
	var all metricdata.ResourceMetrics
	require.NoError(e.t, e.reader.Collect(context.Background(), &all))
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			if m.Name == name {
				return m
			}
		}
	}
	e.t.Fatalf("no metric %q", name)
	return metricdata.Metrics{}
}

// What each of them has besides is in TestEveryOutcomeIsTold.
func TestTracingShowsAcquireHoldAndRelease(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		e := newTelemetry(t)
		c := e.on(lab.New(t, s).Near())
		ctx, request := e.tracer.Start(t.Context(), "request")
		l, err := c.Mutex("x").Lease(ctx)
		require.NoError(t, err)
		_, inner := e.tracer.Start(l.Context(), "work")
		inner.End()
		require.NoError(t, l.Release(ctx))
		request.End()
		acquire, hold, release := e.ended("acquire mutex"), e.ended("hold mutex"), e.ended("release mutex")
		for _, s := range []sdktrace.ReadOnlySpan{acquire, hold, release} {
			assert.Equal(t, request.SpanContext().SpanID(), s.Parent().SpanID(), s.Name())
			assert.Equal(t, scope, s.InstrumentationScope())
		}
		assert.Equal(t, l.Fence(), attrsOf(acquire)["holdfast.fencing_token"])
		require.Len(t, hold.Links(), 1)
		assert.Equal(t, acquire.SpanContext().SpanID(), hold.Links()[0].SpanContext.SpanID())
		assert.Equal(t, hold.SpanContext().SpanID(), e.ended("work").Parent().SpanID())
	})
}

// Work under a lock is within the span of the hold, also with Do.
func TestTracingPutsTheHoldSpanIntoTheContextOfDo(t *testing.T) {
	s := redistest.Shared(t)
	e := newTelemetry(t)
	c := lab.New(t, s).Near()
	c.AddHook(e.hook)
	ctx, request := e.tracer.Start(t.Context(), "request")
	ctx, cancel := context.WithCancel(ctx)
	err := c.Mutex("x").Do(ctx, func(ctx context.Context) error {
		_, work := e.tracer.Start(ctx, "work")
		work.End()
		cancel()
		<-ctx.Done() // with either
		return nil
	})
	require.NoError(t, err)
	request.End()
	assert.Equal(t, e.ended("hold mutex").SpanContext().SpanID(), e.ended("work").Parent().SpanID())
}
