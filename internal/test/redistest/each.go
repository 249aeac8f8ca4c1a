package redistest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// Each runs body in the subtest "redis", on the server of [Shared]. Where there is none, or where
// HOLDFAST_LEGS=all, it runs body in the subtest "miniredis", too.
func Each(t *testing.T, body func(*testing.T, *Server)) {
	t.Helper()
	if !Really() {
		t.Log("this part needs real time; HOLDFAST_LEGS=virtual")
		return
	}
	if Everywhere() || !Installed() {
		t.Run("miniredis", func(t *testing.T) { body(t, Mini(t)) })
	}
	t.Run("redis", func(t *testing.T) { body(t, Shared(t)) })
}

// Shared returns the real Redis that the tests of this process share: the one at
// HOLDFAST_REDIS_ADDR, else a redis-server started at the first call. When
// the test ends its keys are deleted, those under [Server.Prefix].
func Shared(tb testing.TB) *Server {
	tb.Helper()
	s := &Server{
		tb: tb,
		// Neither another run nor -count=2 meets the keys of this one.
		prefix: fmt.Sprintf("%s%08x:", prefixOf(tb), rand.Uint32()),
	}
	if addr := os.Getenv("HOLDFAST_REDIS_ADDR"); addr != "" {
		s.endpoint = at(addr)
	} else {
		requireBinary(tb, program())
		d, err := shared.get()
		if err != nil {
			tb.Fatalf("redistest: %v", err)
		}
		s.endpoint = at(d.addr)
	}
	tb.Cleanup(func() { s.sweep(tb) })
	return s
}

// sweep deletes the keys of the test.
func (s *Server) sweep(tb testing.TB) {
	tb.Helper()
	keys := s.Keys(tb, s.prefix)
	if len(keys) == 0 {
		return
	}
	s.with(tb, func(ctx context.Context, c *redis.Client) error {
		return c.Del(ctx, keys...).Err()
	})
}

// shared is the redis-server of this process, started at most once.
var shared sharedDaemon

type sharedDaemon struct {
	mu      sync.Mutex
	started bool
	daemon  *daemon
	err     error
}

func (sd *sharedDaemon) get() (*daemon, error) {
	sd.mu.Lock()
	defer sd.mu.Unlock()
	if !sd.started {
		sd.started = true
		sd.daemon, sd.err = newDaemon(program(), nil, nil)
	}
	return sd.daemon, sd.err
}

func (sd *sharedDaemon) stop() {
	sd.mu.Lock()
	defer sd.mu.Unlock()
	if sd.daemon != nil {
		sd.daemon.remove()
	}
}

// requireBinary skips the test if a program is missing, or fails it if
// HOLDFAST_REQUIRE_REDIS says that nothing may be missing.
func requireBinary(tb testing.TB, name string) {
	tb.Helper()
	RequireReal(tb)
	if _, err := exec.LookPath(name); err == nil {
		return
	}
	if os.Getenv("HOLDFAST_REQUIRE_REDIS") == "1" {
		tb.Fatalf("redistest: no %s in PATH, and HOLDFAST_REQUIRE_REDIS=1", name)
	}
	tb.Skipf("redistest: no %s in PATH; this part of the test did not run", name)
}

// with lends a client for the fixture's own questions, under a bound that no
// healthy server comes near.
func (s *Server) with(tb testing.TB, ask func(context.Context, *redis.Client) error) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	c := redis.NewClient(s.Options())
	defer func() { _ = c.Close() }()
	if err := ask(ctx, c); err != nil {
		tb.Fatalf("redistest: %v", err)
	}
}
