package redisdriver

import (
	"context"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/internal/redisscript"
)

// Renew implements [driver.Driver]. All leases go in one pipeline; the caller sees
// to it that they live on one node.
func (d *Driver) Renew(ctx context.Context, leases []driver.Lease) []error {
	calls := make([]redisscript.Call, len(leases))
	for i, l := range leases {
		calls[i] = d.call(scriptsOf(l.Kind).renew, l.Kind, l.Name, d.args(l.Token, redisscript.Millis(l.TTL), fit(l.Carrier)))
	}
	errs := make([]error, len(leases))
	for i, c := range redisscript.RunAll(ctx, d.rdb, calls) {
		errs[i] = c.Renewed()
	}
	return errs
}
