package etcddriver

import (
	"context"
	"sync"

	"github.com/holdfast-go/holdfast/driver"
)

// Renew implements [driver.Driver]. Leases that are known to be granted here are renewed
// together; of the others it has to look who holds the lock.
func (d *Driver) Renew(ctx context.Context, leases []driver.Lease) []error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	errs := make([]error, len(leases))
	var known []int
	var held []tie
	d.mu.Lock()
	for i, l := range leases {
		if t := d.tokens[d.lock(l.Kind, l.Name).id(l.Token)]; t != nil && t.granted {
			known, held = append(known, i), append(held, t.tie)
		} else {
			errs[i] = errUnknown
		}
	}
	d.mu.Unlock()
	ttls, err := d.keepAllAlive(ctx, held)
	for n, i := range known {
		switch {
		case err != nil:
			errs[i] = d.failure(err)
		case ttls[n] < leases[i].TTL: // also if there is no such lease
			errs[i] = errUnknown
		}
	}
	for i, l := range leases {
		if errs[i] == errUnknown {
			errs[i] = d.failure(d.renew(ctx, l))
		}
		if errs[i] == nil {
			d.remind(d.lock(l.Kind, l.Name).id(l.Token))
		}
	}
	d.sayAll(ctx, leases, errs)
	return errs
}

// sayAll has claims say the tags of leases that were renewed. That takes a write, so only what is
// new is said. A renewal counts whatever becomes of it: an etcd without space takes no writes, but
// keeps leases. A tag that was not said is said with the next renewal.
func (d *Driver) sayAll(ctx context.Context, leases []driver.Lease, errs []error) {
	patience := timeout // of the one with the shortest TTL, since all are answered together
	for _, l := range leases {
		patience = min(patience, l.TTL/3)
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var all sync.WaitGroup
	for i, l := range leases {
		if errs[i] == nil && l.HolderTag != "" && len(l.HolderTag) <= driver.MaxHolderTag {
			d.mu.Lock()
			t := d.tokens[d.lock(l.Kind, l.Name).id(l.Token)]
			if t == nil || t.said != l.HolderTag {
				all.Go(func() { d.say(ctx, l) })
			}
			d.mu.Unlock()
		}
	}
	all.Wait()
}

// say has the claim of a lease say its tag.
func (d *Driver) say(ctx context.Context, lease driver.Lease) {
	l := d.lock(lease.Kind, lease.Name)
	for range attempts(ctx) {
		q, err := d.look(ctx, l, lease.Token)
		if err != nil {
			return
		}
		c := q.find(lease.Token)
		if c == nil {
			return
		}
		if c.Tag != lease.HolderTag {
			c.Tag = lease.HolderTag
			done, err := d.rewrite(ctx, c, c.lease)
			if err != nil {
				return
			}
			if !done {
				continue
			}
		}
		d.mu.Lock()
		defer d.mu.Unlock()
		if t := d.tokens[l.id(lease.Token)]; t != nil {
			t.said = lease.HolderTag
		}
		return
	}
}

// renew renews a lease of which this driver knows nothing, or nothing good.
func (d *Driver) renew(ctx context.Context, lease driver.Lease) error {
	l := d.lock(lease.Kind, lease.Name)
	q, c, err := d.confirm(ctx, l, lease.Token, lease.TTL, 0)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	t := d.tokens[l.id(lease.Token)]
	switch {
	case c != nil && q.holds(c):
		if t != nil {
			t.tie, t.granted = c.tie, true
		}
		return nil
	case c == nil && t != nil && t.asks == 0:
		d.forget(l, lease.Token, t)
	}
	return driver.ErrNotHeld
}
