package redistest

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// masters is how many masters a Cluster has to begin with.
const masters = 3

// nodeTimeout is how long a node may be silent before the others replace it. It is more than a busy
// machine keeps a process of ours waiting.
const nodeTimeout = 2 * time.Second

// Cluster is a Redis Cluster for one test, which may hurt its servers: three masters, mostly with
// a replica of each. A master that has gone is replaced by that after about 3 s.
type Cluster struct {
	tb testing.TB

	// Nodes are the masters, each with a third of the slots, and then their replicas in
	// the same order; that is how it begins.
	Nodes []*Server

	giving sync.Mutex        // a slot to another master, see Move.Finish
	given  map[int]time.Time // when each was
}

// NewCluster starts a Cluster and returns when all of it agrees that it works. Redis takes
// 2 s to be sure of that.
func NewCluster(tb testing.TB) *Cluster {
	tb.Helper()
	return newCluster(tb, 1)
}

// Masters starts a Cluster without replicas. These take the time of this machine, that in earnest
// they would take of others.
func Masters(tb testing.TB) *Cluster {
	tb.Helper()
	return newCluster(tb, 0)
}

func newCluster(tb testing.TB, replicas int) *Cluster {
	tb.Helper()
	requireBinary(tb, program())
	n := masters * (1 + replicas)
	c := &Cluster{tb: tb, Nodes: make([]*Server, n), given: map[int]time.Time{}}
	for i, d := range startDaemons(tb, n, "--cluster-enabled", "yes", "--cluster-node-timeout", fmt.Sprint(nodeTimeout.Milliseconds()),
		"--cluster-allow-replica-migration", "no",
		"--repl-ping-replica-period", "1") { // a replica that was sent nothing is not listed
		c.Nodes[i] = &Server{endpoint: at(d.addr), tb: tb, prefix: prefixOf(tb), private: true, daemon: d}
	}
	c.form()
	return c
}

// startDaemons starts servers at the same time, which end with the test.
func startDaemons(tb testing.TB, n int, args ...string) []*daemon {
	tb.Helper()
	daemons, errs := make([]*daemon, n), make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { daemons[i], errs[i] = newDaemon(program(), args, nil) })
	}
	wg.Wait()
	for _, d := range daemons {
		if d != nil {
			tb.Cleanup(d.remove)
		}
	}
	for _, err := range errs {
		if err != nil {
			tb.Fatalf("redistest: %v", err)
		}
	}
	return daemons
}

// form makes one Cluster of servers that know nothing of each other.
func (c *Cluster) form() {
	c.tb.Helper()
	ids := make([]string, len(c.Nodes))
	for i, s := range c.Nodes {
		s.with(c.tb, func(ctx context.Context, node *redis.Client) error {
			ids[i] = node.ClusterMyID(ctx).Val()
			// Nodes that have the same epoch would first have to settle whose is larger.
			_, err := node.Pipelined(ctx, func(p redis.Pipeliner) error {
				p.Do(ctx, "cluster", "set-config-epoch", i+1)
				if i < masters {
					p.ClusterAddSlotsRange(ctx, i*slots/masters, (i+1)*slots/masters-1)
				}
				for _, other := range c.Nodes[:i] {
					p.ClusterMeet(ctx, other.host(), other.port())
				}
				return nil
			})
			return err
		})
	}
	c.each(func(ctx context.Context, i int, node *redis.Client) bool {
		return strings.Contains(node.ClusterInfo(ctx).Val(), fmt.Sprintf("cluster_known_nodes:%d", len(c.Nodes)))
	})
	c.each(func(ctx context.Context, i int, node *redis.Client) bool {
		return i < masters || node.ClusterReplicate(ctx, ids[i-masters]).Err() == nil
	})
	c.RequireWhole()
}

// RequireWhole returns when all nodes agree that the Cluster works, and each master has its
// replica, which has caught up.
func (c *Cluster) RequireWhole() {
	c.tb.Helper()
	c.each(func(ctx context.Context, _ int, node *redis.Client) bool {
		all, err := layout(ctx, node)
		if err != nil || !strings.Contains(node.ClusterInfo(ctx).Val(), "cluster_state:ok") {
			return false
		}
		for _, some := range all {
			if len(some.Nodes) != len(c.Nodes)/masters {
				return false
			}
		}
		if len(c.Nodes) == masters {
			return true
		}
		info := node.Info(ctx, "replication").Val()
		return strings.Contains(info, "master_link_status:up") || strings.Contains(info, "connected_slaves:1")
	})
}

// layout is which nodes have which slots, in the opinion of one.
func layout(ctx context.Context, node *redis.Client) ([]redis.ClusterSlot, error) {
	//lint:ignore SA1019 CLUSTER SHARDS, which is to replace it, is not in Redis 6.2
	return node.ClusterSlots(ctx).Result()
}

// LogBeliefs logs what each node believes of the others. They may not agree.
func (c *Cluster) LogBeliefs(tb testing.TB) {
	for _, s := range c.Nodes {
		if known, err := s.Client(tb).ClusterNodes(context.Background()).Result(); err == nil {
			tb.Logf("%s believes:\n%s", s.Addr(), known)
		}
	}
}

// each polls all nodes until ask is content with each of them.
func (c *Cluster) each(ask func(ctx context.Context, i int, node *redis.Client) bool) {
	c.tb.Helper()
	for i, s := range c.Nodes {
		s.with(c.tb, func(ctx context.Context, node *redis.Client) error {
			if err := eventually(ctx, func() bool { return ask(ctx, i, node) }); err != nil {
				return fmt.Errorf("node %d does not get there: %w\n%s\n%s", i, err,
					node.ClusterInfo(context.Background()).Val(), node.ClusterNodes(context.Background()).Val())
			}
			return nil
		})
	}
}

// Client returns a client that is closed when the test ends.
func (c *Cluster) Client(tb testing.TB, mods ...func(*redis.ClusterOptions)) *redis.ClusterClient {
	tb.Helper()
	o := &redis.ClusterOptions{}
	for _, s := range c.Nodes {
		o.Addrs = append(o.Addrs, s.addr)
	}
	for _, mod := range mods {
		mod(o)
	}
	rdb := redis.NewClusterClient(o)
	tb.Cleanup(func() { _ = rdb.Close() })
	return rdb
}

// Owner returns the master that has the key, in the opinion of the first node that runs.
func (c *Cluster) Owner(tb testing.TB, key string) *Server {
	tb.Helper()
	var owner *Server
	c.alive(tb).with(tb, func(ctx context.Context, node *redis.Client) error {
		slot := int(node.ClusterKeySlot(ctx, key).Val())
		all, err := layout(ctx, node)
		for _, some := range all {
			if some.Start <= slot && slot <= some.End {
				owner = c.node(some.Nodes[0].Addr)
			}
		}
		return err
	})
	if owner == nil {
		tb.Fatalf("redistest: nobody has %q", key)
	}
	return owner
}

// OtherMaster returns a master that does not have the key.
func (c *Cluster) OtherMaster(tb testing.TB, key string) *Server {
	tb.Helper()
	owner := c.Owner(tb, key)
	for i := 0; ; i++ {
		if other := c.Owner(tb, strconv.Itoa(i)); other != owner {
			return other
		}
	}
}

func (c *Cluster) alive(tb testing.TB) *Server {
	for _, s := range c.Nodes {
		if s.process().runs() {
			return s
		}
	}
	tb.Fatal("redistest: no node of the Cluster runs")
	return nil
}

func (c *Cluster) node(addr string) *Server {
	for _, s := range c.Nodes {
		if s.addr == addr {
			return s
		}
	}
	return nil
}

// Keys returns the keys that start with prefix, of the masters.
func (c *Cluster) Keys(tb testing.TB, prefix string) []string {
	tb.Helper()
	var keys []string
	for _, s := range c.Nodes {
		for _, key := range s.Keys(tb, prefix) {
			if c.Owner(tb, key) == s {
				keys = append(keys, key)
			}
		}
	}
	return keys
}

// Swap has the replica of a master take its place, as before maintenance: in good order, so
// that nothing is lost. Swap returns when the replica has done so.
func (c *Cluster) Swap(tb testing.TB, master *Server) {
	tb.Helper()
	for _, s := range c.Nodes {
		s.with(tb, func(ctx context.Context, node *redis.Client) error {
			if role, _ := node.Do(ctx, "role").Slice(); len(role) < 3 || role[0] != "slave" || fmt.Sprint(role[2]) != master.port() {
				return nil
			}
			if err := node.ClusterFailover(ctx).Err(); err != nil {
				return err
			}
			return eventually(ctx, func() bool { return isMaster(ctx, node) })
		})
	}
}

// failoverTime bounds how long the tests wait for a replica to be promoted.
const failoverTime = 15 * time.Second

// AwaitNewOwner returns the master that has the key, when it is another than old.
func (c *Cluster) AwaitNewOwner(tb testing.TB, key string, old *Server) *Server {
	tb.Helper()
	for end := time.Now().Add(failoverTime); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if owner := c.Owner(tb, key); owner != old {
			return owner
		}
	}
	tb.Fatalf("redistest: no replica was promoted within %v", failoverTime)
	return nil
}
