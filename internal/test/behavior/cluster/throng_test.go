package cluster_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/redisdriver"
	"github.com/holdfast-go/holdfast/internal/test/behavior/lab"
	"github.com/holdfast-go/holdfast/internal/test/referee"
)

// deployment is a store of several servers, and those who use it.
type deployment struct {
	t       *testing.T
	prefix  string
	connect func(t *testing.T) redis.UniversalClient
	log     lab.Log
}

// client is a process of its own, as far as Redis can tell.
func (d *deployment) client(t *testing.T, opts ...holdfast.Option) *holdfast.Client {
	t.Helper()
	opts = append([]holdfast.Option{
		holdfast.WithTTL(lab.Ages), holdfast.WithLogger(slog.New(slog.NewTextHandler(&d.log, nil))),
	}, opts...)
	c := holdfast.Open(redisdriver.New(d.connect(t), redisdriver.WithPrefix(d.prefix)), opts...)
	t.Cleanup(func() { assert.NoError(t, c.Close()) })
	return c
}

// throng are goroutines of several clients who go in and out of what a lock guards, and a
// referee beside them who knows nothing of locks.
type throng struct {
	*referee.Referee
	t       *testing.T
	ctx     context.Context // ends when the test has failed
	stop    chan struct{}
	members sync.WaitGroup
	visits  []*atomic.Int64 // of each member

	mu      sync.Mutex
	total   int64 // What a lock with one holder guards. It is not under mu from the reading to the writing.
	lost    int   // leases
	changes int64
}

func newThrong(t *testing.T, limit int64) *throng {
	t.Helper()
	w := &throng{t: t, Referee: &referee.Referee{Limit: limit}, stop: make(chan struct{})}
	var end context.CancelFunc
	w.ctx, end = context.WithCancel(t.Context())
	t.Cleanup(func() { end(); w.members.Wait() })
	return w
}

// join adds members, who each hold that much when they are inside.
func (w *throng) join(n int, weight int64, lease lab.Leasing) {
	for range n {
		visits := new(atomic.Int64)
		w.visits = append(w.visits, visits)
		w.members.Go(func() {
			for !w.over() && w.ctx.Err() == nil {
				if w.visit(weight, lease) {
					visits.Add(1)
				}
			}
		})
	}
}

func (w *throng) over() bool {
	select {
	case <-w.stop:
		return true
	default:
		return false
	}
}

// visit reports whether the member was inside, with a lease that was good until the end.
func (w *throng) visit(weight int64, lease lab.Leasing) bool {
	l, err := lease(w.ctx)
	if err != nil {
		if w.ctx.Err() == nil {
			w.t.Error(err)
		}
		return false
	}
	w.EnterWith(weight, l.Fence())
	alone := weight == w.Limit
	w.mu.Lock()
	total := w.total
	w.mu.Unlock()
	select {
	case <-l.Done():
	case <-time.After(time.Millisecond):
	}
	good := l.Err() == nil
	w.end(total, alone, good)
	w.Leave(weight)
	// It waits for the store until the lease would have ended.
	if err := l.Release(context.Background()); err != nil && !errors.Is(err, holdfast.ErrLost) {
		assert.ErrorIs(w.t, err, driver.ErrTransient)
	}
	return good
}

func (w *throng) end(total int64, alone, good bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !good {
		w.lost++
	}
	if alone {
		w.total = total + 1
		w.changes++
	}
}

// everybody returns when each member has been inside n times more.
func (w *throng) everybody(n int64, within time.Duration) {
	w.t.Helper()
	began := time.Now()
	goals := make([]int64, len(w.visits))
	for i, v := range w.visits {
		goals[i] = v.Load() + n
	}
	for i, v := range w.visits {
		for ; v.Load() < goals[i]; time.Sleep(time.Millisecond) {
			if time.Since(began) > within {
				w.t.Fatalf("member %d was not served within %v", i, within)
			}
		}
	}
	w.t.Logf("everybody was served after %v", time.Since(began))
}

// disperse has everybody go home, and says what the referee has seen.
func (w *throng) disperse() {
	w.t.Helper()
	close(w.stop)
	lab.Promptly(w.t, 2*lab.Ages, func() any { w.members.Wait(); return nil })
	assert.Equal(w.t, w.changes, w.total, "FOUL: updates were lost")
	w.t.Logf("%d were inside, %d of them lost their lease", w.Entries(), w.lost)
	w.RequireFair(w.t, w.Entries())
}

// requireUnused returns when nobody holds the lock or waits for it. A release of a member may
// still be on its way in the background.
func requireUnused(t *testing.T, k lab.Lock) {
	t.Helper()
	var info holdfast.Info
	require.Eventually(t, func() bool {
		var err error
		info, err = k.Inspect(t.Context())
		return err == nil && len(info.Holders)+len(info.Queue) == 0
	}, 2*lab.Soon, 10*time.Millisecond, "left behind: %+v", &info)
}

// kindsOf are a lock of each kind with that name, as a client sees it.
func kindsOf(c *holdfast.Client, name string) map[driver.Kind]lab.Lock {
	return map[driver.Kind]lab.Lock{
		driver.Mutex: c.Mutex(name), driver.RWMutex: c.RWMutex(name), driver.Semaphore: c.Semaphore(name, lab.CrowdOf),
	}
}

// throngs has members of each kind of lock join: mutexes, readers and writers, and holders
// of few permits and of all.
func throngs(t *testing.T, name string, clients []*holdfast.Client, each int) map[driver.Kind]*throng {
	all := map[driver.Kind]*throng{
		driver.Mutex: newThrong(t, 1), driver.RWMutex: newThrong(t, lab.CrowdOf), driver.Semaphore: newThrong(t, lab.CrowdOf),
	}
	for _, c := range clients {
		all[driver.Mutex].join(each, 1, c.Mutex(name).Lease)
		all[driver.RWMutex].join(each/2, 1, c.RWMutex(name).RLease)
		all[driver.RWMutex].join(1, lab.CrowdOf, c.RWMutex(name).Lease)
		all[driver.Semaphore].join(each/2, 3, lab.Permits(c.Semaphore(name, lab.CrowdOf), 3))
		all[driver.Semaphore].join(1, lab.CrowdOf, lab.Permits(c.Semaphore(name, lab.CrowdOf), lab.CrowdOf))
	}
	return all
}
