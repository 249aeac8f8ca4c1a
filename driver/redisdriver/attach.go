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
	switch n, _ := reply[2].(int64); r.Kind {
	case driver.RWMutex:
		g.Shared = n == 1
	case driver.Semaphore:
		g.Weight = n
	}
	owner, _ := reply[3].(string)
	g.Owner = original(owner)
	return g, nil
}

func (d *Driver) attach(ctx context.Context, old driver.Lease, r *driver.Request) ([]any, error) {
	cmd, err := d.run(ctx, scriptsOf(r.Kind).attach, r.Kind, r.Name, r.Token,
		old.Token, redisscript.Millis(r.TTL), max(r.Fences, 1), d.wakes.client(r), r.Holder)
	if err != nil {
		return nil, err
	}
	reply, err := cmd.Slice()
	switch {
	case err != nil:
		return nil, err
	case len(reply) == 1:
		return nil, driver.ErrNotHeld
	case len(reply) != 4:
		return nil, fmt.Errorf("redisdriver: %d values from a script, want 4", len(reply))
	}
	return reply, nil
}

// Detach implements [driver.Attacher].
func (d *Driver) Detach(l driver.Lease) { d.wakes.forget(l.Token) }
