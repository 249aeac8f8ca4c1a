//go:build unix

package holdfast_test

import (
	"bufio"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

func init() { redistest.RegisterChild("tracer", traceAndContend) }

// traceAndContend is a contender with a tracing hook. It obeys one more order: to tell
// its spans, in report.Is.
func traceAndContend() {
	ttl, err := time.ParseDuration(os.Getenv("CONTENDER_TTL"))
	if err != nil {
		panic(err)
	}
	rdb := redis.NewClient(&redis.Options{Network: os.Getenv("CONTENDER_NETWORK"), Addr: os.Getenv("CONTENDER_ADDR")})
	w := &worker{
		locks: holdfast.New(rdb, holdfast.WithPrefix(os.Getenv("CONTENDER_PREFIX")), holdfast.WithTTL(ttl)),
		out:   json.NewEncoder(os.Stdout),
		state: map[string]*state{},
	}
	spans := tracetest.NewSpanRecorder()
	w.locks.AddHook(holdfast.NewTracingHook(holdfast.WithHolderLinks(), holdfast.WithHoldSpans(holdfast.Always),
		holdfast.WithTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)))))
	w.say(report{What: "ready"})
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		var o order
		if err := json.Unmarshal(in.Bytes(), &o); err != nil {
			panic(err)
		}
		switch o.Do {
		case "spans":
			w.say(report{What: "spans", Is: linkedSpans(spans)})
		case "Lock":
			go func() {
				w.locks.Mutex(o.Lock).Lock()
				w.say(report{What: "locked", Lock: o.Lock})
			}()
		case "Unlock":
			w.locks.Mutex(o.Lock).Unlock()
			w.say(report{What: "unlocked", Lock: o.Lock})
		default:
			w.obey(o)
		}
	}
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

// tracers are contenders with a tracing hook.
func (a *arena) tracers(n int) []*contender {
	a.Helper()
	cs := make([]*contender, n)
	for i := range cs {
		cs[i] = &contender{a: a, Process: redistest.Child(a, "tracer",
			"CONTENDER_NETWORK="+a.server.Network(), "CONTENDER_ADDR="+a.server.Addr(),
			"CONTENDER_PREFIX="+a.server.Prefix(), "CONTENDER_TTL="+a.ttl.String())}
	}
	for _, c := range cs {
		require.Empty(a, c.expect("ready", "").Err)
	}
	return cs
}

// spans returns the words that a process tells of its spans of one operation.
func (c *contender) spans(operation string) (all [][]string) {
	c.a.Helper()
	c.tell(order{Do: "spans"})
	for _, s := range c.expect("spans", "").Is {
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
		in, wait, out, end order // how one goes in, another waits, the one goes out, and the other
	}{
		"mutex": {driver.Mutex, order{Do: "lease"}, order{Do: "lease"}, order{Do: "release"}, order{Do: "release"}},
		"mutex, by the forms of sync": {driver.Mutex,
			order{Do: "Lock"}, order{Do: "Lock"}, order{Do: "Unlock"}, order{Do: "Unlock"}},
		"reader behind a writer": {driver.RWMutex,
			order{Do: "lease", Kind: "write"}, order{Do: "lease", Kind: "read"}, order{Do: "release"}, order{Do: "release"}},
		"writer behind a reader": {driver.RWMutex,
			order{Do: "lease", Kind: "read"}, order{Do: "lease", Kind: "write"}, order{Do: "release"}, order{Do: "release"}},
		"readers and writers, by the forms of sync": {driver.RWMutex,
			order{Do: "lock", Kind: "write"}, order{Do: "lock", Kind: "read"},
			order{Do: "unlock", Kind: "write"}, order{Do: "unlock", Kind: "read"}},
		"semaphore": {driver.Semaphore,
			order{Do: "lease", Kind: "permits", Weight: 2, Limit: 2}, order{Do: "lease", Kind: "permits", Weight: 1, Limit: 2},
			order{Do: "release"}, order{Do: "release"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := newArena(t, ages)
			a.kind = test.kind
			cs := a.tracers(2)
			do := func(c *contender, o order) {
				o.Lock = "l"
				c.tell(o)
			}
			done := func(c *contender, o order) {
				what := map[string]string{"lease": "leased", "release": "released", "Lock": "locked", "Unlock": "unlocked", "lock": "locked", "unlock": "unlocked"}
				c.expect(what[o.Do], "l")
			}
			holder, waiter := cs[0], cs[1]
			do(holder, test.in)
			done(holder, test.in)
			do(waiter, test.wait)
			a.until("l", "one in the queue", func(i holdfast.Info) bool { return len(i.Queue) == 1 && isFrom(waiter, i.Queue[0].Holder) })
			do(holder, test.out)
			done(holder, test.out)
			done(waiter, test.wait)
			do(waiter, test.end)
			done(waiter, test.end)

			held, waited := holder.spans("hold"), waiter.spans("acquire")
			require.Len(t, held, 1)
			require.Len(t, waited, 1)
			assert.Equal(t, held[0][0:1], waited[0][1:], "one link, to the hold span")
			assert.NotEqual(t, held[0][0][:32], waited[0][0][:32], "and in a trace of its own")
			require.Len(t, holder.spans("acquire"), 1)
			assert.Len(t, holder.spans("acquire")[0], 1, "who did not wait has no link")
		})
	}
}
