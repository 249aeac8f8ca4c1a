package telemetry_test

import (
	"context"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

// instrumented has a Redis client make a span of each command and connection, as redisotel does.
type instrumented struct{ tracer trace.Tracer }

func (i instrumented) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		ctx, span := i.tracer.Start(ctx, "dial")
		defer span.End()
		return next(ctx, network, addr)
	}
}

func (i instrumented) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		ctx, span := i.tracer.Start(ctx, cmd.FullName())
		defer span.End()
		return next(ctx, cmd)
	}
}

func (i instrumented) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		ctx, span := i.tracer.Start(ctx, "pipeline")
		defer span.End()
		return next(ctx, cmds)
	}
}

// A lease that is held, a lock that passes from hand to hand and candidates that wait send
// commands for as long as that lasts. These are in no trace, with the SDK's own sampler. Metrics have
// them all. With the option they are where they were asked for.
func TestWhatNobodyAskedForIsInNobodysTrace(t *testing.T) {
	const lasts, ttl = 15 * time.Second, 3 * time.Second
	for name, test := range map[string]struct {
		hooked  bool // by us, else only the Redis client makes spans
		sampler sdktrace.Sampler
		opts    []holdfast.Option
		shown   bool
	}{
		"by default":                      {true, nil, nil, false},
		"of the Redis client alone":       {false, nil, nil, false},
		"a sampler that heeds no parents": {true, sdktrace.AlwaysSample(), nil, false},
		"holdfast.WithBackgroundSpans":    {true, nil, []holdfast.Option{holdfast.WithBackgroundSpans()}, true},
		"the same, of Redis client alone": {false, nil, []holdfast.Option{holdfast.WithBackgroundSpans()}, true},
	} {
		t.Run(name, func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T, s *redistest.Server) {
				e := newTelemetry(t)
				own := []sdktrace.TracerProviderOption{sdktrace.WithSpanProcessor(e.spans)}
				if test.sampler != nil {
					own = append(own, sdktrace.WithSampler(test.sampler))
				}
				store := sdktrace.NewTracerProvider(own...)
				rdb := s.Client(t)
				rdb.AddHook(instrumented{store.Tracer("store")})
				c := holdfast.New(rdb, append(test.opts, holdfast.WithTTL(ttl))...)
				defer c.Close()
				if test.hooked {
					c.AddHook(e.hook)
				}
				other := holdfast.New(s.Client(t), holdfast.WithTTL(ttl))
				defer other.Close()
				taken, err := other.Mutex("taken").Lease(t.Context())
				require.NoError(t, err)

				ctx, request := e.tracer.Start(t.Context(), "request")
				l, err := c.Mutex("import").Lease(ctx)
				require.NoError(t, err)
				var working sync.WaitGroup
				for range 4 { // whose asks can go in one call
					working.Go(func() {
						waited, err := c.Mutex("taken", holdfast.WithStrictFIFO()).Lease(ctx)
						require.NoError(t, err)
						require.NoError(t, waited.Release(ctx))
					})
				}
				hot := time.Now().Add(time.Second)
				for range 3 {
					working.Go(func() {
						for time.Now().Before(hot) {
							c.Mutex("hot").Lock()
							time.Sleep(5 * time.Millisecond)
							c.Mutex("hot").Unlock()
						}
					})
				}
				request.End()
				time.Sleep(4 * time.Second)
				before := len(e.spans.Ended())
				time.Sleep(lasts)
				after := e.spans.Ended()
				require.NoError(t, l.Release(ctx))
				require.NoError(t, taken.Release(t.Context()))
				working.Wait()

				within, roots := 0, 0
				for _, s := range after[before:] {
					if s.SpanContext().TraceID() == request.SpanContext().TraceID() {
						within++
					}
					if !s.Parent().IsValid() && s.Name() != "dial" { // the pool grows under no span
						roots++
					}
				}
				if test.shown {
					assert.Greater(t, within, int(2*lasts/ttl), "renewals and heartbeats")
				} else {
					assert.Zero(t, within, "FOUL: a trace goes on for as long as a lease")
					assert.Zero(t, roots, "FOUL: traces that nobody has begun")
				}
				for _, s := range after[:before] {
					if test.hooked && !test.shown && !s.Parent().IsValid() {
						assert.Contains(t, []string{"request", "acquire mutex", "release mutex", "dial"}, s.Name(), "FOUL: the root of a trace")
					}
				}
				if test.hooked {
					assert.GreaterOrEqual(t, e.counted()["renew.duration mode=exclusive primitive=mutex"], int64(3*lasts/ttl), "all in the metrics")
					assert.GreaterOrEqual(t, attrsOf(e.ended("hold mutex"))["holdfast.renewals"], int64(3*lasts/ttl))
				}
				released := false
				for _, s := range e.spans.Ended()[len(after):] {
					released = released || s.SpanContext().TraceID() == request.SpanContext().TraceID()
				}
				assert.True(t, released, "the release is in the trace")
			})
		})
	}
}

// A waiter's first asks are in its trace, however its wait ends.
func TestFirstAsksOfAWaiterAreInItsTrace(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T, s *redistest.Server) {
		spans := tracetest.NewSpanRecorder()
		traces := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))
		rdb := s.Client(t)
		rdb.AddHook(instrumented{traces.Tracer("store")})
		c, other := holdfast.New(rdb, holdfast.WithTTL(3*time.Second)), holdfast.New(s.Client(t))
		defer c.Close()
		defer other.Close()
		held, err := other.Mutex("x").Lease(t.Context())
		require.NoError(t, err)
		ctx, request := traces.Tracer("app").Start(t.Context(), "request")
		time.AfterFunc(10*time.Second, func() { _ = held.Release(context.Background()) })
		l, err := c.Mutex("x").Lease(ctx)
		require.NoError(t, err)
		request.End()
		asked := 0
		for _, s := range spans.Ended() {
			if s.SpanContext().TraceID() == request.SpanContext().TraceID() && strings.HasPrefix(s.Name(), "eval") {
				asked++
			}
		}
		assert.GreaterOrEqual(t, asked, 4)
		assert.LessOrEqual(t, asked, 8, "with those that were sent by their text")
		require.NoError(t, l.Release(t.Context()))
	})
}
