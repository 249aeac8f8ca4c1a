// Package plain is the driver of mutexes that are one string on Redis, under their own name. The
// packages setnx and getset say what is in the string, and have the scripts.
package plain

import (
	"cmp"
	"context"
	"embed"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/internal/redisscript"
)

// retention is for how long a token that was given up is remembered, if an ask of it may still
// arrive, and how long the keys of a protocol with owners stay after the end of a lease.
const retention = time.Minute

// settledPrefix is that of the keys that say of a token that it was given up.
const settledPrefix = "holdfast:settled:"

// Protocol is what the drivers differ in.
type Protocol struct {
	name, owner                      string
	acquire, renew, release, inspect *redisscript.Script
}

// New returns the protocol of the package of that name, with the files of its folder script.
//
// The owner is what a second key of each lock begins with, which says whose the string is. A
// protocol whose string tells has none. With an owner the string is a lock only if the scripts say
// so, and they get the retention as the last argument of an acquisition and of a renewal.
func New(name, owner string, files embed.FS) *Protocol {
	script := func(verb string) *redisscript.Script {
		text, err := files.ReadFile("script/" + verb + ".lua")
		if err != nil {
			panic(err) // not in the binary: cannot be
		}
		return redisscript.New(verb, string(text))
	}
	return &Protocol{name, owner, script("acquire"), script("renew"), script("release"), script("inspect")}
}

// Options are what users of a driver can choose.
type Options struct {
	Prefix string        // of the keys
	Poll   time.Duration // how long a waiter pauses; 0 is the default
}

// Driver keeps the mutexes of a protocol.
type Driver struct {
	p    *Protocol
	rdb  redis.UniversalClient
	with Options
}

// Open returns a driver. It panics if rdb is nil or a [redis.Ring].
func (p *Protocol) Open(rdb redis.UniversalClient, with Options) *Driver {
	redisscript.Require(p.name, rdb)
	with.Poll = cmp.Or(with.Poll, redisscript.Poll)
	return &Driver{p, rdb, with}
}

// Timeout implements [driver.Bounded]: it is the ReadTimeout of the client.
func (d *Driver) Timeout() time.Duration { return redisscript.Timeout(d.rdb) }

// keys are those of a lock, with room for one more.
func (d *Driver) keys(name string) []string {
	keys := append(make([]string, 0, 3), d.with.Prefix+name)
	if d.p.owner != "" {
		keys = append(keys, redisscript.Beside(d.p.owner, keys[0]))
	}
	return keys
}

// settled is the key that says of a token that it was given up. A token has no space in it, so no
// two pairs of name and token share a key by accident.
func (d *Driver) settled(name, token string) string {
	return redisscript.Beside(settledPrefix, d.with.Prefix+name) + " " + token
}

// lasting are the arguments that make a lease last for its TTL.
func (d *Driver) lasting(token string, ttl time.Duration) []any {
	args := []any{token, redisscript.Lasting(ttl)}
	if d.p.owner != "" {
		args = append(args, redisscript.Millis(retention))
	}
	return args
}

func (d *Driver) call(s *redisscript.Script, keys []string, args ...any) redisscript.Call {
	return s.Call(d.p.name, len(args), keys...).With(args...)
}

// Acquire implements [driver.Driver]. It answers Granted or Busy.
func (d *Driver) Acquire(ctx context.Context, r *driver.Request) (driver.Grant, error) {
	if err := d.valid(r); err != nil {
		return driver.Grant{}, err
	}
	keys := append(d.keys(r.Name), d.settled(r.Name, r.Token))
	c, err := redisscript.Run(ctx, d.rdb, d.call(d.p.acquire, keys, d.lasting(r.Token, r.TTL)...))
	if err != nil {
		return driver.Grant{}, err
	}
	status, left, holder, err := c.Asked(d.p.name)
	switch {
	case err != nil:
		return driver.Grant{}, err
	case status == 0:
		return driver.Grant{}, fmt.Errorf("%w: the token was released before", driver.ErrNotHeld)
	case status == 1:
		return driver.Grant{Status: driver.Granted, Ask: r.Ask}, nil
	}
	return driver.Grant{Status: driver.Busy, RetryAfter: redisscript.RetryAfter(r, redisscript.Remaining(left), d.with.Poll), Holder: holder}, nil
}

func (d *Driver) valid(r *driver.Request) error {
	if r.Kind != driver.Mutex {
		return redisscript.Unsupported(d.p.name, r.Kind)
	}
	if r.Owner != "" {
		return redisscript.Ownerless(d.p.name)
	}
	return r.Check()
}

// Renew implements [driver.Driver]. All leases go in one pipeline.
func (d *Driver) Renew(ctx context.Context, leases []driver.Lease) []error {
	errs := make([]error, len(leases))
	var calls []redisscript.Call
	var which []int
	for i, l := range leases {
		if l.Kind != driver.Mutex {
			errs[i] = redisscript.Unsupported(d.p.name, l.Kind)
			continue
		}
		calls = append(calls, d.call(d.p.renew, d.keys(l.Name), d.lasting(l.Token, l.TTL)...))
		which = append(which, i)
	}
	for j, c := range redisscript.RunAll(ctx, d.rdb, calls) {
		errs[which[j]] = c.Renewed()
	}
	return errs
}

// Release implements [driver.Driver].
func (d *Driver) Release(ctx context.Context, l driver.Lease) error {
	if l.Kind != driver.Mutex {
		return redisscript.Unsupported(d.p.name, l.Kind)
	}
	// A release for good needs the keys of the lock only. If that is one, it works while a slot moves.
	keys, args := d.keys(l.Name), []any{l.Token}
	if l.Unsettled {
		keys, args = append(keys, d.settled(l.Name, l.Token)), append(args, redisscript.Millis(retention))
	}
	c, err := redisscript.Run(ctx, d.rdb, d.call(d.p.release, keys, args...))
	if err != nil {
		return err
	}
	released, err := c.Int64()
	if err == nil && released == 0 {
		err = driver.ErrNotHeld
	}
	return err
}

// Inspect implements [driver.Inspector].
func (d *Driver) Inspect(ctx context.Context, k driver.Kind, name string) (driver.Info, error) {
	if k != driver.Mutex {
		return driver.Info{Name: name}, redisscript.Unsupported(d.p.name, k)
	}
	return redisscript.Inspect(ctx, d.rdb, name, d.look(k, name))
}

func (d *Driver) look(_ driver.Kind, name string) redisscript.Call {
	return d.call(d.p.inspect, d.keys(name))
}

// List implements [driver.Lister].
func (d *Driver) List(ctx context.Context, prefix string, f func(k driver.Kind, name string) error) error {
	shelf := redisscript.Shelf{Prefix: d.with.Prefix, Type: "string", Beside: []string{settledPrefix}}
	if d.p.owner != "" {
		shelf.Beside = append(shelf.Beside, d.p.owner)
		shelf.Kinds, shelf.Inspect = []driver.Kind{driver.Mutex}, d.look
	}
	return shelf.List(ctx, d.rdb, prefix, f)
}

// Node implements [driver.Router].
func (d *Driver) Node(_ driver.Kind, name string) string {
	return redisscript.Node(d.rdb, d.with.Prefix+name)
}

// Close implements [driver.Driver]. There is nothing to end.
func (d *Driver) Close() error { return nil }
