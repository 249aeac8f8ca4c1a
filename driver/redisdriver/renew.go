package redisdriver

import (
	"context"

	"github.com/holdfast-go/holdfast/driver"
)

// Renew implements [driver.Driver]. All leases go in one pipeline; the caller sees
// to it that they live on one node.
func (d *Driver) Renew(ctx context.Context, leases []driver.Lease) []error {
	errs := make([]error, len(leases))
	cmds := d.renewals(ctx, leases, nil, false)

	// A pipeline cannot fall back by itself. After a failover the new server knows
	// none of our scripts, and every lease would be lost for it.
	var unknown []int
	for i, c := range cmds {
		if c.unknown {
			unknown = append(unknown, i)
		}
	}
	if len(unknown) > 0 {
		for j, c := range d.renewals(ctx, leases, unknown, true) {
			cmds[unknown[j]] = c
		}
	}
	for i, c := range cmds {
		renewed, err := c.Int64()
		switch {
		case err != nil:
			errs[i] = classify(err)
		case renewed == 0:
			errs[i] = driver.ErrNotHeld
		}
	}
	return errs
}

// renewals sends one renewal for each of the leases that which lists, nil being all.
func (d *Driver) renewals(ctx context.Context, leases []driver.Lease, which []int, byText bool) []*command {
	if which == nil {
		which = make([]int, len(leases))
		for i := range which {
			which[i] = i
		}
	}
	cmds := make([]*command, 0, len(which))
	pipe := d.rdb.Pipeline()
	for _, i := range which {
		l := leases[i]
		c := scriptsOf(l.Kind).renew.cmd(ctx, byText, l.Kind, d.key(l.Kind, l.Name), d.args(l.Token, ms(l.TTL), fit(l.Carrier)))
		cmds = append(cmds, c)
		_ = pipe.Process(ctx, c) // queues; the outcome is in c
	}
	if _, err := pipe.Exec(ctx); err != nil {
		for _, c := range cmds { // a hook may have refused the whole pipeline
			if c.Err() == nil && c.Val() == nil {
				c.SetErr(err)
			}
		}
	}
	return cmds
}
