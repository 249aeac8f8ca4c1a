package redisdriver

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/internal/redisscript"
)

// Acquire implements [driver.Driver].
func (d *Driver) Acquire(ctx context.Context, r *driver.Request) (driver.Grant, error) {
	if err := valid(r); err != nil {
		return driver.Grant{}, err
	}
	if r.Notice && !d.wakes.tried() {
		d.wakes.prepare(ctx) // the notice may come as soon as the lock is held
	}
	t := d.wakes.expect(r)
	lock := d.lockOf(t, r.Kind, r.Name)
	wait, seated := r.Wait && d.wakes.tried(), false
	for {
		at, changes := d.wakes.seat(t)
		stands := standing(r.Ask, at)
		a, err := d.run(ctx, request{acquireScript, lock, [...]any{t.said, stands, d.wish(r, wait)}, stands != newcomer})
		if err != nil {
			if seated {
				err = redisscript.Unknown(err) // by the run before
			}
			d.wakes.failed(t, !errors.Is(err, driver.ErrNotExecuted), ctx.Err() != nil)
			return driver.Grant{}, err
		}
		status := a.status()
		first, more := a.acquired()
		switch {
		case status == acquireBuried:
			d.wakes.forget(r.Token)
			return driver.Grant{}, fmt.Errorf("%w: the token was released before", driver.ErrNotHeld)
		case status == acquireGranted:
			d.wakes.granted(t, r.Ask)
			if more {
				d.serve(ctx, lock)
			}
			fence, fences := a.granted()
			return driver.Grant{Status: driver.Granted, Ask: r.Ask, Fence: fence, Fences: fences}, nil
		case more: // the queue is long: the script serves it piecemeal
			seated = status == acquireQueued
		case status == acquireExceeded:
			d.wakes.forget(r.Token)
			return driver.Grant{}, redisscript.Refusal(fmt.Errorf("%w: %d of %d", driver.ErrLimitExceeded, r.Weight, first))
		case status == acquireConflict:
			d.wakes.forget(r.Token)
			return driver.Grant{}, redisscript.Refusal(fmt.Errorf("%w: %d, not %d", driver.ErrLimitConflict, first, r.Limit))
		case status == acquireQueued:
			after := d.wakes.queued(t, r.Ask, changes, a.seat(), first)
			return a.heldBy(driver.Grant{Status: driver.Queued, RetryAfter: after}), nil
		case status == acquireFull:
			d.wakes.forget(r.Token)
			return a.heldBy(driver.Grant{Status: driver.Full}), nil
		case r.Wait && !wait:
			d.wakes.prepare(ctx) // before the first wait
			wait = true
		default:
			d.wakes.forget(r.Token)
			return a.heldBy(driver.Grant{Status: driver.Busy, RetryAfter: time.Duration(first) * time.Millisecond}), nil
		}
	}
}
