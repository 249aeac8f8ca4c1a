//go:build unix

package telemetry_test

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/test/behavior/lab"
	"github.com/holdfast-go/holdfast/internal/test/crew"
)

func init() {
	crew.Register("tracer", traceAndContend)
	crew.Register("late", contendLate)
}

// contendLate is a contender that tells how late its timer was at most, in seconds.
func contendLate() {
	reader := sdkmetric.NewManualReader()
	lab.Contend(func() []string {
		var all metricdata.ResourceMetrics
		if err := reader.Collect(context.Background(), &all); err != nil {
			panic(err)
		}
		for _, scope := range all.ScopeMetrics {
			for _, m := range scope.Metrics {
				if m.Name == "holdfast.renewal.delay" {
					most, _ := m.Data.(metricdata.Histogram[float64]).DataPoints[0].Max.Value()
					return []string{fmt.Sprint(most)}
				}
			}
		}
		return []string{"0"}
	}, holdfast.NewTracingHook(holdfast.WithMeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)))))
}

// A process that gets no processor tells in a metric how late it was, also if a lease is lost by that.
func TestLateProcessTellsIt(t *testing.T) {
	t.Parallel()
	for name, stopped := range map[string]time.Duration{"renewed in time": 3 * time.Second, "lost": 7 * time.Second} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const ttl = 6 * time.Second // so its timer fires every 2 s
			a := lab.NewArena(t, ttl)
			c := a.ContendersAs("late", a.Server, 1)[0]
			c.Lease("x")
			c.Pause()
			time.Sleep(stopped)
			c.Resume()
			c.Lease("y")
			told, want := 0.0, (stopped-ttl/3).Seconds()-.01
			for began := time.Now(); told < want && time.Since(began) < lab.Patience; time.Sleep(100 * time.Millisecond) {
				c.Tell(lab.Order{Do: "spans"})
				var err error
				told, err = strconv.ParseFloat(c.Expect("spans", "").Is[0], 64)
				require.NoError(t, err)
			}
			require.GreaterOrEqual(t, told, want, "FOUL: nobody knows that it was late")
		})
	}
}

// traceAndContend is a contender with a tracing hook.
func traceAndContend() {
	spans := tracetest.NewSpanRecorder()
	lab.Contend(func() []string { return linkedSpans(spans) },
		holdfast.NewTracingHook(holdfast.WithHolderLinks(), holdfast.WithHoldSpans(holdfast.HoldSpansAlways),
			holdfast.WithTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)))))
}

// linkedSpans tells each span: its operation, its ids, and those of its links.
func linkedSpans(spans *tracetest.SpanRecorder) (told []string) {
	ids := func(c trace.SpanContext) string { return c.TraceID().String() + "-" + c.SpanID().String() }
	for _, s := range spans.Ended() {
		operation, _, _ := strings.Cut(s.Name(), " ")
		words := []string{operation, ids(s.SpanContext())}
		for _, l := range s.Links() {
			words = append(words, ids(l.SpanContext))
		}
		told = append(told, strings.Join(words, " "))
	}
	return told
}

// spans returns the words that a process tells of its spans of one operation.
func spansOf(c *lab.Contender, operation string) (all [][]string) {
	c.Arena.Helper()
	c.Tell(lab.Order{Do: "spans"})
	for _, s := range c.Expect("spans", "").Is {
		if words := strings.Fields(s); words[0] == operation {
			all = append(all, words[1:])
		}
	}
	return all
}

// The waiter's span, in one process, is linked to the hold span of who was in its way, in
// another: by the ids that each process says its own spans have.
func TestProcessesLinkTheWaiterToTheHolder(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		kind               driver.Kind
		in, wait, out, end lab.Order // how one goes in, another waits, the one goes out, and the other
	}{
		"mutex": {driver.Mutex, lab.Order{Do: "lease"}, lab.Order{Do: "lease"}, lab.Order{Do: "release"}, lab.Order{Do: "release"}},
		"mutex, by the forms of sync": {driver.Mutex,
			lab.Order{Do: "lock"}, lab.Order{Do: "lock"}, lab.Order{Do: "unlock"}, lab.Order{Do: "unlock"}},
		"reader behind a writer": {driver.RWMutex,
			lab.Order{Do: "lease", Kind: "write"}, lab.Order{Do: "lease", Kind: "read"}, lab.Order{Do: "release"}, lab.Order{Do: "release"}},
		"writer behind a reader": {driver.RWMutex,
			lab.Order{Do: "lease", Kind: "read"}, lab.Order{Do: "lease", Kind: "write"}, lab.Order{Do: "release"}, lab.Order{Do: "release"}},
		"readers and writers, by the forms of sync": {driver.RWMutex,
			lab.Order{Do: "lock", Kind: "write"}, lab.Order{Do: "lock", Kind: "read"},
			lab.Order{Do: "unlock", Kind: "write"}, lab.Order{Do: "unlock", Kind: "read"}},
		"semaphore": {driver.Semaphore,
			lab.Order{Do: "lease", Kind: "permits", Weight: 2, Limit: 2}, lab.Order{Do: "lease", Kind: "permits", Weight: 1, Limit: 2},
			lab.Order{Do: "release"}, lab.Order{Do: "release"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := lab.NewArena(t, lab.Ages)
			a.Kind = test.kind
			cs := a.ContendersAs("tracer", a.Server, 2)
			do := func(c *lab.Contender, o lab.Order) {
				o.Lock = "l"
				c.Tell(o)
			}
			done := func(c *lab.Contender, o lab.Order) {
				what := map[string]string{"lease": "leased", "release": "released", "lock": "locked", "unlock": "unlocked"}
				c.Expect(what[o.Do], "l")
			}
			holder, waiter := cs[0], cs[1]
			do(holder, test.in)
			done(holder, test.in)
			do(waiter, test.wait)
			a.Until("l", "one in the queue", func(i holdfast.Info) bool { return len(i.Queue) == 1 && lab.IsFrom(waiter, i.Queue[0].Holder) })
			do(holder, test.out)
			done(holder, test.out)
			done(waiter, test.wait)
			do(waiter, test.end)
			done(waiter, test.end)

			held, waited := spansOf(holder, "hold"), spansOf(waiter, "acquire")
			require.Len(t, held, 1)
			require.Len(t, waited, 1)
			assert.Equal(t, held[0][0:1], waited[0][1:], "one link, to the hold span")
			assert.NotEqual(t, held[0][0][:32], waited[0][0][:32], "and in a trace of its own")
			require.Len(t, spansOf(holder, "acquire"), 1)
			assert.Len(t, spansOf(holder, "acquire")[0], 1, "who did not wait has no link")
		})
	}
}
