package bench

import (
	"maps"
	"slices"
	"time"
)

// Figure is what is measured, by the name that package testing prints. Durations are in
// µs.
type Figure string

const (
	Throughput  Figure = "ops/s"
	Handovers   Figure = "handovers/s" // from one process to another
	WaitP50     Figure = "p50-µs"
	WaitP99     Figure = "p99-µs"
	WaitMax     Figure = "max-µs"
	Jain        Figure = "jain"
	Commands    Figure = "cmds/op"
	RedisCPU    Figure = "redis-µs/op"    // CPU time of the whole server
	PostgresCPU Figure = "postgres-µs/op" // CPU time of all its processes
	ClientPerOp Figure = "client-µs/op"   // CPU time of this process, which is all clients
	Allocs      Figure = "allocs/op"

	Failures Figure = "failures" // calls that returned an error, and were made again
	Stuck    Figure = "stuck"    // members that did not get the lock after all others had gone
	Overlaps Figure = "overlaps" // times that a visitor was in the room that must not be

	CyclesPerRTT   Figure = "cycles/rtt"
	RTT            Figure = "rtt-µs" // of PING
	Goroutines     Figure = "goroutines"
	HeapPerLease   Figure = "B/lease"
	ClientCPU      Figure = "client-cpu-ms/s"
	ServerCPU      Figure = "redis-cpu-ms/s"
	CommandsPerSec Figure = "cmds/s"
	LoneShare      Figure = "lone-share" // of the processes with one goroutine
)

// Turn is what came of one turn of a contender.
type Turn struct {
	Figures map[Figure]float64
	Waits   *Histogram // nil if nobody waited
}

// Result is what came of all turns of a contender at a work.
type Result struct {
	Work      string             `json:"work"`
	Contender string             `json:"contender"`
	Role      Role               `json:"role"`
	Turns     int                `json:"turns"`
	Figures   map[Figure]float64 `json:"figures"`
	Waits     *Histogram         `json:"-"`
	Each      []Turn             `json:"-"`
}

// Summary returns the medians over turns. Waits are those of all turns together, and so
// is what went wrong.
func Summary(turns []Turn) Result {
	r := Result{Turns: len(turns), Figures: map[Figure]float64{}, Each: turns}
	each := map[Figure][]float64{}
	for _, t := range turns {
		for f, v := range t.Figures {
			each[f] = append(each[f], v)
		}
		if t.Waits != nil {
			if r.Waits == nil {
				r.Waits = new(Histogram)
			}
			r.Waits.Merge(t.Waits)
		}
	}
	for f, v := range each {
		r.Figures[f] = Median(v)
	}
	for _, f := range []Figure{Failures, Stuck, Overlaps} {
		if v, ok := each[f]; ok {
			r.Figures[f] = sum(v)
		}
	}
	if r.Waits != nil && r.Waits.Count() > 0 {
		maps.Copy(r.Figures, waits(r.Waits))
	}
	return r
}

// Ratio is the median of what r had of a figure, divided by what the other had in the turn
// beside it. A machine that is slow for a while is slow for both.
func (r Result) Ratio(other Result, f Figure) float64 {
	var all []float64
	for i := range min(len(r.Each), len(other.Each)) {
		if v := other.Each[i].Figures[f]; v != 0 {
			all = append(all, r.Each[i].Figures[f]/v)
		}
	}
	return Median(all)
}

func waits(h *Histogram) map[Figure]float64 {
	return map[Figure]float64{
		WaitP50: micros(h.Percentile(50)),
		WaitP99: micros(h.Percentile(99)),
		WaitMax: micros(h.Max()),
	}
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// Median returns the middle one, or the mean of the two in the middle; 0 of none.
func Median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	v = slices.Sorted(slices.Values(v))
	return (v[(len(v)-1)/2] + v[len(v)/2]) / 2
}

// JainIndex tells how even shares are: 1 if all are equal, 1/n if one of n has
// everything. It is from R. Jain, D. Chiu, W. Hawe: A Quantitative Measure of Fairness
// and Discrimination for Resource Allocation in Shared Computer Systems, DEC-TR-301, 1984.
// Where nobody has anything, that is even.
func JainIndex(shares []float64) float64 {
	var total, squares float64
	for _, s := range shares {
		total += s
		squares += s * s
	}
	if squares == 0 {
		return 1
	}
	return total * total / (float64(len(shares)) * squares)
}

func sum(v []float64) (total float64) {
	for _, x := range v {
		total += x
	}
	return total
}
