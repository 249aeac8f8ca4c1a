package redisson_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/internal/foreigntest"
	"github.com/holdfast-go/holdfast/driver/redisson"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

var request, lease = foreigntest.Request, foreigntest.Lease

// granted asks, and must have the lock.
func granted(t *testing.T, d driver.Driver, r *driver.Request) {
	t.Helper()
	g, err := d.Acquire(t.Context(), r)
	require.NoError(t, err)
	require.Equal(t, driver.Grant{Status: driver.Granted, Ask: 1}, g)
}

func busy(t *testing.T, d driver.Driver, r *driver.Request) driver.Grant {
	t.Helper()
	g, err := d.Acquire(t.Context(), r)
	require.NoError(t, err)
	require.Equal(t, driver.Busy, g.Status)
	return g
}

// beside are the keys of ours that go with the locks of the test.
func beside(t *testing.T, s *redistest.Server) []string {
	t.Helper()
	return slices.DeleteFunc(s.Keys(t, "holdfast:redisson:"), func(key string) bool { return !strings.Contains(key, s.Prefix()) })
}

func TestLockIsAHashWithTheTokenAndItsCount(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		rdb, name := s.Client(t), s.Prefix()+"a"
		for short, d := range map[string]*redisson.Driver{name: redisson.New(rdb), "a": redisson.New(rdb, redisson.WithPrefix(s.Prefix()))} {
			for range 3 { // A repeat is not counted again.
				granted(t, d, request(short, "me"))
			}
			require.Equal(t, map[string]string{"me": "1"}, rdb.HGetAll(t.Context(), name).Val())
			require.InDelta(t, 10*time.Second+grace, rdb.PTTL(t.Context(), name).Val(), float64(5*time.Second))
			require.Greater(t, rdb.PTTL(t.Context(), name).Val(), 10*time.Second)
			require.Equal(t, []string{name}, s.Keys(t, s.Prefix()))
			require.Empty(t, beside(t, s), "nothing is needed beside it")

			busy(t, d, request(short, "you"))
			require.Equal(t, map[string]string{"me": "1"}, rdb.HGetAll(t.Context(), name).Val())
			require.NoError(t, d.Release(t.Context(), lease(short, "me")))
			require.Empty(t, s.Keys(t, s.Prefix()))
			require.Empty(t, beside(t, s))
		}
	})
}

func TestReleasesAreToldOnTheChannelOfRedisson(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		rdb, d := s.Client(t), redisson.New(s.Client(t))
		for _, name := range []string{s.Prefix() + "a", s.Prefix() + "{b}c", s.Prefix() + "d{"} {
			ps := rdb.Subscribe(t.Context(), channel(name))
			defer func() { require.NoError(t, ps.Close()) }()
			_, err := ps.Receive(t.Context())
			require.NoError(t, err)
			told := func() {
				t.Helper()
				msg, err := ps.ReceiveTimeout(t.Context(), 20*time.Second)
				require.NoError(t, err)
				require.Equal(t, &redis.Message{Channel: channel(name), Payload: "0"}, msg)
			}
			granted(t, d, request(name, "me"))
			require.NoError(t, d.Release(t.Context(), lease(name, "me")))
			told()
			of := request(name, "my")
			of.Owner = "o"
			granted(t, d, of)
			last := lease(name, "my")
			last.Owner = "o"
			require.NoError(t, d.Release(t.Context(), last))
			told()
			granted(t, d, request(name, "you"))
			require.NoError(t, d.ForceRelease(t.Context(), driver.Mutex, name))
			told()
		}
	})
}

// A name that is mistaken for that of a lock costs nobody what another program keeps there.
func TestForceLeavesAHashAloneThatIsNoLock(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		rdb, name := s.Client(t), s.Prefix()+"a"
		for _, kept := range []hash{
			{"name": "alice"}, {"name": "bob", "age": "7"}, {"stock": "0"}, {"price": "1.5"}, {"since": "-1"}, {"mode": "dark"},
			{"x": "1", "y": "2"}, {"mode": "1", "y": "2"},
		} {
			require.NoError(t, rdb.HSet(t.Context(), name, kept).Err())
			for _, form := range []redisson.Form{redisson.Lock, redisson.FencedLock, redisson.FairLock} {
				d := redisson.New(rdb, redisson.WithMutex(form))
				require.ErrorContains(t, d.ForceRelease(t.Context(), driver.Mutex, name), "WRONGTYPE the hash is no RLock", "%v", kept)
				require.Equal(t, kept, rdb.HGetAll(t.Context(), name).Val())
			}
			require.NoError(t, rdb.Del(t.Context(), name).Err())
		}
		require.Empty(t, beside(t, s))
	})
}

func TestTombstonesAreBesideTheLock(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		rdb, d, name := s.Client(t), redisson.New(s.Client(t)), s.Prefix()+"a"
		l := lease(name, "me")
		l.Unsettled = true
		require.ErrorIs(t, d.Release(t.Context(), l), driver.ErrNotHeld)
		require.Equal(t, []string{"holdfast:redisson:settled:{" + name + "}"}, beside(t, s))
		require.InDelta(t, retention, rdb.PTTL(t.Context(), "holdfast:redisson:settled:{"+name+"}").Val(), float64(10*time.Second))
		require.Empty(t, s.Keys(t, s.Prefix()))
	})
}

// A lock that is used day and night must not keep the tombstones of a year.
func TestTombstonesAreDropped(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T, s *redistest.Server) {
		rdb, d := s.Client(t), redisson.New(s.Client(t))
		for range 20 {
			l := lease("a", rdb.Time(t.Context()).Val().String()[:19])
			l.Token = strings.ReplaceAll(l.Token, " ", "-")
			l.Unsettled = true
			require.ErrorIs(t, d.Release(t.Context(), l), driver.ErrNotHeld)
			time.Sleep(retention / 4)
		}
		require.LessOrEqual(t, rdb.ZCard(t.Context(), "holdfast:redisson:settled:{a}").Val(), int64(5))
	})
}

func TestReplicasConfirmWhatTheyHave(t *testing.T) {
	t.Parallel()
	master := redistest.Real(t)
	replica := master.Replica(t)
	d := redisson.New(master.Client(t))
	for _, owner := range []string{"", "o"} {
		r, l := of(owner, "a"+owner, "me", time.Minute)
		require.ErrorIs(t, d.Confirm(t.Context(), l, driver.Confirmation{Replicas: 1, Timeout: time.Second}), driver.ErrNotHeld)
		granted(t, d, r)
		require.NoError(t, d.Confirm(t.Context(), l, driver.Confirmation{Replicas: 1, Timeout: 10 * time.Second}))
		replica.Pause()
		require.ErrorIs(t, d.Confirm(t.Context(), l, driver.Confirmation{Replicas: 1, Timeout: 50 * time.Millisecond}), driver.ErrNotConfirmed)
		replica.Resume()
		require.NoError(t, d.Confirm(t.Context(), l, driver.Confirmation{Replicas: 1, Timeout: 10 * time.Second}))
	}
}
