package redistest

import (
	"context"
	"net"
	"regexp"
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

// endpoint is where clients connect to: a server, or the proxy before it.
type endpoint struct {
	network string
	addr    string
	dial    func() (net.Conn, error) // in a bubble, where sockets cannot be used
}

// Network returns "tcp" or "unix".
func (e *endpoint) Network() string { return e.network }

// Addr returns the address, in the form that [redis.Options] wants. In a bubble
// nothing listens there.
func (e *endpoint) Addr() string { return e.addr }

// host and port are the parts of the address.
func (e *endpoint) host() string { host, _, _ := net.SplitHostPort(e.addr); return host }
func (e *endpoint) port() string { _, port, _ := net.SplitHostPort(e.addr); return port }

// Options returns the options of a client that the test closes itself.
func (e *endpoint) Options(mods ...func(*redis.Options)) *redis.Options {
	o := &redis.Options{Network: e.network, Addr: e.addr}
	if e.dial != nil {
		o.Dialer = func(context.Context, string, string) (net.Conn, error) { return e.dial() }
	}
	for _, mod := range mods {
		mod(o)
	}
	return o
}

func (e *endpoint) connect() (net.Conn, error) {
	if e.dial != nil {
		return e.dial()
	}
	return net.Dial(e.network, e.addr)
}

// Client returns a client that is closed when the test ends.
func (e *endpoint) Client(tb testing.TB, mods ...func(*redis.Options)) *redis.Client {
	tb.Helper()
	c := redis.NewClient(e.Options(mods...))
	// The test may have closed it already, to see what happens then.
	tb.Cleanup(func() { _ = c.Close() })
	return c
}

// Server is a Redis, real or not, for the length of one test.
type Server struct {
	endpoint
	tb      testing.TB
	prefix  string
	private bool
	mini    *miniredis.Miniredis
	daemon  *daemon // of a server that this test may hurt
}

// Prefix is what the keys and the channels of this test have to start with, so
// that tests can share a server. It has no character that means something in a
// glob pattern or to Redis Cluster.
func (s *Server) Prefix() string { return s.prefix }

// Private reports whether the server belongs to this test alone, which may then
// use FLUSHALL, CONFIG SET and the like.
func (s *Server) Private() bool { return s.private }

// Mini returns the miniredis behind the server, nil for a real Redis.
func (s *Server) Mini() *miniredis.Miniredis { return s.mini }

// at tells a unix socket from host:port as go-redis does.
func at(addr string) endpoint {
	if strings.HasPrefix(addr, "/") {
		return endpoint{network: "unix", addr: addr}
	}
	return endpoint{network: "tcp", addr: addr}
}

var unsafeInKey = regexp.MustCompile(`[^A-Za-z0-9_./-]+`)

func prefixOf(tb testing.TB) string {
	return unsafeInKey.ReplaceAllString(tb.Name(), "_") + ":"
}
