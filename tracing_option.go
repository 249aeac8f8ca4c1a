package holdfast

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast-go/holdfast/driver"
)

// TracingOption changes what [NewTracingHook] makes.
type TracingOption interface{ applyTracing(*tracing) }

type tracingOption func(*tracing)

func (f tracingOption) applyTracing(t *tracing) { f(t) }

// HoldSpans says for which leases there is a span from grant to end.
type HoldSpans int

// When there is a span for a lease. One that is held for days, as that of a leader, is
// not seen until it ends, and never if its process crashes.
const (
	Parented HoldSpans = iota // if it was acquired within a span that is recorded
	Always
	Never
)

// WithTracerProvider sets where spans come from. The default is the global provider.
func WithTracerProvider(p trace.TracerProvider) TracingOption {
	return tracingOption(func(t *tracing) { t.tracers = p })
}

// WithMeterProvider sets where metrics come from. The default is the global provider.
func WithMeterProvider(p metric.MeterProvider) TracingOption {
	return tracingOption(func(t *tracing) { t.metrics = p })
}

// WithAttributes adds attributes to all spans and metrics, beside those of earlier such
// options. The default is none.
func WithAttributes(attrs ...attribute.KeyValue) TracingOption {
	return tracingOption(func(t *tracing) { t.attrs = append(t.attrs, attrs...) })
}

// WithSpanNameFormatter sets how spans are called; operation is acquire, hold or release.
// Names should be few. The default is "operation kind".
func WithSpanNameFormatter(f func(operation string, k driver.Kind) string) TracingOption {
	return tracingOption(func(t *tracing) { t.name = f })
}

// WithFilter sets what is traced and measured: acquisitions for which f returns true,
// and what follows from them. It is asked before next is called, and only then. The
// default is all.
func WithFilter(f func(ctx context.Context, op *AcquireOp) bool) TracingOption {
	return tracingOption(func(t *tracing) { t.filter = f })
}

// WithLockClass adds the attribute holdfast.lock.class to spans, and to the metrics that
// have a mode: f makes it of the name of the lock. There should be few, such as "orders"
// for "orders:42". The default is none.
func WithLockClass(f func(name string) string) TracingOption {
	return tracingOption(func(t *tracing) { t.class = f })
}

// WithHoldSpans sets for which leases there is a hold span. The default is [Parented].
func WithHoldSpans(h HoldSpans) TracingOption {
	return tracingOption(func(t *tracing) { t.holds = h })
}

// WithHolderLinks links the acquire span of who had to wait to the hold spans of those
// who held the lock meanwhile, in other processes, too: to those that were seen, at most
// 8. A link has the attribute holdfast.link, "holder".
//
// For that the traceparent of a hold span is stored with the lock, nothing else; it costs
// a command for each lease that is held for more than 10 ms, which is a renewal that comes early.
// Those made [WithoutRenewal] tell it only with [Lease.Renew] and when they are released.
// Leases without a hold span cannot be linked to. The default is no links.
func WithHolderLinks() TracingOption {
	return tracingOption(func(t *tracing) { t.links = true })
}
