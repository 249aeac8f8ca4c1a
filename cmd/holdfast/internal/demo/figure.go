package demo

import (
	"math"
	"slices"
	"time"
)

// spread is how a set of durations lies.
type spread struct{ p50, p99, max time.Duration }

func spreadOf(ds []time.Duration) spread {
	if len(ds) == 0 {
		return spread{}
	}
	ds = slices.Sorted(slices.Values(ds))
	return spread{p50: quantile(ds, 0.50), p99: quantile(ds, 0.99), max: ds[len(ds)-1]}
}

// quantile is the smallest value that at least the share q of sorted does not
// exceed (nearest rank).
func quantile(sorted []time.Duration, q float64) time.Duration {
	rank := int(math.Ceil(q * float64(len(sorted))))
	return sorted[max(rank, 1)-1]
}

// fairness is Jain's index: 1 if all shares are equal, 1/n if one has everything.
// (Jain, Chiu, Hawe: A Quantitative Measure of Fairness, DEC TR-301, 1984.)
func fairness(shares []int) float64 {
	var sum, squares float64
	for _, s := range shares {
		sum += float64(s)
		squares += float64(s) * float64(s)
	}
	if squares == 0 {
		return 0
	}
	return sum * sum / (float64(len(shares)) * squares)
}
