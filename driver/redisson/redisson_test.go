package redisson_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/redisson"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

func request(name, token string) *driver.Request {
	return &driver.Request{Kind: driver.Mutex, Name: name, Token: token, Ask: 1, TTL: 10 * time.Second}
}

func lease(name, token string) driver.Lease {
	return driver.Lease{Kind: driver.Mutex, Name: name, Token: token, TTL: 10 * time.Second}
}

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

func TestBusyTellsTheTimeLeft(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		rdb, d := s.Client(t), redisson.New(s.Client(t))
		for i, c := range []struct {
			left     time.Duration // 0 is no end
			min, max time.Duration
		}{
			{0, 0, 0},
			{time.Minute, 50 * time.Second, time.Minute + time.Millisecond},
			{1000 * time.Hour, driver.MaxTTL, driver.MaxTTL},
		} {
			name := s.Prefix() + string(rune('a'+i))
			require.NoError(t, rdb.HSet(t.Context(), name, "another", 1).Err())
			if c.left > 0 {
				require.NoError(t, rdb.PExpire(t.Context(), name, c.left).Err())
			}
			g := busy(t, d, request(name, "me"))
			require.GreaterOrEqual(t, g.RetryAfter, c.min)
			require.LessOrEqual(t, g.RetryAfter, c.max)
		}
	})
}

// Late asks and renewals, with the TTL of another time, take nothing away.
func TestLeaseIsNeverShortened(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		d, rdb := redisson.New(s.Client(t)), s.Client(t)
		for _, owner := range []string{"", "o"} {
			name := s.Prefix() + "a" + owner
			late, longer := request(name, "me"), lease(name, "me")
			late.Owner, longer.Owner = owner, owner
			granted(t, d, late)
			longer.TTL = time.Hour
			require.NoError(t, d.Renew(t.Context(), []driver.Lease{longer})[0])
			granted(t, d, late)
			longer.TTL = time.Second
			require.NoError(t, d.Renew(t.Context(), []driver.Lease{longer})[0])
			require.Greater(t, rdb.PTTL(t.Context(), name).Val(), 50*time.Minute)
			require.NoError(t, d.Release(t.Context(), longer))
		}
	})
}

func TestForeignKeysAreRefused(t *testing.T) {
	s := redistest.Shared(t) // miniredis words it as a fault of the script
	d, rdb, name := redisson.New(s.Client(t)), s.Client(t), s.Prefix()+"a"
	require.NoError(t, rdb.Set(t.Context(), name, "redlock", 0).Err())
	for _, owner := range []string{"", "o"} {
		r := request(name, "me")
		r.Owner = owner
		_, err := d.Acquire(t.Context(), r)
		require.ErrorIs(t, err, driver.ErrNotExecuted)
		require.NotErrorIs(t, err, driver.ErrTransient)
		require.ErrorContains(t, err, "WRONGTYPE")
	}
}

func TestOnlyMutexes(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		d := redisson.New(s.Client(t))
		for _, k := range []driver.Kind{driver.RWMutex, driver.Semaphore} {
			r, l := request(s.Prefix()+"a", "me"), lease(s.Prefix()+"a", "me")
			r.Kind, l.Kind = k, k
			_, err := d.Acquire(t.Context(), r)
			for _, err := range []error{err, d.Release(t.Context(), l), d.Renew(t.Context(), []driver.Lease{l})[0],
				d.ForceRelease(t.Context(), k, "a"), d.Confirm(t.Context(), l, 1, time.Second)} {
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
	d := redisson.New(s.Client(t))
	for _, name := range []string{"a", "b"} {
		granted(t, d, request(name, "me"))
	}
	of := request("o", "me")
	of.Owner = "o"
	granted(t, d, of)
	s.Restart()
	ofOwner := lease("o", "me")
	ofOwner.Owner = "o"
	errs := d.Renew(t.Context(), []driver.Lease{lease("a", "me"), lease("c", "me"), lease("b", "me"), ofOwner})
	require.Len(t, errs, 4)
	require.NoError(t, errs[0])
	require.ErrorIs(t, errs[1], driver.ErrNotHeld)
	require.NoError(t, errs[2])
	require.NoError(t, errs[3])
}

func TestReplicasConfirmWhatTheyHave(t *testing.T) {
	t.Parallel()
	master := redistest.Real(t)
	replica := master.Replica(t)
	d := redisson.New(master.Client(t))
	for _, owner := range []string{"", "o"} {
		r, l := of(owner, "a"+owner, "me", time.Minute)
		require.ErrorIs(t, d.Confirm(t.Context(), l, 1, time.Second), driver.ErrNotHeld)
		granted(t, d, r)
		require.NoError(t, d.Confirm(t.Context(), l, 1, 10*time.Second))
		replica.Pause()
		require.ErrorIs(t, d.Confirm(t.Context(), l, 1, 50*time.Millisecond), driver.ErrNotReplicated)
		replica.Resume()
		require.NoError(t, d.Confirm(t.Context(), l, 1, 10*time.Second))
	}
}

// Who holds a lock must be able to give it up, and for good.
func TestReleaseWorksWhenMemoryIsFull(t *testing.T) {
	s := redistest.Real(t)
	rdb, d := s.Client(t), redisson.New(s.Client(t))
	for _, owner := range []string{"", "o"} {
		a, b := lease("a"+owner, "me"), lease("b"+owner, "me")
		a.Owner, b.Owner = owner, owner
		ask := func(l driver.Lease) *driver.Request {
			r := request(l.Name, l.Token)
			r.Owner = l.Owner
			return r
		}
		granted(t, d, ask(a))
		require.NoError(t, rdb.ConfigSet(t.Context(), "maxmemory", "1").Err())
		if owner == "" {
			_, err := d.Acquire(t.Context(), ask(b))
			require.ErrorIs(t, err, driver.ErrTransient)
		}
		require.NoError(t, d.Renew(t.Context(), []driver.Lease{a})[0])
		a.Unsettled, b.Unsettled = true, true
		require.NoError(t, d.Release(t.Context(), a))
		require.ErrorIs(t, d.Release(t.Context(), b), driver.ErrNotHeld)
		require.NoError(t, rdb.ConfigSet(t.Context(), "maxmemory", "0").Err())
		for _, l := range []driver.Lease{a, b} {
			_, err := d.Acquire(t.Context(), ask(l))
			require.ErrorIs(t, err, driver.ErrNotHeld, l.Name)
			granted(t, d, request(l.Name, "you"))
		}
	}
}

func TestNewPanicsWithoutAUsableClient(t *testing.T) {
	ring := redis.NewRing(&redis.RingOptions{})
	defer func() { require.NoError(t, ring.Close()) }()
	require.Panics(t, func() { redisson.New(nil) })
	require.Panics(t, func() { redisson.New((*redis.Client)(nil)) })
	require.Panics(t, func() { redisson.New(ring) })
}
