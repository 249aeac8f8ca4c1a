package redisdriver

import (
	"context"

	"github.com/holdfast-go/holdfast/driver"
)

// Release implements [driver.Driver].
func (d *Driver) Release(ctx context.Context, l driver.Lease) error {
	t, sent := d.news.Forget(l.Token)
	if !sent && !l.Unsettled {
		return driver.ErrNotHeld // no ask reached Redis, nor will one
	}
	if t == nil { // nothing is known of the token
		t = &token{Beside: tokenArgs{token: l.Token}}
	}
	lock := d.lockOf(t, l.Kind, l.Name)
	says := releaseArg(l)
	a, err := d.run(ctx, request{releaseScript, lock, [3]any{t.Beside.token, says}, t.Waited() || says != plainRelease})
	if err != nil {
		return err
	}
	if a.more() {
		d.serve(ctx, lock)
	}
	if a.status() == statusNeither {
		return driver.ErrNotHeld
	}
	return nil
}

// serve goes on where a script stopped in the middle of a long queue: it releases a lease that
// nobody has, until there is no more to do. Between two runs the lock is free, with a queue.
// Should this process end here, or a run fail, the heartbeats of the waiters take over.
func (d *Driver) serve(ctx context.Context, l lock) {
	for more := true; more; {
		a, err := d.run(ctx, request{releaseScript, l, [3]any{nobody, plainRelease}, true})
		more = err == nil && a.more()
	}
}
