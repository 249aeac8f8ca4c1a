package redisdriver_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/redisdriver"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

// distant stands for the pool of a client, a network and a server that grants all it is asked
// for. It is a hook, since go-redis has timers that bubbles cannot share once its pool is full.
type distant struct {
	through
	rtt  time.Duration
	pool chan struct{}

	mu    sync.Mutex
	calls int
	free  time.Time // when the server has done what has come in
	from  time.Time // of a stall
	until time.Time
	lost  bool // what was under way in it
}

const (
	workOfCall = 30 * time.Microsecond // of the server
	workOfLock = 20 * time.Microsecond
	giveUp     = 3 * time.Second // of a client that has no answer
)

func (s *distant) DialHook(redis.DialHook) redis.DialHook {
	return func(context.Context, string, string) (net.Conn, error) {
		return nil, errors.New("a bubble has no network")
	}
}

func (s *distant) ProcessHook(redis.ProcessHook) redis.ProcessHook {
	return func(_ context.Context, cmd redis.Cmder) error {
		s.pool <- struct{}{}
		defer func() { <-s.pool }()
		locks := cmd.Args()[2].(int)
		script := procedure(cmd)
		if !s.answers(locks) {
			return refuse(cmd, &net.OpError{Op: "read", Err: os.ErrDeadlineExceeded})
		}
		var reply any = int64(1) // a release
		if strings.HasSuffix(script, ".acquire") {
			reply = "7 0"
		}
		if strings.HasPrefix(script, "holdfast.locks.") {
			reply = slices.Repeat([]any{reply}, locks)
		}
		answer(cmd, reply)
		return nil
	}
}

// answers returns when the answer is here, or reports that none comes.
func (s *distant) answers(locks int) bool {
	sent := time.Now()
	s.mu.Lock()
	s.calls++
	if there := sent.Add(s.rtt / 2); s.free.Before(there) {
		s.free = there
	}
	s.free = s.free.Add(workOfCall + time.Duration(locks)*workOfLock)
	back := s.free.Add(s.rtt / 2)
	s.mu.Unlock()
	time.Sleep(time.Until(back))
	s.mu.Lock()
	from, until, lost := s.from, s.until, s.lost
	s.mu.Unlock()
	if sent.After(until) || back.Before(from) {
		return true
	}
	if lost {
		time.Sleep(time.Until(sent.Add(giveUp)))
		return false
	}
	time.Sleep(time.Until(until))
	return true
}

func (s *distant) stall(d time.Duration, lost bool) {
	s.mu.Lock()
	s.from, s.until, s.lost = time.Now(), time.Now().Add(d), lost
	s.mu.Unlock()
	time.Sleep(d)
	if lost {
		time.Sleep(giveUp) // until then the pool may be full of connections that hang
	}
}

// alone is how many calls in a second callers reach that go alone.
func (s *distant) alone(callers int) float64 {
	each := s.rtt + workOfCall + workOfLock
	return min(1/(workOfCall+workOfLock).Seconds(), float64(min(cap(s.pool), callers))/each.Seconds())
}

// full is how many callers one connection serves in a second if as many share a call as may.
func (s *distant) full(callers int) float64 {
	locks := min(callers/2, 64) // one half asks, the other releases
	return float64(locks) / (s.rtt + workOfCall + time.Duration(locks)*workOfLock).Seconds()
}

// work is what callers do who take locks of their own and give them back.
type work struct {
	done    atomic.Int64 // calls
	stop    atomic.Bool
	callers sync.WaitGroup
}

// begin has callers come, one by one over a second or all at once.
func (w *work) begin(d *redisdriver.Driver, callers int, oneByOne bool) {
	for i := range callers {
		w.callers.Go(func() {
			r := askFor(fmt.Sprint("own", i))
			l := driver.Lease{Kind: r.Kind, Name: r.Name, TTL: r.TTL} // what is unsettled takes longer, so fewer share a call
			for n := 0; !w.stop.Load(); n++ {
				r.Token = fmt.Sprint("t-", i, "-", n)
				l.Token = r.Token
				if _, err := d.Acquire(context.Background(), r); err == nil {
					w.done.Add(1)
				}
				if d.Release(context.Background(), l) == nil {
					w.done.Add(1)
				}
			}
		})
		if oneByOne {
			time.Sleep(time.Second / time.Duration(callers))
		}
	}
}

func (w *work) end() {
	w.stop.Store(true)
	w.callers.Wait()
}

// rate returns how many calls there are in a second, from now on.
func (w *work) rate(window time.Duration) float64 {
	before, began := w.done.Load(), time.Now()
	time.Sleep(window)
	return float64(w.done.Load()-before) / time.Since(began).Seconds()
}

// A short stall must not switch shared calls off for good, nor must a crowd that comes at once.
// Callers that a silent server sends off alone fill the queue of the pool. Shared calls stand in
// that queue, too, and seem to be silent, for as long as the load lasts.
func TestThroughputRecoversFromAStallWhateverTheDistance(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	for _, c := range []struct {
		callers int
		rtt     time.Duration
		pool    int
		stall   time.Duration // none: they come all at once
		lost    bool
	}{
		{50, 0, 1, 300 * ms, false},
		{50, 2 * ms, 5, 300 * ms, true},
		{50, 10 * ms, 1, 1500 * ms, false},
		{50, 10 * ms, 20, 300 * ms, false},
		{50, 40 * ms, 5, 300 * ms, false},
		{50, 40 * ms, 20, 0, false},
		{300, 0, 5, 1500 * ms, false},
		{300, 2 * ms, 1, 300 * ms, false},
		{300, 10 * ms, 5, 300 * ms, true},
		{300, 10 * ms, 20, 300 * ms, false},
		{300, 40 * ms, 1, 300 * ms, false},
		{300, 40 * ms, 5, 1500 * ms, false},
		{300, 40 * ms, 20, 0, false},
		{300, 40 * ms, 20, 300 * ms, false},
		{300, 40 * ms, 20, 1500 * ms, true},
		{1000, 0, 20, 300 * ms, false},
		{1000, 2 * ms, 20, 1500 * ms, false},
		{1000, 10 * ms, 1, 0, false},
		{1000, 10 * ms, 20, 1500 * ms, true},
		{1000, 40 * ms, 1, 1500 * ms, false},
		{1000, 40 * ms, 5, 0, false},
		{1000, 40 * ms, 20, 300 * ms, false},
	} {
		how := fmt.Sprint("after ", c.stall)
		switch {
		case c.stall == 0:
			how = "cold"
		case c.lost:
			how += " in which all is lost"
		}
		t.Run(fmt.Sprintf("%d callers, %v away, pool of %d, %s", c.callers, c.rtt, c.pool, how), func(t *testing.T) {
			away(t, c.rtt, c.pool, func(t *testing.T, d *redisdriver.Driver, s *distant) {
				w := &work{}
				w.begin(d, c.callers, c.stall > 0)
				defer w.end()
				window := 200*ms + 45*c.rtt // if the server is far, answers come in bursts
				rate := func() float64 { return w.rate(window) }
				const soon, enough = time.Second, 0.9
				least := max(enough*s.alone(c.callers), s.full(c.callers)/2)
				if c.stall > 0 {
					before := rate()
					require.GreaterOrEqual(t, before, least, "they had better go alone, or on one connection")
					least = max(least, enough*before)
					s.stall(c.stall, c.lost)
				}
				time.Sleep(soon)
				after := rate()
				for n := 0; n < 2 && after < least; n++ { // they come in waves
					after = rate()
				}
				require.GreaterOrEqual(t, after, least)
				t.Logf("%s: %.0f calls/s, at least %.0f", t.Name()[50:], after, least)
			})
		})
	}
}

// The same on real servers, as far as the machine has time for it. Of a Cluster each call is for one lock.
func TestThroughputRecoversFromAStallOfARealServer(t *testing.T) {
	redistest.SoakOnly(t)
	pool := func(o *redis.Options) { o.PoolSize = 20 }
	for _, c := range []struct {
		name  string
		start func(*testing.T) (rdb redis.UniversalClient, far func(), servers []*redistest.Server)
	}{
		{"one server", func(t *testing.T) (redis.UniversalClient, func(), []*redistest.Server) {
			s := redistest.Real(t)
			link := redistest.NewProxy(t, s)
			return link.Client(t, pool), func() { link.Delay(20 * time.Millisecond) }, []*redistest.Server{s}
		}},
		{"cluster", func(t *testing.T) (redis.UniversalClient, func(), []*redistest.Server) {
			c := redistest.NewCluster(t)
			return c.Client(t, func(o *redis.ClusterOptions) { o.PoolSize = 20 }), func() {}, c.Nodes[:1]
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			rdb, far, servers := c.start(t)
			d := redisdriver.New(rdb)
			defer func() { require.NoError(t, d.Close()) }()
			r := askFor("warm") // the scripts are known
			_, err := d.Acquire(t.Context(), r)
			require.NoError(t, err)
			require.NoError(t, d.Release(t.Context(), driver.Lease{Kind: r.Kind, Name: r.Name, Token: r.Token}))
			far()
			w := &work{}
			w.begin(d, 300, true)
			defer w.end()
			before := w.rate(time.Second)
			for _, s := range servers {
				s.Pause()
			}
			time.Sleep(300 * time.Millisecond)
			for _, s := range servers {
				s.Resume()
			}
			time.Sleep(time.Second)
			after := w.rate(time.Second)
			for range 5 { // the machine may have other things to do, but not for good
				if after >= before/2 {
					break
				}
				after = w.rate(time.Second)
			}
			t.Logf("%.0f calls/s before, %.0f after", before, after)
			require.GreaterOrEqual(t, after, before/2)
		})
	}
}
