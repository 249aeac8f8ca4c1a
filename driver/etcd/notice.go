package etcddriver

import (
	"context"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/driver"
)

var _ driver.Notifier = (*Driver)(nil)

// Notices implements [driver.Notifier].
func (d *Driver) Notices() bool { return true }

// Notice implements [driver.Notifier].
func (d *Driver) Notice(ctx context.Context, lease driver.Lease) (wanted bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	l := d.lock(lease.Kind, lease.Name)
	q, err := d.look(ctx, l, lease.Token)
	if err != nil {
		return false, d.failure(err)
	}
	c := q.find(lease.Token)
	if c == nil || !q.holds(c) {
		return false, driver.ErrNotHeld
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if t := d.tokens[l.id(lease.Token)]; t != nil && t.wake != nil && !t.released {
		if t.notice = true; t.unfollow == nil {
			d.heed(l, q, c, t)
		}
	}
	return q.wanted(), nil
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
		for pause := time.Duration(0); ctx.Err() == nil; rest(ctx, pause) {
			if q.wanted() {
				d.want(ctx, t)
			}
			came := d.newcomer(ctx, l, q, c.token)
			if came && c.limit == 1 && len(c.Owner) == 0 {
				d.want(ctx, t) // else it may have got the lock, too
			}
			next, err := d.look(ctx, l, c.token)
			if err == nil {
				q = next
			}
			if pause = longer(pause); came && err == nil { // else such as while there is no leader
				pause = 0
			}
		}
	})
}

// newcomer waits for a claim that is made after q, and reports false if it cannot tell.
func (d *Driver) newcomer(ctx context.Context, l lock, q *queue, token string) bool {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	none := clientv3.Compare(clientv3.CreateRevision(l.claims).WithPrefix(), "<", q.revision+1)
	for resp := range d.watch(ctx, l.claims, clientv3.WithCreatedNotify(), clientv3.WithPrefix(), clientv3.WithFilterDelete()) {
		switch next, err := d.missed(ctx, resp, l, q, token, none); {
		case err != nil:
			return false
		case next != nil || slices.ContainsFunc(resp.Events, func(e *clientv3.Event) bool { return e.Kv.CreateRevision > q.revision }):
			return true
		}
	}
	return false
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
