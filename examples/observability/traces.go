package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

type span = sdktrace.ReadOnlySpan

// account is an exporter that keeps spans, to tell of them at the end.
type account struct {
	mu    sync.Mutex
	spans []span
}

func (a *account) ExportSpans(_ context.Context, spans []span) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.spans = append(a.spans, spans...)
	return nil
}

func (a *account) Shutdown(context.Context) error { return nil }

// tale is one trace in lines.
type tale struct {
	text  strings.Builder
	shape strings.Builder // text without what differs every time
	alike int             // how many others have the same shape
}

// forest is the spans by their place in the traces.
type forest struct {
	byID     map[trace.SpanID]span
	children map[trace.SpanID][]span
}

// print tells of each kind of trace once.
func (a *account) print(w io.Writer) {
	slices.SortStableFunc(a.spans, func(x, y span) int { return x.StartTime().Compare(y.StartTime()) })
	f := forest{byID: map[trace.SpanID]span{}, children: map[trace.SpanID][]span{}}
	for _, s := range a.spans {
		f.byID[s.SpanContext().SpanID()] = s
		f.children[s.Parent().SpanID()] = append(f.children[s.Parent().SpanID()], s)
	}
	var tales []*tale
	shapes := map[string]*tale{}
	roots, stray := f.under(trace.SpanID{})
	for _, root := range roots {
		t := &tale{}
		f.tell(t, root, "", "")
		if first := shapes[t.shape.String()]; first != nil {
			first.alike++
			continue
		}
		shapes[t.shape.String()] = t
		tales = append(tales, t)
	}
	fmt.Fprintf(w, "\n"+columns+"\n", "TRACES", "took", "ended", "commands in Redis")
	for _, t := range tales {
		fmt.Fprint(w, "\n", t.text.String())
		if t.alike > 0 {
			fmt.Fprintf(w, "   and %d more like this\n", t.alike)
		}
	}
	fmt.Fprintf(w, "\nCommands outside of any trace: %s\n", stray)
}

const columns = "%-32s%8s  %-23s %s"

// under returns what is under a span, with commands in a few words.
func (f forest) under(id trace.SpanID) (children []span, commands string) {
	var names []string
	count := map[string]int{}
	for _, c := range f.children[id] {
		name := strings.TrimPrefix(strings.TrimPrefix(c.Name(), "pipeline "), "holdfast.")
		if c.SpanKind() != trace.SpanKindClient {
			children = append(children, c)
		} else if count[name]++; count[name] == 1 {
			names = append(names, name)
		}
	}
	for i, name := range names {
		if n := count[name]; n > 1 {
			names[i] = fmt.Sprint(name, " ×", n)
		}
	}
	return children, strings.Join(names, ", ")
}

// tell writes a span and what is under it. first begins its line, and rest the others.
func (f forest) tell(t *tale, s span, first, rest string) {
	children, commands := f.under(s.SpanContext().SpanID())
	line := fmt.Sprintf(columns, first+title(s), took(s.EndTime().Sub(s.StartTime())), remark(s), commands)
	t.text.WriteString(strings.TrimRight(line, " ") + "\n")
	t.shape.WriteString(first + s.Name() + remark(s) + "\n")

	bar := "    "
	if len(children) > 0 {
		bar = "│   "
	}
	for _, l := range s.Links() {
		if slices.Contains(l.Attributes, attribute.String("holdfast.link", "holder")) {
			t.text.WriteString(rest + bar + "waited for → " + f.holder(l) + "\n")
		}
	}
	for _, e := range s.Events() {
		text := rest + bar + e.Name
		for _, a := range e.Attributes {
			text += ", " + string(a.Key) + " " + a.Value.String()
		}
		t.text.WriteString(text + "\n")
	}
	for i, c := range children {
		if i == len(children)-1 {
			f.tell(t, c, rest+"└─ ", rest+"   ")
		} else {
			f.tell(t, c, rest+"├─ ", rest+"│  ")
		}
	}
}

// title is what a span is called in the account.
func title(s span) string {
	if !s.Parent().IsValid() {
		return instance(s) + "  " + s.Name()
	}
	name := strings.TrimSpace(s.Name() + " " + attr(s, "holdfast.lock.name"))
	if attr(s, "holdfast.operation.name") == "hold" {
		name += "  " + short(s)
	}
	return name
}

// remark says how a span ended.
func remark(s span) string {
	said := attr(s, "holdfast.outcome") + attr(s, "holdfast.end_reason") // no span has both
	if attr(s, "holdfast.contended") == "true" {
		said += ", contended"
	}
	if s.Status().Code == codes.Error {
		said = "✗ " + said
	}
	return said
}

// holder says whose span a link leads to.
func (f forest) holder(l sdktrace.Link) string {
	s := f.byID[l.SpanContext.SpanID()]
	if s == nil {
		return "hold " + l.SpanContext.SpanID().String() + " of another program"
	}
	return "hold " + short(s) + " of " + instance(s)
}

func instance(s span) string {
	v, _ := s.Resource().Set().Value(semconv.ServiceInstanceIDKey)
	return v.AsString()
}

func short(s span) string { return s.SpanContext().SpanID().String()[:4] }

func attr(s span, key attribute.Key) string {
	for _, a := range s.Attributes() {
		if a.Key == key {
			return a.Value.String()
		}
	}
	return ""
}

func took(d time.Duration) string {
	if d < 10*ms {
		return fmt.Sprintf("%.1f ms", d.Seconds()*1000)
	}
	return fmt.Sprintf("%.0f ms", d.Seconds()*1000)
}
