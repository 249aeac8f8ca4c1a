package redisdriver_test

import (
	"context"
	"crypto/sha1"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/redisdriver"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

// run is a run of a script, as it goes to the server, that knows it.
type run struct {
	script any
	keys   []string
	cmd    redis.Cmder
}

// wire sees what goes to the server. Each call takes some ms, as over a network, and as long as
// there is a gate, those that it is for stay before it.
type wire struct {
	through
	mu     sync.Mutex
	runs   []run
	piped  int     // in pipelines
	pipes  [][]int // for how many locks their commands are
	gone   int     // locks that the node of a call did not have
	rtt    time.Duration
	gate   chan struct{}
	behind func(n int, r run) bool // n before it
}

func (w *wire) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if strings.HasPrefix(cmd.Name(), "eval") && procedure(cmd) != asksANode {
			r := run{hashOf(cmd), keysOf(cmd), cmd}
			w.mu.Lock()
			stays := w.gate != nil && w.behind(len(w.runs), r)
			w.runs = append(w.runs, r)
			gate := w.gate
			w.mu.Unlock()
			if stays {
				<-gate
			}
			time.Sleep(w.rtt)
		}
		err := next(ctx, cmd)
		if err != nil && redis.HasErrorPrefix(err, "NOSCRIPT") {
			w.mu.Lock()
			w.runs = slices.DeleteFunc(w.runs, func(r run) bool { return r.cmd == cmd })
			w.mu.Unlock()
		}
		if c, ok := cmd.(interface{ Val() any }); ok {
			replies, _ := c.Val().([]any)
			for _, reply := range replies {
				if reply == "elsewhere" {
					w.mu.Lock()
					w.gone++
					w.mu.Unlock()
				}
			}
		}
		return err
	}
}

// asksANode is the script that asks a node of a Cluster what it can do.
const asksANode = "holdfast.cluster.node"

// hashOf is that of a script, which may come with its text.
func hashOf(cmd redis.Cmder) any {
	if cmd.Name() == "eval" {
		return fmt.Sprintf("%x", sha1.Sum([]byte(cmd.Args()[1].(string))))
	}
	return cmd.Args()[1]
}

// keysOf are the keys of a run of a script. Those for a node of a Cluster are among the arguments,
// behind those of each lock; see lib/node.lua.
func keysOf(cmd redis.Cmder) (keys []string) {
	args, each := cmd.Args()[3:], 1
	n := cmd.Args()[2].(int)
	if n == 0 {
		n = args[len(args)-1].(int)
		each = (len(args) - 3) / n
		args = args[1+each:]
	}
	for i := range n {
		keys = append(keys, args[i*each].(string))
	}
	return keys
}

func (w *wire) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		w.mu.Lock()
		w.piped += len(cmds)
		var locks []int
		for _, cmd := range cmds {
			if cmd.Name() == "evalsha" {
				locks = append(locks, len(keysOf(cmd)))
			}
		}
		if len(locks) > 0 {
			w.pipes = append(w.pipes, locks)
		}
		w.mu.Unlock()
		return next(ctx, cmds)
	}
}

// shut shuts a gate before what goes by from now on.
func (w *wire) shut(behind func(n int, r run) bool) (open func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.runs, w.gate, w.behind = nil, make(chan struct{}), behind
	return sync.OnceFunc(func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		close(w.gate)
		w.gate = nil
	})
}

func (w *wire) seen() []run {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.runs)
}

// locksIn is how many locks runs are for, most is that of the one for most.
func locksIn(runs []run) (all, most int) {
	for _, r := range runs {
		all, most = all+len(r.keys), max(most, len(r.keys))
	}
	return all, most
}

// watched is a driver on a wire. Its connections do not run out.
func watched(t *testing.T, s *redistest.Server) (*redisdriver.Driver, *redis.Client, *wire) {
	rdb, w := s.Client(t, func(o *redis.Options) { o.PoolSize = 300 }), &wire{rtt: 2 * time.Millisecond}
	rdb.AddHook(w)
	return open(t, rdb, s), rdb, w
}

func askFor(name string) *driver.Request {
	return &driver.Request{Kind: driver.Mutex, Name: name, Token: "t-" + name, Ask: 1, TTL: time.Minute}
}

// few is how many callers go alone to a server that is as far as the wire makes it, whoever
// else is under way.
const few = 2

// crowd has n callers ask for a lock each. The first few are kept at a gate until the others have
// their answers, so there are always many. It returns the errors.
func (w *wire) crowd(t *testing.T, d *redisdriver.Driver, prefix string, n int) []error {
	t.Helper()
	_, err := d.Acquire(t.Context(), askFor(prefix+"warm")) // an answer, and the script is known
	require.NoError(t, err)
	open := w.shut(func(n int, _ run) bool { return n < few })
	defer open()
	errs := make([]error, n)
	ask := func(wg *sync.WaitGroup, i int) {
		wg.Go(func() {
			g, err := d.Acquire(context.Background(), askFor(fmt.Sprint(prefix, i)))
			if errs[i] = err; err == nil && g.Status != driver.Granted {
				errs[i] = fmt.Errorf("answered %+v", g)
			}
		})
	}
	var first, others sync.WaitGroup
	for i := range min(few, n) {
		ask(&first, i)
	}
	require.Eventually(t, func() bool { return len(w.seen()) == min(few, n) }, 10*time.Second, time.Millisecond)
	for i := few; i < n; i++ {
		ask(&others, i)
	}
	others.Wait()
	open()
	first.Wait()
	return errs
}

// everywhere runs body on a real Redis, and in a bubble. Numbers that depend on how soon callers come after
// each other, and on how soon they are answered, can be counted in the bubble alone: a caller that waits for
// 100 ms goes alone.
func everywhere(t *testing.T, body func(t *testing.T, s *redistest.Server, virtual bool)) {
	t.Helper()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) { body(t, s, false) })
	t.Run("bubble", func(t *testing.T) {
		redistest.Bubble(t, func(t *testing.T, s *redistest.Server) { body(t, s, true) })
	})
}

func requireNone(t *testing.T, errs []error) {
	t.Helper()
	for i, err := range errs {
		require.NoError(t, err, "caller %d", i)
	}
}

func TestManyCallersShareCalls(t *testing.T) {
	everywhere(t, func(t *testing.T, s *redistest.Server, virtual bool) {
		d, _, w := watched(t, s)
		requireNone(t, w.crowd(t, d, "many", 200))
		all, most := locksIn(w.seen())
		require.Equal(t, 200, all, "each is asked for once")
		if virtual {
			require.Less(t, len(w.seen()), 100)
		}
		require.LessOrEqual(t, most, 64, "for no longer may a call hold up the server")
	})
}

func TestWhoDoesNotWantSharedCallsGetsNone(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		d, _, w := watched(t, s)
		d.Batch(false)
		requireNone(t, w.crowd(t, d, "off", 60))
		require.Len(t, w.seen(), 60)
	})
}

// One connection that hangs must not take those along who come later.
func TestNobodyJoinsACallOfAServerThatDoesNotAnswer(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		d, _, w := watched(t, s)
		open := w.shut(func(int, run) bool { return true }) // nothing was ever answered
		var wg sync.WaitGroup
		ask := func(i int) {
			wg.Go(func() { _, _ = d.Acquire(context.Background(), askFor(fmt.Sprint("hangs", i))) })
		}
		ask(0)
		require.Eventually(t, func() bool { return len(w.seen()) == 1 }, 10*time.Second, time.Millisecond)
		time.Sleep(100 * time.Millisecond) // that one has gone without an answer for long enough
		for i := range 39 {
			ask(i + 1)
		}
		waited := 0 // for a call that takes them along
		require.Eventually(t, func() bool {
			waited = max(waited, d.Waiting())
			return len(w.seen()) == 40
		}, 10*time.Second, time.Millisecond)
		open()
		wg.Wait()
		_, most := locksIn(w.seen())
		require.Equal(t, 1, most)
		require.Zero(t, waited)
	})
}

// shares reports whether a lock was in a call with others.
func (w *wire) shares(key string) bool {
	return slices.ContainsFunc(w.seen(), func(r run) bool { return len(r.keys) > 1 && slices.Contains(r.keys, key) })
}

// A key that another program has fails alone, and takes nobody along.
func TestBadKeyInASharedCallFailsAlone(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		d, rdb, w := watched(t, s)
		const n, bad = 100, 70
		until(t, "a shared call", func(round int) bool {
			prefix := fmt.Sprint("bad", round, "-")
			key := d.Key(driver.Mutex, fmt.Sprint(prefix, bad))
			require.NoError(t, rdb.RPush(t.Context(), key, "no lock").Err())
			errs := w.crowd(t, d, prefix, n)
			require.ErrorContains(t, errs[bad], "WRONGTYPE")
			require.ErrorIs(t, errs[bad], driver.ErrNotExecuted)
			requireNone(t, slices.Delete(errs, bad, bad+1))
			return w.shares(key)
		})
	})
}

// A caller that does not want to wait any more leaves at once, unless its ask is on its way.
func TestCallerWhoseContextEndsLeavesASharedCall(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T, s *redistest.Server) {
		d, _, w := watched(t, s)
		_, err := d.Acquire(t.Context(), askFor("warm"))
		require.NoError(t, err)
		type caller struct {
			cancel func()
			err    chan error
		}
		ask := func(name string) caller {
			ctx, cancel := context.WithCancel(t.Context())
			c := caller{cancel, make(chan error, 1)}
			go func() {
				_, err := d.Acquire(ctx, askFor(name))
				c.err <- err
			}()
			return c
		}
		first := w.shut(func(int, run) bool { return true })
		defer first()
		var sent, sit []caller
		for i := 0; len(sit) < 3; i++ { // all lanes are taken, the last three wait for one
			c := ask(fmt.Sprint("ctx", i))
			if synctest.Wait(); d.Waiting() > len(sit) {
				sit = append(sit, c)
			} else {
				sent = append(sent, c)
			}
			require.Less(t, i, 100)
		}
		last := d.Key(driver.Mutex, fmt.Sprint("ctx", len(sent)+2))
		sit[2].cancel()
		synctest.Wait()
		unsent := <-sit[2].err
		require.ErrorIs(t, unsent, context.Canceled)
		require.ErrorIs(t, unsent, driver.ErrNotExecuted)

		first()
		second := w.shut(func(_ int, r run) bool { return len(r.keys) > 1 })
		defer second()
		for _, c := range sent {
			require.NoError(t, <-c.err)
		}
		synctest.Wait()
		require.Zero(t, d.Waiting())
		require.Len(t, w.seen()[0].keys, 2)

		// One that is sent hears what comes of it: only its caller knows whether anybody wants it.
		for _, c := range sit[:2] {
			c.cancel()
		}
		time.Sleep(50 * time.Millisecond)
		synctest.Wait()
		for _, c := range sit[:2] {
			require.Empty(t, c.err, "it has left")
		}
		second()
		for _, c := range sit[:2] {
			require.NoError(t, <-c.err)
		}
		for _, r := range w.seen() {
			require.NotContains(t, r.keys, last, "it was never sent")
		}
	})
}

// taken are n leases.
func taken(t *testing.T, d *redisdriver.Driver, n int) (leases []driver.Lease) {
	t.Helper()
	for i := range n {
		r := askFor(fmt.Sprint("taken", i))
		g, err := d.Acquire(t.Context(), r)
		require.NoError(t, err)
		require.Equal(t, driver.Granted, g.Status)
		leases = append(leases, driver.Lease{Kind: r.Kind, Name: r.Name, Token: r.Token, TTL: r.TTL})
	}
	return leases
}

// hundredLeases are renewed one by one, and together, so that the scripts are known.
func hundredLeases(t *testing.T, d *redisdriver.Driver) (leases []driver.Lease) {
	leases = taken(t, d, 100)
	requireNone(t, d.Renew(t.Context(), leases[:1]))
	requireNone(t, d.Renew(t.Context(), leases))
	return leases
}

// prolong renews leases for an hour, and sees that they are.
func prolong(t *testing.T, d *redisdriver.Driver, rdb *redis.Client, leases []driver.Lease) {
	t.Helper()
	for i := range leases {
		leases[i].TTL = time.Hour
	}
	requireNone(t, d.Renew(t.Context(), leases))
	for _, l := range leases {
		require.Greater(t, rdb.PTTL(t.Context(), d.Key(l.Kind, l.Name)).Val(), 30*time.Minute, l.Name)
	}
}

func TestRenewalsShareCommandsOnOneServer(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		d, _, w := watched(t, s)
		leases := hundredLeases(t, d)
		w.piped = 0
		requireNone(t, d.Renew(t.Context(), leases))
		require.Equal(t, 2, w.piped)

		d.Batch(false)
		w.piped = 0
		requireNone(t, d.Renew(t.Context(), leases))
		require.Equal(t, 100, w.piped)
	})
}

// slots refuses what is for several keys, as a proxy in front of a Cluster does.
type slots struct {
	through
	refused atomic.Int64
}

const crossslot = serverError("CROSSSLOT Keys in request don't hash to the same slot")

func (s *slots) refuse(cmd redis.Cmder) bool {
	if args := cmd.Args(); (cmd.Name() != "evalsha" && cmd.Name() != "eval") || args[2].(int) < 2 {
		return false
	}
	s.refused.Add(1)
	cmd.SetErr(crossslot)
	return true
}

func (s *slots) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if s.refuse(cmd) {
			return cmd.Err()
		}
		return next(ctx, cmd)
	}
}

func (s *slots) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		var rest []redis.Cmder
		for _, cmd := range cmds {
			if !s.refuse(cmd) {
				rest = append(rest, cmd)
			}
		}
		if len(rest) == 0 {
			return crossslot
		}
		return next(ctx, rest)
	}
}

func TestServerThatRefusesSharedCallsGetsOneForEachLock(t *testing.T) {
	t.Parallel()
	for what, try := range map[string]func(*testing.T, *redisdriver.Driver, *redis.Client, *wire){
		"renewals": func(t *testing.T, d *redisdriver.Driver, rdb *redis.Client, _ *wire) {
			prolong(t, d, rdb, taken(t, d, 100))
		},
		"asks": func(t *testing.T, d *redisdriver.Driver, _ *redis.Client, w *wire) {
			requireNone(t, w.crowd(t, d, "x", 200))
		},
	} {
		t.Run(what, func(t *testing.T) {
			redistest.Each(t, func(t *testing.T, s *redistest.Server) {
				d, rdb, w := watched(t, s)
				proxy := &slots{}
				rdb.AddHook(proxy)
				try(t, d, rdb, w)
				refused := proxy.refused.Load()
				require.Positive(t, refused)
				requireNone(t, w.crowd(t, d, "again", 200))
				require.Equal(t, refused, proxy.refused.Load(), "no call is shared any more")
				prolong(t, d, rdb, taken(t, d, 100))
				require.Equal(t, refused, proxy.refused.Load())
			})
		})
	}
}

// Connections that hang must not stop callers that come while the server answers others.
func TestCallersGoAloneWhenSharedCallsHang(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T, s *redistest.Server) {
		const callers, hung = 1500, 16 * 64 // in so many lanes
		rdb, w := s.Client(t, func(o *redis.Options) { o.PoolSize = callers }), &wire{rtt: 2 * time.Millisecond}
		rdb.AddHook(w)
		d := open(t, rdb, s)
		_, err := d.Acquire(t.Context(), askFor("warm")) // an answer, and the script is known
		require.NoError(t, err)
		goOn := w.shut(func(_ int, r run) bool { return len(r.keys) > 1 })
		var all sync.WaitGroup
		t.Cleanup(func() { goOn(); all.Wait() })
		var served atomic.Int64
		for i := range callers {
			all.Go(func() {
				if _, err := d.Acquire(context.Background(), askFor(fmt.Sprint("hang", i))); err != nil {
					t.Error(err)
				}
				served.Add(1)
			})
		}
		time.Sleep(900 * time.Millisecond) // who hangs for a second is told so
		require.GreaterOrEqual(t, served.Load(), int64(callers-hung))
		_, largest := locksIn(w.seen())
		require.Greater(t, largest, 1, "some did hang")
		require.Less(t, served.Load(), int64(callers))
	})
}

// until tries again what needs callers that come in time.
func until(t *testing.T, what string, happens func(round int) bool) {
	t.Helper()
	for round := range 20 {
		if happens(round) {
			return
		}
	}
	require.Fail(t, "never: "+what)
}
