package redisdriver_test

import (
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/redisdriver"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

// With appendfsync no a server writes to its file, but never knows that this is on the disk.
func TestConfirmWaitsForTheDiskOfTheServer(t *testing.T) {
	t.Parallel()
	s := redistest.Valkey(t, "--appendonly", "yes", "--appendfsync", "always")
	admin := s.Client(t)
	d := open(t, s.Client(t, func(o *redis.Options) {
		o.ReadTimeout = 2 * time.Second // a WAITAOF may take longer, and is no timeout
		o.PoolSize = 1                  // it speaks of what this connection wrote
	}), s)
	const long = 20 * time.Second
	short := 2500 * time.Millisecond // the first time
	for _, l := range grant(t, d, time.Minute) {
		require.NoError(t, d.Confirm(t.Context(), l, driver.Confirmation{Disk: true, Timeout: long}))
		require.NoError(t, admin.ConfigSet(t.Context(), "appendfsync", "no").Err())
		began := time.Now()
		err := d.Confirm(t.Context(), l, driver.Confirmation{Disk: true, Timeout: short})
		require.ErrorIs(t, err, driver.ErrNotConfirmed)
		require.ErrorContains(t, err, "not on the disk of the server")
		require.GreaterOrEqual(t, time.Since(began), short)
		short = 150 * time.Millisecond
		require.NoError(t, d.Confirm(t.Context(), l, driver.Confirmation{Timeout: long}), "memory has it")
		require.NoError(t, admin.ConfigSet(t.Context(), "appendfsync", "everysec").Err())
		require.NoError(t, d.Confirm(t.Context(), l, driver.Confirmation{Disk: true, Timeout: long}))
	}
}

func TestConfirmCountsDisksOfReplicas(t *testing.T) {
	t.Parallel()
	args := []string{"--appendonly", "yes", "--appendfsync", "always"}
	s := redistest.Valkey(t, args...)
	s.Replica(t)
	d := open(t, s.Client(t), s)
	const short, long = 150 * time.Millisecond, 20 * time.Second
	l := grant(t, d, time.Minute)[0]
	on := func(disk bool, replicas int, timeout time.Duration) error {
		return d.Confirm(t.Context(), l, driver.Confirmation{Disk: disk, Replicas: replicas, Timeout: timeout})
	}
	require.NoError(t, on(false, 1, long))
	err := on(true, 1, short)
	require.ErrorIs(t, err, driver.ErrNotConfirmed, "it has it in memory alone")
	require.ErrorContains(t, err, "0 of 1 replicas")
	s.Replica(t, args...)
	require.NoError(t, on(true, 1, long))
	require.ErrorIs(t, on(true, 2, short), driver.ErrNotConfirmed)
	require.NoError(t, on(false, 2, long))
}

func TestServerThatCannotTellWhatIsOnItsDiskRefuses(t *testing.T) {
	each(t, func(t *testing.T, s *redistest.Server, d *redisdriver.Driver) {
		rdb := s.Client(t)
		reason := "redis: WAITAOF needs Redis 7.2 or Valkey: "
		if known := rdb.Do(t.Context(), "waitaof").Err(); redis.HasErrorPrefix(known, "wrong number of arguments") {
			reason = "redis: WAITAOF needs appendonly yes: "
		}
		for _, l := range grant(t, d, time.Minute) {
			err := d.Confirm(t.Context(), l, driver.Confirmation{Disk: true, Timeout: time.Second})
			require.ErrorIs(t, err, errors.ErrUnsupported)
			require.NotErrorIs(t, err, driver.ErrTransient)
			require.NotErrorIs(t, err, driver.ErrNotConfirmed)
			require.ErrorContains(t, err, reason)
		}
	})
	t.Run("valkey", func(t *testing.T) {
		s := redistest.Valkey(t)
		d := open(t, s.Client(t), s)
		err := d.Confirm(t.Context(), grant(t, d, time.Minute)[0], driver.Confirmation{Disk: true, Timeout: time.Second})
		require.ErrorIs(t, err, errors.ErrUnsupported)
		require.ErrorContains(t, err, "needs appendonly yes")
	})
}
