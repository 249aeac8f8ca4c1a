package holdfast

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/keepalive"
)

// WithReplicas has n replicas of the store confirm each acquisition before it is believed,
// also when the lock was handed over by another client. When fewer have done so after
// timeout, or after half of the TTL if that is shorter, the lock is given back and the
// error matches [ErrNotReplicated]. TryLease and its like then fail; who waits tries again
// until its context ends, for replicas come back, at the end of the queue.
//
// It makes it less likely that a failover loses a lock, and does not exclude it. The
// command behind it is WAIT (https://redis.io/docs/latest/commands/wait), which knows of
// copies and nothing of elections: Sentinel or a Cluster may still promote a replica that
// has no copy, even if n is a majority of them. What is confirmed is the grant, not its
// renewals, so the copy may end earlier than the lease. A promoted replica whose clock is
// ahead ends it earlier, too. Where a lost lock would do damage use the fence, or a quorum
// of independent servers.
//
// An acquisition costs two round trips to Redis more, and what the n fastest replicas take;
// meanwhile it occupies a connection, which nothing interrupts before the timeout. The
// user of Redis needs the right +wait. A store that cannot tell, such as a driver without
// [driver.Confirmer], refuses with an error that matches [errors.ErrUnsupported].
//
// It panics if n is below 1 or timeout below 10 ms. The default is to ask no replicas.
func WithReplicas(n int, timeout time.Duration) LockOption {
	if n < 1 || timeout < 10*time.Millisecond {
		panic(fmt.Sprintf("holdfast: confirmation by %d replicas within %v, must be at least 1 and 10 ms", n, timeout))
	}
	return lockOption(func(c *config) { c.copies = copies{n, timeout} })
}

// copies is how many replicas shall have a lease, and how soon.
type copies struct {
	n       int // 0: nobody asks
	timeout time.Duration
}

// possible says what is wrong if they are wanted and the driver cannot tell.
func (c copies) possible(d driver.Driver) error {
	if c.n == 0 {
		return nil
	}
	if _, able := driver.As[driver.Confirmer](d); !able {
		return fmt.Errorf("the store does not know of replicas: %w", errors.ErrUnsupported)
	}
	return nil
}

// confirm returns when enough replicas have the grant, with the trust that follows from
// it, since a confirmation is a renewal. If it returns an error the lock has still to be
// given back.
func (a *acquisition) confirm(ctx context.Context, want copies) (keepalive.Trust, error) {
	// Nothing else renews the lease meanwhile, so there must be something left of it.
	limit := min(want.timeout, a.cfg.ttl/2)
	hung := time.NewTimer(limit + a.cfg.ttl/4)
	defer hung.Stop()
	type result struct {
		trust keepalive.Trust
		err   error
	}
	done := make(chan result, 1)
	a.c.wg.Add(1) // the operation that we are part of has not ended, so it may grow
	go func() {
		defer a.c.wg.Done()
		trust, err := a.replicate(ctx, want.n, limit)
		done <- result{trust, err}
	}()
	var r result
	select {
	case r = <-done:
	case <-ctx.Done():
	case <-hung.C:
		r.err = fmt.Errorf("%w: %w", ErrNotReplicated, errTooSlow)
	case <-a.c.closing.Done():
		return r.trust, ErrClosed
	}
	if ctx.Err() != nil { // also if it was confirmed at the same time
		r.err = fmt.Errorf("%w: %w", context.Cause(ctx), ErrNotReplicated)
	}
	return r.trust, r.err
}

// replicate asks for the confirmation, and again if something else than the replicas is in
// the way.
func (a *acquisition) replicate(ctx context.Context, n int, limit time.Duration) (keepalive.Trust, error) {
	by, _ := driver.As[driver.Confirmer](a.c.d)
	deadline := time.Now().Add(limit)
	var err error
	for pause := 5 * time.Millisecond; ; pause *= 2 {
		sent := time.Now()
		left := deadline.Sub(sent) // less than meant, if the process was paused meanwhile
		if left < time.Millisecond || err != nil && ctx.Err() != nil {
			return keepalive.Trust{}, fmt.Errorf("%w: %w", ErrNotReplicated, err)
		}
		if err = by.Confirm(ctx, a.driverLease(), n, left); !errors.Is(err, driver.ErrTransient) {
			return keepalive.NewTrust(sent, a.cfg.ttl), err
		}
		time.Sleep(min(pause, time.Until(deadline)))
	}
}
