package deadlock

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/leasectx"
)

// Option changes what [New] returns.
type Option func(*hook)

// WithPause sets for how long a wait must have lasted before it is looked at: at least 1 ms. All
// programs that share locks should have the same. The default is 1 s.
func WithPause(d time.Duration) Option {
	return func(h *hook) { h.pause = max(d, time.Millisecond) }
}

// WithLogger sets the log that tells of circles. The default is [slog.Default].
func WithLogger(l *slog.Logger) Option { return func(h *hook) { h.logger = l } }

// WithMeterProvider sets where the counter holdfast.deadlocks goes. The default is
// [otel.GetMeterProvider].
func WithMeterProvider(p metric.MeterProvider) Option { return func(h *hook) { h.meters = p } }

// New returns a hook that finds circles of waits for locks, for [holdfast.Client.AddHook] of the
// same client. Add it after a tracing hook, if there is one: then the span of the acquisition that
// is ended has an event holdfast.deadlock. The counter holdfast.deadlocks counts circles that this
// client has ended, with the attribute holdfast.primitive.
func New(locks *holdfast.Client, opts ...Option) holdfast.Hook {
	h := &hook{locks: locks, pause: time.Second}
	for _, o := range opts {
		o(h)
	}
	if h.logger == nil {
		h.logger = slog.Default()
	}
	if h.meters == nil {
		h.meters = otel.GetMeterProvider()
	}
	var err error
	h.count, err = h.meters.Meter("github.com/holdfast-go/holdfast/deadlock").Int64Counter("holdfast.deadlocks",
		metric.WithUnit("{deadlock}"), metric.WithDescription("Circles of waits for locks that were ended."))
	if err != nil {
		otel.Handle(err)
	}
	for _, kind := range []driver.Kind{driver.Mutex, driver.RWMutex} {
		h.count.Add(context.Background(), 0, primitive(kind)) // so that an increase shows the first one, too
	}
	h.watches.New = func() any { return &watch{hook: h, interrupt: make(chan error, 1)} }
	return h
}

func primitive(kind driver.Kind) metric.MeasurementOption {
	return metric.WithAttributes(attribute.String("holdfast.primitive", string(kind)))
}

type hook struct {
	holdfast.HookBase
	locks  *holdfast.Client
	pause  time.Duration
	logger *slog.Logger
	meters metric.MeterProvider
	count  metric.Int64Counter

	seeing  atomic.Bool // the store shows tags
	blind   atomic.Bool // it does not
	denied  atomic.Bool // it was said that a right is missing
	watches sync.Pool   // of those whose waits were short
}

// AcquireHook implements [holdfast.Hook].
func (h *hook) AcquireHook(next holdfast.AcquireFunc) holdfast.AcquireFunc {
	return func(ctx context.Context, op *holdfast.AcquireOp) (*holdfast.Lease, error) {
		held := leasectx.Of(ctx)
		if held == nil || !op.Wait || op.Attach || op.Steal || op.Kind == driver.Semaphore || h.blind.Load() {
			return next(ctx, op)
		}
		w := h.watches.Get().(*watch)
		w.begin(ctx, held, op)
		defer w.end(op)
		lease, err := next(ctx, op)
		if told := w.told.Load(); told != nil && errors.Is(err, told) {
			h.report(ctx, op.Kind, told)
		}
		return lease, err
	}
}

// report tells of a circle that has ended a wait here.
func (h *hook) report(ctx context.Context, kind driver.Kind, circle *Error) {
	h.logger.WarnContext(ctx, "holdfast: deadlock", "kind", string(kind), "lock", circle.Circle[0].WaitsFor.Name,
		"members", len(circle.Circle), "circle", circle.Error())
	trace.SpanFromContext(ctx).AddEvent("holdfast.deadlock", trace.WithAttributes(
		attribute.Int("holdfast.deadlock.members", len(circle.Circle)), attribute.String("holdfast.deadlock.circle", circle.Error())))
	h.count.Add(ctx, 1, primitive(kind))
}

// goBlind gives up on a store that does not show what holders say.
func (h *hook) goBlind() {
	if !h.blind.Swap(true) {
		h.logger.Warn("holdfast: the store does not show what holders wait for, so deadlocks are not found")
	}
}
