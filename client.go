package holdfast

import (
	"context"
	cryptorand "crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/redisdriver"
	"github.com/holdfast-go/holdfast/internal/keepalive"
)

// closeTimeout bounds how long Close waits for commands that Redis does not answer.
const closeTimeout = 10 * time.Second

// Client makes locks that live in one store. A program needs one for each Redis it
// keeps locks on. Its methods may be called from any goroutine.
type Client struct {
	_      noCopy
	d      driver.Driver
	config config
	common config                // alike
	hooks  atomic.Pointer[hooks] // nil if there are none
	keeper *keepalive.Keeper
	id     string // begins its tokens
	holder string // what others see when they look who holds a lock
	count  atomic.Uint64

	// accepted is set once the store has carried out a command: it can be used, and
	// a later refusal is a change over there, such as a rotated password.
	accepted atomic.Bool
	mute     atomic.Bool // said in the log

	began    time.Time
	answered atomic.Int64 // when the store last answered, after began
	streak   atomic.Int64 // answers, each within 1 ms of the one before

	closing context.Context // ends when Close begins
	shut    context.CancelFunc
	life    context.Context // ends when Close has finished, or does not wait any longer
	die     context.CancelFunc
	wg      sync.WaitGroup
	mu      sync.Mutex
	closed  bool              // no operation begins any more
	terms   []*acquisition    // granted; see acquisition.place
	doors   map[door]*doorway // of the locks that somebody waits for or holds
	notices bool              // the store tells a holder that it is wanted
	waiters sync.Pool         // not for all clients: in a test each may have a time of its own
}

// New returns a client that keeps its locks on the Redis behind rdb: a
// [redis.Client], a failover client or a [redis.ClusterClient], Redis 6.2 or later,
// or Valkey. All commands go through rdb and its hooks. Close does not close it.
//
// New panics if rdb is nil or a [redis.Ring], which would give one lock to two
// holders when a shard fails.
func New(rdb redis.UniversalClient, opts ...Option) *Client {
	c := configure(opts)
	return open(redisdriver.New(rdb, redisdriver.WithPrefix(c.prefix)), c)
}

// Open returns a client that keeps its locks in the store behind d, and closes d when
// it is closed. It panics if d is nil.
func Open(d driver.Driver, opts ...Option) *Client {
	if d == nil {
		panic("holdfast: nil driver")
	}
	return open(d, configure(opts))
}

func configure(opts []Option) config {
	c := defaults
	for _, o := range opts {
		o.apply(&c)
	}
	return c
}

func open(d driver.Driver, c config) *Client {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	life, die := context.WithCancel(context.Background())
	closing, shut := context.WithCancel(life)
	client := &Client{
		d:       d,
		began:   time.Now(),
		life:    life,
		die:     die,
		id:      string(appendRandom(nil)),
		holder:  host + ":" + strconv.Itoa(os.Getpid()),
		closing: closing,
		shut:    shut,
		doors:   map[door]*doorway{},
	}
	client.waiters.New = newWaiter
	if n, able := driver.As[driver.Notifier](d); able {
		client.notices = n.Notices()
	}
	if !client.notices {
		c.linger = 0 // nobody would tell us to stop
	}
	client.config, client.common = c, c.alike()
	client.config.key = &client.common
	if b, able := driver.As[driver.Batcher](d); able && c.batch != nil {
		b.Batch(*c.batch)
	}
	client.keeper = keepalive.New(d, client.keep)
	if r, able := driver.As[driver.Reporter](d); able {
		r.OnReconnect(client.reconnected)
	}
	return client
}

// reconnected says once that waiters poll because the store passes no news on: all works,
// so nobody would look for the cause of slow hand-overs.
func (c *Client) reconnected(reason string) {
	if reason == "mute" && !c.mute.Swap(true) {
		go c.config.log().Warn("holdfast: no news of locks comes in, so waiters ask every 50 to 250 ms; " +
			"grant +subscribe and +publish on channels with the prefix of the keys, and allow PUBLISH in scripts")
	}
}

// Close ends the client. Those who wait for a lease get [ErrClosed], leases that are
// held are released, and their contexts end. It returns when all that is done, or
// with an error after 10 s if Redis does not answer; leases that could not be
// released end with their TTL, and goroutines end when their commands do, after the
// Redis client's ReadTimeout. Closing again does nothing.
func (c *Client) Close() error {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil
	}
	c.closed = true
	c.shut()
	held := slices.Clone(c.terms)
	c.wg.Add(len(held))
	c.mu.Unlock()
	defer c.die()

	var failed []error
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		var results []<-chan error
		for _, a := range held {
			if r := a.close(); r != nil {
				results = append(results, r)
			}
		}
		c.wg.Wait() // waiters withdraw before the driver is closed
		c.keeper.Close()
		failed = append(failed, c.d.Close())
		for _, r := range results {
			failed = append(failed, <-r)
		}
	}()
	timeout := time.NewTimer(closeTimeout)
	defer timeout.Stop()
	select {
	case <-finished:
		return errors.Join(failed...)
	case <-timeout.C:
		return errors.New("holdfast: close: the store does not answer")
	}
}

// begin starts an operation, which ends with c.wg.Done. It reports false if the
// client is closed.
func (c *Client) begin() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.wg.Add(1)
	return true
}

// share returns the options of the client if these are the same, as they are for most locks,
// so that not every lease has its own.
func (c *Client) share(cfg config) *config {
	if cfg == c.common {
		return &c.common
	}
	own := cfg // so that only here it has to go to the heap
	return &own
}

// brisk reports whether the store has just answered many commands in quick
// succession, and so will answer the next. Then a caller who does not want to wait for
// long can wait for the answer itself; to have another goroutine wait for it would be
// what takes the time.
func (c *Client) brisk() bool {
	return c.streak.Load() >= 8 && time.Since(c.began)-time.Duration(c.answered.Load()) < time.Millisecond
}

// answer notes that the store has answered.
func (c *Client) answer() {
	c.accepted.Store(true)
	now := time.Since(c.began)
	if before := c.answered.Swap(int64(now)); now-time.Duration(before) < time.Millisecond {
		c.streak.Add(1)
	} else {
		c.streak.Store(0)
	}
}

// newToken returns the identity of an acquisition. The counter tells those of this
// client apart, the random part those of its clones: a virtual machine that was
// copied while it ran must not repeat them.
func (c *Client) newToken() string {
	b := make([]byte, 0, 56)
	b = append(b, c.id...)
	b = append(b, '-')
	b = strconv.AppendUint(b, c.count.Add(1), 10)
	b = append(b, '-')
	return string(appendRandom(b))
}

func appendRandom(to []byte) []byte {
	var b [8]byte
	_, _ = cryptorand.Read(b[:]) // never fails
	return hex.AppendEncode(to, b[:])
}

// inspect and force serve the methods of all primitives.

func (h *handle) inspect(ctx context.Context) (Info, error) {
	i, ok := driver.As[driver.Inspector](h.c.d)
	return await(h.c, ctx, errand[Info]{op: "inspect", door: h.all(), able: ok, do: func() (Info, error) {
		return i.Inspect(exempt(ctx), h.kind, h.name)
	}})
}

func (h *handle) force(ctx context.Context) error {
	f, ok := driver.As[driver.Forcer](h.c.d)
	_, err := await(h.c, ctx, errand[any]{op: "force unlock", door: h.all(), able: ok, once: true, do: func() (any, error) {
		err := f.ForceRelease(exempt(ctx), h.kind, h.name)
		if errors.Is(err, driver.ErrNotHeld) {
			err = ErrNotHeld
		}
		return nil, err
	}})
	return err
}

// errand is something that a caller wants done at the store.
type errand[T any] struct {
	op    string
	door  door
	able  bool              // the driver can do it
	begin func() error      // what comes first in this process; nil for nothing
	do    func() (T, error) // at the store
	once  bool              // what was perhaps done must not be done again
}

// again reports whether to try again after an error.
func (e errand[T]) again(err error) bool {
	return errors.Is(err, driver.ErrTransient) && (!e.once || errors.Is(err, driver.ErrNotExecuted))
}

// await runs an errand, again and again while the store is in trouble that may pass. It waits
// no longer than ctx, for go-redis cannot be relied on to return when its context ends.
// If that has ended before nothing is done.
func await[T any](c *Client, ctx context.Context, e errand[T]) (T, error) {
	var none T
	fail := func(err error) (T, error) {
		return none, &LockError{Op: e.op + " " + string(e.door.kind), Name: e.door.name, Err: err}
	}
	switch {
	case !validName(e.door.name):
		return fail(ErrInvalidName)
	case !e.able:
		return fail(fmt.Errorf("the store cannot do this: %w", errors.ErrUnsupported))
	case ctx.Err() != nil:
		return fail(end(ctx))
	case !c.begin():
		return fail(ErrClosed)
	}
	if e.begin != nil {
		if err := e.begin(); err != nil {
			c.wg.Done()
			return fail(err)
		}
	}
	type result struct {
		v   T
		err error
	}
	attempts, done := make(chan result, 1), ctx.Done()
	attempt := func() {
		v, err := e.do()
		attempts <- result{v, err}
	}
	go attempt()
	said := complaint{op: e.op, kind: e.door.kind, name: e.door.name, cfg: &c.config}
	said.begin()
	timer := time.NewTimer(troubleAfter)
	defer timer.Stop()
	var failed error // at the last attempt
	var pause time.Duration
	var retry <-chan time.Time
	for {
		select {
		case r := <-attempts:
			if r.err == nil || !e.again(r.err) {
				c.wg.Done()
				if r.err != nil {
					return fail(r.err)
				}
				return r.v, nil
			}
			failed = r.err
			said.because(failed)
			pause = min(max(2*pause, 5*time.Millisecond), time.Second)
			retry = time.After(pause/2 + rand.N(pause))
		case <-retry:
			retry = nil
			go attempt()
		case <-timer.C:
			timer.Reset(said.tell())
		case <-done:
			if retry != nil { // nothing is under way
				c.wg.Done()
			} else {
				go func() { <-attempts; c.wg.Done() }()
			}
			return fail(because(end(ctx), failed))
		}
	}
}

// because adds to the end of a context what was in the way.
func because(cause, trouble error) error {
	if trouble == nil {
		return cause
	}
	return fmt.Errorf("%w: %w", cause, trouble)
}

// end is the cause of the end of ctx, as an error of another lease or none: that a lease
// in ctx was lost says nothing of the one in hand.
func end(ctx context.Context) error {
	cause := context.Cause(ctx)
	if errors.Is(cause, ErrLost) || errors.Is(cause, ErrNotHeld) {
		return fmt.Errorf("%w: %v", ctx.Err(), cause)
	}
	return cause
}

func validName(name string) bool { return name != "" && len(name) <= driver.MaxName }

// noCopy makes go vet complain about copies.
type noCopy struct{}

func (*noCopy) Lock()   {}
func (*noCopy) Unlock() {}
