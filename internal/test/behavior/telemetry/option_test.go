package telemetry_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	noopmetric "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/metric/metricdata/metricdatatest"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/test/behavior/lab"
)

// cycle leases, renews and releases a lock.
func cycle(t *testing.T, ctx context.Context, c *holdfast.Client, name string) {
	t.Helper()
	l, err := c.Mutex(name).Lease(ctx)
	require.NoError(t, err)
	require.NoError(t, l.Renew(ctx))
	require.NoError(t, l.Release(ctx))
}

func TestAttributesOfTheUserAreEverywhere(t *testing.T) {
	mine := []attribute.KeyValue{attribute.String("service.team", "billing"), attribute.Int("shard", 3)}
	e := newTelemetry(t, holdfast.WithAttributes(mine[0]), holdfast.WithAttributes(mine[1]), holdfast.WithHoldSpans(holdfast.HoldSpansAlways))
	var lost func(reason string)
	c := lab.WithPuppet(t, lab.Puppet{OnAcquire: wakeInEveryWay(), OnReport: func(f func(string)) { lost = f }}, e.hook)
	cycle(t, t.Context(), c, "x")
	lost("error")
	require.Len(t, e.spans.Ended(), 3)
	for _, s := range e.spans.Ended() {
		assert.Subset(t, s.Attributes(), mine, s.Name())
	}
	got := e.scope()
	assert.Len(t, got.Metrics, 10, "all but those of renewals that are due")
	metricdatatest.AssertHasAttributes(t, got, mine...)
	for _, m := range got.Metrics { // and one does not change the other
		if m.Name == "holdfast.wakeups" {
			assert.Len(t, m.Data.(metricdata.Sum[int64]).DataPoints, 3)
		}
	}
}

func TestSpansAreNamedByTheFormatter(t *testing.T) {
	e := newTelemetry(t, holdfast.WithHoldSpans(holdfast.HoldSpansAlways), holdfast.WithSpanNameFormatter(
		func(operation string, k driver.Kind) string { return string(k) + "/" + operation }))
	c := lab.WithPuppet(t, lab.Puppet{}, e.hook)
	cycle(t, t.Context(), c, "x")
	for _, name := range []string{"mutex/acquire", "mutex/hold", "mutex/release"} {
		e.ended(name)
	}
	assert.Len(t, e.spans.Ended(), 3)
}

func TestNothingIsToldOfWhatIsFilteredOut(t *testing.T) {
	var seen []string
	e := newTelemetry(t, holdfast.WithHoldSpans(holdfast.HoldSpansAlways), holdfast.WithFilter(
		func(ctx context.Context, op *holdfast.AcquireOp) bool {
			seen = append(seen, op.Name+" "+ctx.Value(contextKey{}).(string))
			return !strings.HasPrefix(op.Name, "health:")
		}))
	c := lab.WithPuppet(t, lab.Puppet{}, e.hook)
	ctx := context.WithValue(t.Context(), contextKey{}, "of the caller")
	cycle(t, ctx, c, "health:1")
	assert.Equal(t, []string{"health:1 of the caller"}, seen, "only acquisitions are asked about")
	assert.Empty(t, e.spans.Started())
	assert.Empty(t, e.counted())
	assert.Len(t, e.scope().Metrics, 3, "they are there from the beginning")

	cycle(t, ctx, c, "x")
	assert.Len(t, e.told(), 3)
	assert.Equal(t, map[string]int64{acquiredFree: 1, heldTillEnd: 1, "renew.duration mode=exclusive primitive=mutex": 1}, e.counted())
}

// The class is not an attribute of wakeups, which are about the store. A class has its counters of
// trouble from its first lease on.
func TestClassOfTheLockIsAnAttribute(t *testing.T) {
	e := newTelemetry(t, holdfast.WithHoldSpans(holdfast.HoldSpansAlways), holdfast.WithLockClass(
		func(name string) string { class, _, _ := strings.Cut(name, ":"); return class }))
	c := lab.WithPuppet(t, lab.Puppet{}, e.hook)
	cycle(t, t.Context(), c, "orders:42")
	cycle(t, t.Context(), c, "orders:43")
	cycle(t, t.Context(), c, "users:1")
	for _, s := range e.spans.Ended() {
		a := attrsOf(s)
		class, _, _ := strings.Cut(a["holdfast.lock.name"].(string), ":")
		assert.Equal(t, class, a["holdfast.lock.class"])
	}
	assert.Len(t, e.spans.Ended(), 9)
	classed := func(series, class string) string {
		return strings.Replace(series, " mode=", " lock.class="+class+" mode=", 1)
	}
	assert.Equal(t, map[string]int64{
		classed(acquiredFree, "orders"): 2, classed(acquiredFree, "users"): 1,
		classed(heldTillEnd, "orders"): 2, classed(heldTillEnd, "users"): 1,
		classed("renew.duration mode=exclusive primitive=mutex", "orders"): 2,
		classed("renew.duration mode=exclusive primitive=mutex", "users"):  1,
	}, e.counted())
	for _, name := range []string{"lease.lost", "renewal.failed"} {
		classes := map[string]int64{}
		for _, p := range e.metric("holdfast." + name).Data.(metricdata.Sum[int64]).DataPoints {
			if class, is := p.Attributes.Value("holdfast.lock.class"); is {
				classes[class.AsString()] = p.Value
			}
		}
		assert.Equal(t, map[string]int64{"orders": 0, "users": 0}, classes, name)
	}
}

// A lease has a hold span or not; its context is in the hold span, or else in that of
// who acquired it, and never in the acquire span, which has ended.
func TestHoldSpansAreMadeAsAsked(t *testing.T) {
	unsampled := sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.NeverSample())).Tracer("test")
	for name, test := range map[string]struct {
		opts   []holdfast.TracingOption
		parent string // recording, ignored or none
		want   bool
	}{
		"by default, within a span":             {nil, "recording", true},
		"by default, within an ignored span":    {nil, "ignored", false},
		"by default, alone":                     {nil, "none", false},
		"if within a span, within a span":       {[]holdfast.TracingOption{holdfast.WithHoldSpans(holdfast.HoldSpansParented)}, "recording", true},
		"if within a span, alone":               {[]holdfast.TracingOption{holdfast.WithHoldSpans(holdfast.HoldSpansParented)}, "none", false},
		"always, within a span":                 {[]holdfast.TracingOption{holdfast.WithHoldSpans(holdfast.HoldSpansAlways)}, "recording", true},
		"always, alone":                         {[]holdfast.TracingOption{holdfast.WithHoldSpans(holdfast.HoldSpansAlways)}, "none", true},
		"never, within a span":                  {[]holdfast.TracingOption{holdfast.WithHoldSpans(holdfast.HoldSpansNever)}, "recording", false},
		"never, alone":                          {[]holdfast.TracingOption{holdfast.WithHoldSpans(holdfast.HoldSpansNever)}, "none", false},
		"the last option counts, within a span": {[]holdfast.TracingOption{holdfast.WithHoldSpans(holdfast.HoldSpansNever), holdfast.WithHoldSpans(holdfast.HoldSpansParented)}, "recording", true},
	} {
		t.Run(name, func(t *testing.T) {
			e := newTelemetry(t, test.opts...)
			c := lab.WithPuppet(t, lab.Puppet{}, e.hook)
			ctx, parent := t.Context(), trace.SpanFromContext(t.Context())
			switch test.parent {
			case "recording":
				ctx, parent = e.tracer.Start(ctx, "request")
			case "ignored":
				ctx, parent = unsampled.Start(ctx, "request")
			}
			l, err := c.Mutex("x").Lease(ctx)
			require.NoError(t, err)
			within := trace.SpanContextFromContext(l.Context())
			require.NoError(t, l.Release(ctx))
			var hold sdktrace.ReadOnlySpan
			for _, s := range e.spans.Ended() {
				if s.Name() == "hold mutex" {
					hold = s
				}
			}
			require.Equal(t, test.want, hold != nil)
			if hold == nil {
				assert.Equal(t, parent.SpanContext(), within)
			} else {
				assert.Equal(t, hold.SpanContext(), within)
				assert.Equal(t, parent.SpanContext().SpanID(), hold.Parent().SpanID())
			}
			assert.EqualValues(t, 1, e.counted()[heldTillEnd], "measured in any case")
		})
	}
}

// Samplers decide by what a span has when it starts.
func TestSpansStartWithTheirAttributes(t *testing.T) {
	asked := map[string]string{}
	traces := sdktrace.NewTracerProvider(sdktrace.WithSampler(sampler(func(p sdktrace.SamplingParameters) {
		set := attribute.NewSet(p.Attributes...)
		asked[p.Name] = encode(&set)
	})))
	hook := holdfast.NewTracingHook(holdfast.WithTracerProvider(traces), holdfast.WithHoldSpans(holdfast.HoldSpansAlways))
	c := lab.WithPuppet(t, lab.Puppet{}, hook)
	l, err := c.Semaphore("x", 5).Lease(t.Context(), 2)
	require.NoError(t, err)
	require.NoError(t, l.Release(t.Context()))
	want := map[string]string{}
	for _, operation := range []string{"acquire", "hold", "release"} {
		want[operation+" semaphore"] = "lock.name=x mode=shared operation.name=" + operation + " permits=2 primitive=semaphore"
	}
	assert.Equal(t, want, asked)
}

type sampler func(sdktrace.SamplingParameters)

func (f sampler) ShouldSample(p sdktrace.SamplingParameters) sdktrace.SamplingResult {
	f(p)
	return sdktrace.SamplingResult{Decision: sdktrace.Drop}
}

func (sampler) Description() string { return "asks" }

func TestProvidersAreTheGlobalOnesByDefault(t *testing.T) {
	e := newTelemetry(t)
	t.Cleanup(func() { // what was there before cannot be set again
		otel.SetTracerProvider(noop.NewTracerProvider())
		otel.SetMeterProvider(noopmetric.NewMeterProvider())
	})
	otel.SetTracerProvider(e.traces)
	otel.SetMeterProvider(e.metrics)
	c := lab.WithPuppet(t, lab.Puppet{}, holdfast.NewTracingHook(holdfast.WithHoldSpans(holdfast.HoldSpansAlways)))
	cycle(t, t.Context(), c, "x")
	assert.Len(t, e.told(), 3)
	assert.EqualValues(t, 1, e.counted()[acquiredFree])
}
