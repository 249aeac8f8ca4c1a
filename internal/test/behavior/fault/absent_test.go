package fault_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/getset"
	"github.com/holdfast-go/holdfast/driver/redisdriver"
	"github.com/holdfast-go/holdfast/driver/redisson"
	"github.com/holdfast-go/holdfast/driver/redlock"
	"github.com/holdfast-go/holdfast/driver/setnx"
	"github.com/holdfast-go/holdfast/internal/test/behavior/lab"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

// onRedis are the drivers that keep locks on Redis.
var onRedis = map[string]func(redis.UniversalClient) driver.Driver{
	"redisdriver": func(rdb redis.UniversalClient) driver.Driver { return redisdriver.New(rdb) },
	"setnx":       func(rdb redis.UniversalClient) driver.Driver { return setnx.New(rdb) },
	"getset":      func(rdb redis.UniversalClient) driver.Driver { return getset.New(rdb) },
	"redisson":    func(rdb redis.UniversalClient) driver.Driver { return redisson.New(rdb) },
	"redlock": func(rdb redis.UniversalClient) driver.Driver {
		var nodes []driver.Driver
		for _, prefix := range []string{"a", "b", "c"} {
			nodes = append(nodes, redisdriver.New(rdb, redisdriver.WithPrefix(prefix)))
		}
		// An answer that is late is none, and what it says is not heard.
		return redlock.New(nodes, redlock.WithDelayedRestart(0), redlock.WithTimeout(lab.Soon))
	},
}

// patient is a size of a pool. After as many errors of dialing, go-redis would go on to dial in
// the background for a second after the client is closed.
const patient = 1000

// misled returns clients for which their server surely does nothing, by the reason.
func misled(t *testing.T) map[string]redis.UniversalClient {
	s := redistest.Real(t)
	l := lab.New(t, s)
	nobody := redistest.Real(t)
	client := func(mod func(*redis.Options)) redis.UniversalClient { return s.Client(t, mod) }
	clients := map[string]redis.UniversalClient{
		"no right to run scripts": client(l.User("a", "~*", "&*", "+@all", "-evalsha", "-eval")),
		"no right to the keys":    client(l.User("b", "~other:*", "&*", "+@all")),
		"a wrong password":        client(func(o *redis.Options) { o.Username, o.Password = "a", "guess" }),
		"no such database":        client(func(o *redis.Options) { o.DB = 99 }),
		"connection refused":      nobody.Client(t, func(o *redis.Options) { o.PoolSize = patient }),
		"a client of a Cluster":   redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{s.Addr()}}),
		"a client of a Sentinel":  redis.NewFailoverClient(&redis.FailoverOptions{MasterName: "m", SentinelAddrs: []string{s.Addr()}, PoolSize: patient}),
		"no password":             passwordless(t),
	}
	nobody.Kill()
	t.Cleanup(func() {
		require.NoError(t, clients["a client of a Cluster"].Close())
		require.NoError(t, clients["a client of a Sentinel"].Close())
	})
	return clients
}

// passwordless returns a client without the password that its server wants.
func passwordless(t *testing.T) redis.UniversalClient {
	s := redistest.Real(t)
	admin := s.Client(t).Conn() // which stays what it is
	require.NoError(t, admin.ConfigSet(t.Context(), "requirepass", "secret").Err())
	t.Cleanup(func() {
		require.NoError(t, admin.ConfigSet(context.Background(), "requirepass", "").Err())
		require.NoError(t, admin.Close())
	})
	return s.Client(t)
}

// A server tells a client without a password that its protocol is wrong if the command is long.
func TestMissingPasswordIsToldInPlainWords(t *testing.T) {
	t.Parallel()
	rdb := passwordless(t)
	for name, open := range onRedis {
		t.Run(name, func(t *testing.T) {
			locks := holdfast.Open(open(rdb), holdfast.WithLogger(slog.New(slog.DiscardHandler)))
			said := []string{lab.Panics(t, locks.Mutex("x").Lock), lab.Panics(t, func() { locks.Mutex("x").TryLock() })}
			for call, err := range lab.ErrorsOf(t, locks.Mutex("x")) {
				if !errors.Is(err, errors.ErrUnsupported) {
					said = append(said, call+": "+err.Error())
				}
			}
			for _, text := range said {
				assert.Contains(t, text, "NOAUTH Authentication required. (set Username and Password of the Redis client)")
				assert.NotContains(t, text, "Protocol")
			}
			require.NoError(t, locks.Close())
		})
	}
}

// Where nothing was granted, nothing is kept. Nobody is told to wait for a TTL to be over,
// and Close does not wait for it.
func TestNoReleaseIsMissedWhereTheStoreCanHaveGrantedNothing(t *testing.T) {
	t.Parallel()
	for why, rdb := range misled(t) {
		for name, open := range onRedis {
			if name == "redlock" && (why == "connection refused" || why == "a client of a Sentinel") {
				continue // go-redis tries for longer than a node may take, so it is not known that nothing was sent
			}
			t.Run(why+", "+name, func(t *testing.T) {
				t.Parallel()
				log := new(lab.Log)
				locks := holdfast.Open(open(rdb), holdfast.WithTTL(lab.Ages), holdfast.WithLogger(slog.New(slog.NewTextHandler(log, nil))))
				mu := locks.Mutex("x")
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				_, err := mu.Lease(ctx)
				require.Error(t, err)
				_, err = mu.TryLease(t.Context())
				require.Error(t, err)
				<-lab.Begin(func() { assert.False(t, mu.TryLock()) }) // which may panic
				require.NoError(t, lab.Promptly(t, lab.Soon, locks.Close))
				require.NotContains(t, log.String(), "not released")
			})
		}
	}
}

func TestNoReleaseIsMissedOfALockThatTheStoreDoesNotHave(t *testing.T) {
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		log := new(lab.Log)
		locks := holdfast.Open(setnx.New(l.Server.Client(t)), holdfast.WithLogger(slog.New(slog.NewTextHandler(log, nil))))
		for what, try := range map[string]lab.Leasing{
			"RWMutex":   locks.RWMutex("x").Lease,
			"reader":    locks.RWMutex("x").TryRLease,
			"Semaphore": lab.Permits(locks.Semaphore("x", 2), 1),
			"owner":     locks.Mutex("x", holdfast.WithOwner("o")).Lease,
		} {
			_, err := try(t.Context())
			require.Error(t, err, what)
		}
		require.NoError(t, lab.Promptly(t, lab.Soon, locks.Close))
		require.Empty(t, log.String())
	})
}

// A lost lease is over. The store needs no release, and the loss was in the log.
func TestCloseWaitsForNoReleaseOfALostLease(t *testing.T) {
	const ttl = 600 * time.Millisecond
	for name, strike := range map[string]func(*lab.Lab){
		"refused": func(l *lab.Lab) { l.Link.Refuse(true); l.Link.Cut() },
		"silent":  func(l *lab.Lab) { l.Link.BlackHole(true) },
	} {
		t.Run(name, func(t *testing.T) {
			lab.InBubble(t, func(t *testing.T, l *lab.Lab) {
				log := new(lab.Log)
				c := holdfast.Open(redisdriver.New(l.Link.Client(t, func(o *redis.Options) { o.ReadTimeout, o.PoolSize = ttl, patient }), redisdriver.WithPrefix(l.Server.Prefix()), redisdriver.WithRetention(l.Retention)),
					holdfast.WithTTL(ttl), holdfast.WithLogger(slog.New(slog.NewTextHandler(log, nil))))
				l.Ready(c)
				began := time.Now()
				err := c.Mutex("x").Do(t.Context(), func(ctx context.Context) error {
					strike(l)
					<-ctx.Done()
					return nil
				})
				require.ErrorIs(t, err, holdfast.ErrLost)
				require.LessOrEqual(t, time.Since(began), ttl)
				l.Until("the loss is in the log", func() bool { return strings.Contains(log.String(), "lock lost") })
				began = time.Now()
				require.NoError(t, c.Close())
				require.Less(t, time.Since(began), ttl+ttl/2, "it waited until the release was given up")
				require.NotContains(t, log.String(), "not released")
			})
		})
	}
}
