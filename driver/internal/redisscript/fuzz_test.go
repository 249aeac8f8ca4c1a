package redisscript_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/internal/redisscript"
	"github.com/holdfast-go/holdfast/internal/keepalive"
)

// Nothing that is computed from a TTL overflows, and the server, which counts whole
// milliseconds, keeps a lease for longer than its holder trusts it.
func FuzzServerKeepsALeaseAtLeastAsLongAsItIsTrusted(f *testing.F) {
	for _, ttl := range []time.Duration{driver.MinTTL, driver.MinTTL + 1, 10*time.Millisecond + 999_999, time.Second - 1, driver.MaxTTL, -1, 0, 1 << 62, -1 << 63} {
		f.Add(int64(ttl), int64(ttl))
	}
	f.Add(int64(time.Second), int64(-1))
	f.Add(int64(time.Second), int64(-2))
	f.Add(int64(time.Second), int64(1<<63-1))
	f.Fuzz(func(t *testing.T, n, left int64) {
		remaining := redisscript.Remaining(left)
		require.GreaterOrEqual(t, remaining, time.Duration(0))
		require.LessOrEqual(t, remaining, driver.MaxTTL)

		ttl := time.Duration(n)
		r := &driver.Request{Kind: driver.Mutex, Name: "x", Token: "t", TTL: ttl, Wait: true}
		if err := r.Check(); ttl < driver.MinTTL || ttl > driver.MaxTTL {
			require.ErrorIs(t, err, driver.ErrNotExecuted)
			return
		} else {
			require.NoError(t, err)
		}
		sent := time.Now()
		trusted := keepalive.NewTrust(sent, ttl).Deadline().Sub(sent)
		require.Positive(t, trusted)
		kept := time.Duration(redisscript.Millis(ttl)) * time.Millisecond
		require.GreaterOrEqual(t, kept, ttl)
		require.Less(t, kept-ttl, time.Millisecond)
		require.GreaterOrEqual(t, kept-trusted, ttl/100+2*time.Millisecond)
		lasting := time.Duration(redisscript.Lasting(ttl)) * time.Millisecond
		require.GreaterOrEqual(t, lasting, kept+5*time.Millisecond-time.Millisecond)
		require.LessOrEqual(t, lasting, kept+500*time.Millisecond, "no longer than a driver may")
		require.Positive(t, redisscript.RetryAfter(r, remaining, redisscript.Poll))
	})
}

// A key beside another one is in the same slot of a Cluster, and no two keys have the same key
// beside them.
func FuzzBeside(f *testing.F) {
	f.Add("a", "{a}")
	f.Add("{a}", "{a}.")
	f.Add("a}b", "{a}b")
	f.Add("{}a", "{{}a}")
	f.Add("", "{}")
	f.Add("a{b}c", "a{b}c.")
	f.Add("{a", "{a}")
	f.Fuzz(func(t *testing.T, key1, key2 string) {
		const prefix = "holdfast:beside:"
		for _, key := range []string{key1, key2} {
			beside := redisscript.Beside(prefix, key)
			require.True(t, strings.HasPrefix(beside, prefix))
			if taggable(key) {
				require.Equal(t, hashed(key), hashed(beside))
			}
		}
		if key1 != key2 {
			require.NotEqual(t, redisscript.Beside(prefix, key1), redisscript.Beside(prefix, key2))
		}
	})
}

// hashed is the part of a key that decides on its slot, as the specification of Redis Cluster has
// it: what is between the first { and the first } after it, unless that is nothing.
func hashed(key string) string {
	if from := strings.IndexByte(key, '{'); from >= 0 {
		if n := strings.IndexByte(key[from+1:], '}'); n > 0 {
			return key[from+1 : from+1+n]
		}
	}
	return key
}

// taggable reports whether another key can be in the slot of this one: it has a tag, or may be
// one.
func taggable(key string) bool {
	return key != "" && (hashed(key) != key || !strings.Contains(key, "}"))
}
