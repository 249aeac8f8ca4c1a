package redisdriver_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/redisdriver"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/seed"
)

// So many lists of steps are played by default, of each kind in each test. To look for
// more, set the flag -rapid.checks or RAPID_CHECKS.
func init() {
	seed.Rapid()
	if os.Getenv("RAPID_CHECKS") == "" {
		_ = flag.Set("rapid.checks", "8") // cannot fail: rapid has defined it
	}
}

var everyday = []action{
	doAsk, doAsk, doAsk, doAsk, doAsk, doAsk, doAsk, doAsk, doAsk, doRelease, doRelease, doRelease, doUnsettled, doUnsettled,
	doRenew, doLeave, doStraggle, doLate, doLate, doForce, doPass, doPass, doEdge, doEdge,
}

// quiet are days without a crash. The lock is freed again and again with nothing to remember,
// and there are tombstones only then.
var quiet = []action{doAsk, doAsk, doAsk, doAsk, doAsk, doAsk, doAsk, doAsk, doRelease, doRelease, doRelease, doRenew, doStraggle}

// quietScenes free the lock, and then go through both forms and the changes between them.
var quietScenes = [][]modelStep{freeAll(), append(freeAll(),
	modelStep{Do: doAsk, N: 3, Limit: 3, Time: 24000},
	modelStep{Do: doRelease},
	modelStep{Do: doAsk, N: 3, Limit: 3, Time: 24000},
	modelStep{Do: doAsk, N: 3, Limit: 3, Time: 24000, Slot: 1, Wait: true},
	modelStep{Do: doRelease},
	modelStep{Do: doRelease, Slot: 1},
	modelStep{Do: doUnsettled, Slot: 1},
	modelStep{Do: doPass, Time: 70000},
)}

// gamesOf generates lists of steps of either days.
func gamesOf(k driver.Kind, ttls, times []int64, not ...action) *rapid.Generator[[]modelStep] {
	actions := slices.DeleteFunc(actionsOf(k, everyday), func(a action) bool { return slices.Contains(not, a) })
	return rapid.OneOf(stepsOf(k, ttls, times, nil, actions...), stepsOf(k, ttls, times, quietScenes, quiet...))
}

// actionsOf are the actions that a kind of lock has.
func actionsOf(k driver.Kind, common []action) []action {
	list := slices.Clone(common)
	switch k {
	case driver.Semaphore:
		list = append(list, doDowngrade, doResize)
	case driver.RWMutex:
		list = append(list, doDowngrade, doDowngrade)
	}
	return list
}

var kinds = []driver.Kind{driver.Mutex, driver.RWMutex, driver.Semaphore}

// bubbleClock is the clock of a bubble. Nothing takes time there.
type bubbleClock struct{}

func (bubbleClock) pass(ms int64) { time.Sleep(time.Duration(ms) * time.Millisecond) }
func (bubbleClock) now() int64    { return time.Now().UnixMilli() }
func (bubbleClock) slack() int64  { return 0 }

func (bubbleClock) hear(from chan hearing, _ bool) (hearing, bool) {
	synctest.Wait()
	select {
	case h := <-from:
		return h, true
	default:
		return hearing{}, false
	}
}

// Each list of steps has a bubble and a server of its own. Failing lists are printed as
// Go.
func TestModelInVirtualTime(t *testing.T) {
	for _, k := range kinds {
		t.Run(string(k), func(t *testing.T) {
			t.Parallel()
			steps := gamesOf(k, []int64{10, 90, 600, 3000, 20000}, []int64{1, 8, 50, 400, 2000, 14000, 61000})
			var seen forms
			seen.playUntilAll(t, func(round int) {
				rapid.Check(t, func(rt *rapid.T) {
					othersThan(rt, round)
					playInBubble(t, rt, k, steps.Draw(rt, "steps"), &seen)
				})
			})
		})
	}
}

// othersThan has the games of a round differ from those of the rounds before, which began with the same seed.
func othersThan(rt *rapid.T, round int) {
	for range round {
		rapid.Uint64().Draw(rt, "not used")
	}
}

func playInBubble(t *testing.T, rt *rapid.T, k driver.Kind, steps []modelStep, seen *forms) {
	var err error
	redistest.Bubble(t, func(t *testing.T, s *redistest.Server) {
		w := bubbleWorld(t, s, k, seen)
		err = w.play(steps)
		for _, d := range w.drivers {
			require.NoError(t, d.Close())
		}
	})
	if err != nil {
		rt.Fatalf("FOUL: %v\n%s", err, listing(steps))
	}
}

func bubbleWorld(t *testing.T, s *redistest.Server, k driver.Kind, seen *forms) *world {
	rdb := s.Client(t)
	var drivers []*redisdriver.Driver
	for range 2 {
		drivers = append(drivers, warm(t, s.Client(t), s.Prefix()))
	}
	return newWorld(k, s.Prefix(), "model", rdb, drivers, bubbleClock{}, seen)
}

// warm returns a driver that has made its subscription: to make it can take time.
func warm(t *testing.T, rdb redis.UniversalClient, prefix string) *redisdriver.Driver {
	d := redisdriver.New(rdb, redisdriver.WithPrefix(prefix), redisdriver.WithRetention(retained))
	for i, want := range []driver.Status{driver.Granted, driver.Queued} {
		r := &driver.Request{Kind: driver.Mutex, Name: "warm", Token: fmt.Sprint(i), Ask: 1, TTL: time.Minute, Wait: true}
		g, err := d.Acquire(context.Background(), r)
		require.NoError(t, err)
		require.Equal(t, want, g.Status)
	}
	for _, token := range []string{"1", "0"} {
		require.NoError(t, d.Release(context.Background(), driver.Lease{Kind: driver.Mutex, Name: "warm", Token: token}))
	}
	return d
}

func listing(steps []modelStep) string {
	var b strings.Builder
	for _, s := range steps {
		fmt.Fprintf(&b, "\t%v,\n", s)
	}
	return b.String()
}
