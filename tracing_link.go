package holdfast

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// traceparent returns the W3C traceparent of the span in ctx. It says which span it is
// and nothing else: no baggage, which may be personal.
func traceparent(ctx context.Context) string {
	fields := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, fields)
	return fields["traceparent"]
}

// link links a span to the holders with these traceparents. They come from other
// processes, so they may be anything; what is not valid is left out. And for the same
// reason they are no parents.
func link(span trace.Span, traceparents []string) {
	for _, t := range traceparents {
		ctx := propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{"traceparent": t})
		if holder := trace.SpanContextFromContext(ctx); holder.IsValid() {
			span.AddLink(trace.Link{SpanContext: holder, Attributes: []attribute.KeyValue{attrLink.String("holder")}})
		}
	}
}
