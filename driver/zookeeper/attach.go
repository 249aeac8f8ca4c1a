package zkdriver

import (
	"cmp"
	"context"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

var _ driver.Attacher = (*Driver)(nil)

// Attach implements [driver.Attacher]. The new claim has the place of the old one, in the session of
// this driver, and the fences of that place which follow. So its fence is larger than that of old and
// smaller than all later ones, but not larger than those of others who hold the lock at the same time.
func (d *Driver) Attach(ctx context.Context, old driver.Lease, r *driver.Request) (driver.Grant, error) {
	want := *r // which does not say how much old holds
	want.Wait, want.Weight, want.Limit, want.Owner = false, 1, 1, ""
	if err := valid(ctx, &want); err != nil {
		return driver.Grant{}, err
	}
	ctx, cancel := bounded(ctx)
	defer cancel()
	l := d.lock(r.Kind, r.Name)
	t, err := d.begin(l, &want)
	if err != nil {
		return driver.Grant{}, err
	}
	g, err := d.attach(ctx, l, old.Token, &want, t, time.Now().Add(r.TTL))
	d.done(l, r.Token, t, g, err)
	return g, failure(err)
}

func (d *Driver) attach(ctx context.Context, l lock, old string, r *driver.Request, t *token, until time.Time) (driver.Grant, error) {
	var last error
	for try := range attempts(ctx) {
		s, err := d.sessionOf(t, r.TTL)
		if err == nil {
			err = s.touch(ctx, until)
		}
		if err == nil {
			err = d.sync(ctx, s)
		}
		var q *queue
		var c *claim
		dead := false
		if err == nil {
			q, c, dead, err = d.find(ctx, s, l, r.Token, t)
		}
		if err == nil && dead {
			err = driver.ErrNotHeld
		}
		if err == nil && c != nil {
			var g driver.Grant
			if g, err = d.settle(ctx, s, l, r, t, q, c, until, false); err == nil {
				g.Shared, g.Owner = c.shared, c.owner
				if r.Kind == driver.Semaphore {
					g.Weight = c.weight
				}
				return g, nil
			}
		}
		if err == nil {
			err = d.takeOver(ctx, s, l, q, old, r, t)
		}
		if again(err, &last, try) {
			continue
		}
		return driver.Grant{}, err
	}
	return driver.Grant{}, cmp.Or(last, errCrowded)
}

// takeOver puts a claim in the place of another that holds the lock.
func (d *Driver) takeOver(ctx context.Context, s *session, l lock, q *queue, old string, r *driver.Request, t *token) error {
	from := q.find(old)
	if from == nil || !q.holds(from) {
		return driver.ErrNotHeld
	}
	is, err := d.read(ctx, s, l.dir+"/"+from.node)
	if err != nil {
		return err
	}
	was, err := recorded(is)
	if err != nil {
		return err
	}
	own, rec := *from, recordOf(r)
	own.token = r.Token
	rec.Change, rec.First = was.Change, was.First
	if !q.shared(from) {
		rec.First += was.Fences
	}
	if own.owner != "" {
		rec.Fences = 1
	}
	if rec.First+rec.Fences > block {
		return refusal("a hold that was handed on with %d fences already", rec.First)
	}
	_, err = d.replace(ctx, s, l, t, from, &own, rec, from)
	return cmp.Or(err, errMoved) // to make sure of it
}

// Detach implements [driver.Attacher].
func (d *Driver) Detach(lease driver.Lease) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if t := d.tokens[d.lock(lease.Kind, lease.Name).id(lease.Token)]; t != nil {
		t.ignore()
		t.wake, t.notice = nil, false
	}
}
