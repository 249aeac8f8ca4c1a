package main

import (
	"context"
	"math"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/tsdb/chunks"
	"github.com/prometheus/prometheus/util/annotations"
	"github.com/stretchr/testify/require"
)

// scrapes is as much of the storage of Prometheus as its engine needs.
type scrapes map[uint64]*samples

type samples struct {
	labels labels.Labels
	values []chunks.Sample
}

type sample struct {
	chunks.Sample // nil: it is no histogram
	at            int64
	value         float64
}

func (s sample) T() int64                 { return s.at }
func (s sample) ST() int64                { return 0 }
func (s sample) F() float64               { return s.value }
func (s sample) Type() chunkenc.ValueType { return chunkenc.ValFloat }

// scrape adds the metrics of the library as they are now.
func (s scrapes) scrape(t *testing.T, from prometheus.Gatherer) {
	t.Helper()
	now := time.Now().UnixMilli()
	families, err := from.Gather()
	require.NoError(t, err)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			of := labels.NewBuilder(labels.FromStrings("instance", "test"))
			for _, l := range m.GetLabel() {
				of.Set(l.GetName(), l.GetValue())
			}
			add := func(suffix string, value float64) {
				l := of.Set("__name__", f.GetName()+suffix).Labels()
				series := s[l.Hash()]
				if series == nil {
					series = &samples{labels: l}
					s[l.Hash()] = series
				}
				series.values = append(series.values, sample{at: now, value: value})
			}
			switch f.GetType() {
			case dto.MetricType_COUNTER:
				add("", m.GetCounter().GetValue())
			case dto.MetricType_GAUGE:
				add("", m.GetGauge().GetValue())
			case dto.MetricType_HISTOGRAM:
				h := m.GetHistogram()
				add("_count", float64(h.GetSampleCount()))
				add("_sum", h.GetSampleSum())
				for _, b := range h.GetBucket() {
					of.Set(labels.BucketLabel, labels.FormatOpenMetricsFloat(b.GetUpperBound()))
					add("_bucket", float64(b.GetCumulativeCount()))
				}
				of.Set(labels.BucketLabel, labels.FormatOpenMetricsFloat(math.Inf(1)))
				add("_bucket", float64(h.GetSampleCount()))
			}
		}
	}
}

// Querier implements [storage.Queryable].
func (s scrapes) Querier(int64, int64) (storage.Querier, error) {
	return &storage.MockQuerier{SelectMockFunction: func(_ bool, _ *storage.SelectHints, matchers ...*labels.Matcher) storage.SeriesSet {
		found := &list{at: -1}
	next:
		for _, series := range s {
			for _, m := range matchers {
				if !m.Matches(series.labels.Get(m.Name)) {
					continue next
				}
			}
			found.series = append(found.series, storage.NewListSeries(series.labels, series.values))
		}
		return found
	}}, nil
}

// list implements [storage.SeriesSet].
type list struct {
	series []storage.Series
	at     int
}

func (l *list) Next() bool                        { l.at++; return l.at < len(l.series) }
func (l *list) At() storage.Series                { return l.series[l.at] }
func (l *list) Err() error                        { return nil }
func (l *list) Warnings() annotations.Annotations { return nil }

var engine = promql.NewEngine(promql.EngineOpts{MaxSamples: 1e6, Timeout: time.Minute})

// query evaluates an expression as a rule at that time.
func (s scrapes) query(t *testing.T, expr string, at time.Time) promql.Vector {
	t.Helper()
	q, err := engine.NewInstantQuery(context.Background(), s, nil, expr, at)
	require.NoError(t, err)
	defer q.Close()
	v, err := q.Exec(context.Background()).Vector()
	require.NoError(t, err, expr)
	return v
}
