package holdfast

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

// holdSpan is a lease as telemetry sees it, from grant to end.
type holdSpan struct {
	t        *tracing
	on       subject
	fixed    bool       // not renewed
	span     trace.Span // records nothing if there is to be none
	began    time.Time
	renewals atomic.Int64
	once     sync.Once
}

// holdSpanKey finds, in the context of a lease, its holdSpan.
type holdSpanKey struct{ t *tracing }

func (t *tracing) holdOf(l *Lease) *holdSpan {
	h, _ := l.Context().Value(holdSpanKey{t}).(*holdSpan)
	return h
}

// hold begins the span of a lease, linked to that of its acquisition, and returns the
// context for the lease.
func (t *tracing) hold(lease context.Context, on subject, acquired trace.Span, fixed bool) (context.Context, *holdSpan) {
	h := &holdSpan{t: t, on: on, fixed: fixed, span: trace.SpanFromContext(context.Background()), began: time.Now()}
	if t.holds == Always || t.holds == Parented && trace.SpanFromContext(lease).IsRecording() {
		lease, h.span = t.start(lease, "hold", on, trace.WithLinks(trace.Link{SpanContext: acquired.SpanContext()}))
	}
	if t.links && h.span.SpanContext().IsValid() {
		lease = WithHolderTag(lease, traceparent(lease))
	}
	t.meters.holding.Add(lease, 1, metric.WithAttributes(on.few...))
	return context.WithValue(lease, holdSpanKey{t}, h), h
}

// renewed notes a renewal, or that one failed.
func (h *holdSpan) renewed(ctx context.Context, seconds float64, err error) {
	attrs := append([]attribute.KeyValue{attrPrimitive.String(string(h.on.kind))}, h.t.attrs...)
	if err == nil {
		h.renewals.Add(1)
	} else {
		failure := semconv.ErrorType(&LockError{Err: err})
		attrs = append(attrs, failure)
		h.span.AddEvent("renewal failed", trace.WithAttributes(failure))
	}
	h.t.meters.renew.Record(ctx, seconds, metric.WithAttributes(attrs...))
}

// follow ends the span when the lease ends, if nothing ends it before.
func (h *holdSpan) follow(l *Lease) {
	context.AfterFunc(l.Context(), func() { h.end(l, time.Now()) })
}

// end ends the span. l is nil if nobody ever had the lease.
func (h *holdSpan) end(l *Lease, at time.Time) {
	h.once.Do(func() {
		reason, ctx := "lost", trace.ContextWithSpan(context.Background(), h.span)
		if l != nil {
			reason = endReason(l, h.fixed)
		}
		attrs := append(h.on.few, attrEndReason.String(reason))
		if reason == "lost" {
			attrs = append(attrs, semconv.ErrorTypeKey.String("lock_lost"))
			h.span.SetStatus(codes.Error, "lock lost")
		}
		h.span.SetAttributes(append(attrs, attrRenewals.Int64(h.renewals.Load()))...)
		h.t.meters.hold.Record(ctx, at.Sub(h.began).Seconds(), metric.WithAttributes(attrs...))
		h.t.meters.holding.Add(ctx, -1, metric.WithAttributes(h.on.few...))
		h.span.End(trace.WithTimestamp(at))
	})
}

// endReason says why a lease has ended. To expire is what one that is not renewed does.
func endReason(l *Lease, fixed bool) string {
	switch cause := context.Cause(l.Context()); {
	case fixed && errors.Is(cause, ErrExpired):
		return "expired"
	case errors.Is(cause, ErrLost):
		return "lost"
	}
	return "released"
}
