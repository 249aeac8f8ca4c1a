package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

// watch prints how many hold and wait now, until ctx ends.
func watch(ctx context.Context, w io.Writer, reader *sdkmetric.ManualReader) {
	began := time.Now()
	tick := time.NewTicker(400 * ms)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		all, err := collect(context.WithoutCancel(ctx), reader)
		if err != nil {
			return
		}
		hold, wait := sum(all["holdfast.hold.active"]), sum(all["holdfast.wait.active"])
		fmt.Fprintf(w, "%4.1f s   hold %d %-10s wait %d %s\n", time.Since(began).Seconds(),
			hold, strings.Repeat("■", hold), wait, strings.Repeat("□", wait))
	}
}

// collect returns the metrics by name.
func collect(ctx context.Context, reader *sdkmetric.ManualReader) (map[string]metricdata.Aggregation, error) {
	var data metricdata.ResourceMetrics
	err := reader.Collect(ctx, &data)
	all := map[string]metricdata.Aggregation{}
	for _, scope := range data.ScopeMetrics {
		for _, m := range scope.Metrics {
			all[m.Name] = m.Data
		}
	}
	return all, err
}

// row is what is known of the locks of one kind, mode and class.
type row struct {
	count      map[string]uint64 // by outcome, end reason and such
	wait, hold metricdata.HistogramDataPoint[float64]
}

func printMetrics(w io.Writer, reader *sdkmetric.ManualReader) error {
	all, err := collect(context.Background(), reader)
	if err != nil {
		return err
	}
	fmt.Fprintf(w, "\n%-25s%9s%7s%8s%10s%10s%8s%10s%8s%5s\n\n", "METRICS",
		"acquired", "missed", "timeout", "contended", "wait p50", "p99", "hold p50", "p99", "lost")
	rows := table(all)
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		r := rows[name]
		fmt.Fprintf(w, "%-25s%9d%7d%8d%10d%10s%8s%10s%8s%5d\n", name,
			r.count["acquired"], r.count["not_acquired"], r.count["timeout"], r.count["contended true"],
			quantile(r.wait, .5), quantile(r.wait, .99), quantile(r.hold, .5), quantile(r.hold, .99), r.count["lost"])
	}
	fmt.Fprintf(w, "\nwake-ups    %s\n", by(all["holdfast.wakeups"], "holdfast.source"))
	fmt.Fprintf(w, "renewals    %s\n", by(all["holdfast.renew.duration"], "error.type"))
	fmt.Fprintf(w, "reconnects  %s\n", by(all["holdfast.subscription.reconnects"], "holdfast.reason"))
	return nil
}

// table makes the rows, by name.
func table(all map[string]metricdata.Aggregation) map[string]*row {
	rows := map[string]*row{}
	of := func(p metricdata.HistogramDataPoint[float64]) *row {
		name := word(p.Attributes, "holdfast.primitive") + " " + word(p.Attributes, "holdfast.mode") +
			" " + word(p.Attributes, "holdfast.lock.class")
		if rows[name] == nil {
			rows[name] = &row{count: map[string]uint64{}}
		}
		return rows[name]
	}
	for _, p := range histogram(all["holdfast.acquire.duration"]) {
		r := of(p)
		r.count[word(p.Attributes, "holdfast.outcome")] += p.Count
		r.count["contended "+word(p.Attributes, "holdfast.contended")] += p.Count
		r.wait = merge(r.wait, p)
	}
	for _, p := range histogram(all["holdfast.hold.duration"]) {
		r := of(p)
		r.count[word(p.Attributes, "holdfast.end_reason")] += p.Count
		r.hold = merge(r.hold, p)
	}
	return rows
}

func word(attrs attribute.Set, key attribute.Key) string {
	v, _ := attrs.Value(key)
	return v.String()
}

func histogram(a metricdata.Aggregation) []metricdata.HistogramDataPoint[float64] {
	h, _ := a.(metricdata.Histogram[float64])
	return h.DataPoints
}

// merge adds two points of one instrument. The zero one is for nothing.
func merge(a, b metricdata.HistogramDataPoint[float64]) metricdata.HistogramDataPoint[float64] {
	if a.Count == 0 {
		b.BucketCounts = slices.Clone(b.BucketCounts)
		return b
	}
	for i, n := range b.BucketCounts {
		a.BucketCounts[i] += n
	}
	a.Count += b.Count
	if m, _ := b.Max.Value(); m > maximum(a) {
		a.Max = b.Max
	}
	return a
}

func maximum(p metricdata.HistogramDataPoint[float64]) float64 {
	m, _ := p.Max.Value()
	return m
}

// quantile is histogram_quantile of Prometheus, but never above the maximum, which
// Prometheus does not know.
func quantile(p metricdata.HistogramDataPoint[float64], q float64) string {
	rank, below := q*float64(p.Count), 0.0
	for i, n := range p.BucketCounts {
		if below+float64(n) < rank || n == 0 {
			below += float64(n)
			continue
		}
		low, high := 0.0, math.Inf(1)
		if i > 0 {
			low = p.Bounds[i-1]
		}
		if i < len(p.Bounds) {
			high = p.Bounds[i]
		}
		high = min(high, maximum(p))
		return took(time.Duration((low + (high-low)*(rank-below)/float64(n)) * float64(time.Second)))
	}
	return "-"
}

// by is "error 1, silent 2": the numbers of a metric by an attribute, or ok without it.
func by(a metricdata.Aggregation, key attribute.Key) string {
	n := map[string]int{}
	for _, p := range counts(a) {
		n[cmp.Or(word(p.Attributes, key), "ok")] += int(p.Value)
	}
	for _, p := range histogram(a) {
		n[cmp.Or(word(p.Attributes, key), "ok")] += int(p.Count)
	}
	var parts []string
	for _, value := range slices.Sorted(maps.Keys(n)) {
		parts = append(parts, fmt.Sprint(value, " ", n[value]))
	}
	return strings.Join(parts, ", ")
}

func counts(a metricdata.Aggregation) []metricdata.DataPoint[int64] {
	c, _ := a.(metricdata.Sum[int64])
	return c.DataPoints
}

func sum(a metricdata.Aggregation) (n int) {
	for _, p := range counts(a) {
		n += int(p.Value)
	}
	return n
}
