package zkdriver

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/holdfast-go/holdfast/driver"
)

var (
	_ driver.Granular   = (*Driver)(nil)
	_ driver.Inspector  = (*Driver)(nil)
	_ driver.Forcer     = (*Driver)(nil)
	_ driver.Downgrader = (*Driver)(nil)
	_ driver.Notifier   = (*Driver)(nil)
	_ driver.Explainer  = (*Driver)(nil)
)

// view returns a session whose member knows all that the leader knows.
func (d *Driver) view(ctx context.Context) (*session, error) {
	d.mu.Lock()
	var s *session
	for _, other := range d.sessions {
		if s == nil && !other.isOver() {
			s = other
		}
	}
	d.mu.Unlock()
	if s == nil {
		var err error
		if s, err = d.session(10 * time.Second); err != nil {
			return nil, err
		}
	}
	return s, d.sync(ctx, s)
}

// Explain implements [driver.Explainer]: it says why there is no connection.
func (d *Driver) Explain() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, s := range d.sessions {
		s.mu.Lock()
		err := s.trouble
		s.mu.Unlock()
		if err != nil {
			return unreachable{err}
		}
	}
	return nil
}

// Inspect implements [driver.Inspector]. ZooKeeper does not tell how long a session still has: Since
// is when the holder came, on the clock of its machine, and TimeLeft is its whole TTL.
func (d *Driver) Inspect(ctx context.Context, k driver.Kind, name string) (driver.Info, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	info := driver.Info{Name: name}
	l := d.lock(k, name)
	s, err := d.view(ctx)
	if err != nil {
		return info, failure(err)
	}
	q, err := d.look(ctx, s, l)
	if err != nil {
		return info, failure(err)
	}
	holders, _ := q.holders()
	for i, c := range q.claims {
		is, err := d.read(ctx, s, l.dir+"/"+c.node)
		if errors.Is(err, zk.ErrNoNode) {
			continue // It has just ended.
		}
		if err != nil {
			return info, failure(err)
		}
		rec, err := recorded(is)
		if err != nil {
			return info, err
		}
		weight := int64(0)
		if k == driver.Semaphore {
			weight, info.Limit = c.weight, c.limit
		}
		if i >= len(holders) {
			info.Queue = append(info.Queue, driver.Waiter{
				Holder: rec.Holder, Shared: c.shared, Weight: weight, Owner: c.owner, Since: driver.Since(c.token),
			})
			continue
		}
		info.Holders = append(info.Holders, driver.Holder{
			Holder: rec.Holder, Shared: c.shared, Weight: weight, Owner: c.owner, Since: rec.Since,
			Fence: rec.fence(), LastFence: rec.fence() + rec.Fences - 1, TimeLeft: rec.TTL,
		})
	}
	return info, nil
}

// ForceRelease implements [driver.Forcer].
func (d *Driver) ForceRelease(ctx context.Context, k driver.Kind, name string) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	l := d.lock(k, name)
	var last error
	for try := range attempts(ctx) {
		err := d.force(ctx, l)
		if errors.As(err, &perhaps{}) || !again(err, &last, try) {
			return failure(unsent(err, try))
		}
	}
	return failure(cmp.Or(last, errCrowded))
}

func (d *Driver) force(ctx context.Context, l lock) error {
	s, err := d.view(ctx)
	if err != nil {
		return err
	}
	q, err := d.look(ctx, s, l)
	if err != nil {
		return err
	}
	holders, _ := q.holders()
	if len(holders) == 0 {
		return driver.ErrNotHeld
	}
	if err := d.lay(ctx, s, d.forced()); err != nil {
		return err
	}
	var ops []any
	for _, c := range holders {
		word := d.forced() + "/" + l.id(c.token)
		ops = append(ops, &zk.CreateRequest{Path: word, Acl: d.acl(), Flags: zk.FlagEphemeral})
		ops = append(ops, &zk.DeleteRequest{Path: l.dir + "/" + c.node, Version: -1})
		d.later(s, retention, func(ctx context.Context) error {
			_, err := d.remove(ctx, s, word)
			return err
		})
	}
	_, err = d.multi(ctx, s, ops...)
	if err == nil || errors.Is(err, zk.ErrNoNode) || errors.Is(err, zk.ErrNodeExists) || errors.As(err, &unreachable{}) {
		return err // If one has left meanwhile, again.
	}
	return perhaps{err} // A repeat could hit the next holder.
}

// perhaps is an error of a step that may have been carried out.
type perhaps struct{ error }

func (p perhaps) Unwrap() error { return p.error }

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
	ctx, cancel := bounded(ctx)
	defer cancel()
	l := d.lock(lease.Kind, lease.Name)
	return failure(d.change(ctx, lease, func(s *session, t *token, _ *queue, c *claim, rec record) error {
		if c.owner != "" {
			return refusal("the owner may count on all of it: %w", errors.ErrUnsupported)
		}
		if c.weight <= weight {
			return nil
		}
		own := *c
		own.weight, own.shared = weight, lease.Kind == driver.RWMutex
		_, err := d.replace(ctx, s, l, t, c, &own, rec, c)
		return err
	}))
}

// change does something with the claim of a token that holds the lock, again if that has moved.
func (d *Driver) change(ctx context.Context, lease driver.Lease, f func(*session, *token, *queue, *claim, record) error) error {
	lease.TTL = max(lease.TTL, leastTTL)
	t, back := d.hold(d.lock(lease.Kind, lease.Name), lease.Token)
	defer back(0)
	var last error
	for try := range attempts(ctx) {
		s, q, c, rec, err := d.held(ctx, lease, t)
		if err == nil {
			err = f(s, t, q, c, rec)
		}
		if again(err, &last, try) {
			continue
		}
		return err
	}
	return cmp.Or(last, errCrowded)
}

// Notices implements [driver.Notifier].
func (d *Driver) Notices() bool { return true }

// Notice implements [driver.Notifier].
func (d *Driver) Notice(ctx context.Context, lease driver.Lease) (wanted bool, err error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	l := d.lock(lease.Kind, lease.Name)
	s, err := d.view(ctx)
	if err != nil {
		return false, failure(err)
	}
	q, err := d.look(ctx, s, l)
	if err != nil {
		return false, failure(err)
	}
	if c := q.find(lease.Token); c == nil || !q.holds(c) {
		return false, driver.ErrNotHeld
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if t := d.tokens[l.id(lease.Token)]; t != nil && t.s != nil && t.wake != nil && !t.released {
		if t.notice = true; t.unfollow == nil {
			d.heed(t.s, l, t)
		}
	}
	return q.wanted(), nil
}
