package redistest

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// Replica starts a server that copies this one, and returns when it has all there is.
func (s *Server) Replica(tb testing.TB, args ...string) *Server {
	tb.Helper()
	r := startReal(tb, s.process().program, args, nil)
	r.Follow(tb, s)
	return r
}

// Follow makes the server a replica of another, and returns when it has all there is.
func (s *Server) Follow(tb testing.TB, master *Server) {
	tb.Helper()
	s.with(tb, func(ctx context.Context, c *redis.Client) error {
		if err := c.ReplicaOf(ctx, master.host(), master.port()).Err(); err != nil {
			return err
		}
		return eventually(ctx, func() bool { return replicates(ctx, c) })
	})
}

// Promote makes a replica a master, with what it has.
func (s *Server) Promote(tb testing.TB) {
	tb.Helper()
	s.with(tb, func(ctx context.Context, c *redis.Client) error { return c.ReplicaOf(ctx, "no", "one").Err() })
}

// Detach has a replica lose its master, and all that is written from now on, while it still
// believes that it is a replica.
//
// To freeze the replica is not enough. The writes that it was sent still wait in its kernel.
// It takes them in when it goes on, even if the master is dead. So it gets a password for a
// master that has none, and is refused when it comes back.
func (s *Server) Detach(tb testing.TB, master *Server) {
	tb.Helper()
	s.with(tb, func(ctx context.Context, c *redis.Client) error {
		if err := c.ConfigSet(ctx, "masterauth", "none").Err(); err != nil {
			return err
		}
		master.with(tb, func(ctx context.Context, c *redis.Client) error {
			return c.Do(ctx, "client", "kill", "type", "replica").Err()
		})
		return eventually(ctx, func() bool { return !replicates(ctx, c) })
	})
}

// Attach ends what Detach began.
func (s *Server) Attach(tb testing.TB) {
	tb.Helper()
	s.with(tb, func(ctx context.Context, c *redis.Client) error {
		if err := c.ConfigSet(ctx, "masterauth", "").Err(); err != nil {
			return err
		}
		return eventually(ctx, func() bool { return replicates(ctx, c) })
	})
}

func replicates(ctx context.Context, c *redis.Client) bool {
	return strings.Contains(c.Info(ctx, "replication").Val(), "master_link_status:up")
}

// eventually polls until it is so, or ctx ends.
func eventually(ctx context.Context, so func() bool) error {
	for !so() {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
	}
	return nil
}
