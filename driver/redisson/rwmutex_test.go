package redisson_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/redisson"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

// hash is what is in the key of an RReadWriteLock.
type hash = map[string]string

// The states of RReadWriteLock, as RedissonReadLock.java and RedissonWriteLock.java of 4.7 make
// them: which fields the hash has, how long each reader may read (which is a key of its own), and
// what they publish. J:1 is a thread of Java, and me a token of ours.
var rwTransitions = []struct {
	name    string
	before  hash
	reads   map[string]time.Duration // by <holder>:<how many times>
	do      string
	granted bool // or released
	after   hash
	news    string // on the channel; empty for none
}{
	{"free, read", nil, nil, "read", true, hash{"mode": "read", "me": "1"}, ""},
	{"free, write", nil, nil, "write", true, hash{"mode": "write", "me:write": "1"}, ""},
	{"Java reads, read", hash{"mode": "read", "J:1": "1"}, map[string]time.Duration{"J:1/1": long}, "read", true, hash{"mode": "read", "J:1": "1", "me": "1"}, ""},
	{"Java reads, write", hash{"mode": "read", "J:1": "1"}, map[string]time.Duration{"J:1/1": long}, "write", false, hash{"mode": "read", "J:1": "1"}, ""},
	{"Java writes, read", hash{"mode": "write", "J:1:write": "1"}, nil, "read", false, hash{"mode": "write", "J:1:write": "1"}, ""},
	{"Java writes, write", hash{"mode": "write", "J:1:write": "1"}, nil, "write", false, hash{"mode": "write", "J:1:write": "1"}, ""},
	{"Java writes twice and reads, read", hash{"mode": "write", "J:1:write": "2", "J:1": "1"}, map[string]time.Duration{"J:1/1": long}, "read", false, hash{"mode": "write", "J:1:write": "2", "J:1": "1"}, ""},
	{"we read, release", hash{"mode": "read", "me": "1"}, map[string]time.Duration{"me/1": long}, "release", true, hash{}, "0"},
	{"we write, release", hash{"mode": "write", "me:write": "1"}, nil, "release", true, hash{}, "1"},
	{"we and Java twice read, release", hash{"mode": "read", "me": "1", "J:1": "2"}, map[string]time.Duration{"me/1": 2 * long, "J:1/1": long / 2, "J:1/2": long}, "release", true, hash{"mode": "read", "J:1": "2"}, ""},
	{"we and a dead thread read, release", hash{"mode": "read", "me": "1", "J:1": "1"}, map[string]time.Duration{"me/1": long}, "release", true, hash{}, "0"},
	{"Java reads, release", hash{"mode": "read", "J:1": "1"}, map[string]time.Duration{"J:1/1": long}, "release", false, hash{"mode": "read", "J:1": "1"}, ""},
	{"Java writes, release", hash{"mode": "write", "J:1:write": "1"}, nil, "release", false, hash{"mode": "write", "J:1:write": "1"}, ""},
	{"our reading is over, renew", hash{"mode": "read", "me": "1", "J:1": "1"}, map[string]time.Duration{"J:1/1": long}, "renew", false, hash{"mode": "read", "me": "1", "J:1": "1"}, ""},
	{"we read, renew", hash{"mode": "read", "me": "1"}, map[string]time.Duration{"me/1": time.Second}, "renew", true, hash{"mode": "read", "me": "1"}, ""},
	{"Java reads, force", hash{"mode": "read", "J:1": "1"}, map[string]time.Duration{"J:1/1": long}, "force", true, hash{}, "1"},
}

func TestReadWriteLockGoesThroughTheStatesOfRedisson(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		rdb, d := s.Client(t), redisson.New(s.Client(t))
		for i, c := range rwTransitions {
			name := s.Prefix() + string(rune('a'+i))
			if c.before != nil {
				require.NoError(t, rdb.HSet(t.Context(), name, c.before).Err())
				require.NoError(t, rdb.PExpire(t.Context(), name, 2*long).Err())
			}
			for reader, left := range c.reads {
				require.NoError(t, rdb.Set(t.Context(), timeoutOf(name, reader[:len(reader)-2], reader[len(reader)-1:]), 1, left).Err())
			}
			news := rdb.Subscribe(t.Context(), prefixed("redisson_rwlock", name))
			_, err := news.Receive(t.Context())
			require.NoError(t, err)
			l := driver.Lease{Kind: driver.RWMutex, Name: name, Token: "me", TTL: long}
			require.Equal(t, c.granted, act(t, d, c.do, l), c.name)
			require.Equal(t, c.after, rdb.HGetAll(t.Context(), name).Val(), c.name)
			switch {
			case c.do == "read" && c.granted, c.do == "renew" && c.granted:
				require.Greater(t, rdb.PTTL(t.Context(), timeoutOf(name, "me", "1")).Val(), long/2, c.name)
			case c.do == "release" && c.granted && len(c.after) > 0: // as long as the last reader
				require.InDelta(t, long, rdb.PTTL(t.Context(), name).Val(), float64(long/4), c.name)
			}
			require.NoError(t, rdb.Publish(t.Context(), prefixed("redisson_rwlock", name), "end").Err())
			m, err := news.ReceiveMessage(t.Context())
			require.NoError(t, err)
			if c.news != "" {
				require.Equal(t, c.news, m.Payload, c.name)
			} else {
				require.Equal(t, "end", m.Payload, c.name)
			}
			require.NoError(t, news.Close())
		}
	})
}

// timeoutOf is the key that lives as long as a thread may read by its nth hold.
func timeoutOf(name, reader, nth string) string {
	return prefixed("", name)[1:] + ":" + reader + ":rwlock_timeout:" + nth
}

func act(t *testing.T, d *redisson.Driver, do string, l driver.Lease) bool {
	t.Helper()
	var err error
	switch do {
	case "read", "write":
		r := &driver.Request{Kind: l.Kind, Name: l.Name, Token: l.Token, Ask: 1, TTL: l.TTL, Shared: do == "read"}
		g, err := d.Acquire(t.Context(), r)
		require.NoError(t, err)
		return g.Status == driver.Granted
	case "release":
		err = d.Release(t.Context(), l)
	case "renew":
		err = d.Renew(t.Context(), []driver.Lease{l})[0]
	case "force":
		err = d.ForceRelease(t.Context(), l.Kind, l.Name)
	}
	if err != nil {
		require.ErrorIs(t, err, driver.ErrNotHeld)
	}
	return err == nil
}

func TestReadersAndWriterOfJavaAreShown(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		rdb, d, name := s.Client(t), redisson.New(s.Client(t)), s.Prefix()+"prices"
		require.NoError(t, rdb.HSet(t.Context(), name, "mode", "read", "J:1", 2, "dead:7", 1).Err())
		require.NoError(t, rdb.PExpire(t.Context(), name, long).Err())
		require.NoError(t, rdb.Set(t.Context(), timeoutOf(name, "J:1", "2"), 1, long).Err())
		shown := func() driver.Holder {
			t.Helper()
			info, err := d.Inspect(t.Context(), driver.RWMutex, name)
			require.NoError(t, err)
			require.Len(t, info.Holders, 1)
			require.InDelta(t, long, info.Holders[0].TimeLeft, float64(long/4))
			h := info.Holders[0]
			h.TimeLeft = 0
			return h
		}
		require.Equal(t, driver.Holder{Holder: "J:1, 2 times", Shared: true}, shown())
		require.NoError(t, rdb.Del(t.Context(), name).Err())
		require.NoError(t, rdb.HSet(t.Context(), name, "mode", "write", "J:1:write", 1, "J:1", 1).Err())
		require.NoError(t, rdb.PExpire(t.Context(), name, long).Err())
		require.Equal(t, driver.Holder{Holder: "J:1"}, shown())
		var kinds []driver.Kind
		require.NoError(t, d.List(t.Context(), s.Prefix(), func(k driver.Kind, n string) error {
			require.Equal(t, name, n)
			kinds = append(kinds, k)
			return nil
		}))
		require.Equal(t, []driver.Kind{driver.RWMutex}, kinds)
	})
}

// In Redisson, too, getLock and getReadWriteLock of one name are one key.
func TestLocksOfOneNameAndTwoKindsAreOneKey(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		d, name := redisson.New(s.Client(t)), s.Prefix()+"a"
		granted(t, d, request(name, "me"))
		r := request(name, "you")
		r.Kind = driver.RWMutex
		_, err := d.Acquire(t.Context(), r)
		require.ErrorContains(t, err, "WRONGTYPE")
		require.NoError(t, d.Release(t.Context(), lease(name, "me")))
		granted(t, d, r)
		busy(t, d, request(name, "me"))
	})
}

// A name that is mistaken for one of the other kind costs nobody the lock.
func TestForceTakesNoLockOfTheOtherKind(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		rdb, d, fair := s.Client(t), redisson.New(s.Client(t)), redisson.New(s.Client(t), redisson.WithMutex(redisson.FairLock))
		refused := func(d *redisson.Driver, k driver.Kind, name string) {
			t.Helper()
			before := rdb.HGetAll(t.Context(), name).Val()
			require.NotEmpty(t, before)
			require.ErrorContains(t, d.ForceRelease(t.Context(), k, name), "WRONGTYPE the hash is no R")
			require.Equal(t, before, rdb.HGetAll(t.Context(), name).Val())
		}
		for owner, r := range map[string]string{"": "a", "o": "b"} {
			name := s.Prefix() + r
			mutex, _ := of(owner, name, "me", long)
			granted(t, d, mutex)
			refused(d, driver.RWMutex, name)
			require.NoError(t, d.ForceRelease(t.Context(), driver.Mutex, name))

			writer, _ := of(owner, name, "you", long)
			writer.Kind = driver.RWMutex
			granted(t, d, writer)
			refused(d, driver.Mutex, name)
			refused(fair, driver.Mutex, name)
			require.NoError(t, d.ForceRelease(t.Context(), driver.RWMutex, name))
		}
		name := s.Prefix() + "read"
		reader, _ := of("", name, "me", long)
		reader.Kind, reader.Shared = driver.RWMutex, true
		granted(t, d, reader)
		refused(d, driver.Mutex, name)
		refused(fair, driver.Mutex, name)
		// An RLock of a holder named "mode".
		name = s.Prefix() + "odd"
		require.NoError(t, rdb.HSet(t.Context(), name, "mode", 1).Err())
		refused(d, driver.RWMutex, name)
	})
}
