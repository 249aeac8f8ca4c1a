package drivertest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
)

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

// visit has goroutines of three drivers acquire the lock, enter, and release it, each round
// with a token of its own. It requires that all get through, or give up.
func (t *test) visit(goroutines, rounds int, enter func(context.Context, *contender) error, mods ...func(*driver.Request)) {
	drivers := []driver.Driver{t.driver(), t.driver(), t.driver()}
	ctx, cancel := context.WithTimeout(t.Context(), 6*t.patience())
	defer cancel()

	errs := make(chan error, goroutines)
	var wg sync.WaitGroup
	for i := range goroutines {
		wg.Go(func() {
			for range rounds {
				if err := t.contender(drivers[i%len(drivers)], mods...).visit(ctx, enter); err != nil {
					errs <- err
					cancel() // The others would wait for what this token has left.
					return
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
	t.contender(drivers[0]).lock() // Nothing is left of all those tokens.
}

// visit acquires, enters, and releases. A token may give up instead.
func (c *contender) visit(ctx context.Context, enter func(context.Context, *contender) error) error {
	wait, hurried := ctx, c.req.Holder == impatient && rand.IntN(2) == 0
	if hurried {
		var cancel context.CancelFunc
		wait, cancel = context.WithTimeout(ctx, rand.N(4*time.Millisecond))
		defer cancel()
	}
	if err := c.acquire(wait); err != nil {
		// A store that is told the deadline, such as etcd, may end the request a moment before wait ends.
		if cut := wait.Err() != nil || errors.Is(err, driver.ErrTransient); hurried && cut && ctx.Err() == nil {
			return c.giveUp(ctx)
		}
		return fmt.Errorf("acquire: %w", err)
	}
	if err := enter(ctx, c); err != nil {
		return err
	}
	if err := c.d.Release(ctx, c.lease()); err != nil {
		return fmt.Errorf("release: %w", err)
	}
	return nil
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
