package redisdriver

import (
	"context"
	"errors"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/internal/redisscript"
)

var _ driver.Stealer = (*Driver)(nil)

// Steal implements [driver.Stealer].
func (d *Driver) Steal(ctx context.Context, r *driver.Request) (driver.Grant, error) {
	if r.Kind == driver.Semaphore || r.Shared {
		return driver.Grant{}, redisscript.Unsupported("redisdriver", r.Kind)
	}
	if err := r.Check(); err != nil {
		return driver.Grant{}, err
	}
	if r.Notice && !d.news.Tried() {
		d.news.Prepare(ctx) // as in Acquire
	}
	t := d.news.Expect(r)
	lock := d.lockOf(t, r.Kind, r.Name)
	weight, _ := r.Share()
	a, err := d.only(ctx, stealScript, lock, t.Beside.token,
		redisscript.Millis(r.TTL), capFences(r.Fences), weight, owner(r), d.channel.client(r), r.Holder)
	if err != nil {
		d.news.Failed(t, !errors.Is(err, driver.ErrNotExecuted), ctx.Err() != nil)
		return driver.Grant{}, err
	}
	if _, more := a.acquired(); more {
		d.serve(ctx, lock)
	}
	if a.status() != acquireGranted {
		d.news.Forget(r.Token)
		return driver.Grant{}, driver.ErrNotHeld
	}
	d.news.Granted(t, r.Ask)
	fence, fences := a.granted()
	return driver.Grant{Status: driver.Granted, Ask: r.Ask, Fence: fence, Fences: fences}, nil
}
