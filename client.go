package holdfast

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/redisdriver"
	"github.com/holdfast-go/holdfast/internal/claim"
	"github.com/holdfast-go/holdfast/internal/keepalive"
	"github.com/holdfast-go/holdfast/internal/leasectx"
	"github.com/holdfast-go/holdfast/internal/local"
	"github.com/holdfast-go/holdfast/internal/session"
	"github.com/holdfast-go/holdfast/internal/trouble"
)

// closeTimeout bounds how long Close waits for commands that Redis does not answer.
const closeTimeout = 10 * time.Second

// Client makes locks that live in one store. A program needs one for each Redis it keeps
// locks on. Its methods may be called from any goroutine. A Client is made by [New] or
// [Open]; the methods of a zero one panic.
type Client struct {
	_        noCopy
	session  *session.Session
	locks    *local.Registry
	config   config
	hooks    atomic.Pointer[hooks] // nil if there are none
	adding   sync.Mutex            // held while a hook is added
	mute     atomic.Int32          // stores of which no news comes in, which the log says
	stranded atomic.Bool           // the same of a Lock that never returns
	unheard  atomic.Bool           // the same of a Wanted that the store does not serve
}

// New returns a client that keeps its locks on the Redis behind rdb: a [redis.Client], a
// failover client or a [redis.ClusterClient]. The server must be Redis 6.2 or later, or
// Valkey. All commands go through rdb and its hooks. Close does not close rdb. If the program's own
// commands, such as BLPOP, have all of PoolSize, those of locks take the connections that go-redis keeps
// for pipelines.
//
// New panics if rdb is nil. It also panics if rdb is a [redis.Ring], which would give one
// lock to two holders when a shard fails.
func New(rdb redis.UniversalClient, opts ...Option) *Client {
	c := configure(opts)
	return open(redisdriver.New(rdb, redisdriver.WithPrefix(cmp.Or(c.prefix, "holdfast"))), c)
}

// Open returns a client that keeps its locks in the store behind d. Closing the client
// closes d. Open panics if d is nil. It also panics if opts have [WithPrefix]: a driver has
// an option of its own for that, and with another prefix there would be another lock.
func Open(d driver.Driver, opts ...Option) *Client {
	c := configure(opts)
	switch {
	case d == nil:
		panic("holdfast: nil driver")
	case c.prefix != "":
		panic("holdfast: Open with WithPrefix: give the prefix to the driver")
	}
	return open(d, c)
}

func configure(opts []Option) config {
	c := defaults
	for _, o := range opts {
		o.apply(&c)
	}
	c.lingers(&c)
	return c
}

func open(d driver.Driver, cfg config) *Client {
	c := &Client{session: session.New(d), config: cfg}
	c.config.hold = c.options(cfg)
	c.session.Traced = cfg.traced
	if b := c.session.Batcher; b != nil && cfg.batch != nil {
		b.Batch(*cfg.batch)
	}
	c.locks = local.NewRegistry(c.session, keepalive.New(c.session.Router, c.renewDue), func(op string, id local.ID, err error) error {
		return &LockError{Op: op + " " + string(id.Kind), Kind: id.Kind, Name: id.Name, Err: err}
	})
	c.locks.Client = c
	if r := c.session.Reporter; r != nil {
		r.OnReconnect(c.reconnected)
	}
	return c
}

// made panics if nobody has made the client.
func (c *Client) made() {
	if c == nil || c.session == nil {
		panic("holdfast: nil or zero Client: use New or Open")
	}
}

// options returns the part that locks with the same options share. Most locks have the options of
// the client, so that not every lease needs its own copy.
func (c *Client) options(cfg config) *local.Options {
	o := cfg.options
	if c.session.Notifier == nil {
		o.Linger = 0 // nobody would tell us to stop
	}
	if own := c.config.hold; own != nil && o == *own {
		return own
	}
	return &o
}

// reconnected logs once that waiters poll because the store passes no messages on, and once that
// this is over. All works, so nobody would look for the cause of slow hand-overs. The remedy differs
// from store to store, so the doctor names it. Of several stores each is heard of by itself.
func (c *Client) reconnected(reason string) {
	switch {
	case reason == "mute" && c.mute.Add(1) == 1:
		go c.config.options.Log().Warn("holdfast: no news of locks comes in, so waiters ask every 50 to 250 ms; " +
			"holdfast doctor tells why")
	case reason == "heard" && c.mute.Add(-1) == 0:
		go c.config.options.Log().Info("holdfast: news of locks comes in again")
	}
}

// Close ends the client. Callers that wait for a lease get [ErrClosed], and goroutines in Lock and
// RLock never return. Leases that are
// held are released, and their contexts end with cause ErrClosed. Close returns when all that
// is done. If Redis does not answer, or the program has all connections of its pool, Close returns an error
// after 10 s that says which. Leases that could not
// be released end with their TTL. Goroutines end when their commands do, after the Redis
// client's ReadTimeout. Closing again does nothing.
func (c *Client) Close() error {
	c.made()
	if !c.session.Open() {
		return nil
	}
	defer c.locks.TellLosses()
	if b := c.session.Batcher; b != nil && c.config.batch == nil {
		// Also beside a [SpanHook]: ten thousand releases at once need not each have a trip of their own.
		b.Batch(true)
	}
	var failed []error
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		var results []local.Closed
		if !c.session.Close(func() { results = c.locks.Close() }) {
			return // another call has
		}
		c.locks.Keeper.Close()
		failed = append(failed, c.session.Driver.Close()) // waiters have withdrawn
		for _, r := range results {
			err := <-r.Result
			if errors.Is(err, driver.ErrNotHeld) {
				err = ErrLost
			}
			if err != nil {
				failed = append(failed, c.locks.Wrap("release", r.ID, err))
			}
		}
		c.session.End()
	}()
	timeout := time.NewTimer(closeTimeout)
	defer timeout.Stop()
	select {
	case <-finished:
		return errors.Join(failed...)
	case <-timeout.C:
		why := cmp.Or(c.session.Explain(), errors.New("the store does not answer"))
		c.session.End()
		return fmt.Errorf("holdfast: close: %w", why)
	}
}

// Attach takes over the lock of a lease that [Lease.Detach] ended, in this or another
// process, for reading or writing, or its permits. The new lease has its
// own token and fence. It lasts the TTL of this client or of opts, from now on. Beside
// other leases of one owner, see [WithOwner], it has their fence. Waiters do not get the
// lock in between.
//
// If several callers attach to one token, exactly one succeeds. The others get an error
// that matches [ErrNotHeld], as does a caller that comes too late, or whose text is not a
// token. Transient errors, such as a broken connection, are retried until ctx ends. If ctx
// ends while the answer is under way, nobody knows who holds the lock, and it is released.
// Attach can also take over a lease that was not detached, from a holder that is believed
// dead. If that holder is alive, its next renewal fails, and its fence is smaller.
//
// For hooks Attach is a way to acquire, see [AcquireOp].
func (c *Client) Attach(ctx context.Context, token string, opts ...LockOption) (*Lease, error) {
	c.made()
	from, err := claim.Parse(token)
	fail := func(err error) (*Lease, error) {
		return nil, &LockError{Op: "attach", Kind: from.Kind, Name: from.Name, Err: err}
	}
	if err != nil {
		return fail(fmt.Errorf("%w: %w", ErrNotHeld, err))
	}
	if c.session.Attacher == nil {
		return fail(fmt.Errorf("the store cannot do this: %w", errors.ErrUnsupported))
	}
	h := c.handle(from.Kind, from.Name, opts)
	l, err := h.lease(ctx, local.Want{Wait: true, From: &from}, "attach")
	if errors.Is(err, driver.ErrNotHeld) && !errors.Is(err, ErrNotHeld) {
		return fail(ErrNotHeld)
	}
	return l, err
}

// lookers is how many locks List looks at at a time, and crowd where they go many in one call.
const lookers, crowd = 16, 256

// List returns the locks that somebody holds or waits for, if their names begin with prefix: by
// name, then by kind. Locks that are taken or released meanwhile may be missing. So is a fair lock of
// driver/redisson that nobody holds, although some wait for it.
//
// List looks at all keys of the store, and at each lock whose name begins with prefix. On Redis that
// takes about a second for a million keys, and some seconds for a hundred thousand locks that are
// held, holds up nobody, and needs the right +scan. Up to 64 locks go in one call, but one each where
// calls are not shared, see [WithPipelining]. If the store shows some locks only, because a key holds
// something else, List returns those, and an error for each of the others. If the store cannot list
// its locks, the error matches [errors.ErrUnsupported]. Transient errors are retried until ctx ends.
func (c *Client) List(ctx context.Context, prefix string) ([]Info, error) {
	c.made()
	s := c.session
	type listed struct {
		all     []Info
		refused error
	}
	atOnce := lookers
	if s.Batcher != nil {
		atOnce = crowd
	}
	found := make(chan listed, 1) // which may come when nobody waits any more
	said := s.Complaint("list", "", prefix, c.config.hold)
	err := s.Await(ctx, session.Errand{Able: s.Lister != nil && s.Inspector != nil, Endure: c.config.hold.Endure, Do: func() error {
		all, refused, err := list(leasectx.Exempt(ctx), s.Lister, s.Inspector, prefix, atOnce, said.AskedAgain)
		if err == nil {
			found <- listed{all, refused}
		}
		return err
	}}, said, local.EndOf)
	if err != nil {
		return nil, &LockError{Op: "list", Name: prefix, Err: err}
	}
	l := <-found
	return l.all, l.refused
}

// list also returns why some locks are not shown, or why it has failed. It tells of each answer.
func list(ctx context.Context, l driver.Lister, i driver.Inspector, prefix string, atOnce int, answered func()) (all []Info, refused, failed error) {
	var mu sync.Mutex
	look := func(k driver.Kind, name string) {
		info, err := i.Inspect(ctx, k, name)
		err = trouble.Of(err)
		if !errors.Is(err, driver.ErrTransient) {
			answered()
		}
		mu.Lock()
		defer mu.Unlock()
		switch {
		case errors.Is(err, driver.ErrTransient), errors.Is(err, driver.ErrDenied), err != nil && ctx.Err() != nil:
			failed = err
		case err != nil:
			refused = errors.Join(refused, &LockError{Op: "inspect " + string(k), Kind: k, Name: name, Err: err})
		case len(info.Holders) > 0 || len(info.Queue) > 0:
			info.Kind = k
			all = append(all, info)
		}
	}
	var looking sync.WaitGroup
	room := make(chan struct{}, atOnce)
	err := l.List(ctx, prefix, func(k driver.Kind, name string) error {
		answered()
		room <- struct{}{}
		looking.Go(func() {
			look(k, name)
			<-room
		})
		mu.Lock()
		defer mu.Unlock()
		return failed
	})
	err = trouble.Of(err)
	looking.Wait()
	slices.SortFunc(all, func(a, b Info) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Kind, b.Kind)) })
	return all, refused, cmp.Or(failed, err)
}

// renewDue renews leases for the keeper, with the values of one of them: if renewals are to be in
// traces, of one that has a span. Otherwise nobody looks, as a context is code of the program. One that
// looked something up would hold up the renewals of all others.
func (c *Client) renewDue(ctx context.Context, entries []*keepalive.Entry, renewed func(i int)) []error {
	values := context.Background()
	for _, e := range entries {
		h := e.Owner.(*local.Grant).Oldest()
		if h != nil && (!c.session.Traced || trace.SpanContextFromContext(h.Values()).IsValid()) {
			values = h.Values()
			break
		}
	}
	grants := make([]*local.Grant, len(entries))
	for i, e := range entries {
		grants[i] = e.Owner.(*local.Grant)
	}
	ctx = c.session.Unasked(leasectx.Detached(ctx, values))
	if c.hooks.Load() == nil {
		return c.renewNow(ctx, grants, renewed)
	}
	return c.renew(ctx, &RenewOp{due: true, late: c.locks.Keeper.Late()}, grants, renewed)
}

// await runs an errand for a lock with these options. op names it.
func (c *Client) await(ctx context.Context, o *local.Options, id local.ID, op string, e session.Errand) error {
	var err error = ErrInvalidName
	if validName(id.Name) {
		e.Endure = o.Endure
		err = c.session.Await(ctx, e, c.session.Complaint(op, id.Kind, id.Name, o), local.EndOf)
	}
	if err != nil {
		return &LockError{Op: op + " " + string(id.Kind), Kind: id.Kind, Name: id.Name, Err: err}
	}
	return nil
}

func validName(name string) bool { return name != "" && len(name) <= driver.MaxName }

// noCopy makes go vet complain about copies.
type noCopy struct{}

// Lock marks the type for go vet as one that must not be copied.
func (*noCopy) Lock() {}

// Unlock completes the mark.
func (*noCopy) Unlock() {}
