package redisdriver

import (
	"context"
	"fmt"
	"strings"

	"github.com/holdfast-go/holdfast/driver/internal/redisscript"
)

// run runs a script for one lock, with others if there are many.
func (d *Driver) run(ctx context.Context, r request) (answer, error) {
	if !d.group.on() {
		v, err := d.value(ctx, d.call(r.script, r.lock, r.arguments()...))
		return understood(r.lock, v, err)
	}
	c := d.group.enter(r)
	defer d.group.vacate(c)
	for d.group.await(ctx, c) {
		switch {
		case c.turn == answered:
			v, err := c.outcome()
			return understood(r.lock, v, err)
		case len(c.company) > 0:
			v, err := d.value(context.Background(), d.callForMany(c.company)) // the others have not given up
			d.group.ended(c, v, err)
		default:
			v, err := d.value(ctx, d.call(r.script, r.lock, r.arguments()...))
			d.group.ended(c, v, err)
		}
	}
	return answer{}, redisscript.Unsent(ctx.Err())
}

// only runs a script that is for one lock.
func (d *Driver) only(ctx context.Context, s *script, l lock, args ...any) (answer, error) {
	v, err := d.value(ctx, d.call(s, l, args...))
	return understood(l, v, err)
}

// call is a run of a script for one lock.
func (d *Driver) call(s *script, l lock, args ...any) redisscript.Call {
	one := s.one
	if d.onCluster {
		one = s.onCluster
	}
	return one.On(string(l.kind), 2+len(args), l.key).With(d.channels, d.keeps).With(args...)
}

// callForMany is a run of a script for the locks of all those.
func (d *Driver) callForMany(all []*seat) redisscript.Call {
	s := all[0].script
	keys := make([]any, len(all))
	for i, c := range all {
		keys[i] = c.lock.key
	}
	call := s.many.On("locks", 2+len(all)*s.arguments, keys...).With(d.channels, d.keeps)
	for _, c := range all {
		call = call.With(c.arguments()...)
	}
	return call
}

// value sends a call, and returns what the script says.
func (d *Driver) value(ctx context.Context, call redisscript.Call) (any, error) {
	v := d.silence.watch(call)
	c, err := redisscript.Run(ctx, d.commands, call)
	d.silence.done(v, err == nil)
	if err != nil {
		return nil, err
	}
	return c.Val(), nil
}

// understood reads what a script says of a lock.
func understood(l lock, value any, err error) (a answer, _ error) {
	if err == nil {
		a, err = read(value)
	}
	return a, named(err, l)
}

// named adds the key to an error of Redis that is about it and does not say so.
func named(err error, l lock) error {
	if err != nil && strings.Contains(err.Error(), "WRONGTYPE Operation") {
		return fmt.Errorf("key %q: %w", l.key, err)
	}
	return err
}
