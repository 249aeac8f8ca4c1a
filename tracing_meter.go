package holdfast

import (
	"context"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// meters are the instruments of a tracing hook.
type meters struct {
	acquire, hold, renew metric.Float64Histogram
	waiting, holding     metric.Int64UpDownCounter
	wakeups, reconnects  metric.Int64Counter
}

func newMeters(m metric.Meter) meters {
	return meters{
		acquire: durations(m, "holdfast.acquire.duration", "Time from asking for a lock to having it, or not.",
			.001, .005, .01, .05, .1, .5, 1, 5, 10, 30, 60, 300),
		hold: durations(m, "holdfast.hold.duration", "Time from having a lock to its release or loss.",
			.001, .01, .1, .5, 1, 5, 10, 30, 60, 300, 900, 3600),
		renew: durations(m, "holdfast.renew.duration", "Time to renew a lease.",
			.001, .005, .01, .05, .1, .5, 1, 5, 10),
		waiting: must(m.Int64UpDownCounter("holdfast.wait.active",
			metric.WithUnit("{waiter}"), metric.WithDescription("Calls that are acquiring a lock."))),
		holding: must(m.Int64UpDownCounter("holdfast.hold.active",
			metric.WithUnit("{lock}"), metric.WithDescription("Leases that are held."))),
		wakeups: must(m.Int64Counter("holdfast.wakeups",
			metric.WithUnit("{wakeup}"), metric.WithDescription("Times that a waiter was woken, by source."))),
		reconnects: must(m.Int64Counter("holdfast.subscription.reconnects",
			metric.WithUnit("{reconnect}"), metric.WithDescription("Times that the subscription to wake-ups was lost."))),
	}
}

func durations(m metric.Meter, name, description string, buckets ...float64) metric.Float64Histogram {
	return must(m.Float64Histogram(name, metric.WithUnit("s"),
		metric.WithDescription(description), metric.WithExplicitBucketBoundaries(buckets...)))
}

// must reports an error where those of OpenTelemetry go. The instrument works, or does
// nothing.
func must[T any](instrument T, err error) T {
	if err != nil {
		otel.Handle(err)
	}
	return instrument
}

// wake counts what woke a waiter.
func (m *meters) wake(ctx context.Context, w Wakeups, attrs []attribute.KeyValue) {
	for source, n := range map[string]int{"notify": w.Notify, "poll": w.Poll, "reconnect": w.Reconnect} {
		if n > 0 {
			m.wakeups.Add(ctx, int64(n), metric.WithAttributes(append(attrs[:len(attrs):len(attrs)], attrSource.String(source))...))
		}
	}
}
