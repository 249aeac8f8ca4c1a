package redisdriver

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/internal/redisscript"
)

// Renew implements [driver.Driver]. All leases go in one pipeline; the caller sees
// to it that they live on one node.
func (d *Driver) Renew(ctx context.Context, leases []driver.Lease) []error {
	calls := make([]redisscript.Call, len(leases))
	for i, l := range leases {
		calls[i] = d.renewal(l)
	}
	errs := make([]error, len(leases))
	var unserved []driver.Lease
	for i, c := range redisscript.RunAll(ctx, d.rdb, calls) {
		errs[i] = c.Renewed()
		n, err := c.Int64()
		if err == nil && n >= 2 {
			d.wakes.wanted(leases[i].Token)
		}
		if err == nil && more(n) {
			unserved = append(unserved, leases[i])
		}
	}
	for _, l := range unserved {
		d.serve(ctx, l.Kind, l.Name)
	}
	return errs
}

// more reports whether the answer to a renewal says that a long queue is not served yet.
func more(answer int64) bool { return answer == 3 || answer == -1 }

// Notices implements [driver.Notifier].
func (d *Driver) Notices() bool { return true }

// Extend implements [driver.Extender].
func (d *Driver) Extend(ctx context.Context, l driver.Lease, fences int64) (driver.Grant, error) {
	a, err := d.answer(ctx, scriptsOf(l.Kind).extend, l.Kind, l.Name, l.Token, redisscript.Millis(l.TTL), useful(fences))
	if err != nil {
		return driver.Grant{}, err
	}
	if a.n[2] == 1 {
		d.serve(ctx, l.Kind, l.Name)
	}
	if a.n[0] == 0 {
		return driver.Grant{}, driver.ErrNotHeld
	}
	return driver.Grant{Status: driver.Granted, Fence: a.n[1], Fences: a.n[3], Wanted: a.n[0] == 2}, nil
}

// Confirm implements [driver.Confirmer] with the command WAIT. It needs a [redis.Client],
// also one for failover, or a [redis.ClusterClient], and occupies a connection meanwhile.
func (d *Driver) Confirm(ctx context.Context, l driver.Lease, replicas int, timeout time.Duration) error {
	answer, err := redisscript.Confirm(ctx, d.rdb, d.renewal(l), replicas, timeout)
	if more(answer) {
		d.serve(ctx, l.Kind, l.Name)
	}
	return err
}

func (d *Driver) renewal(l driver.Lease) redisscript.Call {
	return d.call(scriptsOf(l.Kind).renew, l.Kind, l.Name, l.Token, redisscript.Millis(l.TTL), fit(l.HolderTag))
}
