package redisdriver

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/internal/redisscript"
)

// Renew implements [driver.Driver]. All leases go in one pipeline; the caller sees to it that
// they live on one node. If that is the only one, each of its commands is for many of them.
func (d *Driver) Renew(ctx context.Context, leases []driver.Lease) []error {
	errs := make([]error, len(leases))
	var unserved []driver.Lease
	left := make([]int, len(leases)) // to be renewed
	for i := range leases {
		left[i] = i
	}
	size := 1
	if d.group.on() {
		size = most
	}
	for len(left) > 0 {
		var calls []redisscript.Call
		batches := slices.Collect(slices.Chunk(left, size))
		for _, batch := range batches {
			calls = append(calls, d.renewals(leases, batch))
		}
		left = nil
		for b, c := range redisscript.RunAll(ctx, d.rdb, calls) {
			replies, _ := c.Val().([]any)
			if len(batches[b]) == 1 {
				replies = []any{c.Val()}
			}
			err := c.Err()
			if len(batches[b]) > 1 && d.group.split(err) {
				left, size = append(left, batches[b]...), 1
				continue
			}
			if err == nil && len(replies) != len(batches[b]) {
				err = fmt.Errorf("redisdriver: a script answered with %v", c.Val())
			}
			for j, i := range batches[b] {
				switch {
				case err != nil:
					errs[i] = redisscript.Classify(err)
				case replies[j] == nil:
					left = append(left, i) // that call has taken long enough
				default:
					var more bool
					if more, errs[i] = d.renewed(leases[i], replies[j]); more {
						unserved = append(unserved, leases[i])
					}
				}
			}
		}
	}
	for _, l := range unserved {
		d.serve(ctx, l.Kind, l.Name)
	}
	return errs
}

// renewals is the call that renews those leases.
func (d *Driver) renewals(leases []driver.Lease, which []int) redisscript.Call {
	if l := leases[which[0]]; len(which) == 1 {
		return d.call(renewScript, l.Kind, l.Name, renewal(l)...)
	}
	keys := make([]string, len(which))
	args := append(make([]any, 0, 2+len(which)*renewScript.arguments), d.channels, d.keeps)
	for j, i := range which {
		keys[j] = d.key(leases[i].Kind, leases[i].Name)
		args = append(args, renewal(leases[i])...)
	}
	return renewScript.many.Call("locks", len(args), keys...).With(args...)
}

// renewal has the arguments that renew a lease.
func renewal(l driver.Lease) []any {
	return []any{l.Token, redisscript.Millis(l.TTL), tag(l.HolderTag)}
}

// renewed reads what came of a renewal. more says that the queue has more to be served.
func (d *Driver) renewed(l driver.Lease, reply any) (more bool, err error) {
	a, err := read(reply)
	if err != nil {
		return false, err
	}
	if a.n[2] == 1 {
		d.wakes.wanted(l.Token)
	}
	if a.n[0] == statusNeither {
		err = driver.ErrNotHeld
	}
	return a.n[1] == 1, err
}

// Notices implements [driver.Notifier].
func (d *Driver) Notices() bool { return true }

// Extend implements [driver.Extender].
func (d *Driver) Extend(ctx context.Context, l driver.Lease, fences int64) (driver.Grant, error) {
	a, err := d.run(ctx, extendScript, l.Kind, l.Name, l.Token, redisscript.Millis(l.TTL), useful(fences))
	if err != nil {
		return driver.Grant{}, err
	}
	if a.n[2] == 1 {
		d.serve(ctx, l.Kind, l.Name)
	}
	if a.n[0] == statusNeither {
		return driver.Grant{}, driver.ErrNotHeld
	}
	return driver.Grant{Status: driver.Granted, Fence: a.n[1], Fences: a.n[3], Wanted: a.n[0] == statusWanted}, nil
}

// Confirm implements [driver.Confirmer] with the command WAIT. It needs a [redis.Client],
// including one for failover, or a [redis.ClusterClient], and occupies a connection meanwhile.
func (d *Driver) Confirm(ctx context.Context, l driver.Lease, replicas int, timeout time.Duration) error {
	more := false
	read := func(c *redisscript.Command) (err error) {
		more, err = d.renewed(l, c.Val())
		return err
	}
	err := redisscript.Confirm(ctx, d.rdb, d.call(renewScript, l.Kind, l.Name, renewal(l)...), read, replicas, timeout)
	if more {
		d.serve(ctx, l.Kind, l.Name)
	}
	return err
}
