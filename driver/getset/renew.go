package getset

import (
	"context"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/internal/redisscript"
)

// Renew implements [driver.Driver]. All leases go in one pipeline.
func (d *Driver) Renew(ctx context.Context, leases []driver.Lease) []error {
	errs := make([]error, len(leases))
	var calls []redisscript.Call
	var which []int
	for i, l := range leases {
		if l.Kind != driver.Mutex {
			errs[i] = redisscript.Unsupported("getset", l.Kind)
			continue
		}
		calls = append(calls, call(renew, []string{d.key(l.Name), d.owner(l.Name)}, l.Token, redisscript.Lasting(l.TTL), redisscript.Millis(retention)))
		which = append(which, i)
	}
	for j, c := range redisscript.RunAll(ctx, d.rdb, calls) {
		errs[which[j]] = c.Renewed()
	}
	return errs
}
