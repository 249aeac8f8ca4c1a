package redisdriver

import (
	"context"
	"crypto/rand"
	"crypto/sha1"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/internal/news"
	"github.com/holdfast-go/holdfast/driver/internal/redisscript"
)

// pace says how the subscription is kept, see [news.Hub]. A server that acknowledges a
// subscription mostly passes news on, and the first ping tells if it does not.
var pace = news.Pace{Ping: time.Second, Acknowledged: true}

// tokenArgs are a token and the key of the lock of which it was first heard, as arguments: strings.
type tokenArgs struct{ key, token any }

type token = news.Token[tokenArgs]

// channel is where news for a client comes in. It implements [news.Transport].
type channel struct {
	rdb    redis.UniversalClient
	base   string // of all keys and channels
	prefix string // of all wake channels
	id     string // of this client; its channel is prefix + id
	secret string // with which news for it is sealed

	reached, heeding string // how others reach it, without and with notices

	mu     sync.Mutex
	pings  uint64 // that were sent
	pinged uint64 // the last of them that came in
	place  place
}

// place is what is known of the server on which the subscription is.
//
// In a failover the connections for commands may go to the new master while that of the subscription
// stays with the old one. As this is a replica now, what is published is heard. But the new master
// knows of no listener: a waiter that crashes holds up those behind it for its TTL. So if the
// server that runs our pings knows none any more, the subscription is made anew.
type place struct {
	cut     func()
	known   bool // that server has known of a listener once; behind some proxies none ever does
	mixed   bool // some do and others do not: there are several, which tell each other
	found   int  // pings in a row of which we are told that they are heard
	missing int  // of this subscription of which we are not
	enough  int  // of these, for a new subscription
}

const (
	leastMissing = 2
	mostMissing  = 64 // if the new ones are with the old server, too
)

// heardBy notes how many hear a ping on the server that ran it.
func (c *channel) heardBy(listeners int64) {
	c.mu.Lock()
	p, cut := &c.place, func() {}
	switch {
	case p.cut == nil || p.mixed:
	case listeners > 0:
		p.mixed = p.missing > 0
		if p.found++; !p.known || p.found >= mostMissing {
			p.known, p.enough = true, leastMissing
		}
	case p.known:
		p.found = 0
		if p.missing++; p.missing >= p.enough {
			p.enough = min(2*p.enough, mostMissing)
			cut = p.cut
		}
	}
	c.mu.Unlock()
	cut()
}

// at notes how to end the subscription that has begun, nil for that none is there.
func (c *channel) at(cut func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, cluster := c.rdb.(*redis.ClusterClient); !cluster { // there each node passes on what others publish
		c.place.cut, c.place.missing = cut, 0
	}
}

func newChannel(rdb redis.UniversalClient, base string) *channel {
	var id [8]byte
	_, _ = rand.Read(id[:]) // never fails
	c := &channel{rdb: rdb, base: base, prefix: base + "wake:", id: hex.EncodeToString(id[:]), secret: rand.Text()}
	c.reached = c.id + "." + c.secret
	c.heeding = c.reached + "!"
	return c
}

// tokenArgs returns what is kept beside the token of a request.
func (c *channel) tokenArgs(r *driver.Request) tokenArgs {
	return tokenArgs{lockAt(c.base, r.Kind, r.Name).key, r.Token}
}

// client is how other clients reach this request, - for not at all. See script/lib/record.lua.
func (c *channel) client(r *driver.Request) string {
	switch {
	case r.Wake == nil:
		return nobody
	case r.Notice:
		return c.heeding
	}
	return c.reached
}

// Subscribe implements [news.Transport].
func (c *channel) Subscribe(ctx context.Context, made func(int32), hear func(string)) error {
	ctx, cut := context.WithCancel(ctx)
	defer cut()
	defer c.at(nil)
	ps := c.rdb.Subscribe(ctx)
	// Receive does not look at its context. Closing is what wakes it.
	defer context.AfterFunc(ctx, func() { _ = ps.Close() })()
	defer func() { _ = ps.Close() }()
	err := ps.Subscribe(ctx, c.prefix+c.id)
	if err != nil {
		err = news.Unconnected{Err: err}
	}
	// If a connection breaks, Receive makes another one, and subscribes there, before it tells. Where
	// nobody acknowledges subscriptions that is one more in vain: so it has no time for that yet.
	receive, end := context.WithCancel(ctx)
	end()
	for err == nil {
		var msg any
		msg, err = redisscript.Receive(receive, ps, 0)
		switch msg := msg.(type) {
		case *redis.Subscription:
			receive = ctx
			c.at(cut)
			made(0)
		case *redis.Message:
			c.dispatch(msg.Payload, hear)
		}
	}
	redisscript.Rediscover(ctx, c.rdb, err)
	return err
}

// Refused implements [news.Transport]. A server that lets nobody in, as while a password is
// rotated, or runs no script for this user, has nothing against news.
func (c *channel) Refused(err error) bool {
	var reply redis.Error
	return errors.As(err, &reply) && !errors.Is(redisscript.Classify(err), driver.ErrTransient) && redisscript.AboutNews(err)
}

// Ping implements [news.Transport]: it sends a ping from a script, of any node. The server may
// let a client publish but not its scripts, or pass on only what one node publishes. The
// wrong version sent the command PUBLISH, was heard, and waited for news that no script
// could send.
func (c *channel) Ping(ctx context.Context) error {
	key, ping := c.nextPing()
	answer, err := redisscript.Run(ctx, c.rdb, pingScript.one().Call("wake", 2, key).With(c.prefix+c.id, ping))
	if err != nil {
		return err
	}
	if listeners, err := answer.Int64(); err == nil {
		c.heardBy(listeners)
	}
	return nil
}

// nextPing returns what to say next, and the key that says which node of a Cluster is to say it.
// There is never anything in that.
func (c *channel) nextPing() (key, ping string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pings++
	number := strconv.FormatUint(c.pings, 10)
	return c.prefix + c.id + ":" + number, c.seal("ping " + number)
}

// seal returns a message with news. Its last line proves that the news is of somebody that may
// run scripts on our locks, or our own: see publish in script/lib/queue.lua.
func (c *channel) seal(text string) string {
	sum := sha1.Sum([]byte(c.secret + text + c.secret))
	return text + "\n" + hex.EncodeToString(sum[:])
}

// dispatch passes on what a message says, a line for each piece of news. It ignores a message
// without our seal: anybody may publish on our channel that has the right to that, and to
// nothing else. Such a stranger can still repeat a message at any time, see [news.Hub.Hear].
// Old pings are told from new ones by their numbers.
func (c *channel) dispatch(payload string, hear func(string)) {
	text := payload[:max(0, strings.LastIndexByte(payload, '\n'))]
	if subtle.ConstantTimeCompare([]byte(payload), []byte(c.seal(text))) == 0 {
		return
	}
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if number, ok := strings.CutPrefix(line, "ping "); !ok {
			hear(line)
		} else if n, err := strconv.ParseUint(number, 10, 64); err == nil && c.isNew(n) {
			hear("ping")
		}
	}
}

// isNew notes that a ping came in. It reports whether it is later than all before it.
func (c *channel) isNew(number uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	later := number > c.pinged
	c.pinged = max(c.pinged, number)
	return later
}
