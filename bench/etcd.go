package bench

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast"
	etcddriver "github.com/holdfast-go/holdfast/driver/etcd"
)

// Etcd is the package concurrency of go.etcd.io/etcd.
var Etcd = Contender{
	Name:  "etcd",
	Role:  Peer,
	Setup: "one member with defaults, which writes to disk; concurrency.Mutex, a session for each who contends",
	Open: func(ctx context.Context, s *Stage) (Process, error) {
		client, err := s.etcdClient()
		if err != nil {
			return nil, err
		}
		return &etcdProcess{client: client, prefix: s.Prefix, used: map[string]bool{}}, nil
	},
}

// HoldfastEtcd is this library on etcd.
var HoldfastEtcd = Contender{
	Name:  "holdfast etcd",
	Role:  Ours,
	Setup: "Open(etcddriver.New(client)) with defaults; Lease and Release",
	Open: func(ctx context.Context, s *Stage) (Process, error) {
		client, err := s.etcdClient()
		if err != nil {
			return nil, err
		}
		locks := holdfast.Open(etcddriver.New(client, etcddriver.WithPrefix(s.Prefix)))
		return &ownEtcdProcess{holdfastProcess{locks: locks}, client}, nil
	},
}

type ownEtcdProcess struct {
	holdfastProcess
	client *clientv3.Client
}

func (p *ownEtcdProcess) Close() error { return errors.Join(p.locks.Close(), p.client.Close()) }

// etcdClient returns a client for one process.
func (s *Stage) etcdClient() (*clientv3.Client, error) {
	if s.NoEtcd != "" {
		return nil, Absence(s.NoEtcd)
	}
	return clientv3.New(clientv3.Config{Endpoints: s.etcd(), Logger: zap.NewNop()})
}

// OnEtcd are works where the lock is in etcd, which writes to its disk.
var OnEtcd = []Work{
	onEtcd("1/hold=0s", "One client on one lock", 15, 300*time.Millisecond, mutexes(1)),
	onEtcd("2/hold=0s", "Two clients on one lock", 15, 300*time.Millisecond, mutexes(each(2)...)),
	onEtcd("64/hold=0s", "64 clients on one lock", 15, time.Second, mutexes(each(64)...)),
	ofThree(onEtcd("3x1/hold=0s", "One client on one lock", 15, 300*time.Millisecond, mutexes(1))),
	ofThree(onEtcd("3x64/hold=0s", "64 clients on one lock", 15, time.Second, mutexes(each(64)...))),
}

func onEtcd(name, title string, turns int, time time.Duration, st setting) Work {
	return Work{
		Name:       "Etcd/" + name,
		Title:      "etcd: " + title,
		About:      "One member with defaults, which waits for its disk at each write.",
		Contenders: []Contender{HoldfastEtcd, Etcd},
		Columns:    []Figure{Throughput, WaitP50, WaitP99, WaitMax, Jain, ClientPerOp, Allocs},
		Turns:      turns,
		Time:       time,
		Enter:      st.enter,
	}
}

func ofThree(w Work) Work {
	enter := w.Enter
	w.Title = "etcd of three members: " + strings.TrimPrefix(w.Title, "etcd: ")
	w.About = "Three members with defaults on one machine, where they take time from each other."
	w.Enter = func(ctx context.Context, s *Stage, c Contender) (Scene, error) {
		return enter(ctx, s.OnEtcdOfThree(), c)
	}
	return w
}

type etcdProcess struct {
	client   *clientv3.Client
	prefix   string
	mu       sync.Mutex
	sessions []*concurrency.Session
	used     map[string]bool // names that the first session has a handle on
}

func (p *etcdProcess) Close() error {
	var errs []error
	for _, s := range p.sessions {
		errs = append(errs, s.Close())
	}
	return errors.Join(append(errs, p.client.Close())...)
}

// session returns the first session if it has nothing to do with that name yet, for two
// mutexes of one session do not exclude each other.
func (p *etcdProcess) session(ctx context.Context, name string) (*concurrency.Session, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.sessions) > 0 && !p.used[name] {
		p.used[name] = true
		return p.sessions[0], nil
	}
	s, err := concurrency.NewSession(p.client)
	if err == nil {
		p.sessions = append(p.sessions, s)
		p.used[name] = true
	}
	return s, err
}

func (p *etcdProcess) Mutex(ctx context.Context, name string) (Locker, error) {
	s, err := p.session(ctx, name)
	if err != nil {
		return nil, err
	}
	return concurrency.NewMutex(s, p.prefix+name), nil
}
