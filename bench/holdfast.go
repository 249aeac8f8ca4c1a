package bench

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast"
)

// Holdfast is this library, in the form with contexts and errors that peers have.
var Holdfast = Contender{
	Name:  "holdfast",
	Role:  Ours,
	Setup: "New(rdb) with defaults; Lease and Release",
	Sends: scripts,
	Open:  func(ctx context.Context, s *Stage) (Process, error) { return openHoldfast(ctx, s) },
}

// HoldfastLock is this library in the form of package sync.
var HoldfastLock = Contender{
	Name:  "holdfast Lock",
	Role:  Ours,
	Setup: "New(rdb) with defaults; Lock and Unlock",
	Sends: scripts,
	Open: func(ctx context.Context, s *Stage) (Process, error) {
		p, err := openHoldfast(ctx, s)
		return syncProcess{p}, err
	},
}

// HoldfastDo is this library in the form that calls a function under the lock.
var HoldfastDo = Contender{
	Name:  "holdfast Do",
	Role:  Ours,
	Setup: "New(rdb) with defaults; Do",
	Sends: scripts,
	Open: func(ctx context.Context, s *Stage) (Process, error) {
		p, err := openHoldfast(ctx, s)
		return doProcess{p}, err
	},
}

// HoldfastLinger is this library when it keeps what was unlocked.
var HoldfastLinger = Contender{
	Name:  "holdfast linger",
	Role:  Ours,
	Setup: "New(rdb, WithLinger(time.Minute)); Lock and Unlock",
	Sends: scripts,
	Open: func(ctx context.Context, s *Stage) (Process, error) {
		p, err := openHoldfast(ctx, s, holdfast.WithLinger(time.Minute))
		return syncProcess{p}, err
	},
}

// HoldfastStrict is this library when each goroutine queues in Redis for itself.
var HoldfastStrict = Contender{
	Name:  "holdfast strict",
	Role:  Ours,
	Setup: "New(rdb, WithStrictFIFO()); Lease and Release",
	Sends: scripts,
	Open: func(ctx context.Context, s *Stage) (Process, error) {
		return openHoldfast(ctx, s, holdfast.WithStrictFIFO())
	},
}

var scripts = []string{"eval", "evalsha"}

func openHoldfast(_ context.Context, s *Stage, opts ...holdfast.Option) (Process, error) {
	rdb := s.client()
	opts = append(opts, holdfast.WithPrefix(s.Prefix+"holdfast"))
	return &holdfastProcess{rdb, holdfast.New(rdb, opts...)}, nil
}

type holdfastProcess struct {
	rdb   redis.UniversalClient
	locks *holdfast.Client
}

func (p *holdfastProcess) Close() error {
	return errors.Join(p.locks.Close(), p.rdb.Close())
}

func (p *holdfastProcess) Mutex(_ context.Context, name string) (Locker, error) {
	return &leaser{acquire: p.locks.Mutex(name).Lease}, nil
}

func (p *holdfastProcess) RWMutex(_ context.Context, name string) (read, write Locker, err error) {
	rw := p.locks.RWMutex(name)
	return &leaser{acquire: rw.RLease}, &leaser{acquire: rw.Lease}, nil
}

func (p *holdfastProcess) Semaphore(name string, limit int64) Locker {
	s := p.locks.Semaphore(name, limit)
	return &leaser{acquire: func(ctx context.Context) (*holdfast.Lease, error) { return s.Lease(ctx, 1) }}
}

// leaser keeps the lease between Lock and Unlock.
type leaser struct {
	acquire func(context.Context) (*holdfast.Lease, error)
	lease   *holdfast.Lease
}

func (l *leaser) Lock(ctx context.Context) (err error) {
	l.lease, err = l.acquire(ctx)
	return err
}

func (l *leaser) Unlock(ctx context.Context) error { return l.lease.Release(ctx) }

// syncProcess has mutexes of the form of package sync.
type syncProcess struct{ Process }

func (p syncProcess) Mutex(_ context.Context, name string) (Locker, error) {
	return syncLocker{p.Process.(*holdfastProcess).locks.Mutex(name)}, nil
}

// syncLocker is a lock of package sync, or one like it.
type syncLocker struct{ l sync.Locker }

func (s syncLocker) Lock(context.Context) error   { s.l.Lock(); return nil }
func (s syncLocker) Unlock(context.Context) error { s.l.Unlock(); return nil }

// doProcess has mutexes that call a function.
type doProcess struct{ Process }

func (p doProcess) Mutex(_ context.Context, name string) (Locker, error) {
	m := p.Process.(*holdfastProcess).locks.Mutex(name)
	return doer{&leaser{acquire: m.Lease}, m}, nil
}

// doer is also a Locker, for those that cannot call.
type doer struct {
	Locker
	m *holdfast.Mutex
}

func (d doer) Do(ctx context.Context, f func()) error {
	return d.m.Do(ctx, func(context.Context) error { f(); return nil })
}
