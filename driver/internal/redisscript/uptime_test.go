package redisscript_test

import (
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver/internal/redisscript"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

// atLeast asks once.
func atLeast(t *testing.T, u *redisscript.Uptime) time.Duration {
	t.Helper()
	up, err := u.AtLeast(t.Context())
	require.NoError(t, err)
	return up
}

func TestUptimeIsThatOfTheProcessThatAnswers(t *testing.T) {
	started := time.Now()
	s := redistest.Real(t)
	rdb := s.Client(t)
	u := redisscript.NewUptime(rdb)
	// The second question comes over a connection that the first has made.
	require.Eventually(t, func() bool {
		up := atLeast(t, u)
		require.LessOrEqual(t, up, time.Since(started))
		require.NoError(t, rdb.Close())
		rdb = s.Client(t)
		u = redisscript.NewUptime(rdb)
		return up > 500*time.Millisecond
	}, 10*time.Second, 50*time.Millisecond)
	old := atLeast(t, u)

	restarted := time.Now()
	s.Restart()
	require.NoError(t, rdb.Ping(t.Context()).Err()) // what the new process says is heard before
	up := atLeast(t, u)
	require.Less(t, up, old)
	require.LessOrEqual(t, up, time.Since(restarted))
}

func TestUptimeIsAskedForOnlyAfterADial(t *testing.T) {
	s := redistest.Real(t)
	rdb := s.Client(t)
	u := redisscript.NewUptime(rdb)
	atLeast(t, u)
	atLeast(t, u)
	asked := s.CommandStats(t)["info"]
	for range 10 {
		before := atLeast(t, u)
		require.GreaterOrEqual(t, atLeast(t, u), before, "it goes on")
	}
	require.Equal(t, asked+1, s.CommandStats(t)["info"], "but for the one that counts them")

	ps := rdb.Subscribe(t.Context(), s.Prefix()) // pushes come this way
	_, err := ps.Receive(t.Context())
	require.NoError(t, err)
	require.NoError(t, ps.Close())
	before := s.CommandStats(t)["info"]
	atLeast(t, u)
	require.Equal(t, before+2, s.CommandStats(t)["info"])
}

func TestUptimeNeedsAClientWhoseDialsCanBeCounted(t *testing.T) {
	s := redistest.Shared(t)
	rdb := s.Client(t)
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{s.Addr()}})
	defer func() { require.NoError(t, cluster.Close()) }()
	for name, c := range map[string]redis.UniversalClient{"cluster": cluster, "copy": rdb.WithTimeout(time.Second)} {
		_, err := redisscript.NewUptime(c).AtLeast(t.Context())
		require.ErrorIs(t, err, errors.ErrUnsupported, name)
	}
}
