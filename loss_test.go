package holdfast_test

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metricnoop "go.opentelemetry.io/otel/metric/noop"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver/memdriver"
	"github.com/holdfast-go/holdfast/internal/test/behavior/lab"
)

// tardy is a handler that takes some time for each line.
type tardy struct {
	slog.Handler
	takes time.Duration
}

func (h tardy) Handle(ctx context.Context, r slog.Record) error {
	time.Sleep(h.takes)
	return h.Handler.Handle(ctx, r)
}

// slowSpans counts the spans of leases that were lost, and takes some time for each.
type slowSpans struct{ lost atomic.Int64 }

func (*slowSpans) OnStart(context.Context, sdktrace.ReadWriteSpan) {}
func (*slowSpans) ForceFlush(context.Context) error                { return nil }
func (*slowSpans) Shutdown(context.Context) error                  { return nil }
func (s *slowSpans) OnEnd(span sdktrace.ReadOnlySpan) {
	if span.Status().Description == "lock lost" {
		time.Sleep(time.Millisecond)
		s.lost.Add(1)
	}
}

// linesOf returns the lines about losses, and of how many they tell.
func linesOf(log fmt.Stringer) (lines []string, losses int) {
	for line := range strings.Lines(log.String()) {
		if strings.Contains(line, "lock lost") {
			lines = append(lines, line)
			of := 1
			if _, after, several := strings.Cut(line, "lost="); several {
				_, _ = fmt.Sscan(after, &of)
			}
			losses += of
		}
	}
	return lines, losses
}

// An outage that ends very many leases at once is one line of the log and few goroutines, although
// each lease is told of its end.
func TestTenThousandLossesAreOneLineAndFewGoroutinesInVirtualTime(t *testing.T) {
	const n, ttl, few = 10_000, 10 * time.Second, 200
	for what, scene := range map[string]struct {
		happens func(*hushed)
		handler time.Duration
		lines   int
	}{
		"a silent store and a tardy handler": {(*hushed).hush, 5 * time.Millisecond, 1},
		// Each lease hears of it when it is renewed, within a third of a TTL.
		"a FLUSHALL": {func(h *hushed) { h.emptied.Store(true) }, 0, 8},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store, log, spans := &hushed{Driver: memdriver.New()}, new(lab.Log), &slowSpans{}
				c := holdfast.Open(store, holdfast.WithTTL(ttl), holdfast.WithLogger(slog.New(tardy{slog.NewTextHandler(log, nil), scene.handler})))
				c.AddHook(holdfast.NewTracingHook(holdfast.WithHoldSpans(holdfast.HoldSpansAlways), holdfast.WithMeterProvider(metricnoop.NewMeterProvider()),
					holdfast.WithTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)))))
				leases := make([]*holdfast.Lease, n)
				for i := range leases {
					lease, err := c.Mutex(fmt.Sprint("order:", i)).Lease(t.Context())
					require.NoError(t, err)
					leases[i] = lease
				}
				base := runtime.NumGoroutine()
				scene.happens(store)
				peak := 0
				for end := time.Now().Add(ttl + 5*time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
					peak = max(peak, runtime.NumGoroutine()-base)
				}
				for _, l := range leases {
					require.ErrorIs(t, l.Err(), holdfast.ErrLost, "FOUL: nobody is told of a loss")
					require.ErrorContains(t, l.Err(), fmt.Sprintf("%q", l.Name()))
					require.ErrorIs(t, context.Cause(l.Context()), holdfast.ErrLost)
				}
				assert.EqualValues(t, n, spans.lost.Load())
				assert.Less(t, peak, few, "goroutines")
				lines, losses := linesOf(log)
				t.Logf("%d goroutines, %d lines: %.300s", peak, len(lines), lines[0])
				assert.LessOrEqual(t, len(lines), scene.lines, "lines")
				assert.Equal(t, n, losses, "FOUL: losses that the log does not tell")
				assert.Equal(t, 3, strings.Count(lines[0], "order:"), "names")
				store.speak()
				require.NoError(t, c.Close())
			})
		})
	}
}

// A single loss is a line at the time of the loss, though it is written later, at the latest by Close.
func TestLossIsALineOfItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, log := memdriver.New(), new(lab.Log)
		c := holdfast.Open(store, holdfast.WithLogger(slog.New(slog.NewTextHandler(log, nil))))
		lease, err := c.Mutex("x").Lease(t.Context())
		require.NoError(t, err)
		require.NoError(t, c.Mutex("x").ForceUnlock(t.Context()))
		<-lease.Done()
		lost := time.Now()
		time.Sleep(10 * time.Millisecond)
		require.NoError(t, c.Close())
		want := fmt.Sprintf("time=%s level=WARN msg=\"holdfast: lock lost\" kind=mutex lock=x fence=%d cause=\"taken away by ForceUnlock\"\n",
			lost.Format("2006-01-02T15:04:05.000Z07:00"), lease.Fence())
		require.Equal(t, want, log.String())
	})
}

// What somebody does to a lock is a line of its own: an operator looks for it. Only a crowd shares one.
func TestLossByForceIsALineOfItsOwn(t *testing.T) {
	for n, want := range map[int]int{2: 2, 20: 20, 1000: 1} {
		synctest.Test(t, func(t *testing.T) {
			log := new(lab.Log)
			c := holdfast.Open(memdriver.New(), holdfast.WithLogger(slog.New(slog.NewTextHandler(log, nil))))
			for i := range n {
				_, err := c.Mutex(fmt.Sprint("order:", i)).Lease(t.Context())
				require.NoError(t, err)
			}
			for i := range n {
				require.NoError(t, c.Mutex(fmt.Sprint("order:", i)).ForceUnlock(t.Context()))
			}
			time.Sleep(time.Second)
			lines, losses := linesOf(log)
			assert.Len(t, lines, want, "%d by force", n)
			assert.Equal(t, n, losses)
			require.NoError(t, c.Close())
		})
	}
}

// Losses that go on are told ever more rarely, and none is left out.
func TestLossesThatGoOnAreToldRarely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const n = 1000
		log, all := new(lab.Log), new(lab.Log)
		both := slog.New(slog.NewMultiHandler(slog.NewTextHandler(log, nil), slog.NewTextHandler(all, &slog.HandlerOptions{Level: slog.LevelDebug})))
		c := holdfast.Open(memdriver.New(), holdfast.WithTTL(time.Second), holdfast.WithLogger(both))
		for i := range n {
			_, err := c.Mutex(fmt.Sprint("order:", i), holdfast.WithoutRenewal()).Lease(t.Context())
			require.NoError(t, err)
			time.Sleep(10 * time.Millisecond)
		}
		time.Sleep(20 * time.Second)
		lines, losses := linesOf(log)
		assert.Less(t, len(lines), 10)
		assert.Equal(t, n, losses)
		for i := range n {
			assert.Contains(t, all.String(), fmt.Sprintf("lock=order:%d ", i), "at level Debug each has a line")
		}
		require.NoError(t, c.Close())
	})
}
