package main

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/redisdriver"
	"github.com/holdfast-go/holdfast/driver/redlock"
)

// prefix is what all keys of the workers begin with.
const prefix = "chaos"

// store says where a worker finds its locks.
type store struct {
	Topology string
	Addrs    []string
	URL      string // of Sentinels
	User     string
}

// delayedRestart is for redlock: longer than any lease lasts.
const delayedRestart = ttl + ttl/2

// open returns a driver that tells w what becomes of commands. An impatient one gives
// commands up after 300 ms, others have the timeouts that go-redis has by default.
func (s store) open(w *witness, impatient bool) (driver.Driver, []io.Closer) {
	redisOptions := func(addr string) *redis.Options {
		o := &redis.Options{Addr: addr, Username: s.User, Dialer: w.dial}
		if s.User != "" {
			o.Password = "any"
		}
		if impatient {
			o.ReadTimeout, o.ContextTimeoutEnabled = 300*time.Millisecond, true
		}
		return o
	}
	native := func(rdb redis.UniversalClient) driver.Driver {
		return redisdriver.New(rdb, redisdriver.WithPrefix(prefix))
	}
	switch s.Topology {
	case "sentinel":
		o, err := redis.ParseFailoverURL(s.URL)
		if err != nil {
			panic(err)
		}
		o.Dialer = w.dial
		rdb := redis.NewFailoverClient(o)
		rdb.AddHook(w)
		return native(rdb), []io.Closer{rdb}
	case "cluster":
		rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: s.Addrs, Dialer: w.dial})
		rdb.OnNewNode(func(node *redis.Client) { node.AddHook(w) })
		return native(rdb), []io.Closer{rdb}
	case "redlock":
		var nodes []driver.Driver
		var closers []io.Closer
		for _, addr := range s.Addrs {
			rdb := redis.NewClient(redisOptions(addr))
			rdb.AddHook(w)
			nodes, closers = append(nodes, native(rdb)), append(closers, rdb)
		}
		return redlock.New(nodes, redlock.WithDelayedRestart(delayedRestart)), closers
	}
	rdb := redis.NewClient(redisOptions(s.Addrs[0]))
	rdb.AddHook(w)
	return native(rdb), []io.Closer{rdb}
}

// witness writes down the trouble that commands of a process have, so that a fault that
// nobody felt can be told from one that the locks stood.
type witness struct {
	history *history

	mu   sync.Mutex
	last map[string]int64
}

// often is how long one kind of trouble is not written down again.
const often = int64(10 * time.Millisecond)

// slow is how long a command takes that is in trouble.
const slow = 100 * time.Millisecond

func (w *witness) note(class string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := clock()
	if now-w.last[class] < often {
		return
	}
	w.last[class] = now
	w.history.write(record{at: now, actor: -1, what: trouble, class: class})
}

// DialHook implements [redis.Hook].
func (w *witness) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		w.note(dials)
		conn, err := next(ctx, network, addr)
		if err != nil {
			w.note(broken)
		}
		return conn, err
	}
}

// ProcessHook implements [redis.Hook].
func (w *witness) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		began := time.Now()
		err := next(ctx, cmd)
		w.judge(began, err)
		return err
	}
}

// ProcessPipelineHook implements [redis.Hook].
func (w *witness) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		began := time.Now()
		err := next(ctx, cmds)
		for _, cmd := range cmds {
			w.judge(began, cmd.Err())
		}
		return err
	}
}

func (w *witness) judge(began time.Time, err error) {
	if time.Since(began) > slow {
		w.note(late)
	}
	if err != nil && !errors.Is(err, redis.Nil) && !errors.Is(err, context.Canceled) {
		w.note(classOfReply(err))
	}
}

// classOfReply is the first word of an error reply, such as NOSCRIPT, or "net".
func classOfReply(err error) string {
	var reply redis.Error
	if errors.As(err, &reply) {
		word, _, _ := strings.Cut(reply.Error(), " ")
		return word
	}
	return broken
}

// observed is a driver that writes down when the store was asked for a token, and each time that
// it said that the token waits. It also has the bugs that the rig is to find.
type observed struct {
	driver.Driver
	history  *history
	sabotage string

	mu    sync.Mutex
	known map[string]bool // tokens that are asked for
}

// Unwrap implements [driver.Wrapper].
func (o *observed) Unwrap() driver.Driver { return o.Driver }

// Acquire implements [driver.Driver].
func (o *observed) Acquire(ctx context.Context, r *driver.Request) (driver.Grant, error) {
	began := o.sends(r)
	g, err := o.Driver.Acquire(ctx, r)
	if err == nil && g.Status == driver.Queued {
		o.note(queued, r, record{at: clock(), seen: began})
	}
	return g, err
}

// Steal implements [driver.Stealer].
func (o *observed) Steal(ctx context.Context, r *driver.Request) (driver.Grant, error) {
	d, able := driver.As[driver.Stealer](o.Driver)
	if !able {
		return driver.Grant{}, errors.ErrUnsupported
	}
	o.sends(r)
	if o.sabotage == forgeTheft {
		return o.forge(ctx, d, r)
	}
	return d.Steal(ctx, r)
}

// forge tells of a theft that never took place, if there is anybody to steal from. A theft that
// failed would excuse whoever holds the lock.
func (o *observed) forge(ctx context.Context, thief driver.Stealer, r *driver.Request) (driver.Grant, error) {
	d, _ := driver.As[driver.Inspector](o.Driver)
	info, err := d.Inspect(ctx, r.Kind, r.Name)
	if err != nil || len(info.Holders) == 0 {
		return thief.Steal(ctx, r)
	}
	return driver.Grant{Status: driver.Granted, Ask: r.Ask, Fence: info.Holders[0].LastFence + 1, Fences: 1}, nil
}

// sends notes once that a token is asked for. It returns the time.
func (o *observed) sends(r *driver.Request) int64 {
	at := clock()
	o.mu.Lock()
	known := o.known[r.Token]
	o.known[r.Token] = true
	o.mu.Unlock()
	if !known {
		o.note(sent, r, record{at: at})
	}
	return at
}

func (o *observed) note(what string, of *driver.Request, r record) {
	r.actor, r.what, r.kind, r.lock, r.id = -1, what, of.Kind, of.Name, identity(of.Token)
	o.history.write(r)
}

// Release implements [driver.Driver].
func (o *observed) Release(ctx context.Context, l driver.Lease) error {
	o.mu.Lock()
	delete(o.known, l.Token)
	o.mu.Unlock()
	if f, able := driver.As[driver.Forcer](o.Driver); able && o.sabotage == releaseAnybody {
		_ = f.ForceRelease(ctx, l.Kind, l.Name)
	}
	return o.Driver.Release(ctx, l)
}

// The bugs that a worker can have.
const (
	ignoreLoss     = "ignore-loss"     // a holder never looks whether it still has the lock
	releaseAnybody = "release-anybody" // a release does not look whose lock it is
	forgeTheft     = "forge-theft"     // a thief does not ask the store
	neverYield     = "never-yield"     // a holder does not listen to those that wait
)

var bugs = []string{ignoreLoss, releaseAnybody, forgeTheft, neverYield}

// class is a word for how a call of a lock ended.
func class(err error) string {
	if err == nil {
		return "ok"
	}
	var e *holdfast.LockError
	if errors.As(err, &e) {
		return e.ErrorType()
	}
	return "other"
}
