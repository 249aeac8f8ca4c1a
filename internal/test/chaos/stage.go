package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/url"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

// stage is the servers of a topology, and what can be done to them.
type stage struct {
	store   store
	slots   []int // those that its store can keep
	ordered bool
	servers []*server
	clock   *redistest.Clock // nil if it cannot be set
	faults  []fault
	storms  []set // one after the other, again and again

	actors   int           // of each worker, unless the plan says how many
	load     float64       // grants/s that it must bear, unless the plan says how many
	patience time.Duration // how long a wait may last after the last fault

	// elects says that a server can take the place of a master.
	elects bool
}

// topologies are in the order of the report.
var topologies = []string{"single", "sentinel", "cluster", "redlock"}

// workerUser is the user that workers are where rights can be taken from them.
const workerUser = "worker"

func newStage(h *host, topology string, n names) (*stage, error) {
	s := &stage{
		store: store{Topology: topology}, slots: slotsOf(anySlot), ordered: true, actors: 12, load: 100,
		patience: 2*ttl + 2*time.Second, // promise 2, and time to connect
	}
	switch topology {
	case "single":
		s.single(h)
	case "sentinel":
		s.sentinel(h)
	case "cluster":
		s.cluster(h, n)
	case "redlock":
		s.redlock(h)
	default:
		return nil, fmt.Errorf("no topology %q, only %s", topology, strings.Join(topologies, ", "))
	}
	return s, nil
}

func (s *stage) single(h *host) {
	// With appendfsync no, Redis writes to the file before it replies, so SIGKILL loses
	// nothing. With everysec it puts that off while it syncs.
	real, clock := redistest.RealWithClock(h, "--appendonly", "yes", "--appendfsync", "no",
		"--user", workerUser, "on", "nopass", "~*", "&*", "+@all")
	one, proxy := newServer(h, real), redistest.NewProxy(h, real)
	s.store.Addrs, s.store.User = []string{proxy.Addr()}, workerUser
	s.servers, s.clock = []*server{one}, clock
	const part = "server"
	s.faults = append(s.faults, serverFaults(part, 5*ttl/2, func() *server { return one })...)
	s.faults = append(s.faults, rightFaults(part, one, workerUser)...)
	s.faults = append(s.faults, restart(part, "server: SIGKILL and restart", one, safe, broken, 3*ttl/2, func() error { return nil }))
	s.faults = append(s.faults, linkFaults("link", proxy)...)
	s.faults = append(s.faults, clockFaults(part, one, clock)...)
	s.faults = append(s.faults, dataFaults(part, one)...)
	s.storms = []set{safe, data, safe, times}
}

// brief is shorter than what makes Sentinels or a Cluster elect another master.
const brief = 500 * time.Millisecond

// failoverTimeout is an option of Sentinels. After a failover they wait for twice that time
// before they begin another. So must we: else some of them do not hear of it for minutes.
const failoverTimeout = 2500 * time.Millisecond

func (s *stage) sentinel(h *host) {
	all := redistest.NewSentinels(h)
	s.store.URL = all.URL()
	servers := map[*redistest.Server]*server{}
	for _, real := range all.Servers {
		one := newServer(h, real)
		s.servers, servers[real] = append(s.servers, one), one
	}
	watched, _ := url.Parse(all.URL())
	name := watched.Query().Get("master_name")
	var eyes []*redis.SentinelClient
	for _, addr := range append(watched.Query()["addr"], watched.Host) {
		e := redis.NewSentinelClient(&redis.Options{Addr: addr})
		h.Cleanup(func() { _ = e.Close() })
		if err := e.Set(context.Background(), name, "failover-timeout", fmt.Sprint(failoverTimeout.Milliseconds())).Err(); err != nil {
			h.Fatal(err)
		}
		eyes = append(eyes, e)
	}
	const part = "server"
	s.faults = append(s.faults, serverFaults(part, brief, func() *server { return servers[all.Master(h)] })...)
	// settle returns when all Sentinels name one master, since a worker asks only one of them, and
	// it has two replicas. Workers that still talk to the old one
	// hear of the new one when that is a replica. A machine that is busy can take its time.
	settle := func(old *redistest.Server) (felt bool, err error) {
		err = eventually("two replicas", func() bool {
			return attempt(func() error {
				master := all.Master(h)
				if felt = master != old; felt {
					old.Follow(h, master)
				}
				if info := servers[master].admin.Info(context.Background(), "replication").Val(); !strings.Contains(info, "connected_slaves:2") {
					h.Fatal("not yet")
				}
				for _, e := range eyes {
					if addr := e.GetMasterAddrByName(context.Background(), name).Val(); strings.Join(addr, ":") != master.Addr() {
						h.Fatal("not all")
					}
				}
				return nil
			}) == nil
		})
		time.Sleep(2 * failoverTimeout)
		return felt, err
	}
	s.faults = append(s.faults,
		fault{kind: "failover, the old master lives on", part: part, set: data, elects: true, do: func(rng *rand.Rand) (bool, error) {
			old := all.Master(h)
			// One that nobody asked for may be under way.
			_ = attempt(func() error { all.Failover(h); return nil })
			time.Sleep(between(rng, 0, ttl))
			return settle(old)
		}},
		fault{kind: "failover, the master is killed", part: part, set: data, elects: true, do: func(*rand.Rand) (bool, error) {
			old := all.Master(h)
			old.Kill()
			_ = attempt(func() error { all.AwaitNewMaster(h, old); return nil })
			old.Restart()
			return settle(old)
		}},
	)
	s.storms, s.elects = []set{safe, data}, true
}

func (s *stage) cluster(h *host, n names) {
	c := redistest.NewCluster(h)
	servers := map[*redistest.Server]*server{}
	for _, real := range c.Nodes {
		one := newServer(h, real)
		s.servers, servers[real] = append(s.servers, one), one
		s.store.Addrs = append(s.store.Addrs, real.Addr())
	}
	const part = "server"
	// key is one that workers use now, so that they feel what happens to its master.
	key := func() string {
		kind, name := n.current(s.slots[rand.IntN(len(s.slots))])
		return prefix + ":2:" + string(kind) + ":" + name
	}
	s.faults = append(s.faults, serverFaults(part, brief, func() *server { return servers[c.Owner(h, key())] })...)
	s.faults = append(s.faults,
		fault{kind: "a slot moves", part: part, set: safe, symptoms: []string{"MOVED", "ASK"}, do: func(rng *rand.Rand) (bool, error) {
			k := key()
			move := c.Move(h, k, c.OtherMaster(h, k))
			time.Sleep(between(rng, 0, ttl/2))
			move.Finish(h)
			return false, nil
		}},
		fault{kind: "a replica takes over in good order", part: part, set: safe, elects: true, symptoms: []string{"MOVED"}, do: func(*rand.Rand) (bool, error) {
			c.Swap(h, c.Owner(h, key()))
			c.RequireWhole()
			return false, nil
		}},
		fault{kind: "failover, a master is killed", part: part, set: data, elects: true, do: func(*rand.Rand) (bool, error) {
			k := key()
			old := c.Owner(h, k)
			old.Kill()
			master := c.AwaitNewOwner(h, k, old)
			old.Restart()
			c.RequireWhole()
			return old != master, nil
		}},
	)
	s.storms, s.elects = []set{safe, data}, true
}

// roles tells which servers are masters, or "" if not all of them say.
func (s *stage) roles() (roles string) {
	for _, one := range s.servers {
		role, err := one.admin.Do(context.Background(), "role").Slice()
		if err != nil || len(role) == 0 {
			return ""
		}
		roles += fmt.Sprint(role[0], " ")
	}
	return roles
}

// redlock has five servers that keep nothing over a restart. No more than two faults happen
// at a time, so a majority is always there.
func (s *stage) redlock(h *host) {
	s.slots, s.ordered = slotsOf(ofRedlock), false
	s.actors, s.load = 6, 20 // each waiter is one at all of the servers
	// After a fault waiters have other places at each server. Each grant then takes as many
	// rounds as there are waiters, until the last of them is served.
	s.patience = 15 * time.Second
	for i := range 5 {
		real := redistest.Real(h)
		one, proxy := newServer(h, real), redistest.NewProxy(h, real)
		s.store.Addrs = append(s.store.Addrs, proxy.Addr())
		s.servers = append(s.servers, one)
		part := fmt.Sprint("server ", i)
		s.faults = append(s.faults, serverFaults(part, 3*ttl/2, func() *server { return one })...)
		s.faults = append(s.faults, linkFaults(part, proxy)...)
		kill := restart(part, "server: SIGKILL and restart, without data", one, safe, broken, ttl, func() error { return nil })
		then := kill.do
		kill.do = func(rng *rand.Rand) (bool, error) {
			defer time.Sleep(delayedRestart) // until it may vote again
			return then(rng)
		}
		s.faults = append(s.faults, kill)
	}
	s.faults = append(s.faults, flushAll("all servers", s.servers[:3]...))
	s.storms = []set{safe, data}
}

func eventually(what string, so func() bool) error {
	for end := time.Now().Add(time.Minute); !so(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			return fmt.Errorf("after 1 min still not: %s", what)
		}
	}
	return nil
}
