package bench

import (
	"context"
	"sync"

	"golang.org/x/sync/semaphore"
)

// InProcess is what programs use that need not lock across processes.
var InProcess = Contender{
	Name:  "in process",
	Role:  Limit,
	Setup: "sync.Mutex, sync.RWMutex, x/sync/semaphore in shared memory; waits cannot be cancelled",
	Open:  func(_ context.Context, s *Stage) (Process, error) { return memory{s.memory}, nil },
}

// memory has the locks by their names, as there are no processes between which they could
// be.
type memory struct{ locks *sync.Map }

func (m memory) Close() error { return nil }

func (m memory) Mutex(_ context.Context, name string) (Locker, error) {
	mu, _ := m.locks.LoadOrStore(name, new(sync.Mutex))
	return syncLocker{mu.(sync.Locker)}, nil
}

func (m memory) RWMutex(_ context.Context, name string) (read, write Locker, err error) {
	rw, _ := m.locks.LoadOrStore(name, new(sync.RWMutex))
	return syncLocker{rw.(*sync.RWMutex).RLocker()}, syncLocker{rw.(sync.Locker)}, nil
}

func (m memory) Semaphore(name string, limit int64) Locker {
	s, _ := m.locks.LoadOrStore(name, semaphore.NewWeighted(limit))
	return permit{s.(*semaphore.Weighted)}
}

type permit struct{ s *semaphore.Weighted }

func (p permit) Lock(ctx context.Context) error { return p.s.Acquire(ctx, 1) }

func (p permit) Unlock(context.Context) error {
	p.s.Release(1)
	return nil
}
