package holdfast_test

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/extra/redisotel/v9"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

// instrumented returns a client of the Redis whose commands make spans, with the hooks of
// this package before or after those of redisotel.
func (e *telemetry) instrumented(open func(func(*redis.Client)) redis.UniversalClient, oursFirst bool) redis.UniversalClient {
	ours := func(c *redis.Client) {
		c.AddHook(holdfast.GuardHook())
		c.AddHook(holdfast.NameHook())
	}
	return open(func(c *redis.Client) {
		if oursFirst {
			ours(c)
		}
		require.NoError(e.t, redisotel.InstrumentTracing(c, redisotel.WithTracerProvider(e.traces)))
		if !oursFirst {
			ours(c)
		}
	})
}

// ping is the command by which a client pings itself, if its span has no better name.
var ping = regexp.MustCompile(` 1 \S+:wake:[0-9a-f]{16}:\d+ `)

func isPing(s sdktrace.ReadOnlySpan) bool {
	return s.Name() == "holdfast.wake.ping" || slices.ContainsFunc(s.Attributes(), func(a attribute.KeyValue) bool {
		return a.Key == "db.statement" && ping.MatchString(a.Value.AsString())
	})
}

// commands returns the spans of scripts on locks, however they are called.
func (e *telemetry) commands() (all []sdktrace.ReadOnlySpan) {
	for _, s := range e.spans.Ended() {
		if s.SpanKind() == trace.SpanKindClient && !isPing(s) && (strings.Contains(s.Name(), "eval") || strings.Contains(s.Name(), "holdfast.")) {
			all = append(all, s)
		}
	}
	return all
}

// Everything that is sent for a lock is within the trace of who asked for it: while it
// waits, while it holds, also when the request is over, and when it lets go.
func TestCommandsAreWithinTheTraceOfTheRequest(t *testing.T) {
	t.Parallel()
	for _, oursFirst := range []bool{true, false} {
		t.Run(fmt.Sprint("ours first ", oursFirst), func(t *testing.T) {
			t.Parallel()
			overCluster(t, func(t *testing.T, open func(func(*redis.Client)) redis.UniversalClient) {
				e := newTelemetry(t)
				c := holdfast.New(e.instrumented(open, oursFirst), holdfast.WithTTL(1200*time.Millisecond))
				c.AddHook(e.hook)
				other := holdfast.New(open(func(*redis.Client) {}), holdfast.WithTTL(ages))
				defer other.Close()
				held, err := other.Mutex("a").Lease(t.Context())
				require.NoError(t, err)

				ctx, request := e.tracer.Start(t.Context(), "request")
				waited := make(chan error, 1)
				var leases [3]*holdfast.Lease
				go func() {
					var err error
					leases[0], err = c.Mutex("a").Lease(ctx)
					waited <- err
				}()
				e.enough("heartbeats", func() bool { return len(e.commands()) >= 4 })
				require.NoError(t, held.Release(ctx))
				require.NoError(t, <-waited)
				leases[1], err = c.RWMutex("b").RLease(ctx)
				require.NoError(t, err)
				leases[2], err = c.Semaphore("c", 2).Lease(ctx, 2)
				require.NoError(t, err)
				request.End()
				before := e.commands()
				e.enough("renewals", func() bool { return len(e.commands()) >= len(before)+4 })
				for _, l := range leases {
					require.NoError(t, l.Release(context.Background()))
				}
				require.NoError(t, c.Close())

				require.ElementsMatch(t, []string{"request"}, e.roots())
				for _, s := range e.commands() {
					assert.Equal(t, !oursFirst, strings.Contains(s.Name(), "holdfast."), s.Name())
					if !oursFirst { // else redisotel shows what it wants to
						requireNoToken(t, fmt.Sprint(s.Name(), s.Attributes(), s.Events(), s.Status()))
					}
					assert.Equal(t, request.SpanContext().TraceID(), s.SpanContext().TraceID(), s.Name())
				}
			})
		})
	}
}

// A batch of renewals is sent in the trace of one of its leases: of one that has a trace.
func TestRenewalsAreInTheTraceOfALeaseThatHasOne(t *testing.T) {
	for traced := range 3 {
		synctest.Test(t, func(t *testing.T) {
			e := newTelemetry(t)
			var batches [][2]any // how many leases, and the span
			c := holdfast.Open(puppet{renew: func(ctx context.Context, leases []driver.Lease) []error {
				batches = append(batches, [2]any{len(leases), trace.SpanContextFromContext(ctx)})
				return make([]error, len(leases))
			}}, holdfast.WithTTL(3*time.Second))
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

// Who releases without a trace does it in that of the lease.
func TestReleaseWithoutATraceIsInThatOfTheLease(t *testing.T) {
	e := newTelemetry(t)
	c := withPuppet(t, puppet{}, e.hook)
	ctx, request := e.tracer.Start(t.Context(), "request")
	l, err := c.Mutex("x").Lease(ctx)
	require.NoError(t, err)
	require.NoError(t, l.Release(context.Background()))
	assert.Equal(t, request.SpanContext().TraceID(), e.ended("release mutex").SpanContext().TraceID())
	assert.Equal(t, e.ended("hold mutex").SpanContext(), e.ended("release mutex").Parent())
}

func (e *telemetry) enough(what string, cond func() bool) {
	e.t.Helper()
	require.Eventually(e.t, cond, 2*soon, 5*time.Millisecond, what)
}

// roots returns the names of spans without a parent, but for those of what the Redis
// client does for itself when it connects, and of the pings on the subscription: once a
// second while anybody waits, and in nobody's trace.
func (e *telemetry) roots() (all []string) {
	for _, s := range e.spans.Ended() {
		switch s.Name() {
		case "redis.dial", "hello", "redis.pipeline client", "cluster slots", "command":
			continue
		}
		if !s.Parent().IsValid() && !isPing(s) {
			all = append(all, s.Name())
		}
	}
	return all
}
