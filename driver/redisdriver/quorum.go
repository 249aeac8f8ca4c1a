package redisdriver

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

// What a driver over several of this kind needs of each.
var (
	_ driver.FenceRaiser = (*Driver)(nil)
	_ driver.Uptimer     = (*Driver)(nil)
)

// RaiseFence implements [driver.FenceRaiser].
func (d *Driver) RaiseFence(ctx context.Context, l driver.Lease, fence, fences int64) (int64, error) {
	a, err := d.run(ctx, raiseScript, l.Kind, l.Name, l.Token, fence, max(fences, 1))
	if err != nil {
		return 0, err
	}
	if a.n[1] == 1 {
		d.serve(ctx, l.Kind, l.Name)
	}
	if a.n[0] == 0 {
		return 0, driver.ErrNotHeld
	}
	return a.n[0], nil
}

// Uptime implements [driver.Uptimer] for a client of one server, with INFO.
func (d *Driver) Uptime(ctx context.Context) (sure, said time.Duration, err error) {
	return d.uptime.AtLeast(ctx)
}
