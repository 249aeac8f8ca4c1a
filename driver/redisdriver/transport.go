package redisdriver

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/internal/redisscript"
	"github.com/holdfast-go/holdfast/internal/telemetry"
)

// run runs a script for one lock, with others if there are many.
func (d *Driver) run(ctx context.Context, r request) (answer, error) {
	v, err := d.reply(ctx, r)
	return understood(r.lock, v, err)
}

// reply is what the script says then.
func (d *Driver) reply(ctx context.Context, r request) (any, error) {
	g := d.groups.of(r.lock.key)
	if g == nil {
		return d.value(ctx, d.call(r.script, r.lock, r.arguments()...))
	}
	c := g.enter(r)
	defer g.recycle(c)
	for g.await(ctx, c) {
		switch {
		case c.step == answered:
			return c.outcome()
		case len(c.batch) > 0:
			v, err := d.forMany(ctx, g, c)
			g.ended(c, v, err)
		default:
			v, err := d.value(ctx, d.call(r.script, r.lock, r.arguments()...))
			g.ended(c, v, err)
		}
	}
	return nil, redisscript.Unsent(ctx.Err())
}

// forMany makes the call of a caller for its batch, who have not given up if that has. But all of them wait for
// it, also those that must return soon. So it is given up if it has not been written after a second: there is no
// connection for it, or that is being made. A client of a Cluster looks at a command before it has a connection. There
// the call is also given up if its first answer takes a second, and more is to be sent.
func (d *Driver) forMany(ctx context.Context, g *group, c *caller) (any, error) {
	unsent, leave := context.WithCancel(telemetry.ForMany(ctx)) // whose deadline might be taken for that of the answer
	defer leave()
	timer := time.AfterFunc(mostPatience, leave)
	defer timer.Stop()
	call := d.callForMany(c)
	if !d.onCluster {
		call = call.Writing(func() { timer.Stop() })
	}
	v, err := d.several(unsent, g, call)
	if errors.Is(err, context.Canceled) {
		late := redisscript.Unsent(redisscript.ErrNoConnection)
		if !errors.Is(err, driver.ErrNotExecuted) {
			late = redisscript.Unknown(late)
		}
		err = late
	}
	return v, err
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
	return one().On(string(l.kind), 2+len(args), l.key).With(d.channels, d.keeps).With(args...)
}

// callForMany is a run of a script for the locks of a caller and its batch.
func (d *Driver) callForMany(c *caller) redisscript.Call {
	return d.callFor(c.script, len(c.batch), c.cost, func(i int) (key any, args []any) {
		one := c.batch[i]
		return one.lock.key, one.arguments()
	})
}

// callFor is a run of a script for n locks, two or more: the keys of these, and the arguments. A contended
// one costs so much; what would be too much is left out.
func (d *Driver) callFor(s *script, n, cost int, lock func(i int) (key any, args []any)) redisscript.Call {
	atLength := (maxLocks + cost - 1) / cost
	if d.onCluster {
		call := s.onNode().Undeclared("locks", 4+n*(s.arguments+1), 2+s.arguments).With(d.channels, d.keeps)
		for i := range n {
			key, args := lock(i)
			call = call.With(args...).With(key)
		}
		if cost < contendedCost { // else the script knows
			call = call.With(atLength)
		}
		return call.With(n)
	}
	keys := make([]any, n)
	args := append(make([]any, 0, 3+n*s.arguments), d.channels, d.keeps)
	for i := range n {
		key, of := lock(i)
		keys[i], args = key, append(args, of...)
	}
	if cost < contendedCost {
		args = append(args, atLength)
	}
	return s.many().On("locks", len(args), keys...).With(args...)
}

// value sends a call, and returns what the script says. If there is no connection for it, it takes
// one of those for pipelines, see [poolState].
func (d *Driver) value(ctx context.Context, call redisscript.Call) (any, error) {
	if !d.silence.poolIsFull(ctx, call) {
		waits, leave := context.WithCancel(ctx)
		v := d.silence.watch(call, leave)
		c, err := redisscript.Run(waits, d.commands, call)
		left := d.silence.done(v, err) && errors.Is(err, context.Canceled) && ctx.Err() == nil
		leave()
		switch {
		case err == nil:
			return c.Val(), nil
		case !left && !d.silence.exhausted(ctx, call, err):
			return nil, err
		case !errors.Is(err, driver.ErrNotExecuted):
			// A hook has looked at the command, and may have sent it for all we know. The caller
			// repeats what can be repeated.
			return nil, redisscript.Unknown(redisscript.Classify(redis.ErrPoolTimeout))
		}
	}
	v := d.silence.watch(call, nil)
	c, err := redisscript.RunPiped(ctx, d.rdb, call)
	d.silence.done(v, err)
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
