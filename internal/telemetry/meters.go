package telemetry

import (
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
)

// Meters are the instruments of a tracing hook.
type Meters struct {
	Acquire, Hold, Release, Renew metric.Float64Histogram
	Delay, Margin                 metric.Float64Histogram // of renewals
	Waiting, Holding              metric.Int64UpDownCounter
	Wakeups, Reconnects           metric.Int64Counter
	Lost, Unrenewed               metric.Int64Counter
}

// NewMeters makes the instruments.
func NewMeters(m metric.Meter) Meters {
	return Meters{
		Acquire: durations(m, "holdfast.acquire.duration", "Time from asking for a lock to having it, or not.",
			.0005, .001, .005, .01, .05, .1, .5, 1, 2.5, 5, 10, 30, 60, 300),
		Hold: durations(m, "holdfast.hold.duration", "Time from having a lock to its release or loss.",
			.0005, .001, .01, .1, .5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600),
		Release: durations(m, "holdfast.release.duration", "Time to give a lock back, or to fail to.", brief...),
		Renew: durations(m, "holdfast.renew.duration",
			"Time of the call that renewed a lease. A call for many leases counts once for each.", brief...),
		Delay: durations(m, "holdfast.renewal.delay", "How late the timer was that renews leases.", brief...),
		Margin: must(m.Float64Histogram("holdfast.renewal.margin", metric.WithUnit("1"),
			metric.WithDescription("Share of its TTL that a lease had left when a renewal was answered."),
			metric.WithExplicitBucketBoundaries(0, .1, .2, .3, .4, .5, .6))),
		Waiting: must(m.Int64UpDownCounter("holdfast.wait.active",
			metric.WithUnit("{waiter}"), metric.WithDescription("Calls that are acquiring a lock."))),
		Holding: must(m.Int64UpDownCounter("holdfast.hold.active",
			metric.WithUnit("{lease}"), metric.WithDescription("Leases that are held."))),
		Wakeups: must(m.Int64Counter("holdfast.wakeups",
			metric.WithUnit("{wakeup}"), metric.WithDescription("Times that a waiter was woken, by source."))),
		Reconnects: must(m.Int64Counter("holdfast.subscription.reconnects",
			metric.WithUnit("{reconnect}"), metric.WithDescription("Times that the subscription to wake-ups was lost."))),
		Lost: must(m.Int64Counter("holdfast.lease.lost",
			metric.WithUnit("{lease}"), metric.WithDescription("Leases that ended before they were released."))),
		Unrenewed: must(m.Int64Counter("holdfast.renewal.failed",
			metric.WithUnit("{renewal}"), metric.WithDescription("Renewals that the store did not carry out."))),
	}
}

// brief are the buckets of what takes one command, in seconds.
var brief = []float64{.0005, .001, .005, .01, .05, .1, .5, 1, 2.5, 5, 10}

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
