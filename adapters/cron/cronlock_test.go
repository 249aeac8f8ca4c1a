package cronlock_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/robfig/cron/v3"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	cronlock "github.com/holdfast-go/holdfast/adapters/cron"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/memdriver"
)

// log remembers what it is told.
type log struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *log) Info(msg string, kv ...any) { l.Error(nil, "info "+msg, kv...) }

func (l *log) Error(err error, msg string, kv ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	fmt.Fprintln(&l.text, err, msg, kv)
}

func (l *log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Three processes have the same schedule, and clocks that differ by a second.
func TestJobRunsOncePerTick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const processes, hours = 3, 5
		store := memdriver.New()
		var runs atomic.Int32
		var said log
		var all []*cron.Cron
		time.Sleep(30 * time.Minute) // between two ticks
		for i := range processes {
			locks := holdfast.Open(store)
			defer func() { assert.NoError(t, locks.Close()) }()
			c := cron.New(cron.WithSeconds())
			mu := locks.Mutex("report:hourly", holdfast.WithMinHold(time.Minute))
			_, err := c.AddJob(fmt.Sprintf("%d 0 * * * *", i), cron.NewChain(cronlock.Once(mu, &said)).Then(cron.FuncJob(func() { runs.Add(1) })))
			require.NoError(t, err)
			c.Start()
			all = append(all, c)
		}
		time.Sleep(hours * time.Hour)
		for _, c := range all {
			<-c.Stop().Done()
		}
		assert.EqualValues(t, hours, runs.Load())
		assert.Equal(t, hours*(processes-1), strings.Count(said.String(), "info skip"))
	})
}

func TestJobThatPanicsGivesTheLockBack(t *testing.T) {
	locks := holdfast.Open(memdriver.New())
	defer locks.Close()
	mu := locks.Mutex("x")
	cron.NewChain(cron.Recover(cron.DiscardLogger), cronlock.Once(mu, cron.DiscardLogger)).
		Then(cron.FuncJob(func() { panic("job") })).Run()
	assert.True(t, mu.TryLock())
	mu.Unlock()
}

// cron has no way to tell the job.
func TestLockThatIsLostIsLogged(t *testing.T) {
	locks := holdfast.Open(memdriver.New())
	defer locks.Close()
	mu := locks.Mutex("x")
	var said log
	cron.NewChain(cronlock.Once(mu, &said)).
		Then(cron.FuncJob(func() { require.NoError(t, mu.ForceUnlock(t.Context())) })).Run()
	assert.Contains(t, said.String(), "lock lost")
	assert.NotContains(t, said.String(), "info")
}

func TestJobIsSkippedWhileTheStoreIsAway(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locks := holdfast.Open(away{memdriver.New()})
		defer locks.Close()
		var said log
		began := time.Now()
		cron.NewChain(cronlock.Once(locks.Mutex("x"), &said)).
			Then(cron.FuncJob(func() { t.Error("it runs without a lock") })).Run()
		assert.LessOrEqual(t, time.Since(began), time.Second)
		assert.Contains(t, said.String(), "skip")
		assert.NotContains(t, said.String(), "info")
	})
}

type away struct{ *memdriver.Driver }

func (away) Acquire(ctx context.Context, _ *driver.Request) (driver.Grant, error) {
	<-ctx.Done()
	return driver.Grant{}, fmt.Errorf("%w: %w", driver.ErrTransient, ctx.Err())
}
