package telemetry_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/baggage"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/test/behavior/lab"
)

const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

// A tag in Redis may be anything. Only a traceparent makes a link, and other tags harm
// nobody.
func TestLinksAreMadeOfTraceparentsOnly(t *testing.T) {
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		l.Remember()
		c, other := l.Near(), l.Near()
		hearing(l, c)
		e := newTelemetry(t, holdfast.WithHolderLinks(), holdfast.WithHoldSpans(holdfast.HoldSpansAlways))
		c.AddHook(e.hook)
		for name, test := range map[string]struct {
			tag   string
			links int
		}{
			"a traceparent":           {parent, 1},
			"of a later version":      {"cc" + parent[2:], 1},
			"no traceparent":          {"garbage", 0},
			"nothing":                 {"-", 0},
			"ids of zeros":            {"00-00000000000000000000000000000000-0000000000000000-01", 0},
			"a version that is none":  {"ff" + parent[2:], 0},
			"in capitals":             {strings.ToUpper(parent), 0},
			"more than a traceparent": {parent + "-more", 0},
			"too long":                {parent + "-" + strings.Repeat("x", driver.MaxHolderTag), 0},
			"very long":               {strings.Repeat("x", 1<<16), 0},
			"no text":                 {"\x00\xff\xfe", 0},
		} {
			for kind, form := range map[driver.Kind]func(*holdfast.Client) lab.Leasing{
				driver.Mutex:   func(c *holdfast.Client) lab.Leasing { return c.Mutex(name).Lease },
				driver.RWMutex: func(c *holdfast.Client) lab.Leasing { return c.RWMutex(name).Lease },
			} {
				e.spans.Reset()
				held := l.Take(form(other))
				l.SetTag(kind, name, test.tag)
				w := l.Ask(form(c))
				l.Until("it waits", func() bool { return l.Waits(kind, name) })
				l.GiveBack(held)
				l.GiveBack(w.Granted(lab.Soon))
				links := e.ended("acquire " + string(kind)).Links()
				require.Len(t, links, test.links, "%s, %s", name, kind)
				for _, link := range links {
					assert.Equal(t, parent[3:35], link.SpanContext.TraceID().String())
					assert.Equal(t, parent[36:52], link.SpanContext.SpanID().String())
					assert.True(t, link.SpanContext.IsRemote())
					assert.Equal(t, []attribute.KeyValue{attribute.String("holdfast.link", "holder")}, link.Attributes)
				}
			}
		}
	})
}

// The traceparent of the hold span is all that is stored, whatever else the context has
// for other processes, and it goes with the holder, however that goes.
func TestTraceparentIsStoredAsLongAsTheLockIsHeld(t *testing.T) {
	forms := map[driver.Kind]func(*holdfast.Client) (lab.Leasing, lab.Lock){
		driver.Mutex:   func(c *holdfast.Client) (lab.Leasing, lab.Lock) { m := c.Mutex("x"); return m.Lease, m },
		driver.RWMutex: func(c *holdfast.Client) (lab.Leasing, lab.Lock) { m := c.RWMutex("x"); return m.RLease, m },
		driver.Semaphore: func(c *holdfast.Client) (lab.Leasing, lab.Lock) {
			s := c.Semaphore("x", 3)
			return lab.Permits(s, 2), s
		},
	}
	for name, end := range map[string]func(*lab.Lab, *holdfast.Lease, lab.Lock){
		"released": func(l *lab.Lab, held *holdfast.Lease, _ lab.Lock) { l.GiveBack(held) },
		"forced": func(l *lab.Lab, held *holdfast.Lease, k lab.Lock) {
			require.NoError(l.T, k.ForceUnlock(l.T.Context()))
			require.ErrorIs(l.T, held.Renew(l.T.Context()), holdfast.ErrLost)
		},
		"closed": func(l *lab.Lab, held *holdfast.Lease, _ lab.Lock) {},
	} {
		t.Run(name, func(t *testing.T) {
			lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
				l.Remember()
				for kind, form := range forms {
					e := newTelemetry(t, holdfast.WithHolderLinks())
					c := e.on(l.Near())
					member, err := baggage.NewMember("user.name", "alice")
					require.NoError(t, err)
					bag, err := baggage.New(member)
					require.NoError(t, err)
					state, err := trace.ParseTraceState("vendor=secret")
					require.NoError(t, err)
					ctx, request := e.tracer.Start(baggage.ContextWithBaggage(trace.ContextWithRemoteSpanContext(t.Context(),
						trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{2},
							TraceFlags: trace.FlagsSampled, TraceState: state})), bag), "request")
					require.Equal(t, 1, request.SpanContext().TraceState().Len())

					lease, k := form(c)
					held, err := lease(ctx)
					require.NoError(t, err)
					stored := func() string { return l.Stored(kind, "x") }
					l.Until("it is stored", func() bool { return strings.Contains(stored(), " 00-") })
					s := trace.SpanContextFromContext(held.Context())
					assert.Contains(t, stored(), fmt.Sprintf(" 00-%s-%s-01 ", s.TraceID(), s.SpanID()))
					for _, private := range []string{"alice", "secret"} {
						assert.NotContains(t, stored(), private)
					}
					end(l, held, k)
					require.NoError(t, c.Close())
					assert.Equal(t, s.SpanID(), e.ended("hold "+string(kind)).SpanContext().SpanID())
					lab.RequireNoToken(t, e.text())
					assert.NotContains(t, stored(), s.TraceID().String(), kind)
				}
			})
		})
	}
}

func TestTraceparentOfALeaseThatExpiredIsNotTold(t *testing.T) {
	lab.InBubble(t, func(t *testing.T, l *lab.Lab) {
		e := newTelemetry(t, holdfast.WithHolderLinks(), holdfast.WithHoldSpans(holdfast.HoldSpansAlways))
		held := l.Lease(e.on(l.Near()), "x", holdfast.WithTTL(time.Second), holdfast.WithoutRenewal())
		require.NoError(t, held.Renew(t.Context())) // tells who it is
		require.Contains(t, l.Stored(driver.Mutex, "x"), " 00-")
		time.Sleep(1500 * time.Millisecond)
		next := l.Lease(l.Near(), "x")
		assert.NotContains(t, l.Stored(driver.Mutex, "x"), " 00-")
		l.GiveBack(next)
	})
}

// Without the option nothing is stored, nor without a hold span to link to.
func TestNothingIsStoredWithoutHolderLinks(t *testing.T) {
	lab.InBubble(t, func(t *testing.T, l *lab.Lab) {
		for _, opts := range [][]holdfast.TracingOption{
			{holdfast.WithHoldSpans(holdfast.HoldSpansAlways)},
			{holdfast.WithHolderLinks()}, // alone: no hold span
			{holdfast.WithHolderLinks(), holdfast.WithHoldSpans(holdfast.HoldSpansNever)},
		} {
			c := newTelemetry(t, opts...).on(l.Near())
			lease := l.Lease(c, "x")
			time.Sleep(2 * lab.Ages)
			assert.NotContains(t, l.Stored(driver.Mutex, "x"), " 00-")
			l.GiveBack(lease)
		}
	})
}

// At most 8 holders are linked to, each once.
func TestLinksAreFewAndDifferent(t *testing.T) {
	e := newTelemetry(t, holdfast.WithHolderLinks())
	asks := 0
	c := lab.WithPuppet(t, lab.Puppet{OnAcquire: func(r *driver.Request) (driver.Grant, error) {
		if asks++; asks > 20 {
			return driver.Grant{Status: driver.Granted, Ask: r.Ask, Fence: 1}, nil
		}
		tag := fmt.Sprintf("00-0af7651916cd43dd8448eb211c80319c-%016x-01", 1+asks/2)
		return driver.Grant{Status: driver.Queued, HolderTag: tag, RetryAfter: time.Nanosecond}, nil
	}}, e.hook)
	l, err := c.Mutex("x").Lease(context.Background())
	require.NoError(t, err)
	require.NoError(t, l.Release(t.Context()))
	links := e.ended("acquire mutex").Links()
	require.Len(t, links, 8)
	for i, link := range links {
		assert.Equal(t, fmt.Sprintf("%016x", 1+i), link.SpanContext.SpanID().String())
	}
}

// In one process, too: readers behind a writer who has the lock by Lock.
func TestReadersInTheDoorwayAreLinkedToTheWriter(t *testing.T) {
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		e := newTelemetry(t, holdfast.WithHolderLinks(), holdfast.WithHoldSpans(holdfast.HoldSpansAlways))
		rw := e.on(l.Mates()).RWMutex("x")
		rw.Lock()
		const readers = 8
		var in []<-chan any
		for range readers {
			in = append(in, lab.Begin(rw.RLock))
		}
		l.UntilWaiting(rw, readers)
		rw.Unlock()
		for _, r := range in {
			l.Ends(r)
			rw.RUnlock()
		}
		var writer sdktrace.ReadOnlySpan
		var linked []trace.SpanID
		for _, s := range e.spans.Ended() {
			if s.Name() == "hold rwmutex" && attrsOf(s)["holdfast.mode"] == "exclusive" {
				writer = s
			}
			if s.Name() == "acquire rwmutex" && len(s.Links()) > 0 {
				require.Len(t, s.Links(), 1)
				linked = append(linked, s.Links()[0].SpanContext.SpanID())
				assert.Equal(t, true, attrsOf(s)["holdfast.contended"])
			}
		}
		id := writer.SpanContext().SpanID()
		assert.Equal(t, slices.Repeat([]trace.SpanID{id}, readers), linked)
	})
}

// A holder that had left before one came was not in the way.
func TestWhoCameLaterIsNotLinkedToWhoHadGone(t *testing.T) {
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		e := newTelemetry(t, holdfast.WithHolderLinks(), holdfast.WithHoldSpans(holdfast.HoldSpansAlways))
		c := l.Mates()
		known(l, c.Mutex("x"))
		mu := e.on(c).Mutex("x")
		waiting := func(n int) {
			l.Until("so many wait", func() bool { return strings.Count(lab.Stacks(), "(*Lock).waitTurn(") == n })
		}
		mu.Lock()
		second := lab.Begin(mu.Lock)
		waiting(1)
		mu.Unlock()
		l.Ends(second)
		third := lab.Begin(mu.Lock)
		waiting(1)
		mu.Unlock()
		l.Ends(third)
		mu.Unlock()

		var holds []trace.SpanID
		var links [][]trace.SpanID
		for _, s := range e.spans.Ended() {
			switch s.Name() {
			case "hold mutex":
				holds = append(holds, s.SpanContext().SpanID())
			case "acquire mutex":
				var to []trace.SpanID
				for _, link := range s.Links() {
					to = append(to, link.SpanContext.SpanID())
				}
				links = append(links, to)
			}
		}
		require.Len(t, holds, 3)
		assert.Equal(t, [][]trace.SpanID{nil, {holds[0]}, {holds[1]}}, links)
	})
}

// A client that asks for links has one also of who was in the way of a try, and others have none, though
// holders say who they are.
func TestLinksAreMadeOnlyIfAskedFor(t *testing.T) {
	for links, opts := range [][]holdfast.TracingOption{nil, {holdfast.WithHolderLinks()}} {
		e := newTelemetry(t, opts...)
		c := lab.WithPuppet(t, lab.Puppet{OnAcquire: func(r *driver.Request) (driver.Grant, error) {
			return driver.Grant{Status: driver.Busy, HolderTag: parent}, nil
		}}, e.hook)
		_, err := c.Mutex("x").TryLease(t.Context())
		require.ErrorIs(t, err, holdfast.ErrLocked)
		assert.Len(t, e.ended("acquire mutex").Links(), links)
	}
}
