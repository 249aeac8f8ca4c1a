package redisdriver

import (
	"context"
	"errors"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/internal/redisscript"
)

var _ driver.Attacher = (*Driver)(nil)

// Attach implements [driver.Attacher].
func (d *Driver) Attach(ctx context.Context, old driver.Lease, r *driver.Request) (driver.Grant, error) {
	want := *r
	want.Weight, want.Limit = 1, 1 // the request does not say
	if err := valid(&want); err != nil {
		return driver.Grant{}, err
	}
	t := d.wakes.expect(r)
	a, err := d.run(ctx, attachScript, r.Kind, r.Name, r.Token,
		old.Token, redisscript.Millis(r.TTL), useful(r.Fences), d.wakes.client(r), r.Holder)
	if err != nil {
		d.wakes.failed(t, !errors.Is(err, driver.ErrNotExecuted), ctx.Err() != nil)
		return driver.Grant{}, err
	}
	if a.n[2] == 1 {
		d.serve(ctx, r.Kind, r.Name)
	}
	if a.n[0] != acquireGranted {
		d.wakes.forget(r.Token)
		return driver.Grant{}, driver.ErrNotHeld
	}
	d.wakes.granted(t, r.Ask)
	g := driver.Grant{Status: driver.Granted, Ask: r.Ask, Fence: a.n[1], Fences: a.n[3]}
	switch r.Kind {
	case driver.RWMutex:
		g.Shared = a.n[4] == 1
	case driver.Semaphore:
		g.Weight = a.n[4]
	}
	g.Owner = original(a.text)
	return g, nil
}

// Detach implements [driver.Attacher].
func (d *Driver) Detach(l driver.Lease) { d.wakes.forget(l.Token) }
