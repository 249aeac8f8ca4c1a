package bench_test

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/bench"
)

func TestHistogramTellsPercentilesWithinTwoPercent(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var all []time.Duration
	var h bench.Histogram
	for range 10_000 {
		d := time.Duration(random.ExpFloat64() * float64(time.Millisecond))
		all = append(all, d)
		h.Add(d)
	}
	slices.Sort(all)
	for _, p := range []float64{1, 10, 50, 90, 99} {
		exact := all[int(p*float64(len(all))/100)-1]
		require.InEpsilon(t, exact, h.Percentile(p), 0.02, "p%v", p)
	}
	require.Equal(t, all[len(all)-1], h.Percentile(100))
	require.Equal(t, all[len(all)-1], h.Max())
	require.EqualValues(t, len(all), h.Count())
}

func TestHistogramTakesAnyDuration(t *testing.T) {
	for _, d := range []time.Duration{0, 1, 31, 32, 33, 63, 64, 65, time.Hour, 1<<63 - 1} {
		var h bench.Histogram
		h.Add(d)
		require.InDelta(t, d, h.Percentile(50), 0.016*float64(d), "%d", d)
		require.Equal(t, d, h.Max())
	}
	var h bench.Histogram
	h.Add(-1) // a clock stepped back
	require.Zero(t, h.Percentile(50))
	require.Zero(t, new(bench.Histogram).Percentile(50))
}

func TestHistogramPercentileIsByNearestRank(t *testing.T) {
	var h bench.Histogram
	for _, d := range []time.Duration{1, 2, 3, 4} {
		h.Add(d)
	}
	for p, want := range map[float64]time.Duration{1: 1, 25: 1, 26: 2, 50: 2, 51: 3, 75: 3, 76: 4, 100: 4} {
		require.Equal(t, want, h.Percentile(p), "p%v", p)
	}
}

func TestHistogramsMergeAsIfOneHadCountedAll(t *testing.T) {
	var a, b, both bench.Histogram
	for d := range time.Duration(1000) {
		both.Add(d * d)
		if d%3 != 0 { // so that the longest is in b
			a.Add(d * d)
		} else {
			b.Add(d * d)
		}
	}
	a.Merge(&b)
	require.Equal(t, both, a)
}

func TestCDFRisesToOne(t *testing.T) {
	var h bench.Histogram
	for d := range time.Duration(1000) {
		h.Add(d * time.Microsecond)
	}
	var longest time.Duration = -1
	var last float64
	h.CDF(func(d time.Duration, share float64) {
		require.Greater(t, d, longest)
		require.Greater(t, share, last)
		longest, last = d, share
	})
	require.Equal(t, 1.0, last)
}
