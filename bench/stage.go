package bench

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

// Stage is where contenders meet: the stores, and the way to them.
type Stage struct {
	Addr   string // of Redis
	NoEtcd string // why there is none here, or ""
	Prefix string // of all names in the stores

	servers  []*redistest.Server                   // Redis: one, or the masters of a Cluster
	others   func() []*redistest.Server            // two more, for those that want a majority
	cluster  func() []*redistest.Server            // masters of one
	disks    map[string]func() []*redistest.Server // that write to their disk, by appendfsync
	etcd     func() []string                       // addresses
	etcd3    func() []string                       // of a cluster of three members
	postgres *postgres
	// zookeeper has addresses. It is nil where the work is on another store.
	zookeeper func() []string
	tb        testing.TB
	memory    *sync.Map
}

// NewStage returns a stage with a redis-server of its own, or with the one at addr if that
// is not empty. There it touches only keys that begin with its prefix, but counts the
// commands of others as if contenders had sent them. Other servers are started once they are wanted.
func NewStage(tb testing.TB, addr string) *Stage {
	tb.Helper()
	s := &Stage{tb: tb, memory: new(sync.Map)}
	var server *redistest.Server
	if addr == "" {
		server = redistest.Real(tb)
	} else {
		server = redistest.Shared(tb) // which looks into the environment itself
	}
	s.Addr, s.Prefix, s.servers = server.Addr(), server.Prefix(), []*redistest.Server{server}
	s.cluster = sync.OnceValue(func() []*redistest.Server { return redistest.Masters(tb).Nodes })
	s.others = sync.OnceValue(func() []*redistest.Server {
		return []*redistest.Server{redistest.Real(tb), redistest.Real(tb)}
	})
	s.disks = map[string]func() []*redistest.Server{"everysec": appending(tb, "everysec"), "always": appending(tb, "always")}
	s.postgres = &postgres{tb: tb}
	s.zookeeper = sync.OnceValue(func() []string { return s.startZooKeeper(1) })
	s.etcd = sync.OnceValue(func() []string { return startEtcd(tb, 1) })
	s.etcd3 = sync.OnceValue(func() []string { return startEtcd(tb, 3) })
	return s
}

// three returns the addresses of three servers, of which the first is Redis. The counters are
// those of the first.
func (s *Stage) three() []string {
	addrs := []string{s.Addr}
	for _, other := range s.others() {
		addrs = append(addrs, other.Addr())
	}
	return addrs
}

// Far returns the same stage with Redis farther away: a round trip takes rtt longer.
func (s *Stage) Far(rtt time.Duration) *Stage {
	far := *s
	proxy := redistest.NewProxy(s.tb, s.servers[0])
	proxy.Delay(rtt / 2)
	far.Addr = proxy.Addr()
	far.zookeeper = nil
	far.NoEtcd = "the proxy that delays speaks the protocol of Redis only"
	return &far
}

// OnCluster returns the same stage with a Cluster of three masters for Redis.
func (s *Stage) OnCluster() *Stage {
	c := *s
	c.servers = s.cluster()
	c.zookeeper = nil
	c.NoEtcd = "this is a work on Redis"
	return &c
}

// OnEtcdOfThree returns the same stage with three members of etcd instead of one.
func (s *Stage) OnEtcdOfThree() *Stage {
	c := *s
	c.etcd = s.etcd3
	return &c
}

// addrs are those of Redis.
func (s *Stage) addrs() []string {
	if len(s.servers) <= 1 {
		return []string{s.Addr}
	}
	var all []string
	for _, server := range s.servers {
		all = append(all, server.Addr())
	}
	return all
}

// client returns a client of Redis with default options.
func (s *Stage) client() redis.UniversalClient {
	return redis.NewUniversalClient(&redis.UniversalOptions{Addrs: s.addrs()})
}

// counters are what Redis has counted since it started.
type counters struct {
	calls map[string]int64 // by command
	cpu   float64          // s, of the whole server
}

// counters asks the servers themselves, however far the contenders are from them.
func (s *Stage) counters(ctx context.Context) (counters, error) {
	c := counters{calls: map[string]int64{}}
	for _, server := range s.servers {
		if err := c.add(ctx, server); err != nil {
			return c, err
		}
	}
	return c, nil
}

func (c *counters) add(ctx context.Context, server *redistest.Server) error {
	rdb := redis.NewClient(server.Options())
	defer func() { _ = rdb.Close() }()
	stats, err1 := rdb.InfoMap(ctx, "commandstats").Result()
	cpu, err2 := rdb.InfoMap(ctx, "cpu").Result()
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	for name, text := range stats["Commandstats"] {
		calls, _, _ := strings.Cut(strings.TrimPrefix(text, "calls="), ",")
		n, err := strconv.ParseInt(calls, 10, 64)
		if err != nil {
			return fmt.Errorf("commandstats: %s:%s", name, text)
		}
		c.calls[strings.TrimPrefix(name, "cmdstat_")] += n
	}
	for _, of := range []string{"used_cpu_user", "used_cpu_sys"} {
		seconds, err := strconv.ParseFloat(cpu["CPU"][of], 64)
		if err != nil {
			return fmt.Errorf("INFO cpu: %s: %w", of, err)
		}
		c.cpu += seconds
	}
	return nil
}

// since returns how often those commands were called after the counters stood at c, and
// the CPU time in s.
func (c counters) since(before counters, sends []string) (calls, cpu float64) {
	for name, n := range c.calls {
		if slices.Contains(sends, name) {
			calls += float64(n - before.calls[name])
		}
	}
	return calls, c.cpu - before.cpu
}

// Version returns what kind of Redis this is.
func (s *Stage) Version(ctx context.Context) (string, error) {
	rdb := s.client()
	defer func() { _ = rdb.Close() }()
	info, err := rdb.InfoMap(ctx, "server").Result()
	if err != nil {
		return "", err
	}
	return info["Server"]["redis_version"], nil
}
