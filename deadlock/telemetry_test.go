package deadlock_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/deadlock"
)

// counted is the counter, by kind of lock.
func counted(t *testing.T, reader metric.Reader) map[string]int64 {
	var all metricdata.ResourceMetrics
	require.NoError(t, reader.Collect(t.Context(), &all))
	counts := map[string]int64{}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			require.Equal(t, "holdfast.deadlocks", m.Name)
			for _, p := range m.Data.(metricdata.Sum[int64]).DataPoints {
				kind, _ := p.Attributes.Value("holdfast.primitive")
				counts[kind.AsString()] = p.Value
			}
		}
	}
	return counts
}

func TestSpanAndCounterOfTheVictimTellOfTheCircle(t *testing.T) {
	bubble(t, func(tn *town) {
		reader, spans := metric.NewManualReader(), tracetest.NewSpanRecorder()
		meters := metric.NewMeterProvider(metric.WithReader(reader))
		process := func(name string) *holdfast.Client {
			c := holdfast.Open(tn.store, holdfast.WithHolder(name))
			tn.Cleanup(func() { _ = c.Close() })
			c.AddHook(holdfast.NewTracingHook(
				holdfast.WithTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))),
				holdfast.WithMeterProvider(metric.NewMeterProvider())))
			c.AddHook(deadlock.New(c, deadlock.WithPause(pause), deadlock.WithMeterProvider(meters)))
			return c
		}
		a, b := process("first"), process("victim")
		assert.Equal(t, map[string]int64{"mutex": 0, "rwmutex": 0}, counted(t, reader), "so that an increase shows the first one")
		errs, _ := circle(tn, []take{a.Mutex("a").Do, b.Mutex("b").Do}, []take{a.Mutex("b").Do, b.RWMutex("x").Do}, time.Millisecond)
		require.NoError(t, errs[0])
		require.NoError(t, errs[1], "no circle yet")
		errs, _ = circle(tn, []take{a.RWMutex("a").Do, b.Mutex("b").Do}, []take{a.Mutex("b").Do, b.RWMutex("a").RDo}, time.Millisecond)
		require.NoError(t, errs[0])
		require.ErrorIs(t, errs[1], holdfast.ErrDeadlock)
		assert.Equal(t, map[string]int64{"mutex": 0, "rwmutex": 1}, counted(t, reader))

		var events []attribute.Set
		for _, s := range spans.Ended() {
			for _, e := range s.Events() {
				require.Equal(t, "holdfast.deadlock", e.Name)
				assert.Equal(t, "acquire rwmutex", s.Name())
				assert.Equal(t, codes.Error, s.Status().Code)
				set := attribute.NewSet(s.Attributes()...)
				by, _ := set.Value("holdfast.blocked_by")
				assert.Equal(t, "first", by.AsString())
				kind, _ := set.Value("error.type")
				assert.Equal(t, "deadlock", kind.AsString())
				events = append(events, attribute.NewSet(e.Attributes...))
			}
		}
		require.Len(t, events, 1)
		members, _ := events[0].Value("holdfast.deadlock.members")
		assert.EqualValues(t, 2, members.AsInt64())
		text, _ := events[0].Value("holdfast.deadlock.circle")
		assert.Contains(t, text.AsString(), `"victim" waits`)
		assert.Contains(t, text.AsString(), `"first" waits`)
	})
}
