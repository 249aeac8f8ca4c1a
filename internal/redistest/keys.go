package redistest

import (
	"bufio"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

var globEscaper = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`)

// Keys returns the keys that start with prefix, sorted.
func (s *Server) Keys(tb testing.TB, prefix string) []string {
	tb.Helper()
	var keys []string
	s.with(tb, func(ctx context.Context, c *redis.Client) error {
		it := c.Scan(ctx, 0, globEscaper.Replace(prefix)+"*", 1000).Iterator()
		for it.Next(ctx) {
			keys = append(keys, it.Val())
		}
		return it.Err()
	})
	// SCAN may tell of a key twice.
	slices.Sort(keys)
	return slices.Compact(keys)
}

// RequireTTLs fails the test if a key that starts with prefix would stay for
// ever.
func (s *Server) RequireTTLs(tb testing.TB, prefix string) {
	tb.Helper()
	keys := s.Keys(tb, prefix)
	ttls := make([]*redis.DurationCmd, len(keys))
	s.with(tb, func(ctx context.Context, c *redis.Client) error {
		_, err := c.Pipelined(ctx, func(p redis.Pipeliner) error {
			for i, key := range keys {
				ttls[i] = p.PTTL(ctx, key)
			}
			return nil
		})
		return err
	})
	var eternal []string
	for i, key := range keys {
		// -1 is no TTL; -2 is a key that has gone since the scan.
		if ttls[i].Val() == -1 {
			eternal = append(eternal, key)
		}
	}
	if len(eternal) > 0 {
		tb.Fatalf("redistest: no TTL on %q", eternal)
	}
}

// RequireNoKeys fails the test if keys that start with prefix are left after the
// time within.
func (s *Server) RequireNoKeys(tb testing.TB, prefix string, within time.Duration) {
	tb.Helper()
	deadline := time.Now().Add(within)
	for {
		left := s.Keys(tb, prefix)
		if len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			tb.Fatalf("redistest: after %v still there: %q", within, left)
		}
		time.Sleep(min(within/20+1, 20*time.Millisecond))
	}
}

// CommandStats returns how often each command was called, by its name in lower
// case ("evalsha", "client|setinfo"), with those that scripts called. It needs a
// real Redis, and counts what all its clients did.
func (s *Server) CommandStats(tb testing.TB) map[string]int64 {
	tb.Helper()
	if s.mini != nil {
		tb.Fatal("redistest: miniredis has no command statistics")
	}
	calls := map[string]int64{}
	s.with(tb, func(ctx context.Context, c *redis.Client) error {
		info, err := c.Info(ctx, "commandstats").Result()
		if err != nil {
			return err
		}
		lines := bufio.NewScanner(strings.NewReader(info))
		for lines.Scan() {
			line, ok := strings.CutPrefix(lines.Text(), "cmdstat_")
			if !ok {
				continue
			}
			name, rest, _ := strings.Cut(line, ":")
			var n int64
			if _, err := fmt.Sscanf(rest, "calls=%d,", &n); err != nil {
				return fmt.Errorf("commandstats %q: %w", line, err)
			}
			calls[name] = n
		}
		return lines.Err()
	})
	return calls
}
