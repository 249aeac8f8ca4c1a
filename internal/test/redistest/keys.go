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
	var eternal []string
	for key, ttl := range s.ttls(tb, prefix) {
		if ttl == forever {
			eternal = append(eternal, key)
		}
	}
	if len(eternal) > 0 {
		tb.Fatalf("redistest: no TTL on %q", eternal)
	}
}

// RequireNoKeys fails the test if keys that start with prefix would be left after the
// time within. It does not wait for a key whose TTL ends before that.
func (s *Server) RequireNoKeys(tb testing.TB, prefix string, within time.Duration) {
	tb.Helper()
	deadline := time.Now().Add(within)
	for {
		var left []string
		rest := time.Until(deadline)
		for key, ttl := range s.ttls(tb, prefix) {
			if ttl == forever || ttl > rest {
				left = append(left, key)
			}
		}
		if len(left) == 0 {
			return
		}
		if rest <= 0 {
			tb.Fatalf("redistest: after %v still there: %q", within, left)
		}
		time.Sleep(min(within/20+1, 20*time.Millisecond))
	}
}

const forever time.Duration = -1 // as PTTL says it

// ttls returns the keys that start with prefix, and how long each will stay.
func (s *Server) ttls(tb testing.TB, prefix string) map[string]time.Duration {
	tb.Helper()
	keys := s.Keys(tb, prefix)
	ttls := map[string]time.Duration{}
	if len(keys) == 0 {
		return ttls
	}
	s.with(tb, func(ctx context.Context, c *redis.Client) error {
		answers := make([]*redis.DurationCmd, len(keys))
		_, err := c.Pipelined(ctx, func(p redis.Pipeliner) error {
			for i, key := range keys {
				answers[i] = p.PTTL(ctx, key)
			}
			return nil
		})
		for i, key := range keys {
			if ttl := answers[i].Val(); ttl != -2 { // gone since the scan
				ttls[key] = ttl
			}
		}
		return err
	})
	return ttls
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
