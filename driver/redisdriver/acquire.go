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
	if err := r.Check(); err != nil {
		return driver.Grant{}, err
	}
	if r.Notice && !d.news.Tried() {
		d.news.Prepare(ctx) // the notice may come as soon as the lock is held
	}
	t := d.news.Expect(r)
	lock := d.lockOf(t, r.Kind, r.Name)
	wait, seated := r.Wait && d.news.Tried(), false
	for {
		at, _, changes := d.news.Place(t)
		stands := askArg(r.Ask, at)
		a, err := d.run(ctx, request{acquireScript, lock, [...]any{t.Beside.token, stands, d.requestArg(r, wait)}, stands != firstAsk})
		if err != nil {
			if seated {
				err = redisscript.Unknown(err) // by the run before
			}
			d.news.Failed(t, !errors.Is(err, driver.ErrNotExecuted), ctx.Err() != nil)
			return driver.Grant{}, err
		}
		status := a.status()
		first, more := a.acquired()
		switch {
		case status == acquireBuried:
			return driver.Grant{}, d.news.Buried(t)
		case status == acquireGranted:
			d.news.Granted(t, r.Ask)
			if more {
				d.serve(ctx, lock)
			}
			fence, fences := a.granted()
			return driver.Grant{Status: driver.Granted, Ask: r.Ask, Fence: fence, Fences: fences}, nil
		case more: // the queue is long: the script serves it piecemeal
			seated = status == acquireQueued
		case status == acquireExceeded:
			d.news.Forget(r.Token)
			return driver.Grant{}, redisscript.Refusal(fmt.Errorf("%w: %d of %d", driver.ErrLimitExceeded, r.Weight, first))
		case status == acquireConflict:
			d.news.Forget(r.Token)
			return driver.Grant{}, redisscript.Refusal(fmt.Errorf("%w: %d, not %d", driver.ErrLimitConflict, first, r.Limit))
		case status == acquireQueued:
			after := d.news.Queued(t, r.Ask, changes, a.place(), time.Duration(first)*time.Millisecond)
			return a.heldBy(driver.Grant{Status: driver.Queued, RetryAfter: after}), nil
		case status == acquireFull:
			d.news.Forget(r.Token)
			return a.heldBy(driver.Grant{Status: driver.Full}), nil
		case r.Wait && !wait:
			d.news.Prepare(ctx) // before the first wait
			wait = true
		default:
			d.news.Forget(r.Token)
			return a.heldBy(driver.Grant{Status: driver.Busy, RetryAfter: time.Duration(first) * time.Millisecond}), nil
		}
	}
}
