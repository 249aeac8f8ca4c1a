package telemetry_test

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/test/behavior/lab"
)

// What a telemetry has, in a form that a test can write down and compare as a whole.

// quiet waits until nothing is under way: every span that was started has ended.
func (e *telemetry) quiet(l *lab.Lab) {
	l.T.Helper()
	l.Until("all spans have ended", func() bool { return len(e.spans.Started()) == len(e.spans.Ended()) })
}

var fences = regexp.MustCompile(`fencing_token=\d+`)

// told returns the spans that have ended, but for those of the test itself, such as
//
//	release mutex exclusive: error.type=lock_lost outcome=error ERROR
//
// It checks that what the name says stands in the attributes, too.
func (e *telemetry) told() (spans []string) {
	e.t.Helper()
	for _, s := range e.spans.Ended() {
		if s.InstrumentationScope().Name != "github.com/holdfast-go/holdfast" {
			continue
		}
		a := attrsOf(s)
		assert.Equal(e.t, s.Name(), fmt.Sprint(a["holdfast.operation.name"], " ", a["holdfast.primitive"]))
		assert.Equal(e.t, "x", a["holdfast.lock.name"])
		assert.Equal(e.t, trace.SpanKindInternal, s.SpanKind())
		text := fmt.Sprint(s.Name(), " ", a["holdfast.mode"], ": ") + plain(s, "operation.name", "primitive", "mode", "lock.name", "blocked_by", "blocked_by_fencing_token")
		if s.Status().Code == codes.Error {
			text += " ERROR"
		}
		for _, event := range s.Events() {
			set := attribute.NewSet(event.Attributes...)
			text += " [" + event.Name + " " + encode(&set) + "]"
		}
		spans = append(spans, text)
	}
	slices.Sort(spans)
	return spans
}

// plain returns the attributes of a span but for some. TestSpanOfAWaitSaysWhoWasInTheWay looks at blocked_by.
func plain(s sdktrace.ReadOnlySpan, but ...string) string {
	set, _ := attribute.NewSetWithFiltered(s.Attributes(), func(a attribute.KeyValue) bool {
		return !slices.Contains(but, strings.TrimPrefix(string(a.Key), "holdfast."))
	})
	return fences.ReplaceAllString(encode(&set), "fencing_token=N")
}

func encode(set *attribute.Set) string {
	text := set.Encoded(attribute.DefaultEncoder())
	words := strings.Split(strings.ReplaceAll(text, "holdfast.", ""), ",")
	slices.Sort(words)
	return strings.Join(words, " ")
}

// counted returns every series of every metric, with the count of a histogram and the
// sum of the others. Those that go up and down must have come back to 0, and are left
// out.
func (e *telemetry) counted() map[string]int64 {
	e.t.Helper()
	series := map[string]int64{}
	for _, m := range e.scope().Metrics {
		if m.Name == "holdfast.release.duration" {
			continue // see releases
		}
		name := strings.TrimPrefix(m.Name, "holdfast.") + " "
		switch data := m.Data.(type) {
		case metricdata.Histogram[float64]:
			for _, p := range data.DataPoints {
				series[name+encode(&p.Attributes)] = int64(p.Count)
			}
		case metricdata.Sum[int64]:
			for _, p := range data.DataPoints {
				if !data.IsMonotonic {
					assert.Zero(e.t, p.Value, name+encode(&p.Attributes))
					continue
				}
				if p.Value > 0 { // some are there from the beginning
					series[name+encode(&p.Attributes)] = p.Value
				}
			}
		default:
			e.t.Fatalf("%s is a %T", name, data)
		}
	}
	return series
}

// releases returns how many have ended, by what their spans and their metric tell.
func (e *telemetry) releases() (spans, metric map[string]int64) {
	e.t.Helper()
	spans, metric = map[string]int64{}, map[string]int64{}
	for _, s := range e.spans.Ended() {
		if strings.HasPrefix(s.Name(), "release ") {
			spans[plain(s, "operation.name", "lock.name", "permits", "outcome")]++
		}
	}
	for _, m := range e.scope().Metrics {
		if m.Name == "holdfast.release.duration" {
			for _, p := range m.Data.(metricdata.Histogram[float64]).DataPoints {
				metric[encode(&p.Attributes)] += int64(p.Count)
			}
		}
	}
	return spans, metric
}

// text is all that is told, but for the ids of spans, which look like parts of tokens.
func (e *telemetry) text() string {
	e.t.Helper()
	var b strings.Builder
	for _, s := range e.spans.Ended() {
		fmt.Fprintln(&b, s.Name(), s.Attributes(), s.Status(), s.Resource(), s.SpanContext().TraceState())
		for _, event := range s.Events() {
			fmt.Fprintln(&b, event.Name, event.Attributes)
		}
		for _, link := range s.Links() {
			fmt.Fprintln(&b, link.Attributes, link.SpanContext.TraceState())
		}
	}
	for _, m := range e.scope().Metrics {
		fmt.Fprintln(&b, m.Name, m.Description, m.Unit)
		if h, ok := m.Data.(metricdata.Histogram[float64]); ok {
			for _, p := range h.DataPoints {
				fmt.Fprintln(&b, encode(&p.Attributes))
				for _, exemplar := range p.Exemplars {
					fmt.Fprintln(&b, exemplar.FilteredAttributes)
				}
			}
		}
	}
	fmt.Fprintln(&b, e.counted())
	return b.String()
}

// scope reads all metrics, which must be of one scope.
func (e *telemetry) scope() metricdata.ScopeMetrics {
	e.t.Helper()
	var all metricdata.ResourceMetrics
	require.NoError(e.t, e.reader.Collect(context.Background(), &all))
	if len(all.ScopeMetrics) == 0 {
		return metricdata.ScopeMetrics{}
	}
	require.Len(e.t, all.ScopeMetrics, 1)
	return all.ScopeMetrics[0]
}

// hearing lets a client wait once, for it listens to its news only since then.
func hearing(l *lab.Lab, c *holdfast.Client) {
	l.T.Helper()
	other := l.Near()
	held := l.Lease(other, "rehearsal")
	w := l.Wait(c, "rehearsal")
	l.UntilQueue("rehearsal", 1)
	l.UntilListening(1)
	l.GiveBack(held)
	l.GiveBack(w.Granted(lab.Soon))
}
