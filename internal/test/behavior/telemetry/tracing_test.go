package telemetry_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
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

func TestTracingShowsAcquireHoldAndRelease(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		e := newTelemetry(t)
		c := lab.New(t, s).Near()
		c.AddHook(e.hook)
		ctx, request := e.tracer.Start(t.Context(), "request")
		l, err := c.Mutex("orders:42").Lease(ctx)
		require.NoError(t, err)
		_, inner := e.tracer.Start(l.Context(), "work")
		inner.End()
		require.NoError(t, l.Renew(ctx))
		require.NoError(t, l.Release(ctx))
		request.End()

		acquire, hold, release := e.ended("acquire mutex"), e.ended("hold mutex"), e.ended("release mutex")
		for _, s := range []sdktrace.ReadOnlySpan{acquire, hold, release} {
			assert.Equal(t, request.SpanContext().SpanID(), s.Parent().SpanID(), s.Name())
			assert.Equal(t, trace.SpanKindInternal, s.SpanKind())
			assert.Equal(t, codes.Unset, s.Status().Code)
			assert.Equal(t, "github.com/holdfast-go/holdfast", s.InstrumentationScope().Name)
			assert.NotEmpty(t, s.InstrumentationScope().Version)
			a := attrsOf(s)
			assert.Equal(t, "mutex", a["holdfast.primitive"])
			assert.Equal(t, "exclusive", a["holdfast.mode"])
			assert.Equal(t, "orders:42", a["holdfast.lock.name"])
			assert.NotContains(t, a, attribute.Key("holdfast.permits"))
			assert.NotContains(t, a, attribute.Key("error.type"))
		}
		a := attrsOf(acquire)
		assert.Equal(t, "acquired", a["holdfast.outcome"])
		assert.Equal(t, false, a["holdfast.contended"])
		assert.Equal(t, int64(1), a["holdfast.attempts"])
		assert.Equal(t, l.Fence(), a["holdfast.fencing_token"])
		assert.Equal(t, "released", attrsOf(hold)["holdfast.end_reason"])
		assert.Equal(t, int64(1), attrsOf(hold)["holdfast.renewals"])
		assert.Equal(t, acquire.SpanContext().SpanID(), hold.Links()[0].SpanContext.SpanID())
		assert.Equal(t, hold.SpanContext().SpanID(), e.ended("work").Parent().SpanID())

		for _, name := range []string{"holdfast.acquire.duration", "holdfast.hold.duration", "holdfast.renew.duration"} {
			data := e.metric(name).Data.(metricdata.Histogram[float64])
			require.Len(t, data.DataPoints, 1, name)
			assert.EqualValues(t, 1, data.DataPoints[0].Count, name)
			for _, a := range data.DataPoints[0].Attributes.ToSlice() {
				assert.NotEqual(t, attribute.Key("holdfast.lock.name"), a.Key, name)
			}
		}
		for _, name := range []string{"holdfast.wait.active", "holdfast.hold.active"} {
			assert.Zero(t, e.metric(name).Data.(metricdata.Sum[int64]).DataPoints[0].Value, name)
		}
	})
}

func TestTracingShowsHowAnAcquisitionFailed(t *testing.T) {
	t.Parallel()
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		holder := l.Lease(l.Near(), "x")
		for outcome, try := range map[string]func(*holdfast.Mutex) error{
			"not_acquired": func(m *holdfast.Mutex) error { _, err := m.TryLease(t.Context()); return err },
			"timeout": func(m *holdfast.Mutex) error {
				ctx, cancel := context.WithTimeout(t.Context(), l.Time(200*time.Millisecond))
				defer cancel()
				_, err := m.Lease(ctx)
				return err
			},
			"canceled": func(m *holdfast.Mutex) error {
				ctx, cancel := context.WithCancel(t.Context())
				go func() {
					l.UntilQueue("x", 1)
					cancel()
				}()
				_, err := m.Lease(ctx)
				return err
			},
		} {
			e := newTelemetry(t)
			c := l.Near()
			c.AddHook(e.hook)
			require.Error(t, try(c.Mutex("x")))
			span := e.ended("acquire mutex")
			a := attrsOf(span)
			assert.Equal(t, outcome, a["holdfast.outcome"])
			if outcome != "canceled" { // which may come before the answer that it waits
				assert.Equal(t, true, a["holdfast.contended"], outcome)
			}
			if outcome == "timeout" {
				assert.Equal(t, codes.Error, span.Status().Code)
				assert.Equal(t, "timeout", a["error.type"])
			} else {
				assert.Equal(t, codes.Unset, span.Status().Code, outcome)
				assert.NotContains(t, a, attribute.Key("error.type"), outcome)
			}
			assert.Zero(t, e.metric("holdfast.wait.active").Data.(metricdata.Sum[int64]).DataPoints[0].Value)
		}
		require.NoError(t, holder.Release(t.Context()))
	})
}

func TestTracingShowsALoss(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		e := newTelemetry(t, holdfast.WithHoldSpans(holdfast.HoldSpansAlways))
		c := lab.New(t, s).Near()
		c.AddHook(e.hook)
		l, err := c.RWMutex("x").RLease(t.Context())
		require.NoError(t, err)
		require.NoError(t, c.RWMutex("x").ForceUnlock(t.Context()))
		require.ErrorIs(t, l.Renew(t.Context()), holdfast.ErrLost)
		span := e.ended("hold rwmutex")
		assert.Equal(t, "lost", attrsOf(span)["holdfast.end_reason"])
		assert.Equal(t, "lock_lost", attrsOf(span)["error.type"])
		assert.Equal(t, "shared", attrsOf(span)["holdfast.mode"])
		assert.Equal(t, codes.Error, span.Status().Code)
		require.Len(t, span.Events(), 1, "the renewal failed")
		assert.Equal(t, "not_held", span.Events()[0].Attributes[0].Value.AsString())
		require.ErrorIs(t, errors.Join(l.Release(t.Context())), holdfast.ErrLost)
		release := e.ended("release rwmutex")
		assert.Equal(t, "lock_lost", attrsOf(release)["error.type"])
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

// The waiter's span is linked to the span of the holder in its way, whether that is in
// another process or in this one, and for how long it holds.
func TestTracingLinksTheWaiterToTheHolder(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		room := lab.New(t, s)
		open := func() (*holdfast.Client, *telemetry) {
			e := newTelemetry(t, holdfast.WithHolderLinks(), holdfast.WithHoldSpans(holdfast.HoldSpansAlways))
			c := room.Near()
			c.AddHook(e.hook)
			return c, e
		}
		a, holders := open()
		for name, wait := range map[string]func(*holdfast.Client, func()){
			"released at once": func(b *holdfast.Client, release func()) {
				w := room.Wait(b, "x")
				room.UntilQueue("x", 1)
				release()
				require.NoError(t, w.Granted(lab.Soon).Release(t.Context()))
			},
			"given up": func(b *holdfast.Client, release func()) {
				room.Until("the holder has said who it is", func() bool {
					return strings.Contains(room.Stored(driver.Mutex, "x"), " 00-")
				})
				_, err := b.Mutex("x").TryLease(t.Context())
				require.ErrorIs(t, err, holdfast.ErrLocked)
				release()
			},
			"sync forms": func(b *holdfast.Client, release func()) {
				done := make(chan struct{})
				go func() {
					defer close(done)
					b.Mutex("x").Lock()
					b.Mutex("x").Unlock()
				}()
				room.UntilQueue("x", 1)
				release()
				<-done
			},
		} {
			b, waiters := open()
			before := len(holders.spans.Ended())
			l := room.Lease(a, "x")
			wait(b, func() { require.NoError(t, l.Release(t.Context())) })
			var hold trace.SpanContext
			room.Until("the hold span ends", func() bool {
				for _, s := range holders.spans.Ended()[before:] {
					if s.Name() == "hold mutex" {
						hold = s.SpanContext()
					}
				}
				return hold.IsValid()
			})
			links := waiters.ended("acquire mutex").Links()
			require.Len(t, links, 1, name)
			assert.Equal(t, hold.SpanID(), links[0].SpanContext.SpanID(), name)
			assert.Equal(t, hold.TraceID(), links[0].SpanContext.TraceID(), name)
			assert.True(t, links[0].SpanContext.IsRemote())
		}

		e := newTelemetry(t, holdfast.WithHolderLinks(), holdfast.WithHoldSpans(holdfast.HoldSpansAlways))
		c := room.Mates()
		c.AddHook(e.hook)
		c.Mutex("local").Lock()
		done := make(chan struct{})
		go func() {
			defer close(done)
			c.Mutex("local").Lock()
			c.Mutex("local").Unlock()
		}()
		room.Until("the other waits", func() bool { return strings.Contains(lab.Stacks(), "(*Lock).waitTurn") })
		c.Mutex("local").Unlock()
		<-done
		var links []sdktrace.Link
		var first sdktrace.ReadOnlySpan // hold; either may have ended first
		for _, s := range e.spans.Ended() {
			switch {
			case s.Name() == "acquire mutex":
				links = append(links, s.Links()...)
			case s.Name() == "hold mutex" && (first == nil || s.StartTime().Before(first.StartTime())):
				first = s
			}
		}
		require.Len(t, links, 1)
		assert.Equal(t, first.SpanContext().SpanID(), links[0].SpanContext.SpanID())
	})
}
