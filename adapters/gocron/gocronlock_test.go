package gocronlock_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	gocronlock "github.com/holdfast-go/holdfast/adapters/gocron"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/memdriver"
)

const soon = 10 * time.Second

func open(t *testing.T, store driver.Driver) *holdfast.Client {
	c := holdfast.Open(store)
	t.Cleanup(func() { assert.NoError(t, c.Close()) })
	return c
}

// once schedules a job that is run at once, and returns what becomes of it.
func once(t *testing.T, job func(), opts ...gocron.SchedulerOption) <-chan string {
	s, err := gocron.NewScheduler(opts...)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.Shutdown()) })
	became := make(chan string, 2)
	_, err = s.NewJob(gocron.OneTimeJob(gocron.OneTimeJobStartImmediately()), gocron.NewTask(job), gocron.WithName("report"),
		gocron.WithEventListeners(
			gocron.AfterJobRuns(func(uuid.UUID, string) { became <- "run" }),
			gocron.AfterLockError(func(_ uuid.UUID, _ string, err error) {
				assert.ErrorIs(t, err, holdfast.ErrLocked)
				became <- "skipped"
			})))
	require.NoError(t, err)
	s.Start()
	return became
}

func next(t *testing.T, became <-chan string) string {
	t.Helper()
	select {
	case what := <-became:
		return what
	case <-time.After(soon):
		t.Fatal("the job was neither run nor skipped")
		return ""
	}
}

func TestJobRunsOnOneSchedulerOnly(t *testing.T) {
	store := memdriver.New()
	here, elsewhere := open(t, store), open(t, store)
	var runs atomic.Int32
	running, finish := make(chan struct{}), make(chan struct{})
	first := once(t, func() { runs.Add(1); close(running); <-finish },
		gocron.WithDistributedLocker(gocronlock.NewLocker(here, time.Hour)))
	select {
	case <-running:
	case <-time.After(soon):
		t.Fatal("the job was not run")
	}
	locker := gocron.WithDistributedLocker(gocronlock.NewLocker(elsewhere, time.Hour))
	require.Equal(t, "skipped", next(t, once(t, func() { runs.Add(1) }, locker)), "while it is run elsewhere")
	close(finish)
	require.Equal(t, "run", next(t, first))
	require.Equal(t, "skipped", next(t, once(t, func() { runs.Add(1) }, locker)), "just after it was run elsewhere")
	assert.EqualValues(t, 1, runs.Load())
}

func TestJobIsUnlockedWhenItIsDoneAndMinHoldIsOver(t *testing.T) {
	c := open(t, memdriver.New())
	for range 2 {
		require.Equal(t, "run", next(t, once(t, func() {}, gocron.WithDistributedLocker(gocronlock.NewLocker(c, 20*time.Millisecond)))))
		require.Eventually(t, func() bool { return c.Mutex("report").TryLock() }, soon, time.Millisecond)
		c.Mutex("report").Unlock()
	}
}

func TestLeaderRunsTheJobs(t *testing.T) {
	store := memdriver.New()
	a, b := open(t, store), open(t, store)
	leads := func(e *gocronlock.Elector) {
		t.Helper()
		require.Eventually(t, func() bool { return e.IsLeader(t.Context()) == nil }, soon, time.Millisecond)
	}
	first := gocronlock.NewElector(a, "scheduler")
	defer first.Close()
	leads(first)
	second := gocronlock.NewElector(b, "scheduler")
	defer second.Close()
	require.ErrorIs(t, second.IsLeader(t.Context()), gocronlock.ErrNotLeader)
	require.Equal(t, "run", next(t, once(t, func() {}, gocron.WithDistributedElector(first))))
	idle := once(t, func() { t.Error("run by another than the leader") }, gocron.WithDistributedElector(second))
	select {
	case what := <-idle:
		t.Fatal(what)
	case <-time.After(50 * time.Millisecond):
	}

	first.Close()
	leads(second)
	require.ErrorIs(t, first.IsLeader(t.Context()), gocronlock.ErrNotLeader)
	require.Equal(t, "run", next(t, once(t, func() {}, gocron.WithDistributedElector(second))))

	// A leader that is lost stands again.
	held, err := a.Mutex("scheduler").Inspect(t.Context())
	require.NoError(t, err)
	require.NoError(t, a.Mutex("scheduler").ForceUnlock(t.Context()))
	require.Eventually(t, func() bool {
		again, err := a.Mutex("scheduler").Inspect(t.Context())
		return err == nil && len(again.Holders) == 1 && again.Holders[0].Fence > held.Holders[0].Fence
	}, soon, time.Millisecond)
	leads(second)
}

// gocron neither tells the job, nor looks at what Unlock returns.
func TestLossIsLoggedAndTouchesNobody(t *testing.T) {
	store, said := memdriver.New(), make(lines, 10)
	here, elsewhere := holdfast.Open(store, holdfast.WithLogger(slog.New(slog.NewTextHandler(said, nil)))), open(t, store)
	defer func() { assert.NoError(t, here.Close()) }()
	became := once(t, func() {
		assert.NoError(t, elsewhere.Mutex("report").ForceUnlock(t.Context()))
	}, gocron.WithDistributedLocker(gocronlock.NewLocker(here, time.Second)))
	assert.Contains(t, next(t, said), "lock lost")
	assert.Equal(t, "run", next(t, became))

	lock, err := gocronlock.NewLocker(here, time.Second).Lock(t.Context(), "x")
	require.NoError(t, err)
	require.NoError(t, elsewhere.Mutex("x").ForceUnlock(t.Context()))
	other, err := elsewhere.Mutex("x").TryLease(t.Context())
	require.NoError(t, err)
	require.ErrorIs(t, lock.Unlock(t.Context()), holdfast.ErrLost)
	require.NoError(t, other.Renew(t.Context()), "the lock of another was released")
}

// lines are those of a log.
type lines chan string

func (l lines) Write(line []byte) (int, error) {
	l <- string(line)
	return len(line), nil
}

func TestJobWhoseContextHasEndedTakesNoLock(t *testing.T) {
	c := open(t, memdriver.New())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := gocronlock.NewLocker(c, time.Second).Lock(ctx, "x")
	require.ErrorIs(t, err, context.Canceled)
	require.True(t, c.Mutex("x").TryLock(), "it is locked nevertheless")
}

func TestElectorThatWaitsClosesAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := holdfast.Open(memdriver.New())
		defer c.Close()
		c.Mutex("scheduler").Lock() // another leads
		waits := gocronlock.NewElector(c, "scheduler")
		synctest.Wait()
		began := time.Now()
		waits.Close()
		assert.Zero(t, time.Since(began))
		c.Mutex("scheduler").Unlock()
		synctest.Wait() // what it asked for is withdrawn in the background
		require.ErrorIs(t, waits.IsLeader(t.Context()), gocronlock.ErrNotLeader)
		require.True(t, c.Mutex("scheduler").TryLock(), "it was elected")
	})
}

// A refusal, such as of a password that is being changed, may pass.
func TestElectorThatIsRefusedSaysWhyAndStandsAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &refusing{Driver: memdriver.New()}
		store.refuses.Store(true)
		c := holdfast.Open(store)
		defer c.Close()
		e := gocronlock.NewElector(c, "scheduler")
		defer e.Close()
		synctest.Wait()
		require.ErrorIs(t, e.IsLeader(t.Context()), gocronlock.ErrNotLeader)
		require.ErrorIs(t, e.IsLeader(t.Context()), errRefused)
		store.refuses.Store(false)
		time.Sleep(2 * time.Second)
		require.NoError(t, e.IsLeader(t.Context()))
	})
}

var errRefused = errors.New("refused")

// refusing is a store that may grant nothing.
type refusing struct {
	*memdriver.Driver
	refuses atomic.Bool
}

func (d *refusing) Acquire(ctx context.Context, r *driver.Request) (driver.Grant, error) {
	if d.refuses.Load() {
		return driver.Grant{}, fmt.Errorf("%w: %w", errRefused, driver.ErrNotExecuted)
	}
	return d.Driver.Acquire(ctx, r)
}
