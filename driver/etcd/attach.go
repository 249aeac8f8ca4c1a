package etcddriver

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/driver"
)

var _ driver.Attacher = (*Driver)(nil)

// Attach implements [driver.Attacher]. The new claim has the place of the old one, and the
// fences of that place which follow. So its fence is larger than that of old and smaller than
// all later ones, but not larger than those of others who hold the lock at the same time.
func (d *Driver) Attach(ctx context.Context, old driver.Lease, r *driver.Request) (driver.Grant, error) {
	want := *r // which does not say how much old holds
	want.Wait, want.Weight, want.Limit, want.Owner = false, 1, 1, ""
	if err := valid(ctx, &want); err != nil {
		return driver.Grant{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	l := d.lock(r.Kind, r.Name)
	t, lease := d.begin(l, &want)
	g, err := d.attach(ctx, l, old.Token, &want, t, lease)
	d.done(l, &want, t, g)
	return g, d.failure(err)
}

func (d *Driver) attach(ctx context.Context, l lock, old string, r *driver.Request, t *token, lease clientv3.LeaseID) (driver.Grant, error) {
	failure := d.failure
	for range attempts(ctx) {
		q, c, err := d.confirm(ctx, l, r.Token, r.TTL, lease)
		if err != nil {
			return driver.Grant{}, failure(err)
		}
		from := q.find(old)
		switch {
		case q.dead || c == nil && (from == nil || !q.holds(from)):
			return driver.Grant{}, driver.ErrNotHeld
		case c != nil:
			g, err := d.answer(ctx, l, q, c, r, t)
			g.Shared, g.Owner = c.Shared, string(c.Owner)
			if r.Kind == driver.Semaphore {
				g.Weight = c.Weight
			}
			return g, err
		}
		if lease, err = d.takeOver(ctx, l, q, from, r); err != nil {
			return driver.Grant{}, err
		}
		failure = d.begun // it may have the lock
	}
	return driver.Grant{}, errCrowded
}

// takeOver puts a claim in the place of another, unless a claim has come meanwhile, and returns
// the lease that it has then.
func (d *Driver) takeOver(ctx context.Context, l lock, q *queue, from *claim, r *driver.Request) (clientv3.LeaseID, error) {
	own := recordOf(r)
	own.Shared, own.Weight, own.Owner, own.Place, own.First = from.Shared, from.Weight, from.Owner, from.place(), from.First
	if !q.shared(from) {
		own.First += from.Fences
	}
	if len(own.Owner) > 0 {
		own.Fences = 1
	}
	if own.First+own.Fences > block {
		return 0, refusal("a hold that was handed on with %d fences already", own.First)
	}
	lease, err := d.grant(ctx, r.TTL)
	if err != nil {
		return 0, err
	}
	grave, err := d.grant(ctx, retention)
	if err != nil {
		d.discard(lease)
		return 0, err
	}
	key := l.key(from.limit, r.Token)
	resp, err := d.client.Txn(ctx).
		If(absent(key), absent(l.dead+r.Token), from.there(),
			clientv3.Compare(clientv3.ModRevision(l.claims).WithPrefix(), "<", q.revision+1)).
		Then(clientv3.OpPut(key, own.String(), clientv3.WithLease(lease)), clientv3.OpDelete(from.key),
			clientv3.OpPut(l.dead+from.token, "", clientv3.WithLease(grave))).
		Commit()
	switch {
	case err != nil: // It may have happened.
		return 0, err
	case !resp.Succeeded:
		d.discard(lease)
		d.discard(grave)
		return 0, nil
	}
	d.discard(from.lease)
	return lease, nil
}

// shared reports whether others of its owner hold the lock beside a claim.
func (q *queue) shared(c *claim) bool {
	for _, other := range q.claims {
		if other.token != c.token && other.place() == c.place() {
			return true
		}
	}
	return false
}

// Detach implements [driver.Attacher].
func (d *Driver) Detach(lease driver.Lease) {
	d.mu.Lock()
	defer d.mu.Unlock()
	l := d.lock(lease.Kind, lease.Name)
	if t := d.tokens[l.id(lease.Token)]; t != nil {
		t.released = true
		d.forget(l, lease.Token, t)
	}
}
