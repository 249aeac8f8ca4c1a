package redisdriver_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/redisdriver"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

// contend has a waiter wait for each of the leases.
func contend(t *testing.T, d *redisdriver.Driver, leases []driver.Lease) {
	t.Helper()
	for _, l := range leases {
		g, err := d.Acquire(t.Context(), &driver.Request{Kind: l.Kind, Name: l.Name, Token: "waits-" + l.Name, Ask: 1, TTL: time.Hour, Wait: true})
		require.NoError(t, err)
		require.Equal(t, driver.Queued, g.Status)
	}
}

// A call handles some locks that others wait for, and leaves the others out. These go in calls that
// handle all of theirs.
func TestBatchOfContendedLeasesIsRenewedInTwoTrips(t *testing.T) {
	everywhere(t, func(t *testing.T, s *redistest.Server, _ bool) {
		d, _, w := watched(t, s)
		leases := taken(t, d, 256)
		requireNone(t, d.Renew(t.Context(), leases)) // the scripts are known
		w.pipes = nil
		requireNone(t, d.Renew(t.Context(), leases))
		require.Equal(t, [][]int{{64, 64, 64, 64}}, w.pipes)

		contend(t, d, leases)
		w.pipes = nil
		var order []int
		for i, err := range d.RenewEach(t.Context(), leases, func(i int) { order = append(order, i) }) {
			require.NoError(t, err, "lease %d", i)
		}
		require.Equal(t, [][]int{{64, 64, 64, 64}, slices.Repeat([]int{8}, 28)}, w.pipes, "no call may hold up the server for longer")
		require.Len(t, order, 256)
		slices.Sort(order)
		require.Len(t, slices.Compact(order), 256, "each is told once")
	})
}

// A renewal counts when its answer is there: the first trip of a batch is told before the second begins.
func TestRenewalIsToldBeforeTheOthersAreAnswered(t *testing.T) {
	everywhere(t, func(t *testing.T, s *redistest.Server, _ bool) {
		d, _, w := watched(t, s)
		leases := taken(t, d, 100)
		contend(t, d, leases)
		requireNone(t, d.Renew(t.Context(), leases)) // the scripts are known
		w.pipes = nil
		told := map[int]int{} // before each trip
		d.RenewEach(t.Context(), leases, func(int) { told[len(w.pipes)]++ })
		require.Equal(t, map[int]int{1: 16, 2: 84}, told)
	})
}

// However many want locks that others want, too, a far server handles them in a few trips. The wrong
// version has 16 calls under way, each for 8 of them, so a crowd takes a trip for every 128. Where a trip
// takes long waiters ask too late, and trust no grant any more.
func TestCrowdOfContendedLocksTakesFewTrips(t *testing.T) {
	const n, trip = 600, 90 * time.Millisecond // before callers think that a call hangs
	ask := func(l driver.Lease, number uint64, ttl time.Duration) *driver.Request {
		return &driver.Request{Kind: l.Kind, Name: l.Name, Token: "waits-" + l.Name, Ask: number, TTL: ttl, Wait: true}
	}
	type act func(d *redisdriver.Driver, l driver.Lease) error
	for what, do := range map[string]act{
		"acquire": func(d *redisdriver.Driver, l driver.Lease) error {
			_, err := d.Acquire(context.Background(), ask(l, 1, time.Hour)) // the first that waits
			return err
		},
		"heartbeat": func(d *redisdriver.Driver, l driver.Lease) error {
			g, err := d.Acquire(context.Background(), ask(l, 2, time.Hour))
			if err == nil && g.Status != driver.Queued {
				err = fmt.Errorf("answered %+v", g)
			}
			return err
		},
		"release": func(d *redisdriver.Driver, l driver.Lease) error {
			return d.Release(context.Background(), l) // the waiter has crashed
		},
	} {
		t.Run(what, func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T, s *redistest.Server) {
				rdb, w := s.Client(t, func(o *redis.Options) { o.PoolSize = 20 }), &wire{}
				rdb.AddHook(w)
				d, near := open(t, rdb, s), open(t, s.Client(t), s)
				leases := taken(t, d, n)
				switch what {
				case "heartbeat":
					contend(t, d, leases)
				case "release":
					for _, l := range leases {
						_, err := near.Acquire(t.Context(), ask(l, 1, time.Second))
						require.NoError(t, err)
					}
					time.Sleep(2 * time.Second)
				}
				// The server knows the scripts, and the driver how far it is.
				for _, s := range redisdriver.Scripts() {
					require.NoError(t, rdb.ScriptLoad(t.Context(), s.Text).Err())
				}
				w.rtt = trip
				requireNone(t, w.crowd(t, d, "far", 1))
				require.NoError(t, d.Release(t.Context(), driver.Lease{Kind: driver.Mutex, Name: "far0", Token: "t-far0"}))
				w.runs = nil
				var all sync.WaitGroup
				began := time.Now()
				for _, l := range leases {
					all.Go(func() {
						if err := do(d, l); err != nil {
							t.Error(err)
						}
					})
				}
				all.Wait()
				require.LessOrEqual(t, time.Since(began), 4*trip) // those that wait for the first time ask twice
				for _, r := range w.seen() {
					require.LessOrEqual(t, len(r.keys), 64, "no call may hold up the server for longer")
				}
			})
		})
	}
}
