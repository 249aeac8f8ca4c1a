package redisson

import (
	"context"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/internal/redisscript"
	"github.com/holdfast-go/holdfast/internal/telemetry"
)

const (
	// pingEvery is how often a connection must say that it lives. go-redis would not
	// notice one that is open but dead.
	pingEvery = time.Second
	silence   = 2500 * time.Millisecond

	// reopen is the least time between two connections to a node. It doubles with each in a row on
	// which no subscription was acknowledged, up to rarely: who may not listen is not to cost the
	// server a handshake a second.
	reopen = time.Second
	rarely = 30 * time.Second
)

// listener hears of releases. A lock that somebody here waits for has a channel. All channels
// share one connection, or one for each node if they are sharded. A connection exists while
// anybody waits.
//
// Only speed depends on it. A message says that a lock may be free, and all its waiters
// ask again. A waiter that cannot hear asks more often instead.
type listener struct {
	rdb     redis.UniversalClient
	sharded bool

	mu       sync.Mutex
	closed   bool
	channels map[string]*channel
	links    map[string]*link // by node, "" for any; also the last one that has ended
	open     sync.WaitGroup
}

// channel is where the releases of a lock are told.
type channel struct {
	name    string
	link    *link              // nil if there is none
	live    bool               // the subscription is acknowledged
	missed  bool               // it was live before
	waiters map[string]*waiter // by token
}

type waiter struct {
	wake func(driver.Grant)
	gone *time.Timer
}

// link is a connection for subscriptions.
type link struct {
	began time.Time
	end   context.CancelFunc
	over  bool
	pause time.Duration // before the next one, counted from when this began
	hears bool          // a subscription was acknowledged

	changes []change      // to be told to the server
	changed chan struct{} // has room for one
}

// change is a channel to subscribe to, or to leave.
type change struct {
	channel string
	leave   bool
}

func newListener(rdb redis.UniversalClient, sharded bool) *listener {
	return &listener{rdb: rdb, sharded: sharded, channels: map[string]*channel{}, links: map[string]*link{}}
}

// wait notes that a token waits, and reports whether it will hear of a release. A token
// that begins to wait is made to ask once more as soon as it can hear. The lock may have
// become free after the ask that found it busy. A token that stops asking is forgotten, for
// a client that gives up after a Busy does not say so.
func (e *listener) wait(name, node string, r *driver.Request) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return false
	}
	c := e.channels[name]
	if c == nil {
		c = &channel{name: name, waiters: map[string]*waiter{}}
		e.channels[name] = c
	}
	patience := max(r.TTL, time.Second)
	if w := c.waiters[r.Token]; w != nil {
		w.gone.Reset(patience)
	} else {
		c.waiters[r.Token] = &waiter{r.Wake, time.AfterFunc(patience, func() { e.leave(name, r.Token) })}
		if c.live {
			r.Wake(driver.Grant{Status: driver.Queued})
		}
	}
	if c.link == nil {
		e.connect(c, node)
	}
	return c.live
}

// leave ends the news of a token, and of its channel if it was the last one there.
func (e *listener) leave(name, token string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	c := e.channels[name]
	if c == nil || c.waiters[token] == nil {
		return
	}
	c.waiters[token].gone.Stop()
	delete(c.waiters, token)
	if len(c.waiters) > 0 {
		return
	}
	delete(e.channels, name)
	if c.link != nil {
		c.link.tell(change{name, true})
	}
}

// connect subscribes to a channel, on the link to its node. The caller holds mu.
func (e *listener) connect(c *channel, node string) {
	if !e.sharded {
		node = "" // every node has all messages
	}
	l := e.links[node]
	if l != nil && l.over && time.Since(l.began) < l.pause {
		return // the next ask may
	}
	if l == nil || l.over {
		pause := reopen
		if l != nil && !l.hears {
			pause = min(2*l.pause, rarely)
		}
		ctx, cancel := context.WithCancel(telemetry.Unasked(context.Background()))
		l = &link{began: time.Now(), end: cancel, pause: pause, changed: make(chan struct{}, 1)}
		e.links[node] = l
		e.open.Go(func() { e.keep(ctx, l) })
	}
	c.link = l
	l.tell(change{c.name, false})
}

// tell has the server told. The caller holds mu.
func (l *link) tell(c change) {
	l.changes = append(l.changes, c)
	select {
	case l.changed <- struct{}{}:
	default:
	}
}

// keep keeps a link until it breaks or nobody needs it.
func (e *listener) keep(ctx context.Context, l *link) {
	var reading sync.WaitGroup
	ps := e.rdb.Subscribe(ctx) // The first channel tells go-redis which node to call.
	defer func() {
		_ = ps.Close() // wakes the reader, which does not look at its context
		reading.Wait()
		e.cut(l)
	}()
	tick := time.NewTicker(pingEvery)
	defer tick.Stop()
	for first := true; ; first = false {
		select {
		case <-ctx.Done():
			return
		case <-l.changed:
			if e.apply(ctx, ps, l) != nil {
				return
			}
		case <-tick.C:
			if e.idle(l) || ps.Ping(ctx) != nil {
				return
			}
		}
		if first {
			reading.Go(func() {
				defer l.end()
				e.read(ctx, ps, l)
			})
		}
	}
}

// apply tells the server of changes, one by one: channels of one call must be in one slot.
func (e *listener) apply(ctx context.Context, ps *redis.PubSub, l *link) error {
	e.mu.Lock()
	changes := l.changes
	l.changes = nil
	e.mu.Unlock()
	for _, c := range changes {
		tell := ps.Subscribe
		switch {
		case e.sharded && c.leave:
			tell = ps.SUnsubscribe
		case e.sharded:
			tell = ps.SSubscribe
		case c.leave:
			tell = ps.Unsubscribe
		}
		if err := tell(ctx, c.channel); err != nil {
			return err
		}
	}
	return nil
}

// idle reports whether nobody needs a link any more, and then nobody will get it.
func (e *listener) idle(l *link) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, c := range e.channels {
		if c.link == l {
			return false
		}
	}
	l.over = true
	return true
}

// read passes on what comes in, until the link breaks or falls silent.
func (e *listener) read(ctx context.Context, ps *redis.PubSub, l *link) {
	for {
		msg, err := redisscript.Receive(ctx, ps, silence)
		if err != nil {
			return
		}
		switch msg := msg.(type) {
		case *redis.Message:
			e.heard(msg.Channel)
		case *redis.Subscription:
			e.noted(l, msg)
		}
	}
}

func (e *listener) heard(name string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if c := e.channels[name]; c != nil {
		c.wake(driver.Grant{Status: driver.Queued})
	}
}

// noted takes note of what the server has done about a channel.
func (e *listener) noted(l *link, s *redis.Subscription) {
	e.mu.Lock()
	defer e.mu.Unlock()
	c := e.channels[s.Channel]
	switch {
	case c == nil || c.link != l:
	case s.Kind == "subscribe" || s.Kind == "ssubscribe":
		c.live, l.hears = true, true
		c.wake(driver.Grant{Status: driver.Queued, Reconnect: c.missed})
	case c.live: // Its slot has moved to another node. (Else it was left, and is wanted again.)
		c.lose()
	}
}

// cut notes that a link has ended.
func (e *listener) cut(l *link) {
	e.mu.Lock()
	defer e.mu.Unlock()
	l.over = true
	for _, c := range e.channels {
		if c.link == l {
			c.lose()
		}
	}
}

// lose notes that a channel has no link any more. News may have been missed since the link
// broke. So all waiters ask, and the first of them makes another link. The caller holds
// mu.
func (c *channel) lose() {
	c.link = nil
	if c.live {
		c.live, c.missed = false, true
		c.wake(driver.Grant{Status: driver.Queued, Reconnect: true})
	}
}

// wake passes news on to all waiters. The caller holds mu.
func (c *channel) wake(g driver.Grant) {
	for _, w := range c.waiters {
		w.wake(g)
	}
}

func (e *listener) close() {
	e.mu.Lock()
	e.closed = true
	for _, l := range e.links {
		l.end()
	}
	for name, c := range e.channels {
		for _, w := range c.waiters {
			w.gone.Stop()
		}
		delete(e.channels, name)
	}
	e.mu.Unlock()
	e.open.Wait()
}
