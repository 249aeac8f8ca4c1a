package pgdriver

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/internal/news"
)

// ForceRelease implements [driver.Forcer]. A transaction that counts on the lease, see the
// package documentation, keeps the lock from others until it has ended.
func (d *Driver) ForceRelease(ctx context.Context, k driver.Kind, name string) error {
	return d.held(ctx, k, name, 0, `SELECT holdfast.force($1::text, $2::bytea)`)
}

// Steal implements [driver.Stealer]. While a transaction counts on the lease of a holder, see the
// package documentation, it fails, with an error that passes.
func (d *Driver) Steal(ctx context.Context, r *driver.Request) (driver.Grant, error) {
	if r.Kind == driver.Semaphore || r.Shared {
		return driver.Grant{}, refusal("to steal a part of a %s: %w", r.Kind, errors.ErrUnsupported)
	}
	if err := valid(r); err != nil {
		return driver.Grant{}, err
	}
	d.sweeper.start(d)
	t := d.news.Expect(r)
	_, session, _ := d.news.Place(t)
	var fence, fences *int64
	weight, _ := share(r)
	err := d.callFor(ctx, r.Kind, r.Name, r.TTL, []any{&fence, &fences}, `
		SELECT fence, fences FROM holdfast.steal($1::text, $2::bytea, $3::text, $4::bigint, $5::interval, $6::bigint,
			$7::bigint, $8::bytea, $9::text, $10::text, $11::integer)`,
		r.Kind, []byte(r.Name), r.Token, int64(r.Ask), r.TTL, capFences(r.Fences), weight, owner(r), printable(r.Holder),
		d.listener.client(r), given(int64(session)))
	return d.taken(ctx, t, r, fence, fences, err)
}

// taken settles a token that has asked for what another holds.
func (d *Driver) taken(ctx context.Context, t *news.Token[struct{}], r *driver.Request, fence, fences *int64, err error) (driver.Grant, error) {
	switch {
	case err != nil:
		d.news.Failed(t, !errors.Is(err, driver.ErrNotExecuted), ctx.Err() != nil)
		return driver.Grant{}, err
	case fence == nil:
		d.news.Forget(r.Token)
		return driver.Grant{}, driver.ErrNotHeld
	}
	d.news.Granted(t, r.Ask)
	return driver.Grant{Status: driver.Granted, Ask: r.Ask, Fence: *fence, Fences: value(fences)}, nil
}

// Downgrade implements [driver.Downgrader].
func (d *Driver) Downgrade(ctx context.Context, l driver.Lease, weight int64) error {
	switch {
	case l.Kind == driver.RWMutex:
		weight = 1
	case l.Kind != driver.Semaphore:
		return refusal("a downgrade of kind %q: %w", l.Kind, errors.ErrUnsupported)
	case weight < 1:
		return refusal("a weight of %d", weight)
	}
	var status string
	err := d.callFor(ctx, l.Kind, l.Name, l.TTL, []any{&status}, `SELECT holdfast.downgrade($1::text, $2::bytea, $3::text, $4::boolean, $5::bigint)`,
		l.Kind, []byte(l.Name), l.Token, l.Kind == driver.RWMutex, weight)
	switch {
	case err != nil:
		return err
	case status == "unheld":
		return driver.ErrNotHeld
	case status == "owned":
		return refusal("a downgrade of what an owner may count on: %w", errors.ErrUnsupported)
	}
	return nil
}

// Resize implements [driver.Resizer].
func (d *Driver) Resize(ctx context.Context, name, token string, limit int64) error {
	if limit < 1 || limit > driver.MaxLimit {
		return refusal("a limit of %d", limit)
	}
	var done any
	return d.callFor(ctx, driver.Semaphore, name, 0, []any{&done}, `SELECT holdfast.resize($1::bytea, $2::text, $3::bigint)::text`, []byte(name), token, limit)
}

// Notices implements [driver.Notifier].
func (d *Driver) Notices() bool { return true }

// Notice implements [driver.Notifier].
func (d *Driver) Notice(ctx context.Context, l driver.Lease) (bool, error) {
	d.news.Heed(ctx, l.Token)
	var wanted *bool
	err := d.callFor(ctx, l.Kind, l.Name, l.TTL, []any{&wanted}, `SELECT holdfast.notice($1::text, $2::bytea, $3::text)`, l.Kind, []byte(l.Name), l.Token)
	switch {
	case err != nil:
	case wanted == nil:
		err = driver.ErrNotHeld
	default:
		err = d.news.Mute()
	}
	return value(wanted), err
}

// Attach implements [driver.Attacher].
func (d *Driver) Attach(ctx context.Context, old driver.Lease, r *driver.Request) (driver.Grant, error) {
	want := *r
	want.Weight, want.Limit = 1, 1 // the request does not say
	if err := valid(&want); err != nil {
		return driver.Grant{}, err
	}
	t := d.news.Expect(r)
	_, session, _ := d.news.Place(t)
	var fence, fences, weight *int64
	var shared *bool
	var owner *string
	err := d.callFor(ctx, r.Kind, r.Name, r.TTL, []any{&fence, &fences, &shared, &weight, &owner}, `
		SELECT fence, fences, shared, weight, encode(owner, 'hex') FROM holdfast.attach($1::text, $2::bytea, $3::text, $4::text, $5::bigint,
			$6::interval, $7::bigint, $8::boolean, $9::text, $10::text, $11::integer)`,
		r.Kind, []byte(r.Name), old.Token, r.Token, int64(r.Ask), r.TTL, capFences(r.Fences), r.Notice, printable(r.Holder),
		d.listener.client(r), given(int64(session)))
	g, err := d.taken(ctx, t, r, fence, fences, err)
	if err != nil {
		return g, err
	}
	g.Shared, g.Owner = value(shared), unhex(owner)
	if r.Kind == driver.Semaphore {
		g.Weight = value(weight)
	}
	return g, nil
}

// Detach implements [driver.Attacher].
func (d *Driver) Detach(l driver.Lease) { d.news.Forget(l.Token) }

// RaiseFence implements [github.com/holdfast-go/holdfast/driver/redlock.FenceRaiser].
func (d *Driver) RaiseFence(ctx context.Context, l driver.Lease, fence, fences int64) (int64, error) {
	var raised *int64
	err := d.callFor(ctx, l.Kind, l.Name, l.TTL, []any{&raised}, `SELECT holdfast.raise($1::text, $2::bytea, $3::text, $4::bigint, $5::bigint)`,
		l.Kind, []byte(l.Name), l.Token, fence, max(fences, 1))
	if err == nil && raised == nil {
		err = driver.ErrNotHeld
	}
	return value(raised), err
}

// Inspect implements [driver.Inspector].
func (d *Driver) Inspect(ctx context.Context, k driver.Kind, name string) (driver.Info, error) {
	info := driver.Info{Name: name}
	var held, shared *bool
	var weight, fence, last, since, left *int64
	var owner, holder, token, tag *string
	var size int64
	var resized bool
	err := d.rows(ctx, mostTime, []any{&held, &token, &tag, &shared, &weight, &owner, &holder, &since, &fence, &last, &left, &size, &resized}, func() error {
		if k == driver.Semaphore && (resized || held != nil) {
			info.Limit = size
		}
		if held == nil {
			return nil
		}
		if k != driver.Semaphore {
			*weight = 0
		}
		if *held {
			info.Holders = append(info.Holders, driver.Holder{
				Holder: *holder, Shared: *shared, Weight: *weight, Owner: unhex(owner),
				Since: time.UnixMicro(*since), Fence: *fence, LastFence: *last, TimeLeft: duration(left), Tag: value(tag),
			})
		} else {
			info.Queue = append(info.Queue, driver.Waiter{
				Holder: *holder, Shared: *shared, Weight: *weight, Owner: unhex(owner), Since: driver.Since(*token),
			})
		}
		return nil
	}, `
		SELECT c.held, c.token, c.tag, c.shared, c.weight, encode(c.owner, 'hex'), c.holder, `+micros("c.since")+`, c.fence, c.last,
		       `+micros("c.until - t.now")+`, l.size, l.resized
		  FROM (SELECT clock_timestamp() AS now) t, holdfast.lock l
		  LEFT JOIN holdfast.claim c ON c.lock = l.id AND c.until > clock_timestamp()
		 WHERE l.kind = $1::text AND l.name = $2::bytea
		 ORDER BY c.held DESC, CASE WHEN NOT c.held THEN c.place END, c.since, c.fence`, k, []byte(name))
	return info, err
}
