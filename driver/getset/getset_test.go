package getset_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/getset"
	"github.com/holdfast-go/holdfast/driver/internal/foreigntest"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

// grace is what a lease of 10 s lasts longer for the others than we trust it.
const grace = 500 * time.Millisecond

var request, lease = foreigntest.Request, foreigntest.Lease

func TestKeyIsTheNameAndValueIsTheEnd(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		rdb, name := s.Client(t), s.Prefix()+"a"
		for short, d := range map[string]*getset.Driver{name: getset.New(rdb), "a": getset.New(rdb, getset.WithPrefix(s.Prefix()))} {
			before := rdb.Time(t.Context()).Val().Truncate(time.Millisecond)
			g, err := d.Acquire(t.Context(), request(short, "me"))
			require.NoError(t, err)
			require.Equal(t, driver.Grant{Status: driver.Granted, Ask: 1}, g)
			ends := end(t, rdb, name)
			require.False(t, ends.Before(before.Add(10*time.Second+grace+time.Millisecond)), "%v", ends)
			require.False(t, ends.After(rdb.Time(t.Context()).Val().Add(10*time.Second+grace+time.Millisecond)), "%v", ends)
			require.Greater(t, rdb.PTTL(t.Context(), name).Val(), retention, "it outlives the lease")
			require.NoError(t, d.Release(t.Context(), lease(short, "me")))
			require.Empty(t, s.Keys(t, s.Prefix()))
			require.Empty(t, s.Keys(t, "holdfast:getset:{"+s.Prefix()))
		}
	})
}

// Both names have their hash tag from the same text.
func TestNameInBracesIsAnother(t *testing.T) {
	d, name := getset.New(redistest.Mini(t).Client(t)), "a"
	for _, l := range []driver.Lease{lease(name, "me"), lease("{"+name+"}", "you")} {
		g, err := d.Acquire(t.Context(), request(l.Name, l.Token))
		require.NoError(t, err)
		require.Equal(t, driver.Granted, g.Status)
	}
	require.NoError(t, d.Release(t.Context(), lease(name, "me")))
}

// end is the time in a lock.
func end(t *testing.T, rdb *redis.Client, name string) time.Time {
	t.Helper()
	n, err := rdb.Get(t.Context(), name).Int64()
	require.NoError(t, err)
	return time.UnixMilli(n)
}

// The end of a lease need not be that of one holder only.
func TestEqualValuesAreToldApart(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T, s *redistest.Server) {
		rdb, a, b := s.Client(t), getset.New(s.Client(t)), getset.New(s.Client(t))
		_, err := a.Acquire(t.Context(), request("a", "one"))
		require.NoError(t, err)
		value := rdb.Get(t.Context(), "a").Val()
		require.NoError(t, a.Release(t.Context(), lease("a", "one")))
		_, err = b.Acquire(t.Context(), request("a", "two"))
		require.NoError(t, err)
		require.Equal(t, value, rdb.Get(t.Context(), "a").Val(), "no time has passed")

		require.ErrorIs(t, a.Release(t.Context(), lease("a", "one")), driver.ErrNotHeld)
		require.ErrorIs(t, a.Renew(t.Context(), []driver.Lease{lease("a", "one")})[0], driver.ErrNotHeld)
		g, err := a.Acquire(t.Context(), request("a", "one"))
		require.NoError(t, err)
		require.Equal(t, driver.Busy, g.Status)
		require.NoError(t, b.Release(t.Context(), lease("a", "two")))
	})
}

func TestValuesThatAreNoTimeAreRefused(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		d, rdb, name := getset.New(s.Client(t)), s.Client(t), s.Prefix()+"a"
		for _, value := range []string{"", "token", "1700000000000:me", "-1", "1e3", "0x10", " 1"} {
			require.NoError(t, rdb.Set(t.Context(), name, value, 0).Err())
			_, err := d.Acquire(t.Context(), request(name, "me"))
			require.ErrorIs(t, err, driver.ErrNotExecuted, "%q", value)
			require.NotErrorIs(t, err, driver.ErrTransient)
			require.ErrorContains(t, err, "WRONGTYPE")
			require.Equal(t, value, rdb.Get(t.Context(), name).Val())
		}
	})
}
