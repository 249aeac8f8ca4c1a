// Package store finds the store of locks that a command line names.
package store

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/exit"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/redisdriver"
)

// Store is a store of locks that has answered.
type Store struct {
	Driver driver.Driver
	Name   string // for people, without a password
	Close  func()
	// Form is that of the locks, if it is one of other programs.
	Form *Form
	// Redis or Client is not nil. Client is what the opener of another store has connected.
	Redis  redis.UniversalClient
	Client any
	// Replica says that it is one of a Redis, on which locks can be looked at, not taken.
	Replica bool
	// Explain says of an error what to do about it, in words of the command line.
	Explain func(name string, err error) error
}

// Opener connects to the store at an address. Its errors carry an exit code.
type Opener func(ctx context.Context, a *Address, password string) (*Store, error)

// openers are those of stores besides Redis, by the beginning of a URL.
var openers = map[string]Opener{}

// Register makes a store known, by what its URLs begin with. It is for init functions of packages
// that a program imports if it is to have that store.
func Register(open Opener, schemes ...string) {
	for _, s := range schemes {
		openers[s] = open
	}
}

// Open returns the store at the address, once it has answered. Its errors carry an exit
// code.
func (a *Address) Open(ctx context.Context) (*Store, error) {
	ctx, cancel := context.WithTimeout(ctx, ConnectTimeout)
	defer cancel()
	password, err := a.Password()
	if err != nil {
		return nil, exit.WrongUsage(err)
	}
	if f, url := formOf(a.URL); f != nil {
		return a.openForm(ctx, f, url, password)
	}
	if err := isPrefix(a.Prefix); err != nil {
		return nil, exit.WrongUsage(fmt.Errorf("--prefix: %w", err))
	}
	scheme, _, _ := strings.Cut(a.URL, "://")
	switch scheme {
	case "redis", "rediss", "unix", "redis+sentinel", "rediss+sentinel", "redis+cluster", "rediss+cluster":
		s, err := a.openRedis(ctx, password)
		if err == nil {
			s.Driver = redisdriver.New(s.Redis, redisdriver.WithPrefix(a.Prefix))
		}
		return s, err
	}
	if open := openers[scheme]; open != nil {
		return open(ctx, a, password)
	}
	if len(openers) == 0 {
		return nil, exit.WrongUsage(errors.New("--store: this program has locks on Redis alone; holdfast demo has them on PostgreSQL, etcd and ZooKeeper, too"))
	}
	// Not the whole URL, for its password.
	return nil, exit.WrongUsage(errors.New("--store: want a URL that begins with redis://, rediss://, unix://, redis+sentinel://, " +
		"redis+cluster://, postgres://, etcd:// or zk://, or with setnx+redis://, getset+redis:// or redisson+redis://"))
}

func isPrefix(s string) (err error) {
	defer func() {
		if reason := recover(); reason != nil {
			err = errors.New(strings.TrimPrefix(fmt.Sprint(reason), "redisdriver: "))
		}
	}()
	redisdriver.WithPrefix(s)
	return nil
}

// CanLock returns an error if no lock can be taken on the store, which carries an exit code.
func (s *Store) CanLock() error {
	if s.Replica {
		return s.Unavailable(errReplica)
	}
	return nil
}

// Lacks is the end of a command line that asks for what the store never has.
func (s *Store) Lacks(what string) error {
	return exit.WrongUsage(fmt.Errorf("%s: it %s", s.Name, what))
}

// Unavailable is the failure of a question to a store.
func (s *Store) Unavailable(err error) error {
	code := exit.Unavailable
	if errors.Is(err, errors.ErrUnsupported) {
		code = exit.Usage // which will be so the next time
	}
	explain := explain
	if s.Explain != nil {
		explain = s.Explain
	}
	return exit.With(code, explain(s.Name, err))
}
