package pgdriver

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/driver"
)

// Driver keeps locks in PostgreSQL.
type Driver struct {
	pool    *pgxpool.Pool // see callers
	mode    atomic.Int32  // the pgx.QueryExecMode of calls
	news    *news
	sweeper sweeper
}

var (
	_ driver.Driver      = (*Driver)(nil)
	_ driver.Inspector   = (*Driver)(nil)
	_ driver.Forcer      = (*Driver)(nil)
	_ driver.Downgrader  = (*Driver)(nil)
	_ driver.Resizer     = (*Driver)(nil)
	_ driver.Notifier    = (*Driver)(nil)
	_ driver.Extender    = (*Driver)(nil)
	_ driver.Attacher    = (*Driver)(nil)
	_ driver.FenceRaiser = (*Driver)(nil)
	_ driver.Reporter    = (*Driver)(nil)
)

// Option changes a Driver.
type Option interface{ apply(*Driver) }

type optionFunc func(*Driver)

func (f optionFunc) apply(d *Driver) { f(d) }

// WithListenConfig says how to make the connection on which the driver hears news for
// waiters. Set it where the pool connects to a PgBouncer in transaction mode: with a direct
// connection waiters are called, without one they ask every 50 to 250 ms. The default is to
// connect as the pool does.
func WithListenConfig(c *pgx.ConnConfig) Option {
	c = c.Copy()
	hasten(c)
	return optionFunc(func(d *Driver) {
		d.news.connect = func(ctx context.Context) (*pgx.Conn, error) { return pgx.ConnectConfig(ctx, c) }
	})
}

// New returns a driver that calls the functions of the schema holdfast, see [Migrate], in the
// database of pool. It connects as pool does, at most as often, and beside it: it takes none
// of the connections of pool, and does not close it. It panics if pool is nil.
func New(pool *pgxpool.Pool, opts ...Option) *Driver {
	if pool == nil {
		panic("pgdriver: nil pool")
	}
	d := &Driver{}
	d.pool = d.callers(pool)
	d.mode.Store(int32(pool.Config().ConnConfig.DefaultQueryExecMode))
	d.news = newNews(d.ping)
	d.news.connect = d.connect
	d.news.session = d.session
	for _, o := range opts {
		o.apply(d)
	}
	return d
}

// connect makes a connection as the pool does, but beside it: it is never given back, and
// the program may have all of the pool in use just when it waits.
func (d *Driver) connect(ctx context.Context) (*pgx.Conn, error) {
	c := d.pool.Config()
	if c.BeforeConnect != nil {
		if err := c.BeforeConnect(ctx, c.ConnConfig); err != nil {
			return nil, err
		}
	}
	return pgx.ConnectConfig(ctx, c.ConnConfig)
}

// Acquire implements [driver.Driver].
func (d *Driver) Acquire(ctx context.Context, r *driver.Request) (driver.Grant, error) {
	if err := valid(r); err != nil {
		return driver.Grant{}, err
	}
	d.sweeper.start(d)
	if r.Notice && !d.news.tried() {
		d.news.prepare(ctx) // the notice may come as soon as the lock is held
	}
	t := d.news.expect(r)
	wait := r.Wait && d.news.tried()
	var most *int64 // may wait; nil for as many as there are
	if r.MaxWaiters > 0 {
		most = &r.MaxWaiters
	}
	for {
		place, listener, changes := d.news.seat(t)
		var status string
		var fence, fences, seat, size *int64
		var retry *time.Duration
		var tag *string
		err := d.call(ctx, r.TTL, []any{&status, &fence, &fences, &seat, &retry, &tag, &size}, `
			SELECT status, fence, fences, place, retry, tag, size FROM holdfast.acquire($1::text, $2::bytea, $3::text, $4::bigint,
				$5::interval, $6::bigint, $7::boolean, $8::bigint, $9::bigint, $10::bytea, $11::boolean, $12::boolean,
				$13::text, $14::text, $15::integer, $16::bigint, $17::bigint)`,
			r.Kind, []byte(r.Name), r.Token, int64(r.Ask), r.TTL, useful(r.Fences), shared(r), weight(r), limit(r), owner(r),
			wait, r.Notice, printable(r.Holder), d.news.client(r), listener, place, most)
		if err != nil {
			d.news.failed(t, !errors.Is(err, driver.ErrNotExecuted), ctx.Err() != nil)
			return driver.Grant{}, err
		}
		switch {
		case status == "granted":
			d.news.granted(t, r.Ask)
			return driver.Grant{Status: driver.Granted, Ask: r.Ask, Fence: value(fence), Fences: value(fences)}, nil
		case status == "queued":
			after := d.news.queued(t, r.Ask, changes, value(seat), value(retry))
			return driver.Grant{Status: driver.Queued, RetryAfter: after, HolderTag: value(tag)}, nil
		case status == "busy" && r.Wait && !wait:
			d.news.prepare(ctx) // before the first wait
			wait = true
			continue
		}
		d.news.forget(r.Token)
		switch status {
		case "busy":
			return driver.Grant{Status: driver.Busy, RetryAfter: value(retry), HolderTag: value(tag)}, nil
		case "full":
			return driver.Grant{Status: driver.Full, HolderTag: value(tag)}, nil
		case "conflict":
			return driver.Grant{}, refusal("%w: %d, not %d", driver.ErrLimitConflict, value(size), r.Limit)
		case "exceeded":
			return driver.Grant{}, refusal("%w: %d of %d", driver.ErrLimitExceeded, r.Weight, value(size))
		}
		return driver.Grant{}, fmt.Errorf("%w: the token was released before", driver.ErrNotHeld)
	}
}

// Renew implements [driver.Driver]. All leases are renewed in one transaction.
func (d *Driver) Renew(ctx context.Context, leases []driver.Lease) []error {
	n := len(leases)
	kinds, names, tokens := make([]string, n), make([][]byte, n), make([]string, n)
	ttls, tags := make([]time.Duration, n), make([]*string, n)
	shortest := driver.MaxTTL
	for i, l := range leases {
		shortest = min(shortest, l.TTL)
		kinds[i], names[i], tokens[i], ttls[i], tags[i] = string(l.Kind), []byte(l.Name), l.Token, l.TTL, tag(l)
	}
	var wanted []*bool
	err := d.call(ctx, shortest, []any{&wanted}, `SELECT array_agg(r.wanted ORDER BY r.i)
		FROM holdfast.renew($1::text[], $2::bytea[], $3::text[], $4::interval[], $5::text[]) r`,
		kinds, names, tokens, ttls, tags)
	errs := make([]error, n)
	for i, l := range leases {
		switch {
		case err != nil:
			errs[i] = err
		case wanted[i] == nil:
			errs[i] = driver.ErrNotHeld
		case *wanted[i]:
			d.news.wanted(l.Token)
		}
	}
	return errs
}

// Release implements [driver.Driver].
func (d *Driver) Release(ctx context.Context, l driver.Lease) error {
	if sent := d.news.forget(l.Token); !sent && !l.Unsettled {
		return driver.ErrNotHeld // no ask was sent, nor will one be
	}
	return d.held(ctx, l.TTL, `SELECT holdfast.release($1::text, $2::bytea, $3::text, $4::text, $5::boolean)`,
		l.Kind, []byte(l.Name), l.Token, tag(l), l.Unsettled)
}

// ForceRelease implements [driver.Forcer]. A transaction that counts on the lease, see the
// package documentation, keeps the lock from others until it has ended.
func (d *Driver) ForceRelease(ctx context.Context, k driver.Kind, name string) error {
	return d.held(ctx, 0, `SELECT holdfast.force($1::text, $2::bytea)`, k, []byte(name))
}

// held calls a function that tells whether there was something to act on.
func (d *Driver) held(ctx context.Context, ttl time.Duration, sql string, args ...any) error {
	var had bool
	if err := d.call(ctx, ttl, []any{&had}, sql, args...); err != nil {
		return err
	}
	if !had {
		return driver.ErrNotHeld
	}
	return nil
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
	err := d.call(ctx, l.TTL, []any{&status}, `SELECT holdfast.downgrade($1::text, $2::bytea, $3::text, $4::boolean, $5::bigint)`,
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
	return d.call(ctx, 0, []any{&done}, `SELECT holdfast.resize($1::bytea, $2::text, $3::bigint)::text`, []byte(name), token, limit)
}

// Notices implements [driver.Notifier].
func (d *Driver) Notices() bool { return true }

// Extend implements [driver.Extender].
func (d *Driver) Extend(ctx context.Context, l driver.Lease, fences int64) (driver.Grant, error) {
	var wanted *bool
	var fence, given *int64
	err := d.call(ctx, l.TTL, []any{&wanted, &fence, &given}, `
		SELECT wanted, fence, fences FROM holdfast.extend($1::text, $2::bytea, $3::text, $4::interval, $5::bigint)`,
		l.Kind, []byte(l.Name), l.Token, l.TTL, useful(fences))
	if err != nil {
		return driver.Grant{}, err
	}
	if wanted == nil {
		return driver.Grant{}, driver.ErrNotHeld
	}
	return driver.Grant{Status: driver.Granted, Fence: value(fence), Fences: value(given), Wanted: *wanted}, nil
}

// Attach implements [driver.Attacher].
func (d *Driver) Attach(ctx context.Context, old driver.Lease, r *driver.Request) (driver.Grant, error) {
	want := *r
	want.Weight, want.Limit = 1, 1 // the request does not say
	if err := valid(&want); err != nil {
		return driver.Grant{}, err
	}
	t := d.news.expect(r)
	_, listener, _ := d.news.seat(t)
	var fence, fences, weight *int64
	var shared *bool
	var owner []byte
	err := d.call(ctx, r.TTL, []any{&fence, &fences, &shared, &weight, &owner}, `
		SELECT fence, fences, shared, weight, owner FROM holdfast.attach($1::text, $2::bytea, $3::text, $4::text, $5::bigint,
			$6::interval, $7::bigint, $8::boolean, $9::text, $10::text, $11::integer)`,
		r.Kind, []byte(r.Name), old.Token, r.Token, int64(r.Ask), r.TTL, useful(r.Fences), r.Notice, printable(r.Holder),
		d.news.client(r), listener)
	switch {
	case err != nil:
		d.news.failed(t, !errors.Is(err, driver.ErrNotExecuted), ctx.Err() != nil)
		return driver.Grant{}, err
	case fence == nil:
		d.news.forget(r.Token)
		return driver.Grant{}, driver.ErrNotHeld
	}
	d.news.granted(t, r.Ask)
	g := driver.Grant{Status: driver.Granted, Ask: r.Ask, Fence: *fence, Fences: value(fences), Shared: value(shared), Owner: string(owner)}
	if r.Kind == driver.Semaphore {
		g.Weight = value(weight)
	}
	return g, nil
}

// Detach implements [driver.Attacher].
func (d *Driver) Detach(l driver.Lease) { d.news.forget(l.Token) }

// RaiseFence implements [driver.FenceRaiser].
func (d *Driver) RaiseFence(ctx context.Context, l driver.Lease, fence, fences int64) (int64, error) {
	var raised *int64
	err := d.call(ctx, l.TTL, []any{&raised}, `SELECT holdfast.raise($1::text, $2::bytea, $3::text, $4::bigint, $5::bigint)`,
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
	var weight, fence, last *int64
	var owner []byte
	var holder *string
	var since *time.Time
	var left *time.Duration
	var size int64
	var resized bool
	err := d.rows(ctx, mostTime, []any{&held, &shared, &weight, &owner, &holder, &since, &fence, &last, &left, &size, &resized}, func() error {
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
				Holder: *holder, Shared: *shared, Weight: *weight, Owner: string(owner),
				Since: *since, Fence: *fence, LastFence: *last, TimeLeft: *left,
			})
		} else {
			info.Queue = append(info.Queue, driver.Waiter{Holder: *holder, Shared: *shared, Weight: *weight, Owner: string(owner)})
		}
		return nil
	}, `
		SELECT held, shared, weight, owner, holder, since, fence, last, remaining, size, resized
		FROM holdfast.inspect($1::text, $2::bytea)`, k, []byte(name))
	return info, err
}

// OnReconnect implements [driver.Reporter].
func (d *Driver) OnReconnect(f func(reason string)) { d.news.onReconnect(f) }

// Close implements [driver.Driver]: it ends the connections that the driver has made.
func (d *Driver) Close() error {
	d.sweeper.close()
	d.news.close()
	d.pool.Close()
	return nil
}

// ping sends a client its own news, the way that all news goes.
func (d *Driver) ping(ctx context.Context, client string) error {
	var done any
	return d.call(ctx, 0, []any{&done}, `SELECT concat(holdfast.lazily(), holdfast.tell($1::text, 'ping'))`, client)
}

// session returns the backend of some session of the pool.
func (d *Driver) session(ctx context.Context) (pid uint32, err error) {
	err = d.call(ctx, 0, []any{&pid}, `SELECT pg_backend_pid()`)
	return pid, err
}

// all is the weight of an exclusive hold of what is no semaphore, and the size of that.
const all = 1 << 30

func weight(r *driver.Request) int64 {
	switch {
	case r.Kind == driver.Semaphore:
		return r.Weight
	case shared(r):
		return 1
	}
	return all
}

func limit(r *driver.Request) int64 {
	if r.Kind == driver.Semaphore {
		return r.Limit
	}
	return all
}

func shared(r *driver.Request) bool { return r.Kind == driver.RWMutex && r.Shared }

// owner is on whose behalf a request is made, nil for nobody.
func owner(r *driver.Request) []byte {
	if r.Owner == "" || r.Kind == driver.Semaphore || shared(r) {
		return nil
	}
	return []byte(r.Owner)
}

// useful is how many fences to ask for. Those of a grant are from the last so many us, and a
// replica that has lost what its master gave must not give them again: a failover takes longer.
func useful(fences int64) int64 { return min(max(fences, 1), 1024) }

// printable is a text as PostgreSQL can keep it.
func printable(text string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
}

// tag is what a holder says of itself, nil for nothing that others could be told.
func tag(l driver.Lease) *string {
	if l.HolderTag == "" || len(l.HolderTag) > driver.MaxHolderTag ||
		strings.ContainsFunc(l.HolderTag, func(c rune) bool { return c <= ' ' || c > '~' }) {
		return nil
	}
	return &l.HolderTag
}

func value[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// maxToken is the length in bytes of the longest token: it must fit into an index, and news
// with it into a NOTIFY.
const maxToken = 1024

func valid(r *driver.Request) error {
	switch {
	case r.Kind != driver.Mutex && r.Kind != driver.RWMutex && r.Kind != driver.Semaphore:
		return refusal("locks of kind %q: %w", r.Kind, errors.ErrUnsupported)
	case r.Name == "" || len(r.Name) > driver.MaxName:
		return refusal("a name of %d bytes", len(r.Name))
	case r.Token == "" || len(r.Token) > maxToken || !utf8.ValidString(r.Token) ||
		strings.ContainsFunc(r.Token, func(c rune) bool { return c <= ' ' }):
		return refusal("a token with spaces, of %d bytes", len(r.Token))
	case len(r.Owner) > driver.MaxOwner:
		return refusal("an owner of %d bytes", len(r.Owner))
	case r.TTL < driver.MinTTL || r.TTL > driver.MaxTTL:
		return refusal("a TTL of %v", r.TTL)
	case r.Kind == driver.Semaphore && (r.Limit < 1 || r.Limit > driver.MaxLimit || r.Weight < 1):
		return refusal("a weight of %d and a limit of %d", r.Weight, r.Limit)
	}
	return nil
}
