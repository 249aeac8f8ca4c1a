package redlock_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/drivertest"
	"github.com/holdfast-go/holdfast/driver/redisdriver"
	"github.com/holdfast-go/holdfast/driver/redlock"
	"github.com/holdfast-go/holdfast/driver/setnx"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

// abilities are what the suite must not skip on nodes with the protocol of holdfast.
var abilities = []drivertest.Ability{
	drivertest.Queue, drivertest.Push, drivertest.Hint, drivertest.Fences, drivertest.Inspect, drivertest.Texts, drivertest.Force,
	drivertest.RWMutex, drivertest.Downgrade, drivertest.Owner, drivertest.Notice,
}

// kind is how locks are kept on a node.
type kind func(rdb redis.UniversalClient, prefix string) driver.Driver

func native(rdb redis.UniversalClient, prefix string) driver.Driver {
	return redisdriver.New(rdb, redisdriver.WithPrefix(prefix))
}

func plain(rdb redis.UniversalClient, prefix string) driver.Driver {
	return setnx.New(rdb, setnx.WithPrefix(prefix))
}

// unordered are the cases that ask for fences which follow the queue also among readers that
// are granted the lock together. Redlock promises only that each has its own, so they run
// without fences. See TestReadersTogetherHaveFencesOfTheirOwn.
var unordered = []string{
	"FencesIncreaseOverReadersGrantedTogether", "ReadersAndWritersAreServedInOrderWhateverHappens",
}

// called is the test of a case. A store without fences is another store, whose cases are subtests of another test.
func called(c drivertest.Case) string {
	if slices.Contains(unordered, c.Name) {
		return "without fences/" + c.Name
	}
	return c.Name
}

// run runs a case.
func run(t *testing.T, c drivertest.Case, open drivertest.Open, must []drivertest.Ability) {
	if slices.Contains(unordered, c.Name) {
		must = slices.DeleteFunc(slices.Clone(must), func(a drivertest.Ability) bool { return a == drivertest.Fences })
		fenced := open
		open = func(t *testing.T) driver.Driver { return fenceless{fenced(t)} }
	}
	c.Run(t, open, must...)
}

// fenceless is a driver that does not tell its fences.
type fenceless struct{ driver.Driver }

func (f fenceless) Unwrap() driver.Driver { return f.Driver }

func (f fenceless) Acquire(ctx context.Context, r *driver.Request) (driver.Grant, error) {
	told := *r
	told.Wake = func(g driver.Grant) {
		g.Fence = 0
		r.Wake(g)
	}
	g, err := f.Driver.Acquire(ctx, &told)
	g.Fence = 0
	return g, err
}

// opener opens drivers over nodes on those servers. A loaded machine must not cost votes, so
// they have a lot of time to answer.
func opener(k kind, servers []*redistest.Server) drivertest.Open {
	return func(t *testing.T) driver.Driver {
		var nodes []driver.Driver
		for _, s := range servers {
			nodes = append(nodes, k(s.Client(t), s.Prefix()))
		}
		return redlock.New(nodes, redlock.WithDelayedRestart(0), redlock.WithTimeout(time.Second))
	}
}

func reals(t *testing.T, n int) []*redistest.Server {
	var servers []*redistest.Server
	for range n {
		servers = append(servers, redistest.Real(t))
	}
	return servers
}

// inGroups runs the cases in some groups at the same time: what they do most is wait.
func inGroups(t *testing.T, groups int, run func(*testing.T, drivertest.Case)) {
	for g := range groups {
		t.Run(fmt.Sprint("group ", g), func(t *testing.T) {
			t.Parallel()
			for i, c := range drivertest.Cases() {
				if c.Form != "" && !redistest.Again() {
					continue // For a quorum they are the same requests with other arguments.
				}
				if i%groups == g && !strings.HasSuffix(c.Name, "ShortestAndLongestTTL") { // 10 ms: only in virtual time
					t.Run(called(c), func(t *testing.T) { run(t, c) })
				}
			}
		})
	}
}

func TestConformance(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		kind  kind
		nodes int
		must  []drivertest.Ability
	}{
		"3 nodes":       {native, 3, abilities},
		"5 nodes":       {native, 5, abilities},
		"3 setnx nodes": {plain, 3, nil},
	} {
		if c.nodes == 5 && !redistest.Again() {
			continue // the same again, with more votes
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			servers := reals(t, c.nodes)
			t.Cleanup(func() {
				for _, s := range servers {
					s.RequireTTLs(t, "")
				}
			})
			inGroups(t, 6, func(t *testing.T, property drivertest.Case) { run(t, property, opener(c.kind, servers), c.must) })
		})
	}
}

// The same on miniredis, where it costs nothing to wait until the last key must have gone.
func TestConformanceInVirtualTime(t *testing.T) {
	if redistest.Installed() && !redistest.Again() {
		t.Skip("TestConformance has the same cases on real servers; HOLDFAST_SOAK=1 runs them here, too")
	}
	passed := 0
	for _, c := range drivertest.Cases() {
		t.Run(called(c), func(t *testing.T) {
			skipped := false
			redistest.Bubble(t, func(t *testing.T, s *redistest.Server) {
				defer func() { skipped = t.Skipped() }()
				run(t, c, func(t *testing.T) driver.Driver {
					var nodes []driver.Driver // apart by their prefixes
					for _, p := range []string{"a:", "b:", "c:"} {
						nodes = append(nodes, native(s.Client(t), s.Prefix()+p))
					}
					return redlock.New(nodes, redlock.WithDelayedRestart(0))
				}, abilities)
				time.Sleep(5 * time.Minute) // some fences are far ahead
				s.RequireNoKeys(t, "", 0)
			})
			if skipped {
				t.Skip("for the reason above") // A bubble keeps that to itself.
			}
			passed++
		})
	}
	require.Greater(t, passed, 100, "almost nothing is left for this driver")
}
