package bench

import (
	"context"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/holdfast-go/holdfast"
	zkdriver "github.com/holdfast-go/holdfast/driver/zookeeper"
	"github.com/holdfast-go/holdfast/internal/test/zktest"
)

// ZooKeeper is the recipe alone: ephemeral sequential nodes, of which each watches the one before.
var ZooKeeper = Contender{
	Name:  "zookeeper",
	Role:  Peer,
	Setup: "one server with defaults, which writes to disk; zk.Lock of go-zookeeper, a session for each process",
	Open: func(ctx context.Context, s *Stage) (Process, error) {
		if err := s.noZooKeeper(); err != nil {
			return nil, err
		}
		conn, _, err := zk.Connect(s.zookeeper(), ttl, zk.WithLogger(silent{}), zk.WithLogInfo(false))
		if err != nil {
			return nil, err
		}
		return &zkProcess{conn, "/" + strings.NewReplacer("/", "-", ":", "-").Replace(s.Prefix)}, nil
	},
}

// HoldfastZooKeeper is this library on ZooKeeper.
var HoldfastZooKeeper = Contender{
	Name:  "holdfast zookeeper",
	Role:  Ours,
	Setup: "Open(zkdriver.New(servers)) with defaults; Lease and Release",
	Open: func(ctx context.Context, s *Stage) (Process, error) {
		if err := s.noZooKeeper(); err != nil {
			return nil, err
		}
		prefix := strings.NewReplacer("/", "-", ":", "-").Replace(s.Prefix) + "-own"
		locks := holdfast.Open(zkdriver.New(s.zookeeper(), zkdriver.WithPrefix(prefix)))
		return &ownZooKeeperProcess{holdfastProcess{locks: locks}}, nil
	},
}

type ownZooKeeperProcess struct{ holdfastProcess }

func (p *ownZooKeeperProcess) Close() error { return p.locks.Close() }

// noZooKeeper is why there is none.
func (s *Stage) noZooKeeper() error {
	switch {
	case s.zookeeper == nil:
		return Absence("this is a work on another store")
	case !zktest.Found():
		return Absence("no ZooKeeper: apt-get install zookeeperd")
	}
	return nil
}

// startZooKeeper starts n servers with defaults, which end with the stage.
func (s *Stage) startZooKeeper(n int) []string {
	settings := []string{"tickTime=2000", "forceSync=yes"}
	if n == 1 {
		return []string{zktest.Start(s.tb, settings...).Addr}
	}
	return zktest.Addrs(zktest.Ensemble(s.tb, n, nil, settings...))
}

type silent struct{}

func (silent) Printf(string, ...any) {}

type zkProcess struct {
	conn   *zk.Conn
	prefix string
}

func (p *zkProcess) Close() error {
	p.conn.Close()
	return nil
}

func (p *zkProcess) Mutex(_ context.Context, name string) (Locker, error) {
	path := p.prefix + "/" + strings.NewReplacer("/", "-", " ", "-").Replace(name)
	return &zkLocker{zk.NewLock(p.conn, path, zk.WorldACL(zk.PermAll))}, nil
}

// zkLocker cannot be cancelled while it waits.
type zkLocker struct{ l *zk.Lock }

func (l *zkLocker) Lock(context.Context) error   { return l.l.Lock() }
func (l *zkLocker) Unlock(context.Context) error { return l.l.Unlock() }

// OnZooKeeper are works where the lock is in ZooKeeper, which writes to its disk.
var OnZooKeeper = []Work{
	onZooKeeper("1/hold=0s", "One client on one lock", 300*time.Millisecond, mutexes(1)),
	onZooKeeper("64/hold=0s", "64 clients on one lock", time.Second, mutexes(each(64)...)),
}

func onZooKeeper(name, title string, time time.Duration, st setting) Work {
	return Work{
		Name:       "ZooKeeper/" + name,
		Title:      "ZooKeeper: " + title,
		About:      "One server with defaults, which waits for its disk at each write.",
		Contenders: []Contender{HoldfastZooKeeper, ZooKeeper},
		Columns:    []Figure{Throughput, WaitP50, WaitP99, WaitMax, Jain, ClientPerOp, Allocs},
		Turns:      15,
		Time:       time,
		Enter:      st.enter,
	}
}

// Stores compare what this library does on each store, for those that have to choose one. They start a
// server of each. So they are not among [Works].
var Stores = []Work{
	stores("1/hold=0s", "One client on one lock", 300*time.Millisecond, mutexes(1)),
	stores("2/hold=0s", "Two clients on one lock", 300*time.Millisecond, mutexes(each(2)...)),
	stores("64/hold=0s", "64 clients on one lock", time.Second, mutexes(each(64)...)),
}

func stores(name, title string, time time.Duration, st setting) Work {
	w := onZooKeeper(name, title, time, st)
	w.Name, w.Title = "Stores/"+name, "Stores: "+title
	w.About = "One server of each with defaults, and three for redlock. PostgreSQL, etcd and ZooKeeper wait for their disk."
	w.Contenders = []Contender{Holdfast, HoldfastRedlock, HoldfastPostgres, HoldfastEtcd, HoldfastZooKeeper, ZooKeeper}
	return w
}
