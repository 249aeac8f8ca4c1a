package pgdriver

import (
	"context"
	"encoding/hex"
	"errors"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/internal/news"
)

// Driver keeps locks in PostgreSQL.
type Driver struct {
	pool      *pgxpool.Pool             // see callers
	mode      atomic.Int32              // the pgx.QueryExecMode of calls
	answers   atomic.Int64              // of the server to calls
	quiet     atomic.Pointer[time.Time] // until when calls send no news, nil if it was not refused
	served    atomic.Bool               // a call was carried out
	refreshed atomic.Pointer[time.Time] // when connections were last made again, see afresh
	gates     gates
	news      *news.Hub[struct{}]
	listener  *listener
	sweeper   sweeper
}

var (
	_ driver.Driver     = (*Driver)(nil)
	_ driver.Inspector  = (*Driver)(nil)
	_ driver.Forcer     = (*Driver)(nil)
	_ driver.Stealer    = (*Driver)(nil)
	_ driver.Downgrader = (*Driver)(nil)
	_ driver.Resizer    = (*Driver)(nil)
	_ driver.Notifier   = (*Driver)(nil)
	_ driver.Attacher   = (*Driver)(nil)
	_ driver.Reporter   = (*Driver)(nil)
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
		d.listener.connect = func(ctx context.Context) (*pgx.Conn, error) { return pgx.ConnectConfig(ctx, c) }
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
	d.listener = newListener()
	d.listener.connect, d.listener.ping, d.listener.session = d.connect, d.ping, d.session
	d.news = news.New(d.listener, pace, nothing)
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
	conn, err := pgx.ConnectConfig(ctx, c.ConnConfig)
	if err == nil && c.AfterConnect != nil {
		if err = c.AfterConnect(ctx, conn); err != nil {
			_ = conn.Close(context.WithoutCancel(ctx))
			return nil, err
		}
	}
	return conn, err
}

// Acquire implements [driver.Driver].
func (d *Driver) Acquire(ctx context.Context, r *driver.Request) (driver.Grant, error) {
	if err := valid(r); err != nil {
		return driver.Grant{}, err
	}
	d.sweeper.start(d)
	if r.Notice && !d.news.Tried() {
		d.news.Prepare(ctx) // the notice may come as soon as the lock is held
	}
	t := d.news.Expect(r)
	wait := r.Wait && d.news.Tried()
	weight, limit := share(r)
	for {
		at, session, changes := d.news.Place(t)
		var a answer
		err := d.callFor(ctx, r.Kind, r.Name, r.TTL, a.columns(), `
			SELECT status, fence, fences, place, `+micros("retry")+`, tag, size, behind, holder, `+micros("held_for")+`, holder_fence
			  FROM holdfast.acquire($1::text, $2::bytea, $3::text, $4::bigint, $5::interval, $6::bigint, $7::boolean, $8::bigint, $9::bigint, $10::bytea, $11::boolean, $12::boolean,
				$13::text, $14::text, $15::integer, $16::bigint, $17::bigint)`,
			r.Kind, []byte(r.Name), r.Token, int64(r.Ask), r.TTL, capFences(r.Fences), shared(r), weight, limit, owner(r),
			wait, r.Notice, printable(r.Holder), d.listener.client(r), given(int64(session)), given(at.Number), given(r.MaxWaiters))
		if err != nil {
			d.news.Failed(t, !errors.Is(err, driver.ErrNotExecuted), ctx.Err() != nil)
			return driver.Grant{}, err
		}
		switch {
		case a.status == "granted":
			d.news.Granted(t, r.Ask)
			return driver.Grant{Status: driver.Granted, Ask: r.Ask, Fence: value(a.fence), Fences: value(a.fences)}, nil
		case a.status == "queued":
			after := d.news.Queued(t, r.Ask, changes, driver.Place{Number: value(a.place)}, duration(a.retry))
			return a.grant(driver.Queued, after), nil
		case a.status == "busy" && r.Wait && !wait:
			d.news.Prepare(ctx) // before the first wait
			wait = true
			continue
		}
		d.news.Forget(r.Token)
		switch a.status {
		case "busy":
			return a.grant(driver.Busy, duration(a.retry)), nil
		case "full":
			return a.grant(driver.Full, 0), nil
		case "conflict":
			return driver.Grant{}, refusal("%w: %d, not %d", driver.ErrLimitConflict, value(a.size), r.Limit)
		case "exceeded":
			return driver.Grant{}, refusal("%w: %d of %d", driver.ErrLimitExceeded, r.Weight, value(a.size))
		}
		return driver.Grant{}, d.news.Buried(t)
	}
}

// answer is what holdfast.acquire returns, see acquire.sql. Most of it is not in every answer.
type answer struct {
	status               string
	fence, fences, place *int64
	retry, heldFor       *int64 // in µs
	size                 *int64
	tag, holder          *string
	behind               *bool
	holderFence          *int64
}

func (a *answer) columns() []any {
	return []any{
		&a.status, &a.fence, &a.fences, &a.place, &a.retry, &a.tag, &a.size,
		&a.behind, &a.holder, &a.heldFor, &a.holderFence,
	}
}

// grant is for a token that cannot have the lock now.
func (a *answer) grant(s driver.Status, after time.Duration) driver.Grant {
	return driver.Grant{
		Status: s, RetryAfter: after, HolderTag: value(a.tag), Behind: value(a.behind),
		Holder: value(a.holder), HeldFor: max(0, duration(a.heldFor)), HolderFence: value(a.holderFence),
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
			d.news.Wanted(l.Token)
		}
	}
	return errs
}

// Release implements [driver.Driver].
func (d *Driver) Release(ctx context.Context, l driver.Lease) error {
	if _, sent := d.news.Forget(l.Token); !sent && !l.Unsettled {
		return driver.ErrNotHeld // no ask was sent, nor will one be
	}
	return d.held(ctx, l.Kind, l.Name, l.TTL, `SELECT holdfast.release($1::text, $2::bytea, $3::text, $4::text, $5::boolean)`,
		l.Token, tag(l), l.Unsettled)
}

// held calls a function about a lock that tells whether there was something to act on.
func (d *Driver) held(ctx context.Context, k driver.Kind, name string, ttl time.Duration, sql string, more ...any) error {
	var had bool
	if err := d.callFor(ctx, k, name, ttl, []any{&had}, sql, append([]any{k, []byte(name)}, more...)...); err != nil {
		return err
	}
	if !had {
		return driver.ErrNotHeld
	}
	return nil
}

// OnReconnect implements [driver.Reporter].
func (d *Driver) OnReconnect(f func(reason string)) { d.news.OnReconnect(f) }

// Close implements [driver.Driver]: it ends the connections that the driver has made.
func (d *Driver) Close() error {
	d.sweeper.close()
	d.news.Close()
	d.pool.Close()
	return nil
}

// ping sends a client its own news, the way that all news goes.
func (d *Driver) ping(ctx context.Context, client string) error {
	err := d.query(ctx, mostTime, func(ctx context.Context, conn *pgx.Conn, mode pgx.QueryExecMode) error {
		_, err := conn.Exec(ctx, `SELECT concat(holdfast.lazily(), holdfast.tell($1::text, 'ping'))`, mode, client)
		if refusesNews(err) {
			d.suspendNews(ctx, conn, mode, err)
		}
		return err
	})
	if err == nil {
		d.quiet.Store(nil)
	}
	return err
}

// session returns the backend of some session of the pool.
func (d *Driver) session(ctx context.Context) (pid uint32, err error) {
	err = d.call(ctx, 0, []any{&pid}, `SELECT pg_backend_pid()`)
	return pid, err
}

// share returns how much of a lock a request wants, and how much there is. A Mutex is all or
// nothing here, since version 1 of the schema.
func share(r *driver.Request) (weight, limit int64) {
	if r.Kind == driver.Mutex {
		return driver.Everything, driver.Everything
	}
	return r.Share()
}

func shared(r *driver.Request) bool { return r.Kind == driver.RWMutex && r.Shared }

// owner is on whose behalf a request is made, nil for nobody.
func owner(r *driver.Request) []byte {
	if r.Owner == "" || r.Kind == driver.Semaphore || shared(r) {
		return nil
	}
	return []byte(r.Owner)
}

// capFences is how many fences to ask for. Those of a grant are from the last so many us, and a
// replica that has lost what its master gave must not give them again: a failover takes longer.
func capFences(fences int64) int64 { return min(max(fences, 1), 1024) }

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

// given returns an argument that is NULL if there is none.
func given(n int64) *int64 {
	if n == 0 {
		return nil
	}
	return &n
}

// micros is a time or an interval in SQL, as a number. Behind a pooler answers are texts, and how those
// of times, intervals and bytes are written is for the session to say.
func micros(of string) string { return "(1000000 * extract(epoch FROM " + of + "))::bigint" }

func duration(micros *int64) time.Duration { return time.Duration(value(micros)) * time.Microsecond }

// unhex returns bytes that the server has encoded, for the same reason.
func unhex(text *string) string {
	b, _ := hex.DecodeString(value(text))
	return string(b)
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
	if len(r.Token) > maxToken || !utf8.ValidString(r.Token) {
		return refusal("a token of %d bytes, or of no text", len(r.Token))
	}
	return r.Check()
}
