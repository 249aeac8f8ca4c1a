package etcddriver

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/driver"
)

var (
	_ driver.Extender = (*Driver)(nil)
	_ driver.Notifier = (*Driver)(nil)
)

// Notices implements [driver.Notifier].
func (d *Driver) Notices() bool { return true }

// Extend implements [driver.Extender]. If the place of the claim has no more fences, or there is
// an owner, it gives none.
func (d *Driver) Extend(ctx context.Context, lease driver.Lease, fences int64) (driver.Grant, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	l := d.lock(lease.Kind, lease.Name)
	d.mu.Lock()
	var known clientv3.LeaseID
	if t := d.tokens[l.id(lease.Token)]; t != nil {
		known = t.lease
	}
	d.mu.Unlock()
	for range attempts(ctx) {
		q, c, err := d.confirm(ctx, l, lease.Token, lease.TTL, known)
		if err != nil {
			return driver.Grant{}, d.failure(err)
		}
		if c == nil || !q.holds(c) {
			return driver.Grant{}, driver.ErrNotHeld
		}
		g := driver.Grant{Status: driver.Granted, Wanted: q.wanted()}
		more := min(fences, most, block-c.First-c.Fences)
		if more < 1 || len(c.Owner) > 0 {
			return g, nil
		}
		g.Fence, g.Fences = c.fence()+c.Fences, more
		c.Fences += more
		if done, err := d.rewrite(ctx, c, c.lease); done || err != nil {
			return g, d.failure(err)
		}
		known = c.lease
	}
	return driver.Grant{}, d.failure(errCrowded)
}

// wanted reports whether somebody waits.
func (q *queue) wanted() bool {
	holders, _ := q.holders()
	return len(holders) < len(q.claims)
}

// heed watches those that come after a claim, and tells its token that it is wanted. The caller
// holds mu.
func (d *Driver) heed(l lock, q *queue, c *claim, t *token) {
	ctx, cancel := context.WithCancel(d.ctx)
	t.unfollow, t.wanted = cancel, false
	d.tasks.Go(func() {
		defer cancel()
		for pause := time.Duration(0); ctx.Err() == nil; {
			if q.wanted() {
				d.want(ctx, t)
			}
			from := clientv3.WithRev(q.revision + 1)
			for resp := range d.watch(ctx, l.claims, clientv3.WithPrefix(), clientv3.WithFilterDelete(), from) {
				if resp.Err() == nil {
					pause = 0
				}
				for _, e := range resp.Events {
					if e.IsCreate() {
						d.want(ctx, t)
					}
				}
			}
			pause = longer(pause) // such as while there is no leader
			rest(ctx, pause)
			if next, err := d.look(ctx, l, c.token); err == nil {
				q = next
			}
		}
	})
}

// want tells a token that it is wanted, unless nobody wants to know any more.
func (d *Driver) want(ctx context.Context, t *token) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if ctx.Err() == nil {
		t.wanted = true
		t.wake(driver.Grant{Status: driver.Wanted})
	}
}

// remind tells a token again that it is wanted.
func (d *Driver) remind(id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if t := d.tokens[id]; t != nil && t.unfollow != nil && t.wanted {
		t.wake(driver.Grant{Status: driver.Wanted})
	}
}
