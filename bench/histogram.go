package bench

import (
	"math"
	"math/bits"
	"time"
)

// Histogram counts durations in buckets that are 1/32 as wide as the durations in them. So
// millions of waits need no more room than one, and its answers are at most 1.6 % wrong. It
// knows the longest exactly. (This is the idea of Gil Tene's HdrHistogram.)
type Histogram struct {
	count   int64
	longest time.Duration
	buckets []uint32
}

// per is how many buckets there are between a power of two and the next; shorter
// durations than that, in ns, have a bucket each.
const per = 32

func bucket(d time.Duration) int {
	n := uint64(max(0, d))
	if n < per {
		return int(n)
	}
	shift := bits.Len64(n) - bits.Len64(per)
	return shift*per + int(n>>shift)
}

// middle returns the middle of a bucket.
func middle(bucket int) time.Duration {
	if bucket < 2*per {
		return time.Duration(bucket)
	}
	shift := bucket/per - 1
	low := uint64(bucket-shift*per) << shift
	return time.Duration(low + uint64(1)<<shift/2)
}

// Add counts one duration.
func (h *Histogram) Add(d time.Duration) {
	i := bucket(d)
	if i >= len(h.buckets) {
		h.buckets = append(h.buckets, make([]uint32, i+1-len(h.buckets))...)
	}
	h.buckets[i]++
	h.count++
	h.longest = max(h.longest, d)
}

// Merge counts all that other has counted.
func (h *Histogram) Merge(other *Histogram) {
	if n := len(other.buckets) - len(h.buckets); n > 0 {
		h.buckets = append(h.buckets, make([]uint32, n)...)
	}
	for i, n := range other.buckets {
		h.buckets[i] += n
	}
	h.count += other.count
	h.longest = max(h.longest, other.longest)
}

// Count returns how many durations were counted.
func (h *Histogram) Count() int64 { return h.count }

// Max returns the longest duration.
func (h *Histogram) Max() time.Duration { return h.longest }

// Percentile returns the duration that p percent of all do not exceed, by nearest rank,
// and 0 if there are none.
func (h *Histogram) Percentile(p float64) time.Duration {
	rank := int64(math.Ceil(p / 100 * float64(h.count)))
	var seen int64
	for i, n := range h.buckets {
		seen += int64(n)
		if n > 0 && seen >= rank {
			return min(middle(i), h.longest)
		}
	}
	return h.longest
}

// CDF calls point for each bucket that is not empty, in ascending order. It passes the
// middle of the bucket and the share of all durations that are in it or below.
func (h *Histogram) CDF(point func(d time.Duration, share float64)) {
	var seen int64
	for i, n := range h.buckets {
		if n > 0 {
			seen += int64(n)
			point(min(middle(i), h.longest), float64(seen)/float64(h.count))
		}
	}
}
