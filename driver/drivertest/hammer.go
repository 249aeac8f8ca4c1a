package drivertest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
)

var hammerCases = []property{
	{"ManyTokensExcludeEachOther", func(t *test) { t.hammer(waiting) }},
	{"ManyTokensThatDoNotWaitExcludeEachOther", func(t *test) { t.hammer() }},
	{"ManyTokensThatGiveUpExcludeEachOther", func(t *test) {
		t.needs(Queue)
		t.hammer(waiting, func(r *driver.Request) { r.Holder = impatient })
	}},
}

var soaking = os.Getenv("HOLDFAST_SOAK") == "1"

// rounds is how often to repeat what finds a rare fault by chance: n times in the soak, and half as often
// otherwise, if a mutex has not been through the same.
func (t *test) rounds(n int) int {
	switch {
	case soaking:
		return n
	case t.twin:
		return n / 6
	}
	return n / 2
}

// impatient marks the tokens of which every second one gives up after a moment.
const impatient = "impatient"

// hammer has many tokens contend for the lock, and requires that they enter one at a time.
func (t *test) hammer(mods ...func(*driver.Request)) {
	r := &room{fences: t.has(Fences)}
	entered := t.visit(8, t.rounds(12), r.enter, mods...)
	require.Equal(t, entered, r.count.Load(), foul+"two were in the room and wrote the same number")
}

// visit has goroutines of three drivers acquire the lock, enter, and release it, each round
// with a token of its own. It requires that all get through, or give up, and returns how
// many have entered.
func (t *test) visit(goroutines, rounds int, enter func(context.Context, *contender) error, mods ...func(*driver.Request)) int64 {
	drivers := []driver.Driver{t.driver(), t.driver(), t.driver()}
	ctx, cancel := context.WithTimeout(t.Context(), 6*t.patience())
	defer cancel()

	var entered, gaveUp atomic.Int64
	errs := make(chan error, goroutines)
	var wg sync.WaitGroup
	for i := range goroutines {
		wg.Go(func() {
			for range rounds {
				came, err := t.contender(drivers[i%len(drivers)], mods...).visit(ctx, enter)
				switch {
				case err != nil:
					errs <- err
					cancel() // The others would wait for what this token has left.
					return
				case came:
					entered.Add(1)
				default:
					gaveUp.Add(1)
				}
			}
		})
	}
	wg.Wait()
	close(errs)
	var all error
	for err := range errs {
		all = errors.Join(all, err)
	}
	require.NoError(t, all)
	require.EqualValues(t, goroutines*rounds, entered.Load()+gaveUp.Load())
	t.contender(drivers[0]).lock() // Nothing is left of all those tokens.
	return entered.Load()
}

// visit acquires, enters, and releases. It reports false if the token gave up.
func (c *contender) visit(ctx context.Context, enter func(context.Context, *contender) error) (came bool, err error) {
	wait, hurried := ctx, c.req.Holder == impatient && rand.IntN(2) == 0
	if hurried {
		var cancel context.CancelFunc
		wait, cancel = context.WithTimeout(ctx, rand.N(4*time.Millisecond))
		defer cancel()
	}
	if err := c.acquire(wait); err != nil {
		// A store that is told the deadline, such as etcd, may end the request a moment before wait ends.
		if cut := wait.Err() != nil || errors.Is(err, driver.ErrTransient); hurried && cut && ctx.Err() == nil {
			return false, c.giveUp(ctx)
		}
		return false, fmt.Errorf("acquire: %w", err)
	}
	if err := enter(ctx, c); err != nil {
		return false, err
	}
	if err := c.d.Release(ctx, c.lease()); err != nil {
		return false, fmt.Errorf("release: %w", err)
	}
	return true, nil
}

// room is what the lock protects. Its fields are atomic because the race detector
// does not know that a store orders accesses, but no step in it is: two visitors
// at a time would lose a count.
type room struct {
	fences bool

	inside atomic.Pointer[contender] // the last one that came and has not left
	count  atomic.Int64
	fence  atomic.Int64
}

// giveUp settles what became of a token whose last ask was not answered.
func (c *contender) giveUp(ctx context.Context) error {
	l := c.lease()
	l.Unsettled = true
	if err := c.d.Release(ctx, l); err != nil && !errors.Is(err, driver.ErrNotHeld) {
		return fmt.Errorf("release of a token that gave up: %w", err)
	}
	return nil
}

// enter is the critical section. A foul is one however late the machine is: a holder that has
// found another, or a fence that is too large, still trusts its lease then, and so does the other.
func (r *room) enter(_ context.Context, c *contender) error {
	if other := r.inside.Swap(c); other != nil {
		if c.trusts() && other.trusts() {
			return errors.New(foul + "two are in the room")
		}
		return errors.New("another is in the room, where a lease has ended; the machine is too slow for this test")
	}
	n := r.count.Load()
	last := r.fence.Load()
	runtime.Gosched()
	if r.fences && c.grant.Fence <= last && c.trusts() {
		return fmt.Errorf(foul+"entered with fence %d after %d", c.grant.Fence, last)
	}
	r.fence.Store(c.grant.Fence)
	r.count.Store(n + 1)
	if !c.trusts() {
		return errors.New("the lease ended within the room; the machine is too slow for this test")
	}
	r.inside.Store(nil)
	return nil
}

// trusts reports whether the lease of a token cannot have ended by itself. If not, what the test
// finds may be due to a late machine.
func (c *contender) trusts() bool {
	if time.Now().Before(c.trusted) {
		return true
	}
	c.t.late.Store(true)
	return false
}

// acquire waits for the lock as the contract wants a client to do.
func (c *contender) acquire(ctx context.Context) error {
	for {
		g, err := c.ask(ctx)
		if err != nil || g.Status == driver.Granted {
			return err
		}
		pause := time.NewTimer(c.pause(g))
		select {
		case g := <-c.wakes:
			// The answer that says so may still be on its way, but it need not be waited for.
			if g.Status == driver.Granted {
				pause.Stop()
				return c.granted(g)
			}
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return ctx.Err()
		}
		pause.Stop()
	}
}

// pause is how long to wait for news after an answer.
func (c *contender) pause(g driver.Grant) time.Duration {
	if g.Status == driver.Busy {
		// Nobody will wake it. RetryAfter is the end of the lease, much too far.
		return rand.N(3*time.Millisecond) + 1
	}
	heartbeat := c.ttl() / 3
	if g.RetryAfter > 0 {
		heartbeat = min(heartbeat, g.RetryAfter)
	}
	return heartbeat
}
