package redisdriver_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/redisdriver"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

// The rules of the native protocol have tests here as far as they can be seen at the driver. Each is named
// after what goes wrong without its rule; the numbers are those in the package's documentation
// and in docs/protocol.md. Tests of the rules about trust are in internal/token and
// internal/keepalive, those about faults of the network in internal/test/behavior/fault.

// party is one client of a lock, with its news.
type party struct {
	t    *testing.T
	d    *redisdriver.Driver
	req  driver.Request
	news chan driver.Grant
}

const ttl = 9 * time.Second

func join(t *testing.T, d *redisdriver.Driver, token string, ttl time.Duration) *party {
	p := &party{t: t, d: d, news: make(chan driver.Grant, 16)}
	p.req = driver.Request{
		Kind: driver.Mutex, Name: "rule", Token: token, TTL: ttl, Wait: true, Holder: token,
		Wake: func(g driver.Grant) { p.news <- g },
	}
	return p
}

func (p *party) ask() driver.Grant {
	p.t.Helper()
	p.req.Ask++
	g, err := p.d.Acquire(context.Background(), &p.req)
	require.NoError(p.t, err)
	return g
}

// holds and waits are a party whose first ask is answered so.
func holds(t *testing.T, d *redisdriver.Driver, token string, ttl time.Duration) *party {
	t.Helper()
	p := join(t, d, token, ttl)
	p.must(driver.Granted)
	return p
}

func waits(t *testing.T, d *redisdriver.Driver, token string, ttl time.Duration) *party {
	t.Helper()
	p := join(t, d, token, ttl)
	p.must(driver.Queued)
	return p
}

func (p *party) must(want driver.Status) driver.Grant {
	p.t.Helper()
	g := p.ask()
	require.Equal(p.t, want, g.Status, "answer to %s", p.req.Token)
	return g
}

func (p *party) lease() driver.Lease {
	return driver.Lease{Kind: p.req.Kind, Name: p.req.Name, Token: p.req.Token, TTL: p.req.TTL}
}

func (p *party) release() {
	p.t.Helper()
	require.NoError(p.t, p.d.Release(context.Background(), p.lease()))
}

// pushed waits for a grant and returns it.
func (p *party) pushed() driver.Grant {
	p.t.Helper()
	for {
		select {
		case g := <-p.news:
			if g.Status == driver.Granted {
				return g
			}
		case <-time.After(5 * time.Second):
			require.FailNow(p.t, "not granted", p.req.Token)
		}
	}
}

// polls reports whether a waiter is to ask again within 50 to 250 ms.
func (p *party) polls() bool {
	p.t.Helper()
	after := p.must(driver.Queued).RetryAfter
	return after >= 50*time.Millisecond && after <= 250*time.Millisecond
}

func renewed(p *party) error { return p.d.Renew(context.Background(), []driver.Lease{p.lease()})[0] }

func noticed(p *party) error {
	_, err := p.d.Notice(context.Background(), p.lease())
	return err
}

func raised(p *party) error {
	_, err := p.d.RaiseFence(context.Background(), p.lease(), 1, 1)
	return err
}

func confirmed(p *party) error {
	return p.d.Confirm(context.Background(), p.lease(), driver.Confirmation{Replicas: 0, Timeout: time.Millisecond})
}

func attached(p *party) error {
	r := p.req
	r.Token = "attached"
	_, err := p.d.Attach(context.Background(), p.lease(), &r)
	return err
}

func open(t *testing.T, rdb redis.UniversalClient, s *redistest.Server) *redisdriver.Driver {
	d := redisdriver.New(rdb, redisdriver.WithPrefix(s.Prefix()))
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return d
}

// each and bubble are those of redistest, with a driver on the server.
func each(t *testing.T, body func(*testing.T, *redistest.Server, *redisdriver.Driver)) {
	t.Helper()
	redistest.Each(t, func(t *testing.T, s *redistest.Server) { body(t, s, open(t, s.Client(t), s)) })
}

func bubble(t *testing.T, body func(*testing.T, *redistest.Server, *redisdriver.Driver)) {
	t.Helper()
	redistest.Bubble(t, func(t *testing.T, s *redistest.Server) { body(t, s, open(t, s.Client(t), s)) })
}

func key(s *redistest.Server) string { return s.Prefix() + ":2:mutex:rule" }

// queue returns the waiters in order.
func queue(t *testing.T, d *redisdriver.Driver) []string {
	t.Helper()
	info, err := d.Inspect(context.Background(), driver.Mutex, "rule")
	require.NoError(t, err)
	var names []string
	for _, w := range info.Queue {
		names = append(names, w.Holder)
	}
	return names
}

func holder(t *testing.T, d *redisdriver.Driver) *driver.Holder {
	t.Helper()
	info, err := d.Inspect(context.Background(), driver.Mutex, "rule")
	require.NoError(t, err)
	if len(info.Holders) == 0 {
		return nil
	}
	return &info.Holders[0]
}

// subscribed waits until somebody listens on a wake channel of this test, n in all.
func subscribed(t *testing.T, rdb *redis.Client, s *redistest.Server, n int) {
	t.Helper()
	require.Eventually(t, func() bool {
		channels, err := rdb.PubSubChannels(context.Background(), s.Prefix()+":2:wake:*").Result()
		return err == nil && len(channels) == n
	}, 10*time.Second, time.Millisecond)
}

// flaky is a client whose subscription can be taken away.
func flaky(t *testing.T, s *redistest.Server) (*redisdriver.Driver, *redistest.Proxy) {
	p := redistest.NewProxy(t, s)
	return open(t, p.Client(t), s), p
}

// ears is a client whose subscriptions can be broken while its commands get through: an
// ACL, a half-open connection, a node of a Cluster that was cut off from the others.
type ears struct {
	redis.UniversalClient
	subscriber *redis.Client

	mu    sync.Mutex
	conns []net.Conn
	deaf  bool
}

func newEars(t *testing.T, s *redistest.Server) *ears {
	e := &ears{UniversalClient: s.Client(t)}
	e.subscriber = s.Client(t, func(o *redis.Options) {
		dial := o.Dialer
		if dial == nil {
			dial = new(net.Dialer).DialContext
		}
		o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
			e.mu.Lock()
			defer e.mu.Unlock()
			if e.deaf {
				return nil, errors.New("deaf")
			}
			conn, err := dial(ctx, network, addr)
			e.conns = append(e.conns, conn)
			return conn, err
		}
	})
	return e
}

func (e *ears) Subscribe(ctx context.Context, channels ...string) *redis.PubSub {
	return e.subscriber.Subscribe(ctx, channels...)
}

func (e *ears) cut() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.deaf = true
	for _, conn := range e.conns {
		_ = conn.Close()
	}
	e.conns = nil
}

func (e *ears) mend() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.deaf = false
}

// warm returns a driver that has made its subscription: to make it can take time.
func warm(t *testing.T, rdb redis.UniversalClient, prefix string) *redisdriver.Driver {
	d := redisdriver.New(rdb, redisdriver.WithPrefix(prefix), redisdriver.WithRetention(retained))
	for i, want := range []driver.Status{driver.Granted, driver.Queued} {
		r := &driver.Request{Kind: driver.Mutex, Name: "warm", Token: fmt.Sprint(i), Ask: 1, TTL: time.Minute, Wait: true}
		g, err := d.Acquire(context.Background(), r)
		require.NoError(t, err)
		require.Equal(t, want, g.Status)
	}
	for _, token := range []string{"1", "0"} {
		require.NoError(t, d.Release(context.Background(), driver.Lease{Kind: driver.Mutex, Name: "warm", Token: token}))
	}
	return d
}

// scene is a lock with a cast of clients. All but last have TTLs of a minute or less.
type scene struct {
	t *testing.T
	s *redistest.Server
	d *redisdriver.Driver
}

func stage(t *testing.T, s *redistest.Server) *scene {
	return &scene{t, s, open(t, s.Client(t), s)}
}

// line has clients come one after the other, with these TTLs.
func (c *scene) line(ttls ...time.Duration) (all []*party) {
	c.t.Helper()
	for i, ttl := range ttls {
		all = append(all, c.comes(fmt.Sprint("p", i), ttl))
	}
	return all
}

// weigh has clients come with a TTL of a minute, and the last with one of an hour, for so many permits.
func (c *scene) weigh(weights ...int64) (all []*party) {
	c.t.Helper()
	for i, n := range weights {
		ttl := minute
		if i == len(weights)-1 {
			ttl = hour
		}
		all = append(all, c.comes(fmt.Sprint("p", i), ttl, permits(n)))
	}
	return all
}

func (c *scene) comes(token string, ttl time.Duration, mods ...func(*driver.Request)) *party {
	return c.comesTo(c.d, token, ttl, mods...)
}

func (c *scene) comesTo(d *redisdriver.Driver, token string, ttl time.Duration, mods ...func(*driver.Request)) *party {
	c.t.Helper()
	p := join(c.t, d, token, ttl)
	for _, mod := range mods {
		mod(&p.req)
	}
	p.ask()
	return p
}

// permits asks for so many permits of 3.
func permits(n int64) func(*driver.Request) {
	return func(r *driver.Request) { r.Kind, r.Weight, r.Limit = driver.Semaphore, n, 3 }
}

func owned(r *driver.Request) { r.Owner = "an owner" }
