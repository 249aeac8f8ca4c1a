package setnx_test

import (
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/setnx"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

func request(name, token string) *driver.Request {
	return &driver.Request{Kind: driver.Mutex, Name: name, Token: token, Ask: 1, TTL: 10 * time.Second}
}

func lease(name, token string) driver.Lease {
	return driver.Lease{Kind: driver.Mutex, Name: name, Token: token, TTL: 10 * time.Second}
}

func TestKeyIsTheNameAndValueIsTheToken(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		rdb, name := s.Client(t), s.Prefix()+"a"
		for short, d := range map[string]*setnx.Driver{name: setnx.New(rdb), "a": setnx.New(rdb, setnx.WithPrefix(s.Prefix()))} {
			g, err := d.Acquire(t.Context(), request(short, "me"))
			require.NoError(t, err)
			require.Equal(t, driver.Grant{Status: driver.Granted, Ask: 1}, g)
			require.Equal(t, "me", rdb.Get(t.Context(), name).Val())
			require.InDelta(t, 10*time.Second, rdb.PTTL(t.Context(), name).Val(), float64(5*time.Second))
			require.Greater(t, rdb.PTTL(t.Context(), name).Val(), 10*time.Second)
			require.NoError(t, d.Release(t.Context(), lease(short, "me")))
			require.Empty(t, s.Keys(t, s.Prefix()))
		}
	})
}

func TestBusyTellsTheTimeLeft(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		rdb, d := s.Client(t), setnx.New(s.Client(t))
		for i, c := range []struct {
			left     time.Duration // 0 is no end
			min, max time.Duration
		}{
			{0, 0, 0},
			{time.Minute, 50 * time.Second, time.Minute + time.Millisecond},
			{1000 * time.Hour, driver.MaxTTL, driver.MaxTTL},
		} {
			name := s.Prefix() + string(rune('a'+i))
			require.NoError(t, rdb.Set(t.Context(), name, "another", c.left).Err())
			g, err := d.Acquire(t.Context(), request(name, "me"))
			require.NoError(t, err)
			require.Equal(t, driver.Busy, g.Status)
			require.GreaterOrEqual(t, g.RetryAfter, c.min)
			require.LessOrEqual(t, g.RetryAfter, c.max)

			// Nobody would tell it of a release.
			r := request(name, "waiter")
			r.Wait = true
			g, err = d.Acquire(t.Context(), r)
			require.NoError(t, err)
			require.Equal(t, driver.Grant{Status: driver.Busy, RetryAfter: 100 * time.Millisecond}, g)
		}
	})
}

// Late asks and renewals, with the TTL of another time, take nothing away.
func TestLeaseIsNeverShortened(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		d, rdb, name := setnx.New(s.Client(t)), s.Client(t), s.Prefix()+"a"
		late, longer := request(name, "me"), lease(name, "me")
		_, err := d.Acquire(t.Context(), late)
		require.NoError(t, err)
		longer.TTL = time.Hour
		require.NoError(t, d.Renew(t.Context(), []driver.Lease{longer})[0])
		_, err = d.Acquire(t.Context(), late)
		require.NoError(t, err)
		require.NoError(t, d.Renew(t.Context(), []driver.Lease{lease(name, "me")})[0])
		require.Greater(t, rdb.PTTL(t.Context(), name).Val(), 50*time.Minute)
	})
}

func TestForeignKeysAreRefused(t *testing.T) {
	s := redistest.Shared(t) // miniredis words it as a fault of the script
	d, rdb, name := setnx.New(s.Client(t)), s.Client(t), s.Prefix()+"a"
	require.NoError(t, rdb.HSet(t.Context(), name, "redisson", 1).Err())
	_, err := d.Acquire(t.Context(), request(name, "me"))
	require.ErrorIs(t, err, driver.ErrNotExecuted)
	require.NotErrorIs(t, err, driver.ErrTransient)
	require.ErrorContains(t, err, "WRONGTYPE")
}

func TestOnlyMutexes(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		d := setnx.New(s.Client(t))
		for _, k := range []driver.Kind{driver.RWMutex, driver.Semaphore} {
			r, l := request(s.Prefix()+"a", "me"), lease(s.Prefix()+"a", "me")
			r.Kind, l.Kind = k, k
			_, err := d.Acquire(t.Context(), r)
			for _, err := range []error{err, d.Release(t.Context(), l), d.Renew(t.Context(), []driver.Lease{l})[0]} {
				require.ErrorIs(t, err, errors.ErrUnsupported)
				require.ErrorIs(t, err, driver.ErrNotExecuted)
			}
		}
		locks := holdfast.Open(d)
		defer func() { require.NoError(t, locks.Close()) }()
		_, err := locks.RWMutex(s.Prefix() + "a").Lease(t.Context())
		require.ErrorIs(t, err, errors.ErrUnsupported)
	})
}

// A server that was restarted knows no script.
func TestRenewalsSurviveARestart(t *testing.T) {
	s := redistest.Real(t, "--appendonly", "yes", "--appendfsync", "always")
	d := setnx.New(s.Client(t))
	for _, name := range []string{"a", "b"} {
		_, err := d.Acquire(t.Context(), request(name, "me"))
		require.NoError(t, err)
	}
	s.Restart()
	errs := d.Renew(t.Context(), []driver.Lease{lease("a", "me"), lease("c", "me"), lease("b", "me")})
	require.Len(t, errs, 3)
	require.NoError(t, errs[0])
	require.ErrorIs(t, errs[1], driver.ErrNotHeld)
	require.NoError(t, errs[2])
}

// Who holds a lock must be able to give it up, and for good.
func TestReleaseWorksWhenMemoryIsFull(t *testing.T) {
	s := redistest.Real(t)
	rdb, d := s.Client(t), setnx.New(s.Client(t))
	_, err := d.Acquire(t.Context(), request("a", "me"))
	require.NoError(t, err)
	require.NoError(t, rdb.ConfigSet(t.Context(), "maxmemory", "1").Err())
	_, err = d.Acquire(t.Context(), request("b", "me"))
	require.ErrorIs(t, err, driver.ErrTransient)
	require.NoError(t, d.Renew(t.Context(), []driver.Lease{lease("a", "me")})[0])
	for _, name := range []string{"a", "b"} {
		l := lease(name, "me")
		l.Unsettled = true
		if err := d.Release(t.Context(), l); err != nil {
			require.ErrorIs(t, err, driver.ErrNotHeld)
		}
	}
	require.NoError(t, rdb.ConfigSet(t.Context(), "maxmemory", "0").Err())
	for _, name := range []string{"a", "b"} {
		_, err := d.Acquire(t.Context(), request(name, "me"))
		require.ErrorIs(t, err, driver.ErrNotHeld, name)
		_, err = d.Acquire(t.Context(), request(name, "you"))
		require.NoError(t, err)
	}
}

// On a Cluster the two keys of a script have to be in one slot.
func TestCluster(t *testing.T) {
	s := redistest.Real(t, "--cluster-enabled", "yes")
	require.NoError(t, s.Client(t).ClusterAddSlotsRange(t.Context(), 0, 16383).Err())
	rdb := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{s.Addr()}})
	defer func() { require.NoError(t, rdb.Close()) }()
	require.Eventually(t, func() bool { return rdb.Set(t.Context(), "ready", "", 0).Err() == nil },
		10*time.Second, 10*time.Millisecond)
	d := setnx.New(rdb)
	require.NotEmpty(t, d.Node(driver.Mutex, "orders:42"))
	require.Empty(t, setnx.New(s.Client(t)).Node(driver.Mutex, "orders:42"), "there is only one")
	for _, name := range []string{"orders:42", "{a}b", "a{b}c{d}", "a{b", "{", "a{{b}c", "é\n{x}}"} {
		_, err := d.Acquire(t.Context(), request(name, "me"))
		require.NoError(t, err, "%q", name)
		l := lease(name, "me")
		require.NoError(t, d.Renew(t.Context(), []driver.Lease{l})[0])
		l.Unsettled = true
		require.NoError(t, d.Release(t.Context(), l), "%q", name)
		_, err = d.Acquire(t.Context(), request(name, "me"))
		require.ErrorIs(t, err, driver.ErrNotHeld, "%q", name)
	}
	for _, name := range []string{"a}b", "{}", "{}a{b}"} {
		_, err := d.Acquire(t.Context(), request(name, "me"))
		require.ErrorContains(t, err, "CROSSSLOT", "%q", name)
		require.ErrorIs(t, err, driver.ErrNotExecuted)
		require.NotErrorIs(t, err, driver.ErrTransient)
	}
}

func TestNewPanicsWithoutAUsableClient(t *testing.T) {
	ring := redis.NewRing(&redis.RingOptions{})
	defer func() { require.NoError(t, ring.Close()) }()
	require.Panics(t, func() { setnx.New(nil) })
	require.Panics(t, func() { setnx.New((*redis.Client)(nil)) })
	require.Panics(t, func() { setnx.New(ring) })
}
