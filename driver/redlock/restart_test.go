package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/redlock"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

// A holds the lock on nodes 0, 1 and 2, and does not reach the others, when node 2 restarts
// and has forgotten it. Then 2, 3 and 4 are free. They must not elect B.
func TestRestartedNodeHelpsToElectNobody(t *testing.T) {
	redistest.SoakOnly(t)
	t.Parallel()
	const longest = 4 * time.Second
	for name, k := range map[string]kind{"native": native, "setnx": plain} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, delayed := range []bool{true, false} {
				q := newQuorum(t, k, 5)
				opts := []redlock.Option{redlock.WithTimeout(longest / 4)}
				if delayed {
					opts = append(opts, redlock.WithDelayedRestart(longest))
				}
				nodes := q.nodes()
				nodes[3], nodes[4] = away{nodes[3]}, away{nodes[4]}
				a, b := q.over(nodes, opts...), q.driver(opts...)
				q.watch(b, longest) // both have seen what it was before
				q.watch(a, longest)
				q.short(a, "a", longest, driver.Granted)
				trusted := time.Now().Add(longest / 2)

				q.short(b, "b", longest, driver.Busy)
				q.servers[2].Restart()
				// B finds broken connections at first, and go-redis takes its time to make new ones.
				elected := false
				for i := 0; !elected && time.Now().Before(trusted); i++ {
					elected = q.elects(b, fmt.Sprint("b-", i), longest)
					time.Sleep(10 * time.Millisecond)
				}
				require.Equal(t, !delayed, elected, "with delayed restart: %v", delayed)
				if delayed {
					require.Eventually(t, func() bool { return q.elects(b, fmt.Sprint("b", rand.Uint64()), longest) },
						20*time.Second, 20*time.Millisecond, "a node that was restarted never counts again")
				}
			}
		})
	}
}

// away is a node that cannot be reached.
type away struct{ driver.Driver }

func (away) Acquire(context.Context, *driver.Request) (driver.Grant, error) {
	return driver.Grant{}, driver.ErrTransient
}

func (a away) Unwrap() driver.Driver { return a.Driver }

// watch returns when a driver has the lock from a majority, so that it has seen all nodes that
// it reaches, and has seen them for long enough if these are no more than a majority.
func (q *quorum) watch(d driver.Driver, longest time.Duration) {
	q.Helper()
	token := fmt.Sprint("watch-", rand.Uint64())
	require.Eventually(q, func() bool { return q.elects(d, token, longest) }, longest+20*time.Second, 20*time.Millisecond)
	require.NoError(q, d.Release(q.Context(), lease(token)))
}

// elects reports whether a token that does not wait has the lock.
func (q *quorum) elects(d driver.Driver, token string, ttl time.Duration) bool {
	q.Helper()
	r := request(token)
	r.TTL = ttl
	g, err := d.Acquire(q.Context(), r)
	if err != nil {
		require.ErrorIs(q, err, driver.ErrTransient)
		_ = d.Release(q.Context(), lease(token)) // it may have votes; what is not answered is repeated
		return false
	}
	return g.Status == driver.Granted
}

// The same as it happens to happen: nodes that keep nothing restart all the time, while
// clients hand the lock on. The referee knows nothing of locks but what their holders believe.
//
// INFO tells the age of a server in whole seconds, which is too coarse for nodes of which one
// restarts every 200 ms. So the test tells the drivers how old the nodes are.
func TestRestartsElectNoSecondHolder(t *testing.T) {
	redistest.SoakOnly(t)
	t.Run("delayed", func(t *testing.T) {
		f := newFleet(t, true)
		f.run(4, int64(redistest.Rounds(1000)))
		require.Zero(t, f.fouls.Load(), "FOUL: times that two believed to hold the lock")
		require.Zero(t, f.setbacks.Load(), "FOUL: fences that were not larger than those before")
		t.Logf("%d acquisitions, %d restarts, %d leases lost", f.entries.Load(), f.restarts.Load(), f.lost.Load())
	})
	t.Run("not delayed", func(t *testing.T) {
		f := newFleet(t, false)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for f.fouls.Load() == 0 && ctx.Err() == nil {
			f.betray(ctx)
		}
		require.NotZero(t, f.fouls.Load(), "this test cannot fail")
	})
}

// betray restarts a majority while a client holds the lock, and has another ask for it.
func (f *fleet) betray(ctx context.Context) {
	for range 2 {
		locks := f.open()
		defer func() { _ = locks.Close() }() // what is held then may be lost
		for {
			lease, err := locks.Mutex("orders", holdfast.WithTTL(10*time.Second)).TryLease(ctx)
			if err == nil {
				f.enter(lease)
				defer f.leave(lease)
				break
			} else if ctx.Err() != nil {
				return
			}
		}
		for i := range f.servers[:3] {
			f.restart(i)
		}
	}
}

// fleet is clients of nodes that restart.
type fleet struct {
	*quorum
	delayed bool
	born    []atomic.Int64 // ns since start, in the future while a node restarts
	start   time.Time

	restarts, entries, lost, fouls, setbacks atomic.Int64

	mu     sync.Mutex
	inside []*holdfast.Lease
	fence  int64
}

const brief = 300 * time.Millisecond

func newFleet(t *testing.T, delayed bool) *fleet {
	f := &fleet{quorum: newQuorum(t, native, 5), delayed: delayed, start: time.Now()}
	f.born = make([]atomic.Int64, len(f.servers))
	for i := range f.born {
		f.born[i].Store(int64(-time.Hour))
	}
	return f
}

// aged is a node whose age the test knows.
type aged struct {
	driver.Driver
	age func() time.Duration
}

func (a aged) Unwrap() driver.Driver { return a.Driver }

func (a aged) Uptime(context.Context) (sure, said time.Duration, err error) {
	return a.age(), a.age(), nil
}

func (f *fleet) open() *holdfast.Client {
	var nodes []driver.Driver
	for i := range f.servers {
		nodes = append(nodes, &aged{f.node(i, fast), func() time.Duration {
			return max(0, time.Since(f.start)-time.Duration(f.born[i].Load()))
		}})
	}
	opt := redlock.WithDelayedRestart(0)
	if f.delayed {
		opt = redlock.WithDelayedRestart(brief)
	}
	return holdfast.Open(redlock.New(nodes, opt), holdfast.WithLogger(slog.New(slog.DiscardHandler)))
}

// run lets some clients take the lock so many times, or for a minute.
func (f *fleet) run(clients int, entries int64) {
	ctx, cancel := context.WithTimeout(f.Context(), time.Minute)
	defer cancel()
	var wg sync.WaitGroup
	for range clients {
		wg.Go(func() {
			locks := f.open()
			defer func() {
				if err := locks.Close(); !errors.Is(err, holdfast.ErrLost) { // what is held then may be
					assert.NoError(f, err)
				}
			}()
			for ctx.Err() == nil && f.entries.Load() < entries {
				f.visit(ctx, locks)
			}
		})
	}
	done := make(chan struct{})
	go func() {
		wg.Wait()
		close(done)
	}()
	f.nemesis(done)
	require.Greater(f, f.entries.Load(), entries/10, "in a minute")
}

// nemesis restarts a random node every 200 ms.
func (f *fleet) nemesis(done <-chan struct{}) {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return
		case <-tick.C:
		}
		f.restart(rand.IntN(len(f.servers)))
	}
}

func (f *fleet) restart(i int) {
	f.born[i].Store(int64(time.Hour)) // while the process changes
	f.servers[i].Kill()
	f.servers[i].Restart()
	f.born[i].Store(int64(time.Since(f.start)))
	f.restarts.Add(1)
}

// visit takes the lock, mostly for a moment and now and then for longer than it takes to
// restart a majority. It does not wait in queues, since who hears of pushes on a connection
// that breaks every second takes its time to make it again.
func (f *fleet) visit(ctx context.Context, locks *holdfast.Client) {
	lease, err := locks.Mutex("orders", holdfast.WithTTL(brief)).TryLease(ctx)
	if err != nil {
		time.Sleep(rand.N(5 * time.Millisecond))
		return
	}
	f.enter(lease)
	if rand.IntN(100) == 0 {
		select {
		case <-lease.Done():
			f.lost.Add(1)
		case <-time.After(1500 * time.Millisecond):
		}
	}
	f.leave(lease)
	_ = lease.Release(context.WithoutCancel(ctx)) // it may be lost
}

func (f *fleet) enter(lease *holdfast.Lease) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if lease.Err() != nil {
		return // it was over before we could do anything
	}
	f.entries.Add(1)
	for _, other := range f.inside {
		if other.Err() == nil {
			f.fouls.Add(1)
		}
	}
	if lease.Fence() <= f.fence {
		f.setbacks.Add(1)
	}
	f.fence = max(f.fence, lease.Fence())
	f.inside = append(f.inside, lease)
}

func (f *fleet) leave(lease *holdfast.Lease) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.inside = slices.DeleteFunc(f.inside, func(l *holdfast.Lease) bool { return l == lease })
}

func (q *quorum) short(d driver.Driver, token string, ttl time.Duration, want driver.Status) {
	q.Helper()
	r := request(token)
	r.TTL = ttl
	g, err := d.Acquire(q.Context(), r)
	require.NoError(q, err)
	require.Equal(q, want, g.Status)
}
