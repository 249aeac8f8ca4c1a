package holdfast_test

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

// What a telemetry has, in a form that a test can write down and compare as a whole.

// quiet waits until nothing is under way: every span that was started has ended.
func (e *telemetry) quiet(l *lab) {
	l.t.Helper()
	l.until("all spans have ended", func() bool { return len(e.spans.Started()) == len(e.spans.Ended()) })
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
		text := fmt.Sprint(s.Name(), " ", a["holdfast.mode"], ": ") + plain(s, "operation.name", "primitive", "mode", "lock.name")
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

// plain returns the attributes of a span but for some.
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
				series[name+encode(&p.Attributes)] = p.Value
			}
		default:
			e.t.Fatalf("%s is a %T", name, data)
		}
	}
	return series
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
func (l *lab) hearing(c *holdfast.Client) {
	l.t.Helper()
	other := l.near()
	held := l.lease(other, "rehearsal")
	w := l.wait(c, "rehearsal")
	l.untilQueue("rehearsal", 1)
	l.untilListening(1)
	l.giveBack(held)
	l.giveBack(w.granted(soon))
}

// untilHeard returns when the only waiter in this process has heard that it waits, and
// has nothing to do.
func (l *lab) untilHeard() {
	l.t.Helper()
	l.until("it has heard that it waits", func() bool {
		idle := 0
		for stack := range strings.SplitSeq(stacks(), "\n\n") {
			state, _, _ := strings.Cut(stack, "\n")
			switch {
			case strings.Contains(stack, "(*Claim).send("):
				return false
			case strings.Contains(stack, "(*Claim).event(") && strings.Contains(state, "[select"):
				idle++
			}
		}
		return idle == 1
	})
}

// puppet is a store that the test moves; where it does not, it is instant.
type puppet struct {
	instant
	acquire func(*driver.Request) (driver.Grant, error)
	renew   func(context.Context, []driver.Lease) []error
	release func(driver.Lease) error
	report  func(func(reason string))
}

func (p puppet) Acquire(ctx context.Context, r *driver.Request) (driver.Grant, error) {
	if p.acquire != nil {
		return p.acquire(r)
	}
	return p.instant.Acquire(ctx, r)
}

func (p puppet) Renew(ctx context.Context, leases []driver.Lease) []error {
	if p.renew != nil {
		return p.renew(ctx, leases)
	}
	return p.instant.Renew(ctx, leases)
}

func (p puppet) Release(ctx context.Context, l driver.Lease) error {
	if p.release != nil {
		return p.release(l)
	}
	return p.instant.Release(ctx, l)
}

func (p puppet) OnReconnect(f func(reason string)) {
	if p.report != nil {
		p.report(f)
	}
}

// withPuppet returns a client of a puppet, with hooks.
func withPuppet(t *testing.T, p puppet, hooks ...holdfast.Hook) *holdfast.Client {
	t.Helper()
	c := holdfast.Open(p, holdfast.WithTTL(ages))
	t.Cleanup(func() { assert.NoError(t, promptly(t, soon, c.Close)) })
	for _, h := range hooks {
		c.AddHook(h)
	}
	return c
}
