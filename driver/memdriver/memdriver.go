package memdriver

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// retention is for how long it is remembered that a token was given up, and that a
// semaphore was resized.
const retention = time.Minute

// Driver keeps locks in memory. Any number of clients may share one.
type Driver struct {
	mu    sync.Mutex
	locks map[key]*lock
	fence int64 // the last that was given or reserved
}

type key struct {
	kind driver.Kind
	name string
}

// New returns an empty store.
func New() *Driver { return &Driver{locks: map[key]*lock{}} }

// Acquire implements [driver.Driver].
func (d *Driver) Acquire(ctx context.Context, r *driver.Request) (driver.Grant, error) {
	if err := valid(ctx, r); err != nil {
		return driver.Grant{}, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	l, now := d.lock(r.Kind, r.Name, r.Token)
	if !l.dead[r.Token].IsZero() {
		return driver.Grant{}, fmt.Errorf("%w: the token was released before", driver.ErrNotHeld)
	}
	if h := find(l.holders, r.Token); h != nil {
		h.extend(now, r.TTL)
		return h.granted(r.Ask), nil
	}
	c := find(l.queue, r.Token)
	if c == nil {
		if err := l.admit(r); err != nil {
			return driver.Grant{}, err
		}
		c = &claim{Request: *r}
		c.weight, _ = r.Share()
		switch {
		case l.may(c):
			d.grant(l, c, now)
			return c.granted(r.Ask), nil
		case !r.Wait:
			return l.answer(c, driver.Busy, true, now), nil
		case r.MaxWaiters > 0 && int64(len(l.queue)) >= r.MaxWaiters:
			return l.answer(c, driver.Full, false, now), nil
		}
		l.queue = append(l.queue, c)
		for _, h := range l.holders {
			l.notice(h)
		}
	}
	c.Ask, c.until = r.Ask, now.Add(patience(r.TTL))
	next := c == l.queue[0]
	if next {
		l.told = c
	}
	return l.answer(c, driver.Queued, next, now), nil
}

// admit refuses what can never be had.
func (l *lock) admit(r *driver.Request) error {
	weight, limit := r.Share()
	if l.idle() && !l.resized {
		l.limit = limit
	}
	switch {
	case limit != l.limit && !l.resized:
		return fmt.Errorf("%w: %d, not %d: %w", driver.ErrLimitConflict, l.limit, r.Limit, driver.ErrNotExecuted)
	case weight > l.limit:
		return fmt.Errorf("%w: %d of %d: %w", driver.ErrLimitExceeded, r.Weight, l.limit, driver.ErrNotExecuted)
	}
	return nil
}

// Renew implements [driver.Driver].
func (d *Driver) Renew(_ context.Context, leases []driver.Lease) []error {
	errs := make([]error, len(leases))
	for i, l := range leases {
		errs[i] = d.hold(l, func(k *lock, h *claim, now time.Time) error {
			h.extend(now, l.TTL)
			k.notice(h)
			return nil
		})
	}
	return errs
}

// Release implements [driver.Driver].
func (d *Driver) Release(_ context.Context, lease driver.Lease) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	l, now := d.lock(lease.Kind, lease.Name, lease.Token)
	if lease.Unsettled {
		l.bury(lease.Token, now)
	}
	if h := find(l.holders, lease.Token); h != nil {
		h.tag = cmp.Or(lease.HolderTag, h.tag)
	}
	if !l.drop(lease.Token) {
		return driver.ErrNotHeld
	}
	l.told = nil // the lease of an owner may end earlier now
	d.serve(l, "", now)
	return nil
}

// Close implements [driver.Driver]. There is nothing to end.
func (d *Driver) Close() error { return nil }

// lock is a lock as it is now. Tokens that came first have had their turn before the token
// that asks, which will see by itself what it got. The caller holds mu.
func (d *Driver) lock(k driver.Kind, name, asking string) (*lock, time.Time) {
	now := time.Now()
	l := d.locks[key{k, name}]
	if l != nil {
		l.expire(now)
		d.serve(l, asking, now)
	}
	if l == nil || l.idle() && now.Sub(l.used) > retention {
		l = &lock{dead: map[string]time.Time{}}
		d.locks[key{k, name}] = l
	}
	l.used = now
	return l, now
}

// serve grants the lock to all tokens whose turn it is. It tells them, and the first
// waiter.
func (d *Driver) serve(l *lock, asking string, now time.Time) {
	for i := 0; i < len(l.queue); {
		c, before := l.queue[i], l.last
		if !l.may(c) {
			i++
			continue
		}
		l.drop(c.Token)
		d.grant(l, c, now)
		if c.Token != asking {
			g := c.granted(c.Ask)
			g.HolderTag = before.tag
			c.wake(g)
		}
	}
	l.inform(asking)
}

func (d *Driver) grant(l *lock, c *claim, now time.Time) {
	if kin := l.kin(c); kin != nil {
		c.fence, c.fences = kin.fence, 1
	} else {
		c.fences = max(c.Fences, 1)
		if c.Owner != "" {
			c.fences = 1 // which they share
		}
		c.fence = d.reserve(1, c.fences)
	}
	c.since, c.until = now, now.Add(c.TTL)
	l.holders, l.last = append(l.holders, c), c
}

// reserve returns the first of n new fences, which is at least that one.
func (d *Driver) reserve(least, n int64) (first int64) {
	first = max(d.fence+1, least)
	d.fence = first + max(n, 1) - 1
	return first
}

// hold does something with what a token holds.
func (d *Driver) hold(lease driver.Lease, do func(*lock, *claim, time.Time) error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	l, now := d.lock(lease.Kind, lease.Name, lease.Token)
	h := find(l.holders, lease.Token)
	if h == nil {
		return driver.ErrNotHeld
	}
	h.tag = cmp.Or(lease.HolderTag, h.tag)
	return do(l, h, now)
}
