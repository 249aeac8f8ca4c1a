package bench_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/bench"
)

func TestJainIndexIsOneOnlyIfAllHaveTheSame(t *testing.T) {
	require.Equal(t, 1.0, bench.JainIndex([]float64{7, 7, 7}))
	require.Equal(t, 0.25, bench.JainIndex([]float64{9, 0, 0, 0}))
	require.InDelta(t, 0.8, bench.JainIndex([]float64{1, 3}), 1e-9) // (1+3)² / (2·(1+9))
	require.Equal(t, 1.0, bench.JainIndex([]float64{0, 0}))
}

func TestMedianIsTheMiddle(t *testing.T) {
	require.Zero(t, bench.Median(nil))
	require.Equal(t, 3.0, bench.Median([]float64{9, 3, 1}))
	v := []float64{4, 1, 2, 100}
	require.Equal(t, 3.0, bench.Median(v))
	require.Equal(t, []float64{4, 1, 2, 100}, v, "left as it was")
}

func TestSummaryHasMediansButAllThatWentWrong(t *testing.T) {
	turn := func(ops, failures float64, wait time.Duration) bench.Turn {
		var h bench.Histogram
		h.Add(wait)
		return bench.Turn{
			Figures: map[bench.Figure]float64{bench.Throughput: ops, bench.Failures: failures, bench.Overlaps: failures, bench.Stuck: failures},
			Waits:   &h,
		}
	}
	r := bench.Summary([]bench.Turn{turn(10, 0, 20), turn(1000, 2, 5*time.Microsecond), turn(30, 1, 10)})
	require.Equal(t, 3, r.Turns)
	require.Equal(t, map[bench.Figure]float64{
		bench.Throughput: 30, bench.Failures: 3, bench.Overlaps: 3, bench.Stuck: 3,
		bench.WaitP50: 0.02, bench.WaitP99: 5, bench.WaitMax: 5,
	}, r.Figures)
}

// Two that take turns on a machine that is ten times as slow for a while.
func TestRatioComparesNeighbours(t *testing.T) {
	turns := func(all ...float64) (r bench.Result) {
		for _, ops := range all {
			r.Each = append(r.Each, bench.Turn{Figures: map[bench.Figure]float64{bench.Throughput: ops}})
		}
		return r
	}
	fast, slow := turns(200, 20, 20, 220, 10), turns(100, 10, 10, 100, 0, 1)
	require.Equal(t, 2.0, fast.Ratio(slow, bench.Throughput))
	require.Zero(t, fast.Ratio(turns(), bench.Throughput))
}
