package getset

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/internal/redisscript"
)

// retention is for how long a token that was given up is remembered, if an ask of it may
// still arrive, and how long a lock stays in Redis after the end of its lease.
const retention = time.Minute

// The prefixes of our own keys.
const (
	ownerPrefix   = "holdfast:getset:"
	settledPrefix = "holdfast:settled:"
)

// Driver keeps mutexes on Redis. See the package for how.
type Driver struct {
	rdb    redis.UniversalClient
	prefix string
}

var (
	_ driver.Driver    = (*Driver)(nil)
	_ driver.Inspector = (*Driver)(nil)
	_ driver.Lister    = (*Driver)(nil)
	_ driver.Router    = (*Driver)(nil)
)

// Option changes a Driver.
type Option interface{ apply(*Driver) }

type optionFunc func(*Driver)

func (f optionFunc) apply(d *Driver) { f(d) }

// WithPrefix sets what comes before the name of a lock in its key, such as the
// "myapp:lock:" of the other programs. The default is the empty prefix.
func WithPrefix(prefix string) Option {
	return optionFunc(func(d *Driver) { d.prefix = prefix })
}

// New returns a driver that sends its commands through rdb, with rdb's hooks and
// limits, and does not close it.
//
// It panics if rdb is nil or a [redis.Ring]. A Ring moves names to other servers
// when one fails, and then two holders would have the same lock.
func New(rdb redis.UniversalClient, opts ...Option) *Driver {
	redisscript.Require("getset", rdb)
	d := &Driver{rdb: rdb}
	for _, o := range opts {
		o.apply(d)
	}
	return d
}

func (d *Driver) key(name string) string { return d.prefix + name }

// owner is the key that says who of us wrote the value of the lock.
func (d *Driver) owner(name string) string {
	return redisscript.Beside(ownerPrefix, d.key(name))
}

// settled is the key that says of a token that it was given up. A token has no space in
// it, so no two pairs of name and token share a key by accident.
func (d *Driver) settled(name, token string) string {
	return redisscript.Beside(settledPrefix, d.key(name)) + " " + token
}

// Acquire implements [driver.Driver]. It answers Granted or Busy.
func (d *Driver) Acquire(ctx context.Context, r *driver.Request) (driver.Grant, error) {
	if err := valid(r); err != nil {
		return driver.Grant{}, err
	}
	keys := []string{d.key(r.Name), d.owner(r.Name), d.settled(r.Name, r.Token)}
	c, err := d.run(ctx, acquire, keys, r.Token, redisscript.Lasting(r.TTL), redisscript.Millis(retention))
	if err != nil {
		return driver.Grant{}, err
	}
	status, left, holder, err := c.Asked("getset")
	switch {
	case err != nil:
		return driver.Grant{}, err
	case status == 0:
		return driver.Grant{}, fmt.Errorf("%w: the token was released before", driver.ErrNotHeld)
	case status == 1:
		return driver.Grant{Status: driver.Granted, Ask: r.Ask}, nil
	}
	return driver.Grant{Status: driver.Busy, RetryAfter: redisscript.RetryAfter(r, time.Duration(left)*time.Millisecond, redisscript.Poll), Holder: holder}, nil
}

// Release implements [driver.Driver].
func (d *Driver) Release(ctx context.Context, l driver.Lease) error {
	if l.Kind != driver.Mutex {
		return redisscript.Unsupported("getset", l.Kind)
	}
	keys, args := []string{d.key(l.Name), d.owner(l.Name)}, []any{l.Token}
	if l.Unsettled {
		keys, args = append(keys, d.settled(l.Name, l.Token)), append(args, redisscript.Millis(retention))
	}
	c, err := d.run(ctx, release, keys, args...)
	if err != nil {
		return err
	}
	released, err := c.Int64()
	if err == nil && released == 0 {
		err = driver.ErrNotHeld
	}
	return err
}

// Inspect implements [driver.Inspector]. A holder here is shown as its token. Another program is
// shown as the end of its lease: that is all that it has left in Redis.
func (d *Driver) Inspect(ctx context.Context, k driver.Kind, name string) (driver.Info, error) {
	if k != driver.Mutex {
		return driver.Info{Name: name}, redisscript.Unsupported("getset", k)
	}
	return redisscript.Inspect(ctx, d.rdb, name, d.inspectCall(k, name))
}

func (d *Driver) inspectCall(_ driver.Kind, name string) redisscript.Call {
	return call(inspect, []string{d.key(name), d.owner(name)})
}

// List implements [driver.Lister] with SCAN, on all masters of a Cluster, for which the user
// needs that right. Each string of digits that is a time to come is a lock.
func (d *Driver) List(ctx context.Context, prefix string, f func(k driver.Kind, name string) error) error {
	shelf := redisscript.Shelf{Prefix: d.prefix, Type: "string", Beside: []string{ownerPrefix, settledPrefix}, Kinds: []driver.Kind{driver.Mutex}, Inspect: d.inspectCall}
	return shelf.List(ctx, d.rdb, prefix, f)
}

// Node implements [driver.Router].
func (d *Driver) Node(_ driver.Kind, name string) string {
	return redisscript.Node(d.rdb, d.key(name))
}

// Close implements [driver.Driver]. There is nothing to end.
func (d *Driver) Close() error { return nil }

func valid(r *driver.Request) error {
	if r.Kind != driver.Mutex {
		return redisscript.Unsupported("getset", r.Kind)
	}
	if r.Owner != "" {
		return redisscript.Ownerless("getset")
	}
	return r.Check()
}
