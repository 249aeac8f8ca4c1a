package fault_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/test/behavior/lab"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

// oblivion is a network that forgets the connections that there are, as a NAT, a firewall or a
// load balancer may: what is written is lost, and nothing comes in. New ones are well.
type oblivion struct {
	mu  sync.Mutex
	all []*forgettable
}

type forgettable struct {
	net.Conn
	forgotten atomic.Bool
}

func (c *forgettable) Write(p []byte) (int, error) {
	if c.forgotten.Load() {
		return len(p), nil
	}
	return c.Conn.Write(p)
}

type dialer = func(ctx context.Context, network, addr string) (net.Conn, error)

func (o *oblivion) over(dial dialer) dialer {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		o.mu.Lock()
		defer o.mu.Unlock()
		c := &forgettable{Conn: conn}
		o.all = append(o.all, c)
		return c, nil
	}
}

func (o *oblivion) strike() {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, c := range o.all {
		c.forgotten.Store(true)
	}
}

// idle leaves n idle connections in the pools, as a burst does.
func idle(t *testing.T, rdb *redis.Client, n int) {
	t.Helper()
	var conns []*redis.Conn
	for range min(n, rdb.Options().PoolSize) {
		c := rdb.Conn()
		require.NoError(t, c.Ping(t.Context()).Err())
		conns = append(conns, c)
	}
	for _, c := range conns {
		require.NoError(t, c.Close())
	}
	if rdb.PoolStats().PipelineStats == nil {
		return
	}
	var wg sync.WaitGroup
	for range min(n, 10) {
		wg.Go(func() {
			_, _ = rdb.Pipelined(context.Background(), func(p redis.Pipeliner) error {
				p.BLPop(context.Background(), time.Second, "nothing")
				return nil
			})
		})
	}
	wg.Wait()
}

func silent() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

// forgetful runs body in virtual time for clients whose connections are forgotten when it
// strikes, n in each pool. The pools have room for others: those that have none are below, for
// go-redis cannot wait for its pool in more than one bubble.
func forgetful(t *testing.T, ttls []time.Duration, body func(t *testing.T, far, near *holdfast.Client, ttl time.Duration, strike func(int), n int)) {
	for _, ttl := range ttls {
		for _, timeout := range []time.Duration{0, 3 * time.Second, -1, -2} {
			for _, pipelines := range []int{0, -1} {
				for _, n := range []int{1, 2, 3, 4, 5, 8, 10, 20} {
					t.Run(fmt.Sprintf("TTL %v, ReadTimeout %v, pipeline pool %d, %d forgotten", ttl, timeout, pipelines, n), func(t *testing.T) {
						redistest.Bubble(t, func(t *testing.T, s *redistest.Server) {
							o := &oblivion{}
							rdb := s.Client(t, func(opt *redis.Options) {
								opt.Dialer = o.over(opt.Dialer)
								opt.PoolSize, opt.PipelinePoolSize, opt.ReadTimeout = 40, pipelines, timeout
							})
							open := func(rdb *redis.Client) *holdfast.Client {
								c := holdfast.New(rdb, holdfast.WithTTL(ttl), holdfast.WithLogger(silent()), holdfast.WithStrictFIFO())
								t.Cleanup(func() { closes(t, c, timeout) })
								return c
							}
							body(t, open(rdb), open(s.Client(t)), ttl, func(n int) { idle(t, rdb, n); o.strike() }, n)
						})
					})
				}
			}
		}
	}
}

// A pool may be so small that its silent connections are all that it may have. Those that hang
// must be given up before there can be a fresh one.
func TestSmallPoolsOutliveConnectionsThatFallSilent(t *testing.T) {
	t.Parallel()
	const own = "HOLDFAST_TEST_ONE_BUBBLE"
	if !redistest.Virtually() {
		t.Skip("in virtual time alone")
	}
	if os.Getenv(own) == "" { // the one bubble of its process that waits for a pool
		cmd := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$", "-test.timeout", "5m")
		cmd.Env = append(os.Environ(), own+"=1")
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return
	}
	const ttl = 2 * time.Second
	redistest.Bubble(t, func(t *testing.T, s *redistest.Server) {
		var wg sync.WaitGroup
		for _, timeout := range []time.Duration{0, 3 * time.Second, -1, -2} {
			for _, pool := range [][2]int{{1, 0}, {1, 1}, {1, -1}, {2, 0}, {2, 2}, {2, -1}, {20, -1}} {
				what := fmt.Sprintf("ReadTimeout %v, pools of %v", timeout, pool)
				o := &oblivion{}
				rdb := s.Client(t, func(opt *redis.Options) {
					opt.Dialer = o.over(opt.Dialer)
					opt.PoolSize, opt.PipelinePoolSize, opt.ReadTimeout = pool[0], pool[1], timeout
				})
				c := holdfast.New(rdb, holdfast.WithPrefix(what), holdfast.WithTTL(ttl), holdfast.WithLogger(silent()))
				lease, err := c.Mutex("x").Lease(t.Context())
				require.NoError(t, err)
				idle(t, rdb, pool[0])
				o.strike()
				wg.Go(func() {
					time.Sleep(3 * ttl)
					assert.NoError(t, lease.Err(), what)
					began := time.Now()
					ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
					defer cancel()
					free, err := c.Mutex("y").Lease(ctx)
					if assert.NoError(t, err, what) {
						assert.Less(t, time.Since(began), 8*time.Second, what)
						assert.NoError(t, free.Release(t.Context()), what)
					}
					assert.NoError(t, lease.Release(t.Context()), what)
					closes(t, c, timeout)
				})
			}
		}
		wg.Wait()
	})
}

// closes closes a client. Without a ReadTimeout the command that hung first hangs for ever, and
// Close says so.
func closes(t *testing.T, c *holdfast.Client, timeout time.Duration) {
	if err := c.Close(); timeout >= 0 {
		assert.NoError(t, err)
	}
}

var ttls = []time.Duration{2 * time.Second, 10 * time.Second}

// The server can be reached all the time, by new connections. So no lease may be lost, however
// many old ones there are.
func TestLeaseOutlivesConnectionsThatFallSilent(t *testing.T) {
	forgetful(t, ttls, func(t *testing.T, far, _ *holdfast.Client, ttl time.Duration, strike func(int), n int) {
		lease, err := far.Mutex("x").Lease(t.Context())
		require.NoError(t, err)
		strike(n)
		select {
		case <-lease.Done():
			t.Fatal(lease.Err())
		case <-time.After(5 * ttl):
		}
	})
}

// The first ask takes a silent connection. The second finds a fresh one, however many others
// there are, unless the pool has none to give.
func TestFreeLockIsHadDespiteConnectionsThatFallSilent(t *testing.T) {
	forgetful(t, []time.Duration{10 * time.Second}, func(t *testing.T, far, _ *holdfast.Client, ttl time.Duration, strike func(int), n int) {
		warm, err := far.Mutex("warm").Lease(t.Context())
		require.NoError(t, err)
		require.NoError(t, warm.Release(t.Context()))
		strike(n)
		began := time.Now()
		lease, err := far.Mutex("x").Lease(t.Context())
		require.NoError(t, err)
		require.Less(t, time.Since(began), 2*ttl/3)
		require.NoError(t, lease.Release(t.Context()))
	})
}

// A release that hangs is repeated beside, so that the next does not wait for a ReadTimeout.
func TestReleaseThatHangsHandsTheLockOn(t *testing.T) {
	forgetful(t, ttls, func(t *testing.T, far, near *holdfast.Client, _ time.Duration, strike func(int), n int) {
		far.Mutex("x").Lock()
		next := make(chan *holdfast.Lease, 1)
		go func() {
			lease, err := near.Mutex("x").Lease(t.Context())
			assert.NoError(t, err)
			next <- lease
		}()
		time.Sleep(100 * time.Millisecond)
		strike(n)
		began := time.Now()
		far.Mutex("x").Unlock()
		lease := <-next
		require.Less(t, time.Since(began), 1100*time.Millisecond)
		require.NoError(t, lease.Release(t.Context()))
	})
}

// A waiter whose connections have all fallen silent, also that for messages, keeps its place.
func TestWaiterOutlivesConnectionsThatFallSilent(t *testing.T) {
	forgetful(t, []time.Duration{10 * time.Second}, func(t *testing.T, far, near *holdfast.Client, ttl time.Duration, strike func(int), n int) {
		held, err := near.Mutex("x").Lease(t.Context())
		require.NoError(t, err)
		got := make(chan *holdfast.Lease, 1)
		go func() {
			lease, err := far.Mutex("x").Lease(t.Context())
			assert.NoError(t, err)
			got <- lease
		}()
		time.Sleep(time.Second)
		strike(n)
		time.Sleep(4 * ttl)
		began := time.Now()
		require.NoError(t, held.Release(t.Context()))
		lease := <-got
		require.Less(t, time.Since(began), ttl)
		require.NoError(t, lease.Release(t.Context()))
	})
}

// On a Cluster each node has pools of its own.
func TestLeaseOnAClusterOutlivesConnectionsThatFallSilent(t *testing.T) {
	redistest.SoakOnly(t)
	t.Parallel()
	cluster := redistest.NewCluster(t)
	o := &oblivion{}
	rdb := cluster.Client(t, func(opt *redis.ClusterOptions) {
		plain := &net.Dialer{}
		opt.Dialer = o.over(plain.DialContext)
		opt.PoolSize = 12
	})
	c := holdfast.New(rdb, holdfast.WithTTL(3*time.Second), holdfast.WithLogger(silent()))
	defer c.Close()
	lease, err := c.Mutex("x").Lease(t.Context())
	require.NoError(t, err)
	var wg sync.WaitGroup
	for range 12 {
		wg.Go(func() {
			_, _ = rdb.Pipelined(context.Background(), func(p redis.Pipeliner) error {
				p.BLPop(context.Background(), 200*time.Millisecond, "{holdfast:2:mutex:x}")
				return nil
			})
		})
		wg.Go(func() { _ = rdb.BLPop(context.Background(), 200*time.Millisecond, "{holdfast:2:mutex:x}").Err() })
	}
	wg.Wait()
	o.strike()
	began := time.Now()
	free, err := c.Mutex("x2").Lease(t.Context())
	require.NoError(t, err)
	require.Less(t, time.Since(began), 2500*time.Millisecond)
	require.NoError(t, free.Release(t.Context()))
	select {
	case <-lease.Done():
		t.Fatal(lease.Err())
	case <-time.After(8 * time.Second):
	}
	require.NoError(t, lease.Release(t.Context()))
}

// Half-way through a turn the store is asked whether anybody waits. If there is no answer, the turn ends.
func TestTurnEndsThoughTheStoreDoesNotSayWhoWaits(t *testing.T) {
	for name, timeout := range map[string]time.Duration{"ReadTimeout by default": 0, "no ReadTimeout": -1} {
		t.Run(name, func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T, s *redistest.Server) {
				link := redistest.NewProxy(t, s)
				c := holdfast.New(link.Client(t, func(o *redis.Options) { o.ReadTimeout = timeout }), holdfast.WithLogger(silent()))
				defer c.Close()
				other := holdfast.New(s.Client(t), holdfast.WithLogger(silent()))
				defer other.Close()
				held, err := other.Mutex("x").Lease(t.Context())
				require.NoError(t, err)
				// Only this question has so few arguments.
				caught, release := link.HoldRequest(func(cmd []string) bool { return len(cmd) == 7 && cmd[0] == "evalsha" && cmd[3] == "holdfast:2:mutex:x" })
				defer release()
				var wg sync.WaitGroup
				for range 100 {
					wg.Go(func() {
						lease, err := c.Mutex("x").Lease(t.Context())
						if assert.NoError(t, err) {
							time.Sleep(100 * time.Millisecond)
							assert.NoError(t, lease.Release(t.Context()))
						}
					})
				}
				time.Sleep(10 * time.Millisecond)
				began := time.Now()
				require.NoError(t, held.Release(t.Context()))
				<-caught
				lease, err := other.Mutex("x").Lease(t.Context())
				require.NoError(t, err)
				assert.Less(t, time.Since(began), 3*time.Second, "a turn is a quarter of the TTL")
				require.NoError(t, lease.Release(t.Context()))
				wg.Wait()
			})
		})
	}
}

// A call for several locks waits for a dead link once, not once for each.
func TestCallsForSeveralLocksWaitForADeadLinkOnce(t *testing.T) {
	const n = 10
	several := func(far *holdfast.Client) (locks []holdfast.Part) {
		for i := range n {
			locks = append(locks, far.Mutex(fmt.Sprint("a", i)))
		}
		return locks
	}
	for name, run := range map[string]struct {
		within time.Duration
		call   func(l *lab.Lab, far *holdfast.Client) (began time.Time)
	}{
		"All": {10 * time.Millisecond, func(l *lab.Lab, far *holdfast.Client) (began time.Time) {
			held := l.Lease(l.Near(), "z")
			ctx, cancel := context.WithCancel(l.T.Context())
			done := make(chan error, 1)
			go func() {
				_, err := holdfast.All(ctx, append(several(far), far.Mutex("z"))...)
				done <- err
			}()
			l.UntilQueue("z", 1)
			l.Link.BlackHole(true)
			began = time.Now()
			cancel()
			require.ErrorIs(l.T, <-done, context.Canceled)
			l.T.Cleanup(func() { assert.NoError(l.T, held.Release(context.Background())) })
			return began
		}},
		"Leases.Release": {time.Second, func(l *lab.Lab, far *holdfast.Client) (began time.Time) {
			all, err := holdfast.All(l.T.Context(), several(far)...)
			require.NoError(l.T, err)
			ctx, cancel := context.WithCancel(l.T.Context())
			cancel()
			l.Link.BlackHole(true)
			began = time.Now()
			require.ErrorIs(l.T, all.Release(ctx), context.Canceled)
			return began
		}},
		"Semaphore.Release": {time.Second, func(l *lab.Lab, far *holdfast.Client) (began time.Time) {
			s := far.Semaphore("s", n)
			for range n {
				require.NoError(l.T, s.Acquire(l.T.Context(), 1))
			}
			l.Link.BlackHole(true)
			began = time.Now()
			s.Release(n)
			return began
		}},
	} {
		t.Run(name, func(t *testing.T) {
			lab.InBubble(t, func(t *testing.T, l *lab.Lab) {
				far := l.Far()
				l.Ready(far)
				began := run.call(l, far)
				require.LessOrEqual(t, time.Since(began), run.within)
				l.Heal()
			})
		})
	}
}
