// Package telemetry is what tracing needs of OpenTelemetry, and knows nothing of locks.
package telemetry

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// Traceparent returns the W3C traceparent of the span in ctx. It says which span it is
// and nothing else: no baggage, which may be personal.
func Traceparent(ctx context.Context) string {
	fields := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, fields)
	return fields["traceparent"]
}

// Link links a span to the holders with these traceparents. Traceparents come from other
// processes, so they may be anything. Invalid ones are left out, and none becomes a parent.
func Link(span trace.Span, traceparents []string, attrs ...attribute.KeyValue) {
	for _, t := range traceparents {
		ctx := propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{"traceparent": t})
		if holder := trace.SpanContextFromContext(ctx); holder.IsValid() {
			span.AddLink(trace.Link{SpanContext: holder, Attributes: attrs})
		}
	}
}
