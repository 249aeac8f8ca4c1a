package redistest_test

import (
	"context"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

// noRetries makes every fault visible: go-redis repeats commands by itself.
func noRetries(o *redis.Options) {
	o.MaxRetries = -1
	o.DialerRetries = 1
}

func TestEachServesBothServersUnderAPrefix(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		c := s.Client(t)
		require.NoError(t, c.Set(t.Context(), s.Prefix()+"a", "1", time.Hour).Err())
		assert.Equal(t, []string{s.Prefix() + "a"}, s.Keys(t, s.Prefix()))
		s.RequireTTLs(t, s.Prefix())

		require.NoError(t, c.PExpire(t.Context(), s.Prefix()+"a", 30*time.Millisecond).Err())
		s.RequireNoKeys(t, s.Prefix(), 5*time.Second)
		assert.Equal(t, s.Mini() != nil, s.Private() && strings.Contains(t.Name(), "miniredis"))
	})
}

func TestSharedServerIsSweptAfterTheTest(t *testing.T) {
	var prefix string
	t.Run("user", func(t *testing.T) {
		s := redistest.Shared(t)
		prefix = s.Prefix()
		require.NoError(t, s.Client(t).Set(t.Context(), prefix+"a", "1", 0).Err())
	})
	assert.Empty(t, redistest.Shared(t).Keys(t, prefix))
}

func TestKeysTakesThePrefixLiterally(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		c := s.Client(t)
		wild := s.Prefix() + `a*?[x]\`
		require.NoError(t, c.MSet(t.Context(), wild+"1", "", s.Prefix()+"abcx1", "").Err())
		assert.Equal(t, []string{wild + "1"}, s.Keys(t, wild))
	})
}

func TestCommandStatsCountsCalls(t *testing.T) {
	s := redistest.Real(t)
	c := s.Client(t)
	before := s.CommandStats(t)["incr"]
	for range 3 {
		require.NoError(t, c.Incr(t.Context(), "n").Err())
	}
	assert.Equal(t, before+3, s.CommandStats(t)["incr"])
}

func TestBubbleFollowsVirtualTime(t *testing.T) {
	// Twice, since the second bubble of a process is the one that breaks when
	// anything of go-redis outlives the first.
	for range 2 {
		redistest.Bubble(t, func(t *testing.T, s *redistest.Server) {
			c := s.Client(t)
			require.NoError(t, c.Set(t.Context(), "k", "v", time.Hour).Err())
			ps := c.Subscribe(t.Context(), "ch")
			defer func() { require.NoError(t, ps.Close()) }()
			got := ps.Channel()
			before, err := c.Eval(t.Context(), `return redis.call('TIME')[1]`, nil).Int64()
			require.NoError(t, err)

			time.Sleep(59 * time.Minute)
			require.EqualValues(t, 1, c.Exists(t.Context(), "k").Val())
			time.Sleep(time.Minute)
			require.Zero(t, c.Exists(t.Context(), "k").Val())
			after, err := c.Eval(t.Context(), `return redis.call('TIME')[1]`, nil).Int64()
			require.NoError(t, err)
			assert.EqualValues(t, 3600, after-before)

			require.NoError(t, c.Publish(t.Context(), "ch", "hello").Err())
			assert.Equal(t, "hello", (<-got).Payload)
		})
	}
}

func TestRestartForgetsUnlessToldToPersist(t *testing.T) {
	for _, tc := range []struct {
		name string
		args []string
		end  func(*redistest.Server)
		kept int64
	}{
		{"stop", nil, (*redistest.Server).Stop, 0},
		{"kill", nil, (*redistest.Server).Kill, 0},
		{"stop, append-only", []string{"--appendonly", "yes"}, (*redistest.Server).Stop, 1},
		{"kill, append-only", []string{"--appendonly", "yes", "--appendfsync", "always"}, (*redistest.Server).Kill, 1},
		{"paused, then stop", nil, func(s *redistest.Server) { s.Pause(); s.Stop() }, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := redistest.Real(t, tc.args...)
			c := s.Client(t, noRetries)
			addr := s.Addr()
			require.NoError(t, c.Set(t.Context(), "k", "v", 0).Err())
			tc.end(s)
			require.ErrorIs(t, s.Client(t, noRetries).Ping(t.Context()).Err(), syscall.ECONNREFUSED)
			s.Restart()
			assert.Equal(t, addr, s.Addr())
			assert.Equal(t, tc.kept, s.Client(t).Exists(t.Context(), "k").Val())
		})
	}
}

func TestPausedServerAnswersAfterResume(t *testing.T) {
	s := redistest.Real(t)
	c := s.Client(t, noRetries, func(o *redis.Options) { o.ContextTimeoutEnabled = true })
	require.NoError(t, c.Ping(t.Context()).Err())
	s.Pause()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	requireTimeout(t, c.Incr(ctx, "n").Err())
	s.Resume()
	require.Eventually(t, func() bool {
		n, err := s.Client(t).Get(t.Context(), "n").Int()
		return err == nil && n == 1
	}, 5*time.Second, 5*time.Millisecond, "the command sent to the frozen server must still run")
}

func TestRealTakesArguments(t *testing.T) {
	s := redistest.Real(t, "--maxmemory", "1mb")
	got := s.Client(t).ConfigGet(t.Context(), "maxmemory").Val()
	assert.Equal(t, "1048576", got["maxmemory"])
}
