package deadlock_test

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/deadlock"
)

// drawn is a trace as a tree, with the attributes that tell of waits.
func drawn(spans []sdktrace.ReadOnlySpan) string {
	slices.SortFunc(spans, func(a, b sdktrace.ReadOnlySpan) int { return a.StartTime().Compare(b.StartTime()) })
	var b strings.Builder
	var draw func(s sdktrace.ReadOnlySpan, indent string)
	draw = func(s sdktrace.ReadOnlySpan, indent string) {
		a := attribute.NewSet(s.Attributes()...)
		get := func(key attribute.Key) string { v, _ := a.Value(key); return v.AsString() }
		fmt.Fprint(&b, indent, strings.TrimSpace(s.Name()+" "+get("holdfast.lock.name")))
		for _, key := range []attribute.Key{"holdfast.outcome", "error.type", "holdfast.blocked_by"} {
			if v := get(key); v != "" {
				fmt.Fprintf(&b, "  %s=%s", strings.TrimPrefix(string(key), "holdfast."), v)
			}
		}
		fmt.Fprintf(&b, "  %v\n", s.EndTime().Sub(s.StartTime()).Round(time.Millisecond))
		for _, e := range s.Events() {
			if e.Name == "holdfast.deadlock" {
				set := attribute.NewSet(e.Attributes...)
				text, _ := set.Value("holdfast.deadlock.circle")
				fmt.Fprintf(&b, "%s  event %s: %s\n", indent, e.Name, strings.ReplaceAll(text.AsString(), "\n", "\n"+indent+"  "))
			}
		}
		for _, child := range spans {
			if child.Parent().SpanID() == s.SpanContext().SpanID() {
				draw(child, indent+"  ")
			}
		}
	}
	for _, s := range spans {
		if !s.Parent().IsValid() {
			draw(s, "")
		}
	}
	return b.String()
}

// alike leaves out what differs each time.
func alike(text string) string {
	text = regexp.MustCompile(`[\d.]+(ms|s)\b`).ReplaceAllString(text, "T")
	return regexp.MustCompile(`fence \d+`).ReplaceAllString(text, "fence N")
}

// The guide shows the trace of one whose wait was ended.
func TestTraceInTheGuideIsThatOfAVictim(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	bubble(t, func(tn *town) {
		tracer := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
		c := holdfast.Open(tn.store, holdfast.WithHolder("web-2:4711"))
		tn.Cleanup(func() { _ = c.Close() })
		c.AddHook(holdfast.NewTracingHook(holdfast.WithTracerProvider(tracer), holdfast.WithMeterProvider(metric.NewMeterProvider())))
		c.AddHook(deadlock.New(c, deadlock.WithPause(pause)))
		other := tn.process(holdfast.WithHolder("web-1:4711"))
		ctx, request := tracer.Tracer("shop").Start(tn.Context(), "POST /transfer")
		errs, _ := circle(tn, []take{other.Mutex("alice").Do, func(_ context.Context, within func(context.Context) error) error {
			return c.Mutex("bob").Do(ctx, within)
		}}, []take{other.Mutex("bob").Do, c.Mutex("alice").Do}, 10*time.Millisecond)
		request.End()
		require.NoError(t, errs[0])
		require.ErrorIs(t, errs[1], holdfast.ErrDeadlock)
	})
	guide, err := os.ReadFile("../docs/telemetry.md")
	require.NoError(t, err)
	tree := drawn(spans.Ended())
	assert.Contains(t, alike(string(guide)), alike(tree), "it is now\n%s", tree)
}
