package redistest

import (
	"context"
	"testing"

	"github.com/redis/go-redis/v9"
)

// masterName is what the Sentinels call the master they watch.
const masterName = "holdfast"

// Sentinels are a master with two replicas and three Sentinels, for one test, which may
// hurt them. A master that has gone is replaced after about 2 s. If it comes back, it is a
// master, though nobody's, until the Sentinels have seen that for 10 s; see
// [Server.Follow].
type Sentinels struct {
	tb       testing.TB
	watchers []*Server

	// Servers are the master and its replicas; that is how it begins.
	Servers []*Server
}

// NewSentinels starts them, and returns when the Sentinels know all servers and each other.
// Redis takes 2 s for that.
func NewSentinels(tb testing.TB) *Sentinels {
	tb.Helper()
	requireBinary(tb, program())
	s := &Sentinels{tb: tb}
	for _, d := range startDaemons(tb, 3) {
		s.Servers = append(s.Servers, &Server{endpoint: at(d.addr), tb: tb, prefix: prefixOf(tb), private: true, daemon: d})
	}
	for _, d := range startDaemons(tb, 3, "--sentinel") {
		s.watchers = append(s.watchers, &Server{endpoint: at(d.addr), tb: tb, private: true, daemon: d})
	}
	master := s.Servers[0]
	for _, replica := range s.Servers[1:] {
		replica.Follow(tb, master)
	}
	s.watch(func(ctx context.Context, w *redis.SentinelClient) error {
		if err := w.Monitor(ctx, masterName, master.host(), master.port(), "2").Err(); err != nil {
			return err
		}
		for option, value := range map[string]string{"down-after-milliseconds": "1000", "failover-timeout": "5000", "parallel-syncs": "2"} {
			if err := w.Set(ctx, masterName, option, value).Err(); err != nil {
				return err
			}
		}
		return nil
	})
	s.awaitAll()
	return s
}

// watch lends a client of each Sentinel.
func (s *Sentinels) watch(ask func(context.Context, *redis.SentinelClient) error) {
	s.tb.Helper()
	for _, w := range s.watchers {
		ctx, cancel := context.WithTimeout(context.Background(), failoverTime)
		c := redis.NewSentinelClient(w.Options())
		err := ask(ctx, c)
		_ = c.Close()
		cancel()
		if err != nil {
			s.tb.Fatalf("redistest: sentinel: %v", err)
		}
	}
}

// awaitAll returns when each Sentinel knows the other two, and both replicas.
func (s *Sentinels) awaitAll() {
	s.tb.Helper()
	s.watch(func(ctx context.Context, w *redis.SentinelClient) error {
		return eventually(ctx, func() bool {
			master := w.Master(ctx, masterName).Val()
			return master["flags"] == "master" && master["num-other-sentinels"] == "2" && master["num-slaves"] == "2"
		})
	})
}

// Client returns a client that is closed when the test ends.
func (s *Sentinels) Client(tb testing.TB) *redis.Client {
	tb.Helper()
	o := &redis.FailoverOptions{MasterName: masterName}
	for _, w := range s.watchers {
		o.SentinelAddrs = append(o.SentinelAddrs, w.addr)
	}
	c := redis.NewFailoverClient(o)
	tb.Cleanup(func() { _ = c.Close() })
	return c
}

// URL returns what redis.ParseFailoverURL makes the options of such a client from.
func (s *Sentinels) URL() string {
	u := "redis://" + s.watchers[0].addr + "?master_name=" + masterName
	for _, w := range s.watchers[1:] {
		u += "&addr=" + w.addr
	}
	return u
}

// Failover has a replica take the place of the master, which lives on. The old master stays
// a master, though nobody's, until the Sentinels have seen that for 8 s, and make it a
// replica. Failover returns when all Sentinels know the new master.
func (s *Sentinels) Failover(tb testing.TB) *Server {
	tb.Helper()
	old := s.Master(tb)
	ctx, cancel := context.WithTimeout(context.Background(), failoverTime)
	defer cancel()
	c := redis.NewSentinelClient(s.watchers[0].Options())
	defer func() { _ = c.Close() }()
	if err := c.Failover(ctx, masterName).Err(); err != nil {
		tb.Fatalf("redistest: sentinel: %v", err)
	}
	return s.AwaitNewMaster(tb, old)
}

// Master returns the master, in the opinion of all Sentinels.
func (s *Sentinels) Master(tb testing.TB) *Server {
	tb.Helper()
	return s.awaitMaster(tb, nil)
}

// AwaitNewMaster returns the master when it is another than old.
func (s *Sentinels) AwaitNewMaster(tb testing.TB, old *Server) *Server {
	tb.Helper()
	return s.awaitMaster(tb, old)
}

func (s *Sentinels) awaitMaster(tb testing.TB, not *Server) (master *Server) {
	tb.Helper()
	s.watch(func(ctx context.Context, w *redis.SentinelClient) error {
		return eventually(ctx, func() bool {
			addr := w.GetMasterAddrByName(ctx, masterName).Val()
			for _, server := range s.Servers {
				if len(addr) == 2 && server.port() == addr[1] && server != not {
					master = server
					return true
				}
			}
			return false
		})
	})
	return master
}
