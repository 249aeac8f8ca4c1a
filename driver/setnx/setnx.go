package setnx

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/internal/redisscript"
)

// retention is for how long a token that was given up is remembered, if an ask of it may
// still arrive.
const retention = time.Minute

// settledPrefix is that of our own keys.
const settledPrefix = "holdfast:settled:"

// Driver keeps mutexes on Redis. See the package for how.
type Driver struct {
	rdb    redis.UniversalClient
	prefix string
	poll   time.Duration
	uptime *redisscript.Uptime
}

var (
	_ driver.Driver    = (*Driver)(nil)
	_ driver.Inspector = (*Driver)(nil)
	_ driver.Lister    = (*Driver)(nil)
	_ driver.Router    = (*Driver)(nil)
	_ driver.Uptimer   = (*Driver)(nil)
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

// WithPoll sets for how long a waiter pauses between two asks, give or take half of that. A shorter
// pause gets the lock more often beside programs that poll faster or lock again at once, for more
// commands: one for each pause and waiter. More than a third of the waiter's TTL counts as a third.
// WithPoll panics if d is below 1 ms. The default is 100 ms.
func WithPoll(d time.Duration) Option {
	if d < time.Millisecond {
		panic("setnx: WithPoll is below 1 ms")
	}
	return optionFunc(func(s *Driver) { s.poll = d })
}

// New returns a driver that sends its commands through rdb, with rdb's hooks and
// limits, and does not close it.
//
// It panics if rdb is nil or a [redis.Ring]. A Ring moves names to other servers
// when one fails, and then two holders would have the same lock.
func New(rdb redis.UniversalClient, opts ...Option) *Driver {
	redisscript.Require("setnx", rdb)
	d := &Driver{rdb: rdb, poll: redisscript.Poll, uptime: redisscript.NewUptime(rdb)}
	for _, o := range opts {
		o.apply(d)
	}
	return d
}

func (d *Driver) key(name string) string { return d.prefix + name }

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
	keys := []string{d.key(r.Name), d.settled(r.Name, r.Token)}
	c, err := d.run(ctx, acquire, keys, r.Token, redisscript.Lasting(r.TTL))
	if err != nil {
		return driver.Grant{}, err
	}
	status, left, holder, err := c.Asked("setnx")
	switch {
	case err != nil:
		return driver.Grant{}, err
	case status == 0:
		return driver.Grant{}, fmt.Errorf("%w: the token was released before", driver.ErrNotHeld)
	case status == 1:
		return driver.Grant{Status: driver.Granted, Ask: r.Ask}, nil
	}
	return driver.Grant{Status: driver.Busy, RetryAfter: redisscript.RetryAfter(r, redisscript.Remaining(left), d.poll), Holder: holder}, nil
}

// Release implements [driver.Driver].
func (d *Driver) Release(ctx context.Context, l driver.Lease) error {
	if l.Kind != driver.Mutex {
		return redisscript.Unsupported("setnx", l.Kind)
	}
	// A release for good needs one key only, which works while a slot moves.
	keys, args := []string{d.key(l.Name)}, []any{l.Token}
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

// Inspect implements [driver.Inspector]. The holder is shown as its token: that is all that is in
// Redis.
func (d *Driver) Inspect(ctx context.Context, k driver.Kind, name string) (driver.Info, error) {
	if k != driver.Mutex {
		return driver.Info{Name: name}, redisscript.Unsupported("setnx", k)
	}
	return redisscript.Inspect(ctx, d.rdb, name, call(inspect, []string{d.key(name)}))
}

// List implements [driver.Lister] with SCAN, on all masters of a Cluster, for which the user
// needs that right. Nothing tells a lock from another string, so every string is taken for one
// whose key begins with the prefix of the driver and that of the call.
func (d *Driver) List(ctx context.Context, prefix string, f func(k driver.Kind, name string) error) error {
	shelf := redisscript.Shelf{Prefix: d.prefix, Type: "string", Beside: []string{settledPrefix}}
	return shelf.List(ctx, d.rdb, prefix, f)
}

// Node implements [driver.Router].
func (d *Driver) Node(_ driver.Kind, name string) string {
	return redisscript.Node(d.rdb, d.key(name))
}

// Uptime implements [driver.Uptimer] for a client of one server, with INFO.
func (d *Driver) Uptime(ctx context.Context) (sure, said time.Duration, err error) {
	return d.uptime.AtLeast(ctx)
}

// Close implements [driver.Driver]. There is nothing to end.
func (d *Driver) Close() error { return nil }

func valid(r *driver.Request) error {
	if r.Kind != driver.Mutex {
		return redisscript.Unsupported("setnx", r.Kind)
	}
	if r.Owner != "" {
		return redisscript.Ownerless("setnx")
	}
	return r.Check()
}
