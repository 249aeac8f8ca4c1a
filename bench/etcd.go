package bench

import (
	"context"
	"errors"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	recipe "go.etcd.io/etcd/client/v3/experimental/recipes"
	"go.uber.org/zap"
)

// Etcd is the package concurrency of go.etcd.io/etcd.
var Etcd = Contender{
	Name:  "etcd",
	Role:  Peer,
	Setup: "one node with defaults, which writes to disk; concurrency.Mutex, a session for each who contends",
	Open: func(ctx context.Context, s *Stage) (Process, error) {
		if s.Etcd == "" {
			return nil, Absence(s.NoEtcd)
		}
		client, err := clientv3.New(clientv3.Config{Endpoints: []string{s.Etcd}, Logger: zap.NewNop()})
		if err != nil {
			return nil, err
		}
		return &etcdProcess{client: client, prefix: s.Prefix, used: map[string]bool{}}, nil
	},
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

func (p *etcdProcess) RWMutex(ctx context.Context, name string) (read, write Locker, err error) {
	s, err := p.session(ctx, name)
	if err != nil {
		return nil, nil, err
	}
	rw := recipe.NewRWMutex(s, p.prefix+name)
	return recipeLocker{rw.RLock, rw.RUnlock}, recipeLocker{rw.Lock, rw.Unlock}, nil
}

// recipeLocker is a lock of the recipes, which cannot be cancelled.
type recipeLocker struct{ lock, unlock func() error }

func (l recipeLocker) Lock(context.Context) error   { return l.lock() }
func (l recipeLocker) Unlock(context.Context) error { return l.unlock() }
