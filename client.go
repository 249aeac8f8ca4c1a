package holdfast

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/redisdriver"
	"github.com/holdfast-go/holdfast/internal/keepalive"
	"github.com/holdfast-go/holdfast/internal/local"
	"github.com/holdfast-go/holdfast/internal/session"
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
	stranded atomic.Bool           // the log has said that a Lock never returns
	unheard  atomic.Bool           // it has said that the store does not tell who waits
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
	c.config.lockOptions = c.options(cfg)
	c.session.Traced = cfg.traced
	if b := c.session.Batcher; b != nil && cfg.batch != nil {
		b.Batch(*cfg.batch)
	}
	c.locks = local.NewRegistry(c.session, keepalive.New(c.session.Router, c.renewDue), func(op string, id local.ID, err error) error {
		return lockError(op, id.Kind, id.Name, err)
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
	if own := c.config.lockOptions; own != nil && o == *own {
		return own
	}
	return &o
}

// reconnected logs once that waiters poll because the store passes no messages on, and once that
// this is over. All works, so nobody would look for the cause of slow hand-overs. The remedy differs
// from store to store, so the doctor names it. Of several stores each is heard of by itself.
func (c *Client) reconnected(reason string) {
	if reason != "heard" {
		c.locks.Deaf()
	}
	switch {
	case reason == "mute" && c.mute.Add(1) == 1:
		go c.config.options.Log().Warn("holdfast: no news of locks comes in, so waiters ask every 50 to 250 ms; " +
			"holdfast doctor tells why")
	case reason == "heard" && c.mute.Add(-1) == 0:
		go c.config.options.Log().Info("holdfast: news of locks comes in again")
	}
}

// Close ends the client. Callers that wait for a lease get [ErrClosed]; if the store has just fallen silent, when their
// command ends, see [Mutex.Lease]. Goroutines in Lock and RLock never return. Leases that are
// held are released, and their contexts end with cause ErrClosed. Close returns when all that
// is done. If Redis does not answer, a hook does not return, or the program has all connections of its
// pool, Close returns an error after 10 s that says what is known of that. Leases that could not
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
	finished := make(chan []error, 1)
	go func() { finished <- c.locks.Close() }()
	timeout := time.NewTimer(closeTimeout)
	defer timeout.Stop()
	select {
	case failed := <-finished:
		return errors.Join(failed...)
	case <-timeout.C:
		silent := errors.New("the store does not answer")
		if c.hooks.Load() != nil {
			silent = errors.New("the store does not answer, or a hook does not return")
		}
		why := cmp.Or(c.session.Explain(), silent)
		c.session.End()
		return fmt.Errorf("holdfast: close: %w", why)
	}
}

// await runs an errand for a lock with these options. op names it.
func (c *Client) await(ctx context.Context, o *local.Options, id local.ID, op string, e session.Errand) error {
	var err error = ErrInvalidName
	if validName(id.Name) {
		e.Endure = o.Endure
		err = c.session.Await(ctx, e, c.session.Complaint(op, id.Kind, id.Name, o), local.EndOf)
	}
	if err != nil {
		return lockError(op, id.Kind, id.Name, err)
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
