package etcddriver

import (
	"context"

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
	return errs
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
