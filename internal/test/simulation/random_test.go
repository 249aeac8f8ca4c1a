package simulation_test

import (
	"flag"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var (
	soak     = os.Getenv("HOLDFAST_SOAK") == "1"
	simulate = flag.Duration("simulate", usually(), "how long to look for a random plan that fails, over each store")
)

func usually() time.Duration {
	if soak {
		return 2 * time.Minute
	}
	return 3 * time.Second
}

// So many plans are drawn between two looks at the clock.
func init() {
	if os.Getenv("RAPID_CHECKS") == "" {
		_ = flag.Set("rapid.checks", "10") // cannot fail: rapid has defined it
	}
}

// stores are where the plans are played.
var stores = map[string]func(*world) store{"redis": newRedisStore, "memory": newMemoryStore}

func TestEveryPlanIsPlayedAsPromised(t *testing.T) {
	for name, open := range stores {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var played, ops, frames, hits, virtual atomic.Int64
			var failed atomic.Bool
			began := time.Now()
			for first := true; !t.Failed() && (first || !replaying() && time.Since(began) < *simulate); first = false {
				rapid.Check(t, func(rt *rapid.T) {
					p := plans.Draw(rt, "plan")
					o := play(t, &p, nil, open)
					// Goroutines of one moment run in any order, and what one does changes when
					// the next one acts. To be made smaller, a plan gets several chances to fail.
					for n := 0; o.err == nil && (failed.Load() || replaying()) && n < 15; n++ {
						p.Seed++
						o = play(t, &p, nil, open)
					}
					played.Add(1)
					ops.Add(int64(o.ops))
					frames.Add(int64(o.frames))
					hits.Add(int64(o.hits))
					virtual.Add(int64(o.virtual))
					if o.err != nil {
						failed.Store(true)
						rt.Fatalf("seed %d, %v", p.Seed, o.err)
					}
				})
			}
			took := time.Since(began)
			t.Logf("%d plans, %d calls (%.0f/s), %d frames, %d of them hit, %.1f virtual hours in %v",
				played.Load(), ops.Load(), float64(ops.Load())/took.Seconds(), frames.Load(), hits.Load(),
				time.Duration(virtual.Load()).Hours(), took.Round(time.Second))
		})
	}
}

// replaying reports whether the command line says which plan to play.
func replaying() (given bool) {
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "rapid.seed" || f.Name == "rapid.failfile" })
	return given
}
