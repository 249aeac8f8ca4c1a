package telemetry

import (
	"context"
	"encoding/binary"
	"math/rand/v2"

	"go.opentelemetry.io/otel/trace"
)

// Unasked returns ctx for a command that nobody asked for, such as a renewal. Whoever makes a span
// under it, the parent is one that is not sampled, so that by default there is none.
//
// The parent is in a trace of its own. A sampler that does not heed parents shows the command there,
// and not in the trace of a request, which would go on for as long as a lease does.
func Unasked(ctx context.Context) context.Context {
	var of trace.SpanContextConfig
	binary.BigEndian.PutUint64(of.TraceID[:], rand.Uint64())
	binary.BigEndian.PutUint64(of.TraceID[8:], rand.Uint64())
	binary.BigEndian.PutUint64(of.SpanID[:], max(rand.Uint64(), 1))
	return trace.ContextWithSpanContext(ctx, trace.NewSpanContext(of))
}

// ForMany returns a context for a command on behalf of several callers. It is in nobody's trace, and
// it is not sampled if ctx, that of one of them, is not.
func ForMany(ctx context.Context) context.Context {
	if one := trace.SpanContextFromContext(ctx); one.IsValid() && !one.IsSampled() {
		return trace.ContextWithSpanContext(context.Background(), one)
	}
	return context.Background()
}
