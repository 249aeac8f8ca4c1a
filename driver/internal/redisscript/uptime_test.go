package redisscript_test

import (
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver/internal/redisscript"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

// atLeast asks once.
func atLeast(t *testing.T, u *redisscript.Uptime) (sure, said time.Duration) {
	t.Helper()
	sure, said, err := u.AtLeast(t.Context())
	require.NoError(t, err)
	require.GreaterOrEqual(t, said, sure)
	return sure, said
}

func TestUptimeIsThatOfTheProcessThatAnswers(t *testing.T) {
	started := time.Now()
	s := redistest.Real(t)
	rdb := s.Client(t)
	u := redisscript.NewUptime(rdb)
	atLeast(t, u)
	// The second question comes over a connection that the first has made.
	require.Eventually(t, func() bool {
		fresh := s.Client(t)
		_, said := atLeast(t, redisscript.NewUptime(fresh))
		require.LessOrEqual(t, said, time.Since(started))
		require.NoError(t, fresh.Close())
		return said > 500*time.Millisecond
	}, 10*time.Second, 50*time.Millisecond)
	old, _ := atLeast(t, u)
	require.Greater(t, old, 500*time.Millisecond, "we have seen it for that long")
	require.LessOrEqual(t, old, time.Since(started))

	restarted := time.Now()
	s.Restart()
	require.NoError(t, rdb.Ping(t.Context()).Err()) // what the new process says is heard before
	_, said := atLeast(t, u)
	require.LessOrEqual(t, said, time.Since(restarted))
}

// The clock of a machine that boots is often wrong, and is set when its server runs already.
func TestUptimeIsSureWhateverTheClockOfTheServerShows(t *testing.T) {
	s, clock := redistest.RealWithClock(t)
	rdb := s.Client(t)
	known := redisscript.NewUptime(rdb)
	atLeast(t, known)

	restarted := time.Now()
	s.Restart()
	clock.Set(time.Hour)
	require.Eventually(t, func() bool { // it looks at its clock ten times a second
		_, said := atLeast(t, redisscript.NewUptime(s.Client(t)))
		return said > 59*time.Minute
	}, 10*time.Second, 20*time.Millisecond)
	require.NoError(t, rdb.Ping(t.Context()).Err()) // over a connection to the new process
	for name, u := range map[string]*redisscript.Uptime{"a client that knew it": known, "a new client": redisscript.NewUptime(s.Client(t))} {
		sure, said := atLeast(t, u)
		require.Greater(t, said, 59*time.Minute, name)
		require.LessOrEqual(t, sure, time.Since(restarted), name)
	}
}

// A thread cannot have worked for longer than it exists.
func TestUptimeIsSureOfTheTimeThatTheServerHasWorked(t *testing.T) {
	started := time.Now()
	s := redistest.Real(t)
	rdb := s.Client(t)
	require.Eventually(t, func() bool {
		require.NoError(t, rdb.Eval(t.Context(), "for i = 1, 1e6 do end return 1", nil).Err())
		fresh := s.Client(t)
		sure, _ := atLeast(t, redisscript.NewUptime(fresh))
		require.NoError(t, fresh.Close())
		require.LessOrEqual(t, sure, time.Since(started))
		return sure > 500*time.Millisecond
	}, 60*time.Second, time.Millisecond)
}

func TestUptimeIsAskedForOnlyAfterADial(t *testing.T) {
	s := redistest.Real(t)
	rdb := s.Client(t)
	u := redisscript.NewUptime(rdb)
	atLeast(t, u)
	atLeast(t, u)
	asked := s.CommandStats(t)["info"]
	last := time.Duration(0)
	goesOn := func() {
		sure, _ := atLeast(t, u)
		require.Greater(t, sure, last, "it goes on")
		last = sure
	}
	for range 10 {
		goesOn()
	}
	require.Equal(t, asked+1, s.CommandStats(t)["info"], "but for the one that counts them")

	ps := rdb.Subscribe(t.Context(), s.Prefix()) // pushes come this way
	_, err := ps.Receive(t.Context())
	require.NoError(t, err)
	require.NoError(t, ps.Close())
	before := s.CommandStats(t)["info"]
	goesOn() // the new connection is to the same process
	require.Equal(t, before+2, s.CommandStats(t)["info"])
}

func TestUptimeNeedsAClientWhoseDialsCanBeCounted(t *testing.T) {
	s := redistest.Shared(t)
	rdb := s.Client(t)
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{s.Addr()}})
	defer func() { require.NoError(t, cluster.Close()) }()
	for name, c := range map[string]redis.UniversalClient{"cluster": cluster, "copy": rdb.WithTimeout(time.Second)} {
		_, _, err := redisscript.NewUptime(c).AtLeast(t.Context())
		require.ErrorIs(t, err, errors.ErrUnsupported, name)
	}
}
