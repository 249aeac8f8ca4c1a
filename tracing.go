package holdfast

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/local"
	"github.com/holdfast-go/holdfast/internal/telemetry"
)

// The instrumentation scope of all spans and metrics.
const (
	scopeName = "github.com/holdfast-go/holdfast"
	version   = "0.1.0"
)

// tracing is a hook that makes spans and metrics.
type tracing struct {
	tracer trace.Tracer
	meters telemetry.Meters

	tracers trace.TracerProvider
	metrics metric.MeterProvider
	attrs   []attribute.KeyValue
	name    func(operation string, k driver.Kind) string
	filter  func(ctx context.Context, op *AcquireOp) bool
	class   func(name string) string
	holds   HoldSpans
	links   bool
}

var tracingDefaults = tracing{
	name: func(operation string, k driver.Kind) string { return operation + " " + string(k) },
}

// NewTracingHook returns a hook that shows in OpenTelemetry who waits, who holds, and why.
// It needs nothing but the API; without an SDK it records nothing.
//
//	locks.AddHook(holdfast.NewTracingHook())
//
// There are three spans for a lock, here named for a mutex; the other kinds are called
// rwmutex and semaphore:
//
//   - "acquire mutex" lasts from the call until the lock is held or the call fails
//   - "hold mutex" lasts from then until the lock is released or lost
//   - "release mutex" lasts while the lock is given back
//
// The context of a lease has the hold span, so work under the lock is within that span. So
// is a release whose context has no span. Renewals have no spans, see [WithBackgroundSpans].
// One that fails is an event of the hold span. By default there are hold spans only within other
// spans, see [HoldSpans].
//
// All spans have holdfast.lock.name and, for a semaphore, holdfast.permits. Spans of a
// lease that is nested in another have holdfast.reentrant, see [WithReentrancy]. The
// acquire span also has holdfast.attempts, how often the store was asked, and
// holdfast.fencing_token. If another held the lock and the store tells whose it is, see [LockError],
// holdfast.blocked_by is its text, see [WithHolder], and holdfast.blocked_by_fencing_token its
// fence. Its holdfast.wakeups.local, .notify and .poll count what woke the waiter.
// The hold span has the number of holdfast.renewals.
//
// An acquisition has the holdfast.outcome acquired, not_acquired, timeout, canceled or
// error. It is no error to miss a lock with TryLock, nor to cancel. A lease has the
// holdfast.end_reason released, lost or, if it was made [WithoutRenewal], expired. For the
// values of error.type see [LockError.ErrorType]. For the error of a hook it is the type
// that the error itself gives, or its Go type.
//
// The metrics are
//
//	holdfast.acquire.duration         s    primitive mode outcome contended error.type reentrant
//	holdfast.hold.duration            s    primitive mode end_reason error.type reentrant
//	holdfast.release.duration         s    primitive mode error.type reentrant
//	holdfast.renew.duration           s    primitive mode error.type reentrant
//	holdfast.renewal.margin           1    primitive mode reentrant
//	holdfast.renewal.delay            s
//	holdfast.renewal.failed                primitive mode reentrant
//	holdfast.lease.lost                    primitive mode reentrant
//	holdfast.wait.active                   primitive mode
//	holdfast.hold.active                   primitive mode reentrant
//	holdfast.wakeups                       source (local, notify, poll, reconnect)
//	holdfast.subscription.reconnects       reason (error, silent, mute)
//
// The failed renewals, the lost leases and the reconnects are there from the beginning, with 0: an
// alert on their increase sees the first event, too. With [WithLockClass] a class has its 0 from its
// first lease on. All are with attributes prefixed by "holdfast.", except error.type. The primitive
// is the kind of lock, and the mode is exclusive or shared. The attribute reentrant is there only if it
// is true. The reason mute is counted once, when Redis begins to keep messages back and waiters
// to poll. The name of the lock is on spans only, for there may
// be many names; see [WithLockClass]. Tokens appear nowhere.
//
// The margin is the share of its TTL that a lease had left when the store answered a renewal that the
// client sent by itself, or failed to. It is near 2/3 if all is well; at 0 the lease is lost. The delay
// is how late the timer was that has leases renewed: for so long the process had no processor, or was
// stopped. Leases are then renewed earlier by that much, up to TTL/6.
//
// A release that the store was not told of in time has an error.type, though it goes on in the
// background: others wait for the lock until then, or until its TTL is over.
func NewTracingHook(opts ...TracingOption) Hook {
	t := tracingDefaults
	t.tracers, t.metrics = otel.GetTracerProvider(), otel.GetMeterProvider()
	for _, o := range opts {
		o.applyTracing(&t)
	}
	t.tracer = t.tracers.Tracer(scopeName,
		trace.WithInstrumentationVersion(version), trace.WithSchemaURL(semconv.SchemaURL))
	t.meters = telemetry.NewMeters(t.metrics.Meter(scopeName,
		metric.WithInstrumentationVersion(version), metric.WithSchemaURL(semconv.SchemaURL)))
	for _, op := range []AcquireOp{{Kind: driver.Mutex}, {Kind: driver.RWMutex}, {Kind: driver.RWMutex, Shared: true}, {Kind: driver.Semaphore}} {
		of := metric.WithAttributes(t.few(&op)...)
		t.meters.Lost.Add(context.Background(), 0, of)
		t.meters.Unrenewed.Add(context.Background(), 0, of)
	}
	for _, reason := range []string{"error", "silent", "mute"} {
		t.reconnects(0, reason)
	}
	return &t
}

func (t *tracing) reconnects(n int64, reason string) {
	attrs := append([]attribute.KeyValue{attrReason.String(reason)}, t.attrs...)
	t.meters.Reconnects.Add(context.Background(), n, metric.WithAttributes(attrs...))
}

// Attributes of spans and metrics.
const (
	attrOperation      = attribute.Key("holdfast.operation.name")
	attrPrimitive      = attribute.Key("holdfast.primitive")
	attrMode           = attribute.Key("holdfast.mode")
	attrLockName       = attribute.Key("holdfast.lock.name")
	attrLockClass      = attribute.Key("holdfast.lock.class")
	attrPermits        = attribute.Key("holdfast.permits")
	attrOutcome        = attribute.Key("holdfast.outcome")
	attrContended      = attribute.Key("holdfast.contended")
	attrReentrant      = attribute.Key("holdfast.reentrant")
	attrAttempts       = attribute.Key("holdfast.attempts")
	attrLocal          = attribute.Key("holdfast.wakeups.local")
	attrNotify         = attribute.Key("holdfast.wakeups.notify")
	attrPoll           = attribute.Key("holdfast.wakeups.poll")
	attrBlockedBy      = attribute.Key("holdfast.blocked_by")
	attrBlockedByFence = attribute.Key("holdfast.blocked_by_fencing_token")
	attrFence          = attribute.Key("holdfast.fencing_token")
	attrEndReason      = attribute.Key("holdfast.end_reason")
	attrRenewals       = attribute.Key("holdfast.renewals")
	attrSource         = attribute.Key("holdfast.source")
	attrReason         = attribute.Key("holdfast.reason")
	attrLink           = attribute.Key("holdfast.link")
)

// AcquireHook implements [Hook].
func (t *tracing) AcquireHook(next AcquireFunc) AcquireFunc {
	return func(ctx context.Context, op *AcquireOp) (*Lease, error) {
		outer := op.Holding
		defer func() { op.Holding = outer }() // a hook around this one may use op again
		if t.filter != nil && !t.filter(ctx, op) {
			if ctx.Value(holdSpanKey{t}) != nil {
				op.Holding = func(lease context.Context, fence int64) context.Context {
					if outer != nil {
						lease = outer(lease, fence)
					}
					return t.unspanned(lease)
				}
			}
			return next(ctx, op)
		}
		asked, wakeups := op.Asked, op.Wakeups // so far, if a hook around this one tries again
		began, on := time.Now(), t.subject(op)
		waiting := on.only
		t.meters.Waiting.Add(ctx, 1, waiting)
		within, span := t.start(ctx, "acquire", on)
		var mu sync.Mutex // as next may go on when a hook inside this one has given up
		var held *holdSpan
		over := false
		op.Holding = func(lease context.Context, fence int64) context.Context {
			// To acquire and to hold are siblings. Another hook may have a span for it, too.
			lease = trace.ContextWithSpan(lease, trace.SpanFromContext(ctx))
			if outer != nil {
				lease = outer(lease, fence)
			}
			mu.Lock()
			defer mu.Unlock()
			if over {
				return t.unspanned(lease)
			}
			if held != nil {
				held.end(nil, "lost", time.Now()) // before anybody had it, so the store was asked again
			}
			if op.Reentrant || op.Attach {
				on = t.subject(op) // now we know
			}
			lease, held = t.hold(lease, on, span, op.WithoutRenewal)
			return lease
		}

		var l *Lease
		var err error = hookPanic{}
		defer func() {
			mu.Lock()
			over = true
			mu.Unlock()
			t.meters.Waiting.Add(ctx, -1, waiting)
			failed := err
			if err == nil && (l == nil || (*local.Hold)(l).Grant() == nil) {
				failed = errAcquireHook
			}
			outcome, failure := outcomeOf(ctx, failed)
			ended := append(on.few, attrOutcome.String(outcome), attrContended.Bool(op.Contended))
			if failure != "" {
				ended = append(ended, semconv.ErrorTypeKey.String(failure))
				span.SetStatus(codes.Error, failed.Error())
			}
			span.SetAttributes(append(ended, attrAttempts.Int(op.Asked-asked),
				attrLocal.Int(op.Wakeups.Local-wakeups.Local), attrNotify.Int(op.Wakeups.Notify-wakeups.Notify),
				attrPoll.Int(op.Wakeups.Poll-wakeups.Poll))...)
			if failed == nil {
				span.SetAttributes(attrFence.Int64(l.Fence()))
			}
			if op.BlockedBy != "" {
				span.SetAttributes(attrBlockedBy.String(op.BlockedBy))
			}
			if op.BlockedByFence != 0 {
				span.SetAttributes(attrBlockedByFence.Int64(op.BlockedByFence))
			}
			switch {
			case held == nil:
			case failed == nil:
				held.follow(l)
			default: // an inner hook gave the lease back, drops it or panics, or the client was closed
				held.end(nil, "released", time.Now())
			}
			t.meters.Acquire.Record(within, time.Since(began).Seconds(), metric.WithAttributes(ended...))
			for source, n := range map[string]int{
				"local": op.Wakeups.Local - wakeups.Local, "notify": op.Wakeups.Notify - wakeups.Notify,
				"poll": op.Wakeups.Poll - wakeups.Poll, "reconnect": op.Wakeups.Reconnect - wakeups.Reconnect,
			} {
				if n > 0 {
					attrs := append(t.attrs[:len(t.attrs):len(t.attrs)], attrSource.String(source))
					t.meters.Wakeups.Add(within, int64(n), metric.WithAttributes(attrs...))
				}
			}
			if t.links {
				telemetry.Link(span, op.Blockers, attrLink.String("holder"))
			}
			span.End()
		}()
		l, err = next(within, op)
		return l, err
	}
}

// ReleaseHook implements [Hook].
func (t *tracing) ReleaseHook(next ReleaseFunc) ReleaseFunc {
	return func(ctx context.Context, op *ReleaseOp) error {
		h := t.holdOf(op.Lease)
		if h == nil { // filtered
			return next(ctx, op)
		}
		began := time.Now()
		if !trace.SpanContextFromContext(ctx).IsValid() { // as in a deferred release
			ctx = trace.ContextWithSpan(ctx, trace.SpanFromContext(op.Lease.Context()))
		}
		within, span := t.start(ctx, "release", h.on)
		known := errors.Is(op.Lease.Err(), ErrLost)
		var err error = hookPanic{}
		defer func() {
			if errors.Is(err, ErrLost) && !known && errors.Is(op.Lease.Err(), ErrNotHeld) { // the release has found it
				t.meters.Lost.Add(within, 1, h.on.only)
			}
			outcome, attrs := "released", h.on.only
			if err != nil {
				failure := semconv.ErrorType(err)
				outcome, attrs = "error", metric.WithAttributes(append(h.on.few, failure)...)
				span.SetAttributes(failure)
				span.SetStatus(codes.Error, err.Error())
			}
			span.SetAttributes(attrOutcome.String(outcome))
			t.meters.Release.Record(within, time.Since(began).Seconds(), attrs)
			span.End()
			if op.Lease.Err() != nil {
				h.end(op.Lease, endReason(op.Lease, h.fixed), began)
			}
		}()
		err = next(within, op)
		return err
	}
}

// RenewHook implements [Hook].
func (t *tracing) RenewHook(next RenewFunc) RenewFunc {
	return func(ctx context.Context, op *RenewOp) []error {
		began := time.Now()
		ends := make([]time.Time, len(op.Leases)) // before they are renewed
		for i, l := range op.Leases {
			ends[i] = l.Deadline()
		}
		errs := next(ctx, op)
		if len(errs) != len(op.Leases) { // of a hook that says nothing of some
			return errs
		}
		now := time.Now()
		if op.due {
			t.meters.Delay.Record(ctx, op.late.Seconds(), metric.WithAttributes(t.attrs...))
		}
		for i, l := range op.Leases {
			h := t.holdOf(l)
			if h == nil || errs[i] != nil && errors.Is(l.Err(), ErrNotHeld) { // released meanwhile
				continue
			}
			ttl := l.hold().Options().TTL
			if op.due && !l.Deadline().After(began.Add(ttl)) { // else a later request has renewed it meanwhile
				t.meters.Margin.Record(ctx, ends[i].Sub(now).Seconds()/ttl.Seconds(), h.on.only)
			}
			h.renewed(ctx, now.Sub(began).Seconds(), errs[i])
		}
		return errs
	}
}

// MakesSpans implements [SpanHook].
func (t *tracing) MakesSpans() {}

// Reconnected implements [ReconnectHook].
func (t *tracing) Reconnected(reason string) {
	t.reconnects(1, reason)
}

// subject is which lock an operation is about, in attributes.
type subject struct {
	kind driver.Kind
	few  []attribute.KeyValue     // of which there are few, for metrics
	only metric.MeasurementOption // few and nothing else
	all  []attribute.KeyValue     // for spans
}

// few is what metrics tell of any lock.
func (t *tracing) few(op *AcquireOp) []attribute.KeyValue {
	mode := "exclusive"
	if op.Shared || op.Kind == driver.Semaphore {
		mode = "shared"
	}
	return append([]attribute.KeyValue{attrPrimitive.String(string(op.Kind)), attrMode.String(mode)}, t.attrs...)
}

func (t *tracing) subject(op *AcquireOp) subject {
	few := t.few(op)
	if t.class != nil {
		few = append(few, attrLockClass.String(t.class(op.Name)))
	}
	if op.Reentrant {
		few = append(few, attrReentrant.Bool(true))
	}
	all := append(few[:len(few):len(few)], attrLockName.String(op.Name))
	if op.Weight > 0 { // which is not known before a lease is attached
		all = append(all, attrPermits.Int64(op.Weight))
	}
	return subject{op.Kind, few[:len(few):len(few)], metric.WithAttributes(few...), all}
}

func (t *tracing) start(ctx context.Context, operation string, on subject, opts ...trace.SpanStartOption) (context.Context, trace.Span) {
	attrs := append([]attribute.KeyValue{attrOperation.String(operation)}, on.all...)
	return t.tracer.Start(ctx, t.name(operation, on.kind), append(opts, trace.WithAttributes(attrs...))...)
}

// hookPanic is told as the error of a hook that does not return.
type hookPanic struct{}

func (hookPanic) Error() string     { return "holdfast: a hook panics" }
func (hookPanic) ErrorType() string { return "panic" }

// outcomeOf returns how an acquisition ended, and the type of the error if it failed. A
// lock that another holds is an answer, and a cancellation is a decision of the caller: no
// failures.
func outcomeOf(ctx context.Context, err error) (outcome, failure string) {
	if err == nil {
		return "acquired", ""
	}
	if ctx.Err() == context.Canceled && errors.Is(err, context.Canceled) {
		return "canceled", "" // although the cause may be an error of this package
	}
	switch failure = semconv.ErrorType(err).Value.AsString(); failure {
	case "locked":
		return "not_acquired", ""
	case "canceled":
		return "canceled", ""
	case "timeout":
		return "timeout", failure
	}
	return "error", failure
}

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

// unspanned returns the context for a lease that is not seen. That from which it was made may be the context of another
// lease, which is.
func (t *tracing) unspanned(lease context.Context) context.Context {
	if lease.Value(holdSpanKey{t}) == nil {
		return lease
	}
	return context.WithValue(lease, holdSpanKey{t}, (*holdSpan)(nil))
}

// hold begins the span of a lease, linked to that of its acquisition, and returns the
// context for the lease.
func (t *tracing) hold(lease context.Context, on subject, acquired trace.Span, fixed bool) (context.Context, *holdSpan) {
	h := &holdSpan{t: t, on: on, fixed: fixed, span: trace.SpanFromContext(context.Background()), began: time.Now()}
	if t.holds == HoldSpansAlways || t.holds == HoldSpansParented && trace.SpanFromContext(lease).IsRecording() {
		lease, h.span = t.start(lease, "hold", on, trace.WithLinks(trace.Link{SpanContext: acquired.SpanContext()}))
	}
	if t.links && h.span.SpanContext().IsValid() {
		lease = WithHolderTag(lease, telemetry.Traceparent(lease))
	}
	t.meters.Holding.Add(lease, 1, on.only)
	if t.class != nil { // so that they are there before their first event
		t.meters.Lost.Add(lease, 0, on.only)
		t.meters.Unrenewed.Add(lease, 0, on.only)
	}
	return context.WithValue(lease, holdSpanKey{t}, h), h
}

// renewed notes a renewal, or that one failed.
func (h *holdSpan) renewed(ctx context.Context, seconds float64, err error) {
	attrs := h.on.only
	if err == nil {
		h.renewals.Add(1)
	} else {
		failure := semconv.ErrorType(&LockError{Err: err})
		attrs = metric.WithAttributes(append(h.on.few, failure)...)
		h.span.AddEvent("renewal failed", trace.WithAttributes(failure))
		h.t.meters.Unrenewed.Add(ctx, 1, h.on.only)
	}
	h.t.meters.Renew.Record(ctx, seconds, attrs)
}

// follow ends the span when the lease ends, if nothing ends it before.
func (h *holdSpan) follow(l *Lease) {
	l.hold().AfterEnd(func(at time.Time) { h.end(l, endReason(l, h.fixed), at) })
}

// end ends the span. l is nil if nobody ever had the lease.
func (h *holdSpan) end(l *Lease, reason string, at time.Time) {
	h.once.Do(func() {
		ctx := trace.ContextWithSpan(context.Background(), h.span)
		attrs := append(h.on.few, attrEndReason.String(reason))
		if reason == "lost" {
			attrs = append(attrs, semconv.ErrorTypeKey.String("lock_lost"))
			h.span.SetStatus(codes.Error, "lock lost")
			if l != nil {
				h.t.meters.Lost.Add(ctx, 1, h.on.only)
			}
		}
		h.span.SetAttributes(append(attrs, attrRenewals.Int64(h.renewals.Load()))...)
		h.t.meters.Hold.Record(ctx, at.Sub(h.began).Seconds(), metric.WithAttributes(attrs...))
		h.t.meters.Holding.Add(ctx, -1, h.on.only)
		h.span.End(trace.WithTimestamp(at))
	})
}

// endReason says why a lease has ended. Only a lease that is not renewed expires.
func endReason(l *Lease, fixed bool) string {
	switch cause := context.Cause(l.Context()); {
	case fixed && errors.Is(cause, ErrExpired):
		return "expired"
	case errors.Is(cause, ErrLost):
		return "lost"
	}
	return "released"
}

// TracingOption changes what [NewTracingHook] makes.
type TracingOption interface{ applyTracing(*tracing) }

type tracingOption func(*tracing)

func (f tracingOption) applyTracing(t *tracing) { f(t) }

// HoldSpans says which leases have a span from grant to end.
type HoldSpans int

// When there is a span for a lease. A lease that is held for days, such as that of a
// leader, is not seen until it ends, and never if its process crashes.
const (
	HoldSpansParented HoldSpans = iota // if it was acquired within a span that is recorded
	HoldSpansAlways
	HoldSpansNever
)

// WithTracerProvider sets where spans come from. The default is the global provider.
func WithTracerProvider(p trace.TracerProvider) TracingOption {
	return tracingOption(func(t *tracing) { t.tracers = p })
}

// WithMeterProvider sets where metrics come from. The default is the global provider.
func WithMeterProvider(p metric.MeterProvider) TracingOption {
	return tracingOption(func(t *tracing) { t.metrics = p })
}

// WithAttributes adds attributes to all spans and metrics. Attributes of earlier calls stay.
// The default is none.
func WithAttributes(attrs ...attribute.KeyValue) TracingOption {
	return tracingOption(func(t *tracing) { t.attrs = append(t.attrs, attrs...) })
}

// WithSpanNameFormatter sets how spans are named; operation is acquire, hold or release.
// There should be few names. The default is "operation kind".
func WithSpanNameFormatter(f func(operation string, k driver.Kind) string) TracingOption {
	return tracingOption(func(t *tracing) { t.name = f })
}

// WithFilter limits tracing and metrics to acquisitions for which f returns true, with their
// holds, renewals and releases. f is called before next, and only then. The default is all.
func WithFilter(f func(ctx context.Context, op *AcquireOp) bool) TracingOption {
	return tracingOption(func(t *tracing) { t.filter = f })
}

// WithLockClass adds the attribute holdfast.lock.class to spans, and to the metrics that
// have the attribute mode, see [NewTracingHook]. f derives the class from the name of the lock. There should be few classes,
// such as "orders" for "orders:42". The default is none.
func WithLockClass(f func(name string) string) TracingOption {
	return tracingOption(func(t *tracing) { t.class = f })
}

// WithHoldSpans sets which leases have a hold span. The default is [HoldSpansParented].
func WithHoldSpans(h HoldSpans) TracingOption {
	return tracingOption(func(t *tracing) { t.holds = h })
}

// WithHolderLinks links the acquire span of a waiter to the hold spans of the holders
// meanwhile, including in other processes. At most 8 holders that the waiter heard
// of are linked. A link has the attribute holdfast.link, "holder".
//
// For the links, the traceparent of a hold span, and nothing else, is stored with the lock.
// A lease that is held for more than 10 ms costs one more command for that, an early
// renewal. Leases made [WithoutRenewal] tell their traceparent only with [Lease.Renew] and
// when they are released. Leases without a hold span cannot be linked to. The default is no
// links.
func WithHolderLinks() TracingOption {
	return tracingOption(func(t *tracing) { t.links = true })
}
