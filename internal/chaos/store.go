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
		o := &redis.Options{Addr: addr, Username: s.User}
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
		rdb := redis.NewFailoverClient(o)
		rdb.AddHook(w)
		return native(rdb), []io.Closer{rdb}
	case "cluster":
		rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: s.Addrs})
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

// observed is a driver that writes down when the store was asked for a token, and when it had
// queued it. It also has the bugs that the rig is to find.
type observed struct {
	driver.Driver
	history  *history
	sabotage string

	mu    sync.Mutex
	known map[string]string // tokens that are asked for, and the last that was written of them
}

// Unwrap implements [driver.Wrapper].
func (o *observed) Unwrap() driver.Driver { return o.Driver }

// Acquire implements [driver.Driver].
func (o *observed) Acquire(ctx context.Context, r *driver.Request) (driver.Grant, error) {
	o.note(sent, r)
	g, err := o.Driver.Acquire(ctx, r)
	if err == nil && g.Status == driver.Queued {
		o.note(queued, r)
	}
	return g, err
}

// note writes each thing once of a token.
func (o *observed) note(what string, r *driver.Request) {
	at := clock()
	o.mu.Lock()
	last := o.known[r.Token]
	if last != queued {
		o.known[r.Token] = what
	}
	o.mu.Unlock()
	if last != what && last != queued {
		o.history.write(record{at: at, actor: -1, what: what, kind: r.Kind, lock: r.Name, id: identity(r.Token)})
	}
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
)

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
