package telemetry

import (
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
)

// Meters are the instruments of a tracing hook.
type Meters struct {
	Acquire, Hold, Renew metric.Float64Histogram
	Waiting, Holding     metric.Int64UpDownCounter
	Wakeups, Reconnects  metric.Int64Counter
	Lost, Unrenewed      metric.Int64Counter
}

// NewMeters makes the instruments.
func NewMeters(m metric.Meter) Meters {
	return Meters{
		Acquire: durations(m, "holdfast.acquire.duration", "Time from asking for a lock to having it, or not.",
			.001, .005, .01, .05, .1, .5, 1, 5, 10, 30, 60, 300),
		Hold: durations(m, "holdfast.hold.duration", "Time from having a lock to its release or loss.",
			.001, .01, .1, .5, 1, 5, 10, 30, 60, 300, 900, 3600),
		Renew: durations(m, "holdfast.renew.duration", "Time to renew a lease.",
			.001, .005, .01, .05, .1, .5, 1, 5, 10),
		Waiting: must(m.Int64UpDownCounter("holdfast.wait.active",
			metric.WithUnit("{waiter}"), metric.WithDescription("Calls that are acquiring a lock."))),
		Holding: must(m.Int64UpDownCounter("holdfast.hold.active",
			metric.WithUnit("{lock}"), metric.WithDescription("Leases that are held."))),
		Wakeups: must(m.Int64Counter("holdfast.wakeups",
			metric.WithUnit("{wakeup}"), metric.WithDescription("Times that a waiter was woken, by source."))),
		Reconnects: must(m.Int64Counter("holdfast.subscription.reconnects",
			metric.WithUnit("{reconnect}"), metric.WithDescription("Times that the subscription to wake-ups was lost."))),
		Lost: must(m.Int64Counter("holdfast.leases.lost",
			metric.WithUnit("{lease}"), metric.WithDescription("Leases that ended before they were released."))),
		Unrenewed: must(m.Int64Counter("holdfast.renewals.failed",
			metric.WithUnit("{renewal}"), metric.WithDescription("Renewals that the store did not carry out."))),
	}
}

func durations(m metric.Meter, name, description string, buckets ...float64) metric.Float64Histogram {
	return must(m.Float64Histogram(name, metric.WithUnit("s"),
		metric.WithDescription(description), metric.WithExplicitBucketBoundaries(buckets...)))
}

// must reports an error where the errors of OpenTelemetry go. The instrument works, or does
// nothing.
func must[T any](instrument T, err error) T {
	if err != nil {
		otel.Handle(err)
	}
	return instrument
}
