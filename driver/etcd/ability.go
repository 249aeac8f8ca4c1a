package etcddriver

import (
	"context"
	"errors"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/driver"
)

var (
	_ driver.Granular   = (*Driver)(nil)
	_ driver.Inspector  = (*Driver)(nil)
	_ driver.Forcer     = (*Driver)(nil)
	_ driver.Downgrader = (*Driver)(nil)
)

// Inspect implements [driver.Inspector]. etcd keeps no times: Since is when the holder came, on
// the clock of its machine, and TimeLeft is in whole seconds.
func (d *Driver) Inspect(ctx context.Context, k driver.Kind, name string) (driver.Info, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	info := driver.Info{Name: name}
	q, err := d.look(ctx, d.lock(k, name), "")
	if err != nil {
		return info, d.failure(err)
	}
	holders, _ := q.holders()
	for i, c := range q.claims {
		weight := int64(0)
		if k == driver.Semaphore {
			weight, info.Limit = c.Weight, c.limit
		}
		if i >= len(holders) {
			info.Queue = append(info.Queue, driver.Waiter{
				Holder: c.Holder, Shared: c.Shared, Weight: weight, Owner: string(c.Owner), Since: driver.Since(c.token),
			})
			continue
		}
		left, err := d.client.TimeToLive(ctx, c.lease)
		if err != nil {
			return info, d.failure(err)
		}
		if left.TTL < 0 {
			continue // It has just ended.
		}
		info.Holders = append(info.Holders, driver.Holder{
			Holder: c.Holder, Shared: c.Shared, Weight: weight, Owner: string(c.Owner), Since: c.Since,
			Fence: c.fence(), LastFence: c.fence() + c.Fences - 1, Tag: c.Tag, TimeLeft: time.Duration(left.TTL) * time.Second,
		})
	}
	return info, nil
}

// ForceRelease implements [driver.Forcer].
func (d *Driver) ForceRelease(ctx context.Context, k driver.Kind, name string) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	l := d.lock(k, name)
	q, err := d.look(ctx, l, "")
	if err != nil {
		return d.failure(err)
	}
	holders, _ := q.holders()
	if len(holders) == 0 {
		return driver.ErrNotHeld
	}
	failure := d.failure
	for _, c := range holders {
		if err := d.evict(ctx, l, &c); err != nil {
			return failure(err)
		}
		failure = d.begun
	}
	return nil
}

// evict takes a lock from a holder, also if its claim gets another lease meanwhile, or passes to another
// token.
func (d *Driver) evict(ctx context.Context, l lock, c *claim) error {
	grave, err := d.grant(ctx, retention)
	if err != nil {
		return err
	}
	for range attempts(ctx) {
		dead := clientv3.OpPut(l.dead+c.token, "", clientv3.WithLease(grave))
		news := clientv3.OpPut(l.news+c.token, "", clientv3.WithLease(grave))
		err := d.drop(ctx, c.tie, dead, news)
		if !errors.Is(err, driver.ErrNotHeld) {
			return err
		}
		q, err := d.look(ctx, l, c.token)
		if err != nil {
			return err
		}
		holders, _ := q.holders()
		i := slices.IndexFunc(holders, func(h claim) bool { return h.token == c.token })
		if i < 0 && len(c.Owner) == 0 { // others of an owner have the same place
			i = slices.IndexFunc(holders, func(h claim) bool { return h.place() == c.place() })
		}
		if i < 0 {
			d.discard(grave)
			return nil // it has been given up
		}
		c = &holders[i]
	}
	return errCrowded
}

// Downgrade implements [driver.Downgrader].
func (d *Driver) Downgrade(ctx context.Context, lease driver.Lease, weight int64) error {
	switch {
	case lease.Kind == driver.RWMutex:
		weight = 1
	case lease.Kind != driver.Semaphore:
		return refusal("locks of kind %q: %w", lease.Kind, errors.ErrUnsupported)
	case weight < 1:
		return refusal("a weight of %d", weight)
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	l := d.lock(lease.Kind, lease.Name)
	for range attempts(ctx) {
		q, err := d.look(ctx, l, lease.Token)
		if err != nil {
			return d.failure(err)
		}
		c := q.find(lease.Token)
		if c == nil || !q.holds(c) {
			return driver.ErrNotHeld
		}
		if len(c.Owner) > 0 {
			return refusal("the owner may count on all of it: %w", errors.ErrUnsupported)
		}
		if c.Weight <= weight {
			return nil
		}
		c.Weight, c.Shared = weight, lease.Kind == driver.RWMutex
		if done, err := d.rewrite(ctx, c, c.lease); done || err != nil {
			return d.failure(err)
		}
	}
	return d.failure(errCrowded)
}
