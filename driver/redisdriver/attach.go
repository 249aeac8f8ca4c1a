package redisdriver

import (
	"context"
	"errors"
	"fmt"

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
	reply, err := d.attach(ctx, old, r)
	switch {
	case errors.Is(err, driver.ErrNotHeld):
		d.wakes.forget(r.Token)
		return driver.Grant{}, err
	case err != nil:
		d.wakes.failed(t, !errors.Is(err, driver.ErrNotExecuted), ctx.Err() != nil)
		return driver.Grant{}, err
	}
	d.wakes.granted(t, r.Ask)
	g := driver.Grant{Status: driver.Granted, Ask: r.Ask}
	g.Fence, _ = reply[1].(int64)
	g.Fences, _ = reply[3].(int64)
	switch n, _ := reply[4].(int64); r.Kind {
	case driver.RWMutex:
		g.Shared = n == 1
	case driver.Semaphore:
		g.Weight = n
	}
	owner, _ := reply[5].(string)
	g.Owner = original(owner)
	return g, nil
}

// attached and unattached are how many values script/lock_attach.lua answers with.
const attached, unattached = 6, 3

func (d *Driver) attach(ctx context.Context, old driver.Lease, r *driver.Request) ([]any, error) {
	cmd, err := d.run(ctx, scriptsOf(r.Kind).attach, r.Kind, r.Name, r.Token,
		old.Token, redisscript.Millis(r.TTL), useful(r.Fences), d.wakes.client(r), r.Holder)
	if err != nil {
		return nil, err
	}
	reply, err := cmd.Slice()
	if err != nil {
		return nil, err
	}
	if len(reply) != attached && len(reply) != unattached {
		return nil, fmt.Errorf("redisdriver: %d values from a script, want %d or %d", len(reply), attached, unattached)
	}
	if more, _ := reply[2].(int64); more == 1 {
		d.serve(ctx, r.Kind, r.Name)
	}
	if len(reply) == unattached {
		return nil, driver.ErrNotHeld
	}
	return reply, nil
}

// Detach implements [driver.Attacher].
func (d *Driver) Detach(l driver.Lease) { d.wakes.forget(l.Token) }
