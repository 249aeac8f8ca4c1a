package memdriver

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

var (
	_ driver.Inspector  = (*Driver)(nil)
	_ driver.Lister     = (*Driver)(nil)
	_ driver.Forcer     = (*Driver)(nil)
	_ driver.Stealer    = (*Driver)(nil)
	_ driver.Downgrader = (*Driver)(nil)
	_ driver.Resizer    = (*Driver)(nil)
	_ driver.Attacher   = (*Driver)(nil)
	_ driver.Notifier   = (*Driver)(nil)
)

// Inspect implements [driver.Inspector].
func (d *Driver) Inspect(_ context.Context, k driver.Kind, name string) (driver.Info, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	l, now := d.lock(k, name, "")
	info := driver.Info{Name: name}
	for _, h := range l.holders {
		info.Holders = append(info.Holders, driver.Holder{
			Holder: h.Holder, Shared: h.Shared, Weight: h.permits(), Owner: h.Owner, Since: h.since, Fence: h.fence, LastFence: h.fence + h.fences - 1, Tag: h.tag,
			TimeLeft: h.until.Sub(now),
		})
	}
	for _, c := range l.queue {
		info.Queue = append(info.Queue, driver.Waiter{
			Holder: c.Holder, Shared: c.Shared, Weight: c.permits(), Owner: c.Owner, Since: driver.Since(c.Token),
		})
	}
	if k == driver.Semaphore && (l.resized || !l.idle()) {
		info.Limit = l.limit
	}
	return info, nil
}

// List implements [driver.Lister].
func (d *Driver) List(_ context.Context, prefix string, f func(k driver.Kind, name string) error) error {
	d.mu.Lock()
	var used []key
	for k, l := range d.locks {
		if !l.idle() && strings.HasPrefix(k.name, prefix) {
			used = append(used, k)
		}
	}
	d.mu.Unlock()
	for _, k := range used {
		if err := f(k.kind, k.name); err != nil {
			return err
		}
	}
	return nil
}

func (c *claim) permits() int64 {
	if c.Kind == driver.Semaphore {
		return c.weight
	}
	return 0
}

// ForceRelease implements [driver.Forcer].
func (d *Driver) ForceRelease(_ context.Context, k driver.Kind, name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	l, now := d.lock(k, name, "")
	if len(l.holders) == 0 {
		return driver.ErrNotHeld
	}
	for _, h := range l.holders {
		l.bury(h.Token, now)
		h.wake(driver.Grant{Status: driver.Lost})
	}
	l.holders = nil
	d.serve(l, "", now)
	return nil
}

// Steal implements [driver.Stealer].
func (d *Driver) Steal(ctx context.Context, r *driver.Request) (driver.Grant, error) {
	if err := valid(ctx, r); err != nil {
		return driver.Grant{}, err
	}
	if r.Kind == driver.Semaphore || r.Shared {
		return driver.Grant{}, refusal("to steal a part of a %s: %w", r.Kind, errors.ErrUnsupported)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	l, now := d.lock(r.Kind, r.Name, r.Token)
	c := find(l.holders, r.Token)
	switch {
	case c != nil: // a repeat
		c.extend(now, r.TTL)
	case !l.dead[r.Token].IsZero():
		return driver.Grant{}, driver.ErrNotHeld
	default:
		for _, h := range l.holders {
			l.bury(h.Token, now)
			h.wake(driver.Grant{Status: driver.Lost, Holder: r.Holder})
		}
		l.bury(r.Token, now) // it steals once
		c = &claim{Request: *r}
		c.weight, l.limit = r.Share()
		l.holders = nil
		d.grant(l, c, now)
		l.told = nil // the lease that ends next is another
		d.serve(l, "", now)
	}
	return c.granted(r.Ask), nil
}

// Downgrade implements [driver.Downgrader].
func (d *Driver) Downgrade(_ context.Context, lease driver.Lease, weight int64) error {
	switch {
	case lease.Kind == driver.RWMutex:
		weight = 1
	case lease.Kind != driver.Semaphore:
		return refusal("locks of kind %q: %w", lease.Kind, errors.ErrUnsupported)
	case weight < 1:
		return refusal("a weight of %d", weight)
	}
	return d.hold(lease, func(l *lock, h *claim, now time.Time) error {
		if h.Owner != "" && lease.Kind == driver.RWMutex {
			return refusal("the owner may count on all of it: %w", errors.ErrUnsupported)
		}
		h.Shared, h.weight = lease.Kind == driver.RWMutex, min(h.weight, weight)
		d.serve(l, "", now)
		return nil
	})
}

// Resize implements [driver.Resizer].
func (d *Driver) Resize(_ context.Context, name, token string, limit int64) error {
	if limit < 1 || limit > driver.MaxLimit {
		return refusal("a limit of %d", limit)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	l, now := d.lock(driver.Semaphore, name, "")
	if !l.dead[token].IsZero() { // a repeat
		return nil
	}
	l.bury(token, now)
	l.limit, l.resized = limit, true
	for _, c := range append([]*claim{}, l.queue...) {
		if c.weight > limit {
			l.drop(c.Token)
			c.wake(driver.Grant{Status: driver.Queued}) // It is refused when it asks.
		}
	}
	d.serve(l, "", now)
	return nil
}

// Attach implements [driver.Attacher].
func (d *Driver) Attach(ctx context.Context, old driver.Lease, r *driver.Request) (driver.Grant, error) {
	want := *r // does not say how much old holds
	want.Weight, want.Limit = 1, 1
	if err := valid(ctx, &want); err != nil {
		return driver.Grant{}, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	l, now := d.lock(r.Kind, r.Name, old.Token)
	h, c := find(l.holders, old.Token), find(l.holders, r.Token)
	switch {
	case c != nil: // a repeat
		c.extend(now, r.TTL)
	case h == nil || !l.dead[r.Token].IsZero():
		return driver.Grant{}, driver.ErrNotHeld
	default:
		c = &claim{Request: want, weight: h.weight}
		c.Shared, c.Owner = h.Shared, h.Owner
		l.drop(old.Token)
		l.bury(old.Token, now)
		d.grant(l, c, now)
		l.told = nil // the lease may end earlier now
		d.serve(l, "", now)
	}
	g := c.granted(r.Ask)
	g.Shared, g.Weight, g.Owner = c.Shared, c.permits(), c.Owner
	return g, nil
}

// Detach implements [driver.Attacher].
func (d *Driver) Detach(lease driver.Lease) {
	_ = d.hold(lease, func(_ *lock, h *claim, _ time.Time) error {
		h.Wake = nil
		return nil
	})
}

// RaiseFence implements [github.com/holdfast-go/holdfast/driver/redlock.FenceRaiser].
func (d *Driver) RaiseFence(_ context.Context, lease driver.Lease, fence, fences int64) (raised int64, err error) {
	err = d.hold(lease, func(_ *lock, h *claim, _ time.Time) error {
		if given := d.fence; h.fence < fence {
			if given == h.fence+h.fences-1 { // The numbers that it has reserved are its own.
				d.fence = min(given, fence-1)
			}
			h.fence, h.fences = d.reserve(fence, fences), max(fences, 1)
			d.fence = max(d.fence, given)
		}
		raised = h.fence
		return nil
	})
	return raised, err
}

// valid refuses what no driver can serve, and callers that have given up already.
func valid(ctx context.Context, r *driver.Request) error {
	if ctx.Err() != nil {
		return refusal("%w", ctx.Err())
	}
	return r.Check()
}

func refusal(format string, args ...any) error {
	return fmt.Errorf("memdriver: "+format+": %w", append(args, driver.ErrNotExecuted)...)
}

// Notices implements [driver.Notifier].
func (d *Driver) Notices() bool { return true }

// Notice implements [driver.Notifier].
func (d *Driver) Notice(_ context.Context, lease driver.Lease) (wanted bool, err error) {
	err = d.hold(lease, func(l *lock, h *claim, _ time.Time) error {
		h.Notice, wanted = true, len(l.queue) > 0
		return nil
	})
	return wanted, err
}
