package telemetry_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/test/behavior/lab"
)

// If renewals are to be in traces, a batch is in that of one of its leases: of one that has a trace.
func TestRenewalsAreInTheTraceOfALeaseThatHasOne(t *testing.T) {
	for traced := range 3 {
		synctest.Test(t, func(t *testing.T) {
			e := newTelemetry(t)
			var batches [][2]any // how many leases, and the span
			c := holdfast.Open(lab.Puppet{OnRenew: func(ctx context.Context, leases []driver.Lease) []error {
				batches = append(batches, [2]any{len(leases), trace.SpanContextFromContext(ctx)})
				return make([]error, len(leases))
			}}, holdfast.WithTTL(3*time.Second), holdfast.WithBackgroundSpans())
			c.AddHook(e.hook)
			var within trace.SpanContext
			for i := range 3 {
				ctx := t.Context()
				if i == traced {
					ctx, _ = e.tracer.Start(ctx, "request")
				}
				l, err := c.Mutex(fmt.Sprint("x", i)).Lease(ctx)
				require.NoError(t, err)
				if i == traced {
					within = trace.SpanContextFromContext(l.Context())
				}
			}
			time.Sleep(1500 * time.Millisecond)
			require.NoError(t, c.Close())
			require.Equal(t, [][2]any{{3, within}}, batches)
		})
	}
}

// A release without a trace is in that of the lease.
func TestReleaseWithoutATraceIsInThatOfTheLease(t *testing.T) {
	e := newTelemetry(t)
	c := lab.WithPuppet(t, lab.Puppet{}, e.hook)
	ctx, request := e.tracer.Start(t.Context(), "request")
	l, err := c.Mutex("x").Lease(ctx)
	require.NoError(t, err)
	require.NoError(t, l.Release(context.Background()))
	assert.Equal(t, request.SpanContext().TraceID(), e.ended("release mutex").SpanContext().TraceID())
	assert.Equal(t, e.ended("hold mutex").SpanContext(), e.ended("release mutex").Parent())
}
