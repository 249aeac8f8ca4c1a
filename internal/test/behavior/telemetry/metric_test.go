package telemetry_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/instrumentation"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/metric/metricdata/metricdatatest"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/test/behavior/lab"
)

var scope = instrumentation.Scope{Name: "github.com/holdfast-go/holdfast", Version: "0.1.0", SchemaURL: semconv.SchemaURL}

// everyMetric has all instruments, with the series of one that waited once, was woken in
// each way, and renewed.
func everyMetric() []metricdata.Metrics {
	word := func(key, value string) attribute.KeyValue { return attribute.String("holdfast."+key, value) }
	duration := func(name, description string, attrs ...attribute.KeyValue) metricdata.Metrics {
		return metricdata.Metrics{Name: "holdfast." + name, Unit: "s", Description: description, Data: metricdata.Histogram[float64]{
			Temporality: metricdata.CumulativeTemporality,
			DataPoints:  []metricdata.HistogramDataPoint[float64]{{Attributes: attribute.NewSet(attrs...)}},
		}}
	}
	sum := func(name, unit, description string, monotonic bool, series ...attribute.Set) metricdata.Metrics {
		data := metricdata.Sum[int64]{Temporality: metricdata.CumulativeTemporality, IsMonotonic: monotonic}
		for _, s := range series {
			data.DataPoints = append(data.DataPoints, metricdata.DataPoint[int64]{Attributes: s})
		}
		return metricdata.Metrics{Name: "holdfast." + name, Unit: unit, Description: description, Data: data}
	}
	primitive, mode, reader := word("primitive", "mutex"), word("mode", "exclusive"), word("mode", "shared")
	lock := attribute.NewSet(primitive, mode)
	of := func(key, value string) attribute.Set { return attribute.NewSet(word(key, value)) }
	each := []attribute.Set{lock, attribute.NewSet(word("primitive", "rwmutex"), mode),
		attribute.NewSet(word("primitive", "rwmutex"), reader), attribute.NewSet(word("primitive", "semaphore"), reader)}
	margin := duration("renewal.margin", "Share of its TTL that a lease had left when a renewal was answered.", primitive, mode)
	margin.Unit = "1"
	return []metricdata.Metrics{
		duration("acquire.duration", "Time from asking for a lock to having it, or not.",
			primitive, mode, word("outcome", "acquired"), attribute.Bool("holdfast.contended", true)),
		duration("hold.duration", "Time from having a lock to its release or loss.", primitive, mode, word("end_reason", "released")),
		duration("release.duration", "Time to give a lock back, or to fail to.", primitive, mode),
		duration("renew.duration", "Time of the call that renewed a lease. A call for many leases counts once for each.", primitive, mode),
		duration("renewal.delay", "How late the timer was that renews leases."),
		margin,
		sum("wait.active", "{waiter}", "Calls that are acquiring a lock.", false, lock),
		sum("hold.active", "{lease}", "Leases that are held.", false, lock),
		sum("wakeups", "{wakeup}", "Times that a waiter was woken, by source.", true,
			of("source", "local"), of("source", "notify"), of("source", "poll"), of("source", "reconnect")),
		sum("subscription.reconnects", "{reconnect}", "Times that the subscription to wake-ups was lost.", true,
			of("reason", "error"), of("reason", "silent"), of("reason", "mute")),
		sum("lease.lost", "{lease}", "Leases that ended before they were released.", true, each...),
		sum("renewal.failed", "{renewal}", "Renewals that the store did not carry out.", true, each...),
	}
}

// buckets are the boundaries, in seconds but for the margin. Those that OpenTelemetry has by default
// are for milliseconds.
var buckets = map[string][]float64{
	"holdfast.acquire.duration": {.0005, .001, .005, .01, .05, .1, .5, 1, 2.5, 5, 10, 30, 60, 300},
	"holdfast.hold.duration":    {.0005, .001, .01, .1, .5, 1, 2.5, 5, 10, 30, 60, 300, 900, 3600},
	"holdfast.release.duration": {.0005, .001, .005, .01, .05, .1, .5, 1, 2.5, 5, 10},
	"holdfast.renew.duration":   {.0005, .001, .005, .01, .05, .1, .5, 1, 2.5, 5, 10},
	"holdfast.renewal.delay":    {.0005, .001, .005, .01, .05, .1, .5, 1, 2.5, 5, 10},
	"holdfast.renewal.margin":   {0, .1, .2, .3, .4, .5, .6},
}

// wakeInEveryWay is the acquire of a puppet that is woken in each way, and then granted
// the lock.
func wakeInEveryWay() func(*driver.Request) (driver.Grant, error) {
	return func(r *driver.Request) (driver.Grant, error) {
		switch r.Ask {
		case 1:
			go r.Wake(driver.Grant{Status: driver.Queued, Reconnect: true})
		case 2:
			return driver.Grant{Status: driver.Queued, RetryAfter: time.Millisecond}, nil
		case 3:
			go r.Wake(driver.Grant{Status: driver.Granted, Ask: 3, Fence: 1})
		}
		return driver.Grant{Status: driver.Queued}, nil
	}
}

func TestMetricsAreAsDocumented(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newTelemetry(t)
		var lost func(reason string)
		c := holdfast.Open(lab.Puppet{OnAcquire: wakeInEveryWay(), OnReport: func(f func(string)) { lost = f }})
		c.AddHook(e.hook)
		l, err := c.Mutex("x").Lease(t.Context())
		require.NoError(t, err)
		time.Sleep(15 * time.Second) // it is renewed
		next := make(chan *holdfast.Lease)
		go func() { l, _ := c.Mutex("x").Lease(t.Context()); next <- l }()
		synctest.Wait()
		require.NoError(t, l.Release(t.Context()))
		require.NoError(t, (<-next).Release(t.Context()))
		require.NoError(t, c.Close())
		lost("silent")

		got := e.scope()
		metricdatatest.AssertEqual(t, metricdata.ScopeMetrics{
			Scope:   scope,
			Metrics: everyMetric(),
		}, got, metricdatatest.IgnoreTimestamp(), metricdatatest.IgnoreExemplars(), metricdatatest.IgnoreValue())
		for _, m := range got.Metrics {
			if h, ok := m.Data.(metricdata.Histogram[float64]); ok {
				assert.Equal(t, buckets[m.Name], h.DataPoints[0].Bounds, m.Name)
			}
		}
		series := e.counted()
		for _, source := range []string{"local", "notify", "poll", "reconnect"} {
			assert.Positive(t, series["wakeups source="+source], source)
		}
		assert.EqualValues(t, 1, series["subscription.reconnects reason=silent"])
	})
}

// An alert on the increase of a counter needs it to be there before its first event.
func TestCountersOfTroubleAreThereFromTheBeginning(t *testing.T) {
	e := newTelemetry(t)
	there := map[string]int64{}
	for _, m := range e.scope().Metrics {
		for _, p := range m.Data.(metricdata.Sum[int64]).DataPoints {
			there[strings.TrimPrefix(m.Name, "holdfast.")+" "+encode(&p.Attributes)] = p.Value
		}
	}
	want := map[string]int64{}
	for _, name := range []string{"lease.lost mode=", "renewal.failed mode="} {
		for _, kind := range []string{"exclusive primitive=mutex", "exclusive primitive=rwmutex", "shared primitive=rwmutex", "shared primitive=semaphore"} {
			want[name+kind] = 0
		}
	}
	for _, reason := range []string{"error", "silent", "mute"} {
		want["subscription.reconnects reason="+reason] = 0
	}
	require.Equal(t, want, there)

	c := lab.WithPuppet(t, lab.Puppet{OnRenew: func(context.Context, []driver.Lease) []error {
		return []error{driver.ErrNotHeld}
	}}, e.hook)
	l, err := c.RWMutex("x").Lease(t.Context())
	require.NoError(t, err)
	require.ErrorIs(t, l.Renew(t.Context()), holdfast.ErrLost)
	require.ErrorIs(t, l.Release(t.Context()), holdfast.ErrLost) // and all is counted
	series := e.counted()
	require.EqualValues(t, 1, series["lease.lost mode=exclusive primitive=rwmutex"])
	require.EqualValues(t, 1, series["renewal.failed mode=exclusive primitive=rwmutex"])
	require.Zero(t, series["lease.lost mode=exclusive primitive=mutex"])
}

// Durations are in seconds. The time that the store takes to renew is that of the renewal; the time that
// it takes to release is not part of the hold.
func TestTimeOfTheStoreIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newTelemetry(t, holdfast.WithHoldSpans(holdfast.HoldSpansAlways))
		c := holdfast.Open(lab.Puppet{
			OnAcquire: func(r *driver.Request) (driver.Grant, error) {
				time.Sleep(3 * time.Second)
				return lab.Instant{}.Acquire(t.Context(), r)
			},
			OnRenew:   func(context.Context, []driver.Lease) []error { time.Sleep(2 * time.Second); return []error{nil} },
			OnRelease: func(driver.Lease) error { time.Sleep(5 * time.Second); return nil },
		}, holdfast.WithTTL(lab.Ages))
		c.AddHook(e.hook)
		cycle(t, t.Context(), c, "x")
		for name, want := range map[string]float64{"acquire": 3, "renew": 2, "hold": 2} {
			sum := e.metric("holdfast." + name + ".duration").Data.(metricdata.Histogram[float64]).DataPoints[0].Sum
			assert.InDelta(t, want, sum, .001, name)
		}
		for name, want := range map[string]time.Duration{"acquire": 3 * time.Second, "hold": 2 * time.Second, "release": 5 * time.Second} {
			s := e.ended(name + " mutex")
			assert.Equal(t, want, s.EndTime().Sub(s.StartTime()), name)
		}
		require.NoError(t, c.Close())
	})
}

// A lease that could not be renewed is lost, and did not just expire. Every renewal that
// failed is told.
func TestLossForWantOfRenewalIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newTelemetry(t, holdfast.WithHoldSpans(holdfast.HoldSpansAlways))
		failed := 0
		c := holdfast.Open(lab.Puppet{OnRenew: func(_ context.Context, leases []driver.Lease) []error {
			failed++
			return []error{driver.ErrTransient}
		}}, holdfast.WithTTL(3*time.Second))
		c.AddHook(e.hook)
		l, err := c.Mutex("x").Lease(t.Context())
		require.NoError(t, err)
		<-l.Done()
		synctest.Wait()
		hold := e.ended("hold mutex")
		assert.Equal(t, "end_reason=lost error.type=lock_lost renewals=0", plain(hold, "operation.name", "primitive", "mode", "lock.name"))
		assert.Equal(t, codes.Error, hold.Status().Code)
		assert.InDelta(t, 3, hold.EndTime().Sub(hold.StartTime()).Seconds(), .1)
		require.Positive(t, failed)
		assert.Len(t, hold.Events(), failed)
		assert.EqualValues(t, failed, e.counted()["renew.duration error.type=unavailable mode=exclusive primitive=mutex"])
		require.NoError(t, c.Close())
	})
}

// active returns how many wait and hold.
func (e *telemetry) active() map[string]int64 {
	e.t.Helper()
	values := map[string]int64{}
	for _, m := range e.scope().Metrics {
		if strings.HasSuffix(m.Name, ".active") {
			values[m.Name] = m.Data.(metricdata.Sum[int64]).DataPoints[0].Value
		}
	}
	return values
}

// Waits and holds are counted while they last.
func TestWhoWaitsAndWhoHoldsIsCounted(t *testing.T) {
	e := newTelemetry(t)
	now := make(chan map[string]int64, 1)
	c := lab.WithPuppet(t, lab.Puppet{OnAcquire: func(r *driver.Request) (driver.Grant, error) {
		now <- e.active()
		return lab.Instant{}.Acquire(t.Context(), r)
	}}, e.hook)
	l, err := c.Mutex("x").Lease(t.Context())
	require.NoError(t, err)
	assert.Equal(t, map[string]int64{"holdfast.wait.active": 1}, <-now)
	assert.Equal(t, map[string]int64{"holdfast.wait.active": 0, "holdfast.hold.active": 1}, e.active())
	require.NoError(t, l.Release(t.Context()))
	assert.Equal(t, map[string]int64{"holdfast.wait.active": 0, "holdfast.hold.active": 0}, e.active())
}

// Exemplars lead from a metric to the span that it was recorded in.
func TestExemplarsNameTheSpan(t *testing.T) {
	e := newTelemetry(t, holdfast.WithHoldSpans(holdfast.HoldSpansAlways))
	c := lab.WithPuppet(t, lab.Puppet{}, e.hook)
	l, err := c.Mutex("x").Lease(t.Context())
	require.NoError(t, err)
	require.NoError(t, l.Release(t.Context()))
	for metric, span := range map[string]string{"holdfast.acquire.duration": "acquire mutex", "holdfast.hold.duration": "hold mutex"} {
		exemplars := e.metric(metric).Data.(metricdata.Histogram[float64]).DataPoints[0].Exemplars
		require.Len(t, exemplars, 1, metric)
		id := e.ended(span).SpanContext().SpanID()
		assert.Equal(t, id[:], exemplars[0].SpanID, metric)
	}
}
