package redlock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/internal/redisscript"
	"github.com/holdfast-go/holdfast/internal/telemetry"
)

// redlock keeps locks on a majority of nodes. See the package for how.
type redlock struct {
	config
	nodes  []*node
	fenced bool // all nodes can raise a fence

	life context.Context // ends with Close
	die  context.CancelFunc
	wg   sync.WaitGroup // what goes on in the background

	mu      sync.Mutex
	closed  bool
	ballots map[string]*ballot // by token
	idle    []chan func()      // goroutines that wait for something to do
}

var (
	_ driver.Driver   = (*redlock)(nil)
	_ driver.Reporter = (*redlock)(nil)
)

type config struct {
	timeout time.Duration
	longest time.Duration // no lease lasts longer; 0 if restarts are not of interest
}

var defaults = config{timeout: 50 * time.Millisecond, longest: 30 * time.Second}

// Option changes a Driver.
type Option interface{ apply(*config) }

type optionFunc func(*config)

func (f optionFunc) apply(c *config) { f(c) }

// WithTimeout sets how long a node may take to answer before the others decide without it.
// Set d to several times what a node usually takes, and small against the TTL. The driver
// never uses more than half of a TTL. WithTimeout panics if d is below 1 ms. The default is
// 50 ms.
func WithTimeout(d time.Duration) Option {
	if d < time.Millisecond {
		panic("redlock: timeout below 1 ms")
	}
	return optionFunc(func(c *config) { c.timeout = d })
}

// WithDelayedRestart sets for how long the vote of a node that has started does not count.
// It has to be at least the longest TTL that anybody uses on these nodes, in this program
// or another. A request with a longer TTL is refused. See the package.
//
// 0 switches the delay off. That is for nodes that never forget a grant, such as with
// appendfsync always, and for tests with new nodes. WithDelayedRestart panics if longest is
// negative. The default is 30 s.
func WithDelayedRestart(longest time.Duration) Option {
	if longest < 0 {
		panic("redlock: negative TTL")
	}
	return optionFunc(func(c *config) { c.longest = longest })
}

// New returns a driver that keeps locks on a majority of nodes. The nodes are drivers of
// [github.com/holdfast-go/holdfast/driver/redisdriver]. For the form that other
// implementations of Redlock use, they are drivers of
// [github.com/holdfast-go/holdfast/driver/setnx]. Each is on a master of its own that is no
// replica of another. All clients must name the same nodes, and in the same order, which says whose votes go
// first when they are split: 24 clients at five servers had the lock 200 to 400 times a second, and with an order for
// each 2 to 7 times. Close of the driver also closes the nodes.
//
// If all nodes can do it, the driver is also a [driver.Inspector], a [driver.Forcer] and a
// [driver.Downgrader], and has fences.
//
// New panics if there are fewer than 3 nodes, or an even number, which tolerates no more
// failures than one node less. It also panics if a node is nil or there twice, or does not
// know how long it has been running; see [WithDelayedRestart].
func New(nodes []driver.Driver, opts ...Option) driver.Driver {
	if len(nodes) < 3 || len(nodes)%2 == 0 {
		panic(fmt.Sprintf("redlock: %d nodes, want 3, 5, 7 or so", len(nodes)))
	}
	d := &redlock{config: defaults, fenced: true, ballots: map[string]*ballot{}}
	for _, o := range opts {
		o.apply(&d.config)
	}
	able := true
	for i, n := range nodes {
		if n == nil || slices.Contains(nodes[:i], n) {
			panic(fmt.Sprintf("redlock: node %d is nil, or there twice", i))
		}
		vote := newNode(i, n)
		if vote.uptime == nil && d.longest > 0 {
			panic(fmt.Sprintf("redlock: node %d cannot tell how long it has been running; see WithDelayedRestart", i))
		}
		d.fenced = d.fenced && vote.raise != nil
		able = able && vote.able()
		d.nodes = append(d.nodes, vote)
	}
	d.life, d.die = context.WithCancel(telemetry.Unasked(context.Background()))
	if able {
		return &native{d}
	}
	return d
}

// majority is how many nodes decide.
func (d *redlock) majority() int { return len(d.nodes)/2 + 1 }

// limit is how long a node may take to answer when leases last ttl, 0 if that is not known.
func (d *redlock) limit(ttl time.Duration) time.Duration {
	if ttl == 0 {
		return d.timeout
	}
	return min(d.timeout, ttl/2)
}

// margin is by how much a holder ends its trust before the TTL is over: for clocks that
// differ by 1 % in rate.
func margin(ttl time.Duration) time.Duration { return ttl/100 + 2*time.Millisecond }

func (d *redlock) valid(r *driver.Request) error {
	if r.Kind != driver.Mutex && r.Kind != driver.RWMutex {
		return redisscript.Unsupported("redlock", r.Kind)
	}
	if err := d.lasting(r.TTL); err != nil {
		return err
	}
	return r.Check()
}

// lasting refuses a TTL that is longer than the time for which a restarted node has no
// vote.
func (d *redlock) lasting(ttl time.Duration) error {
	if d.longest > 0 && ttl > d.longest {
		return redisscript.Refusal(fmt.Errorf("redlock: a TTL of %v, longer than %v; see WithDelayedRestart", ttl, d.longest))
	}
	return nil
}

// OnReconnect implements [driver.Reporter] for each node that does.
func (d *redlock) OnReconnect(f func(reason string)) {
	for _, n := range d.nodes {
		if r, ok := driver.As[driver.Reporter](n.Driver); ok {
			r.OnReconnect(f)
		}
	}
}

// Close implements [driver.Driver]. It waits for calls that Acquire and Release have left behind,
// until their timeout, ends what else goes on in the background, including releases that a node
// has not answered yet, and closes the nodes. A call that hangs on a frozen server ends when its
// client's ReadTimeout has passed.
func (d *redlock) Close() error {
	d.mu.Lock()
	d.closed = true
	ballots := d.ballots
	d.ballots = map[string]*ballot{}
	for _, next := range d.idle {
		close(next)
	}
	d.idle = nil
	d.mu.Unlock()
	for _, n := range d.nodes {
		n.drain()
	}
	d.die()
	for _, b := range ballots {
		b.close()
	}
	d.wg.Wait()
	var errs []error
	for _, n := range d.nodes {
		errs = append(errs, n.Close())
	}
	return errors.Join(errs...)
}

// maxIdle is how many goroutines of a driver wait for something to do.
const maxIdle = 48

// background runs f on another goroutine unless the driver is closed. Goroutines are kept: to
// call a client, a new one first has to grow its stack several times, which costs as much as
// the rest of the call.
func (d *redlock) background(f func()) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return false
	}
	if last := len(d.idle) - 1; last >= 0 {
		d.idle[last] <- f
		d.idle = d.idle[:last]
		return true
	}
	d.wg.Go(func() {
		next := make(chan func(), 1)
		for f := f; f != nil; f = <-next {
			f()
			if !d.rest(next) {
				return
			}
		}
	})
	return true
}

// rest has a goroutine wait for something to do, which next will get, or nil at the end. It
// reports false if the goroutine is not needed any more.
func (d *redlock) rest(next chan func()) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed || len(d.idle) == maxIdle {
		return false
	}
	d.idle = append(d.idle, next)
	return true
}
