package getset

import (
	"context"

	"github.com/holdfast-go/holdfast/driver"
)

// Renew implements [driver.Driver]. All leases go in one pipeline.
func (d *Driver) Renew(ctx context.Context, leases []driver.Lease) []error {
	errs := make([]error, len(leases))
	var all []int
	for i, l := range leases {
		if errs[i] = unsupported(l.Kind); l.Kind == driver.Mutex {
			all = append(all, i)
		}
	}
	var unknown []int
	for i, c := range d.renewals(ctx, leases, all, false) {
		if errs[i] = renewed(c); c.unknown {
			unknown = append(unknown, i)
		}
	}
	// A pipeline cannot fall back by itself. After a failover the new server knows
	// none of our scripts, and every lease would be lost for it.
	for i, c := range d.renewals(ctx, leases, unknown, true) {
		errs[i] = renewed(c)
	}
	return errs
}

// renewals sends one renewal for each of the leases that which lists.
func (d *Driver) renewals(ctx context.Context, leases []driver.Lease, which []int, byText bool) map[int]*command {
	if len(which) == 0 {
		return nil
	}
	cmds := make(map[int]*command, len(which))
	pipe := d.rdb.Pipeline()
	for _, i := range which {
		l := leases[i]
		cmds[i] = renew.cmd(ctx, byText, []string{d.key(l.Name), d.owner(l.Name)}, l.Token, lasting(l.TTL), ms(retention))
		_ = pipe.Process(ctx, cmds[i]) // queues; the outcome is in the command
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

// renewed is what came of a renewal.
func renewed(c *command) error {
	n, err := c.Int64()
	if err == nil && n == 0 {
		return driver.ErrNotHeld
	}
	return classify(err)
}
