package main

import (
	"fmt"
	"math"

	"github.com/holdfast-go/holdfast/bench"
)

// target is a promise of the design, to be measured.
type target struct {
	work    string
	text    string
	by      string                                     // which form of holdfast
	measure func(c chapter, by string) (float64, bool) // false if there is nothing to compare with
	most    bool                                       // the goal is a maximum, else a minimum
	goal    float64
}

// All are of Lease, the form that peers have, unless they say otherwise.
var targets = []target{
	{"Uncontended", "time of a cycle ÷ that of raw", ours, against(bench.Throughput, invert, "raw"), true, 1.2},
	{"Uncontended", "time of a cycle ÷ that of redislock", ours, against(bench.Throughput, invert, "redislock"), true, 1.15},
	{"Uncontended", "CPU time of Redis ÷ that of raw", ours, against(bench.RedisCPU, keep, "raw"), true, 1.4},
	{"Uncontended", "CPU time of Redis ÷ that of raw", lock, against(bench.RedisCPU, keep, "raw"), true, 1.4},
	{"Near/rtt=2ms", "time of a cycle ÷ that of raw", ours, against(bench.Throughput, invert, "raw"), true, 1.05},
	{"Linger", "commands per cycle", linger, own(bench.Commands), true, 0.0001},
	{"Linger", "cycles per second", linger, own(bench.Throughput), false, 1e6},
	{"Clients/2/hold=0s", "hand-overs between clients ÷ those of the best peer", ours, against(bench.Handovers, keep, peers...), false, 1.5},
	{"Clients/8/hold=0s", "hand-overs between clients ÷ those of the best peer", ours, against(bench.Handovers, keep, peers...), false, 1.5},
	{"Clients/64/hold=0s", "throughput ÷ that of the best peer", ours, against(bench.Throughput, keep, peers...), false, 1},
	{"Clients/64/hold=0s", "throughput ÷ that of the best peer with a Jain index of 0.9", ours, against(bench.Throughput, keep, fair...), false, 1.5},
	{"Clients/64/hold=0s", "hand-overs between clients ÷ those of the best peer", ours, against(bench.Handovers, keep, peers...), false, 1},
	{"Clients/64/hold=0s", "p99 wait ÷ that of the best peer", ours, against(bench.WaitP99, keep, peers...), true, 0.08},
	{"Clients/64/hold=0s", "Jain index", ours, own(bench.Jain), false, 0.99},
	{"Clients/64/hold=1ms", "throughput ÷ that of the best peer", ours, against(bench.Throughput, keep, peers...), false, 1.25},
	{"Clients/64/hold=1ms", "p99 wait ÷ that of the best peer", ours, against(bench.WaitP99, keep, peers...), true, 0.12},
	{"Readers/64", "throughput ÷ that of a sorted set by hand", ours, against(bench.Throughput, keep, "sorted set"), false, 0.9},
	{"Semaphore/16-of-64", "throughput ÷ that of a sorted set by hand", ours, against(bench.Throughput, keep, "sorted set"), false, 1.2},
	{"Far/rtt=10ms", "cycles per round trip", ours, own(bench.CyclesPerRTT), false, 0.95},
	{"OneClient/64", "throughput ÷ that of the best peer", ours, against(bench.Throughput, keep, peers...), false, 100},
	{"OneClient/64", "throughput ÷ that of the best peer", lock, against(bench.Throughput, keep, peers...), false, 100},
	{"OneClient/64", "throughput ÷ that of the best peer", do, against(bench.Throughput, keep, peers...), false, 60},
	{"Apart/8", "throughput ÷ that of rueidislock", ours, against(bench.Throughput, keep, "rueidislock"), false, 0.9},
	{"Apart/8", "throughput ÷ that of the best peer on go-redis", ours, against(bench.Throughput, keep, "redsync", "redislock"), false, 1.2},
	{"Apart/64", "throughput ÷ that of rueidislock", ours, against(bench.Throughput, keep, "rueidislock"), false, 1.4},
	{"Apart/512", "throughput ÷ that of rueidislock", ours, against(bench.Throughput, keep, "rueidislock"), false, 1.6},
	{"Cluster/Apart/8", "throughput ÷ that of rueidislock", ours, against(bench.Throughput, keep, "rueidislock"), false, 0.9},
	{"Cluster/Apart/8", "throughput ÷ that of the best peer on go-redis", ours, against(bench.Throughput, keep, "redsync", "redislock"), false, 1.1},
	{"Cluster/Apart/64", "throughput ÷ that of rueidislock", ours, against(bench.Throughput, keep, "rueidislock"), false, 1.2},
	{"Cluster/Apart/64", "throughput ÷ that of the best peer on go-redis", ours, against(bench.Throughput, keep, "redsync", "redislock"), false, 1.2},
	{"Cluster/Apart/512", "throughput ÷ that of rueidislock", ours, against(bench.Throughput, keep, "rueidislock"), false, 2},
	{"Cluster/Apart/512", "throughput ÷ that of the best peer on go-redis", ours, against(bench.Throughput, keep, "redsync", "redislock"), false, 1.2},
	{"Many/1000x10", "throughput ÷ that of rueidislock", ours, against(bench.Throughput, keep, "rueidislock"), false, 1.3},
	{"Redlock/1/hold=0s", "throughput ÷ that of redsync on the same three servers", redlock, against(bench.Throughput, keep, "redsync of three"), false, 0.8},
	{"Redlock/8/hold=1ms", "throughput ÷ that of redsync on the same three servers", redlock, against(bench.Throughput, keep, "redsync of three"), false, 1},
	{"Redlock/8/hold=1ms", "p99 wait ÷ that of redsync on the same three servers", redlock, against(bench.WaitP99, keep, "redsync of three"), true, 0.15},
	{"Postgres/1/hold=0s", "throughput ÷ that of a row lock", postgres, against(bench.Throughput, keep, "row lock"), false, 1},
	{"Postgres/64/hold=0s", "throughput ÷ that of a row lock", postgres, against(bench.Throughput, keep, "row lock"), false, 0.6},
	{"Etcd/1/hold=0s", "throughput ÷ that of concurrency.Mutex", ownEtcd, against(bench.Throughput, keep, "etcd"), false, 0.7},
	{"Etcd/64/hold=0s", "throughput ÷ that of concurrency.Mutex", ownEtcd, against(bench.Throughput, keep, "etcd"), false, 0.8},
	{"ZooKeeper/1/hold=0s", "throughput ÷ that of a bare lock", ownZooKeeper, against(bench.Throughput, keep, "zookeeper"), false, 0.7},
	{"ZooKeeper/64/hold=0s", "throughput ÷ that of a bare lock", ownZooKeeper, against(bench.Throughput, keep, "zookeeper"), false, 0.8},
	{"Held/10000", "goroutines", ours, own(bench.Goroutines), true, 4},
	{"Held/10000", "heap per lease in bytes", ours, own(bench.HeapPerLease), true, 1024},
}

var peers = []string{"redsync", "redislock", "rueidislock"}

// fair are the peers, of those only that give every client about the same.
var fair = append([]string{evenOnly}, peers...)

const evenOnly = "Jain index ≥ 0.9"

// The forms of holdfast.
const (
	ours     = "holdfast"
	lock     = "holdfast Lock"
	do       = "holdfast Do"
	linger   = "holdfast linger"
	strict   = "holdfast strict"
	redlock  = "holdfast redlock"
	postgres = "holdfast postgres"
	ownEtcd  = "holdfast etcd"

	ownZooKeeper = "holdfast zookeeper"
)

func keep(x float64) float64   { return x }
func invert(x float64) float64 { return 1 / x }

// own measures holdfast alone.
func own(f bench.Figure) func(chapter, string) (float64, bool) {
	return func(c chapter, by string) (float64, bool) {
		r := c.of(by)
		if r == nil {
			return 0, false
		}
		v, ok := r.Figures[f]
		return v, ok
	}
}

// against measures holdfast against the best of those: turn by turn, but waits, which are
// those of all turns.
func against(f bench.Figure, how func(float64) float64, others ...string) func(chapter, string) (float64, bool) {
	return func(c chapter, by string) (float64, bool) {
		r := c.of(by)
		best := math.NaN()
		var other *bench.Result
		for _, name := range others {
			o := c.of(name)
			if o == nil || o.Figures[bench.Stuck] > 0 && f != bench.Throughput || others[0] == evenOnly && o.Figures[bench.Jain] < 0.9 {
				continue
			}
			if v := o.Figures[f]; math.IsNaN(best) || (v > best) == (f == bench.Throughput || f == bench.Handovers) {
				best, other = v, o
			}
		}
		if r == nil || math.IsNaN(best) || best == 0 {
			return 0, false
		}
		if f == bench.WaitP99 {
			return how(r.Figures[f] / best), true
		}
		return how(r.Ratio(*other, f)), true
	}
}

// flat is the target on how the hand-over goes with the number of waiters.
func flat(chapters []chapter, by string) (ratio float64, ok bool) {
	var few, many *bench.Result
	for _, c := range chapters {
		switch c.Name {
		case "Waiters/10":
			few = c.of(by)
		case "Waiters/10000":
			many = c.of(by)
		}
	}
	if few == nil || many == nil || few.Waits == nil || many.Figures[bench.WaitP50] == 0 {
		return 0, false
	}
	return many.Figures[bench.WaitP50] / few.Figures[bench.WaitP50], true
}

// verdict says what was to be reached and what was.
func verdict(goal, measured float64, most, ok bool) (want, have, reached string) {
	sign := "≥"
	if most {
		sign = "≤"
	}
	want = fmt.Sprintf("%s %v", sign, goal)
	if !ok {
		return want, "–", "not measured"
	}
	have = number(measured)
	if most && measured <= goal || !most && measured >= goal {
		return want, have, "yes"
	}
	return want, have, "**no**"
}
