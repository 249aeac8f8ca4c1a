package redisdriver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/internal/redisscript"
)

// Attach implements [driver.Attacher].
func (d *Driver) Attach(ctx context.Context, old driver.Lease, r *driver.Request) (driver.Grant, error) {
	want := *r
	want.Weight, want.Limit = 1, 1 // the request does not say
	if err := want.Check(); err != nil {
		return driver.Grant{}, err
	}
	if r.Notice && !d.news.Tried() {
		d.news.Prepare(ctx) // as in Acquire
	}
	t := d.news.Expect(r)
	lock := d.lockOf(t, r.Kind, r.Name)
	a, err := d.only(ctx, attachScript, lock, t.Beside.token,
		old.Token, redisscript.Millis(r.TTL), capFences(r.Fences), d.channel.client(r), r.Holder)
	if err != nil {
		d.news.Failed(t, !errors.Is(err, driver.ErrNotExecuted), ctx.Err() != nil)
		return driver.Grant{}, err
	}
	if _, more := a.acquired(); more {
		d.serve(ctx, lock)
	}
	if a.status() != acquireGranted {
		d.news.Forget(r.Token)
		return driver.Grant{}, driver.ErrNotHeld
	}
	d.news.Granted(t, r.Ask)
	fence, fences := a.granted()
	g := driver.Grant{Status: driver.Granted, Ask: r.Ask, Fence: fence, Fences: fences}
	switch r.Kind {
	case driver.RWMutex:
		g.Shared = a.weight() == 1
	case driver.Semaphore:
		g.Weight = a.weight()
	}
	g.Owner = original(a.text)
	return g, nil
}

// Detach implements [driver.Attacher].
func (d *Driver) Detach(l driver.Lease) { d.news.Forget(l.Token) }

// ForceRelease implements [driver.Forcer].
func (d *Driver) ForceRelease(ctx context.Context, k driver.Kind, name string) error {
	_, err := d.change(ctx, forceScript, k, name, nobody)
	return err
}

// lookers is how many look at a lock at a time who share no calls, so that they leave connections
// to others.
const lookers = 16

// Inspect implements [driver.Inspector]. Of those who look at locks at the same time up to 64 share a
// call.
func (d *Driver) Inspect(ctx context.Context, k driver.Kind, name string) (driver.Info, error) {
	lock := d.lock(k, name)
	if d.groups.of(lock.key) == nil {
		select {
		case d.looking <- struct{}{}:
			defer func() { <-d.looking }()
		case <-ctx.Done():
			return driver.Info{Name: name}, redisscript.Unsent(ctx.Err())
		}
	}
	v, err := d.reply(ctx, request{script: inspectScript, lock: lock})
	if refused, ok := v.(error); ok {
		err = redisscript.Classify(refused)
	}
	if err != nil {
		return driver.Info{Name: name}, named(err, lock)
	}
	info, ok, err := inspected(name, k, v)
	if err == nil && !ok {
		err = redisscript.Refusal(fmt.Errorf("redisdriver: WRONGTYPE %q is a string, but no lock", lock.key))
	}
	return info, err
}

// change runs a script that answers {status, more}, and has the rest of the queue served.
func (d *Driver) change(ctx context.Context, s *script, k driver.Kind, name string, args ...any) (status int64, err error) {
	lock := d.lock(k, name)
	a, err := d.only(ctx, s, lock, args...)
	if err != nil {
		return 0, err
	}
	if a.more() {
		d.serve(ctx, lock)
	}
	if a.status() == statusNeither {
		return 0, driver.ErrNotHeld
	}
	return a.status(), nil
}

// Downgrade implements [driver.Downgrader].
func (d *Driver) Downgrade(ctx context.Context, l driver.Lease, weight int64) error {
	switch {
	case l.Kind == driver.RWMutex:
		weight = 1
	case l.Kind != driver.Semaphore:
		return redisscript.Unsupported("redisdriver", l.Kind)
	case weight < 1:
		return redisscript.Refusal(fmt.Errorf("redisdriver: a weight of %d", weight))
	}
	status, err := d.change(ctx, downgradeScript, l.Kind, l.Name, l.Token, weight)
	if status == statusOwned {
		err = redisscript.Refusal(fmt.Errorf("redisdriver: a hold with an owner cannot be downgraded: %w", errors.ErrUnsupported))
	}
	return err
}

// Resize implements [driver.Resizer].
func (d *Driver) Resize(ctx context.Context, name, token string, limit int64) error {
	if limit < 1 || limit > driver.MaxLimit {
		return redisscript.Refusal(fmt.Errorf("redisdriver: a limit of %d", limit))
	}
	_, err := d.change(ctx, resizeScript, driver.Semaphore, name, token, limit)
	return err
}

// RaiseFence implements [github.com/holdfast-go/holdfast/driver/redlock.FenceRaiser].
func (d *Driver) RaiseFence(ctx context.Context, l driver.Lease, fence, fences int64) (int64, error) {
	return d.change(ctx, raiseScript, l.Kind, l.Name, l.Token, fence, max(fences, 1)) // the status is the fence
}

// Uptime implements [github.com/holdfast-go/holdfast/driver/redlock.Uptimer] for a client of one
// server, with INFO.
func (d *Driver) Uptime(ctx context.Context) (sure, said time.Duration, err error) {
	return d.uptime.AtLeast(ctx)
}

// List implements [driver.Lister], see [redisscript.Scan].
func (d *Driver) List(ctx context.Context, prefix string, f func(k driver.Kind, name string) error) error {
	base := d.prefix + format
	pattern := redisscript.Literally(base) + "*:" + redisscript.Literally(prefix) + "*"
	return redisscript.Scan(ctx, d.rdb, pattern, "", func(keys []string) error {
		for _, key := range keys {
			kind, name, _ := strings.Cut(strings.TrimPrefix(key, base), ":")
			if !slices.Contains(kinds, driver.Kind(kind)) || !strings.HasPrefix(name, prefix) {
				continue
			}
			if err := f(driver.Kind(kind), name); err != nil {
				return err
			}
		}
		return nil
	})
}

var kinds = []driver.Kind{driver.Mutex, driver.RWMutex, driver.Semaphore}
