package redisdriver_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/redisdriver"
	"github.com/holdfast-go/holdfast/internal/test/seed"
)

// So many lists are tried by default. To look for more, set the flag -rapid.checks or RAPID_CHECKS.
func init() {
	seed.Rapid()
	if os.Getenv("RAPID_CHECKS") == "" {
		_ = flag.Set("rapid.checks", "8") // cannot fail: rapid has defined it
	}
}

var kinds = []driver.Kind{driver.Mutex, driver.RWMutex, driver.Semaphore}

// withPrefix returns a driver that is not used, or false if the prefix is refused.
func withPrefix(rdb *redis.Client, prefix string) (d *redisdriver.Driver, ok bool) {
	defer func() { ok = recover() == nil }()
	return redisdriver.New(rdb, redisdriver.WithPrefix(prefix)), true
}

// idle returns a client that connects to nothing.
func idle(t *testing.T) *redis.Client {
	rdb := redis.NewClient(&redis.Options{})
	t.Cleanup(func() { require.NoError(t, rdb.Close()) })
	return rdb
}

// Two locks with one key would be one lock, perhaps of two kinds.
func TestKeysOfAllPrefixesKindsAndNamesDiffer(t *testing.T) {
	rdb := idle(t)
	parts := []string{"a", ":", "2", "mutex", "rwmutex", "semaphore", "wake", ":2:", ":2:mutex:"}
	text := rapid.Custom(func(t *rapid.T) string {
		return strings.Join(rapid.SliceOfN(rapid.SampledFrom(parts), 1, 6).Draw(t, "parts"), "")
	})
	seen, channels, refused := map[string]string{}, map[string]string{}, 0
	rapid.Check(t, func(t *rapid.T) {
		for range 500 { // they collide with those of earlier runs, too
			prefix, name, kind := text.Draw(t, "prefix"), text.Draw(t, "name"), rapid.SampledFrom(kinds).Draw(t, "kind")
			d, ok := withPrefix(rdb, prefix)
			if !ok {
				refused++
				continue
			}
			lock := fmt.Sprintf("%q %s %q", prefix, kind, name)
			if other, taken := seen[d.Key(kind, name)]; taken && other != lock {
				t.Fatalf("%s and %s both have the key %q", lock, other, d.Key(kind, name))
			}
			seen[d.Key(kind, name)] = lock
			channel := d.Channel()
			if other, taken := channels[channel]; taken {
				t.Fatalf("clients of %q and %q have one channel, %q", prefix, other, channel)
			}
			channels[channel] = prefix
			base := channel[:len(channel)-len("0123456789abcdef")]
			if other, taken := channels[base]; taken && other != prefix {
				t.Fatalf("clients of %q and %q listen to %q", prefix, other, base)
			}
			channels[base] = prefix
		}
	})
	require.NotZero(t, refused)
}

func TestOrdinaryPrefixesGiveReadableKeys(t *testing.T) {
	rdb := idle(t)
	for prefix, want := range map[string]string{
		"holdfast":    "holdfast:2:mutex:orders:42",
		"a:mutex":     "a:mutex:2:mutex:orders:42",
		"{tag}:1":     "{tag}:1:2:mutex:orders:42",
		"v:1:mutexes": "v:1:mutexes:2:mutex:orders:42",
	} {
		d, ok := withPrefix(rdb, prefix)
		require.True(t, ok, prefix)
		require.Equal(t, want, d.Key(driver.Mutex, "orders:42"))
	}
}

func TestPrefixThatLooksLikeAKeyOfAnotherIsRefused(t *testing.T) {
	for _, prefix := range []string{"p:2:mutex", "p:2:mutex:x", ":2:rwmutex", "p:2:semaphore:1", ""} {
		require.Panics(t, func() { redisdriver.WithPrefix(prefix) }, prefix)
	}
	require.PanicsWithValue(t, `redisdriver: prefix "p:2:mutex" contains ":2:mutex:", so that keys of other prefixes could be the same`,
		func() { redisdriver.WithPrefix("p:2:mutex") })
}
