package holdfast_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/test/behavior/lab"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

func TestAnyNameWorks(t *testing.T) {
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		a, b := l.Near(), l.Near()
		names := []string{
			"{}", "{", "}", "}{", "{a}b", "a", "a\x00", "\x00", "\n", "a\nb", " ", "a b", "\xff\xfe", "\xc3",
			"*", "?", "[", "%s", "-", "'\"\\", "1:mutex:a", "ü", "🔒", strings.Repeat("n", 512),
		}
		held := map[string]*holdfast.Lease{}
		for _, name := range names {
			held[name] = l.Lease(a, name) // so none is the same as another
			assert.Equal(t, name, held[name].Name())
			a.RWMutex(name).RLock()
			require.True(t, a.Semaphore(name, 1).TryAcquire(1))
		}
		for _, name := range names {
			w := l.Wait(b, name)
			l.UntilQueue(name, 1)
			info := l.Inspect(name)
			assert.Equal(t, name, info.Name)
			require.NoError(t, held[name].Renew(t.Context()))
			require.NoError(t, held[name].Release(t.Context()))
			next := w.Granted(lab.Soon)
			l.Holds(next)
			require.NoError(t, next.Release(t.Context()))
			b.Mutex(name).Lock()
			b.Mutex(name).Unlock()
			l.Free(a, name)

			assert.False(t, b.Semaphore(name, 1).TryAcquire(1))
			a.Semaphore(name, 1).Release(1)
			w = l.Ask(b.RWMutex(name).Lease)
			l.UntilWaiting(b.RWMutex(name), 1)
			a.RWMutex(name).RUnlock()
			l.GiveBack(w.Granted(lab.Soon))
		}
	})
}

func TestUnlockOfUnlockedMutexPanics(t *testing.T) {
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		mu := l.Near().Mutex("x")
		assert.Contains(t, lab.Panics(t, mu.Unlock), "unlock of unlocked mutex")
		mu.Lock()
		mu.Unlock()
		assert.Contains(t, lab.Panics(t, mu.Unlock), "unlock of unlocked mutex")
		require.True(t, mu.TryLock())
		mu.Unlock()
		assert.Contains(t, lab.Panics(t, mu.Unlock), "unlock of unlocked mutex")
		// A lock of another client is not locked here.
		other := l.Near().Mutex("x")
		other.Lock()
		assert.Contains(t, lab.Panics(t, mu.Unlock), "unlock of unlocked mutex")
		assert.False(t, mu.TryLock())
		other.Unlock()
	})
}

func TestUnlockNeverTouchesALease(t *testing.T) {
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		c := l.Near()
		lease := l.Lease(c, "x")
		assert.Contains(t, lab.Panics(t, c.Mutex("x").Unlock), "unlock of unlocked mutex")
		l.Holds(lease)

		// Neither one that was taken between a Lock that was lost and its Unlock.
		require.NoError(t, lease.Release(t.Context()))
		c.Mutex("x").Lock()
		require.NoError(t, c.Mutex("x").ForceUnlock(t.Context()))
		lease = l.Lease(c, "x")
		c.Mutex("x").Unlock()
		l.Holds(lease)
		require.NoError(t, lease.Release(t.Context()))
		l.Free(c, "x")
	})
}

func TestDoReleasesWhateverHappens(t *testing.T) {
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		c := l.Near()
		failed := errors.New("work failed")
		require.NoError(t, c.Mutex("x").Do(t.Context(), func(context.Context) error { return nil }))
		l.Free(c, "x")
		require.Equal(t, failed, c.Mutex("x").Do(t.Context(), func(context.Context) error { return failed }))
		l.Free(c, "x")
		assert.PanicsWithValue(t, "work", func() {
			_ = c.Mutex("x").Do(t.Context(), func(context.Context) error { panic("work") })
		})
		l.Free(c, "x")

		// When ctx ends, so does the context of f, but not the lock.
		ctx, cancel := context.WithCancelCause(t.Context())
		err := lab.Promptly(t, lab.Soon, func() error {
			return c.Mutex("x").Do(ctx, func(inner context.Context) error {
				cancel(failed)
				<-inner.Done()
				assert.NotEmpty(t, l.Inspect("x").Holders)
				return context.Cause(inner)
			})
		})
		require.ErrorIs(t, err, failed)
		require.NotErrorIs(t, err, holdfast.ErrLost)
		l.Free(c, "x")

		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = c.Mutex("x").Do(context.Background(), func(context.Context) error {
				runtime.Goexit()
				return nil
			})
		}()
		lab.Promptly(t, lab.Soon, func() error { <-done; return nil })
		l.Free(c, "x")
	})
}

// calls is how often the server was called by name since before.
func calls(after, before map[string]int64, names ...string) (sum int64) {
	for _, name := range names {
		sum += after[name] - before[name]
	}
	return sum
}

// Commands of scripts are counted as well, but scripts do not call these. PING is sent where an
// answer takes long, as on a machine that does much else.
var byClients = []string{
	"eval", "script|load", "subscribe", "unsubscribe", "echo", "get", "multi", "exec",
	"watch", "client|list", "client|id", "client|tracking", "psubscribe", "ssubscribe", "wait", "info",
}

func TestLockAndUnlockAreTwoCommands(t *testing.T) {
	t.Parallel()
	l := lab.New(t, redistest.Real(t))
	c := l.Near()
	l.Ready(c)
	mu := c.Mutex("x")
	mu.Lock()
	mu.Unlock()
	const rounds = 100
	for what, cycle := range map[string]func(){
		"Lock": func() { mu.Lock(); mu.Unlock() },
		"Lease": func() {
			lease, err := mu.Lease(t.Context())
			require.NoError(t, err)
			require.NoError(t, lease.Release(t.Context()))
		},
	} {
		var asked, told, others int64
		for try := 0; try < 5 && (try == 0 || asked != 2*rounds || told+others != 1); try++ { // what has no answer for a second is said again
			before := l.Server.CommandStats(t)
			for range rounds {
				cycle()
			}
			after := l.Server.CommandStats(t)
			asked, told, others = calls(after, before, "evalsha"), calls(after, before, "publish", "pubsub|numsub"), calls(after, before, byClients...)
		}
		assert.EqualValues(t, 2*rounds, asked, what)
		assert.Zero(t, told, what)
		assert.EqualValues(t, 1, others, "INFO of this test")
	}
}

func TestHandOverIsOneCommand(t *testing.T) {
	t.Parallel()
	l := lab.New(t, redistest.Real(t))
	side := [2]*holdfast.Client{l.Near(), l.Near()}
	l.Ready(side[0])
	held := l.Lease(side[0], "x")
	pass := func(i int) {
		t.Helper()
		w := l.Wait(side[i], "x")
		// Not with Inspect, which is a script.
		l.Until("the other waits", func() bool {
			return l.Waits(driver.Mutex, "x")
		})
		require.NoError(t, held.Release(t.Context()))
		held = w.Granted(lab.Soon)
	}
	for i := range 4 { // until both listen
		pass((i + 1) % 2)
	}
	l.UntilListening(2)
	const rounds = 100
	// One to wait and one to hand over. A waiter that is there when the client hears that it is subscribed,
	// which may be later than the server says so, asks once more.
	var asked, told, others, pings int64
	for try := 0; try < 5 && (try == 0 || asked > 2*rounds+2 || others != 1); try++ { // what has no answer for a second is said again
		began := time.Now()
		before := l.Server.CommandStats(t)
		for i := range rounds {
			pass((i + 1) % 2)
		}
		after := l.Server.CommandStats(t)
		pings = int64(time.Since(began)/time.Second) + 1
		asked, told, others = calls(after, before, "evalsha"), calls(after, before, "publish"), calls(after, before, byClients...)
	}
	assert.InDelta(t, 2*rounds+1, asked, 1)
	assert.GreaterOrEqual(t, told, int64(rounds))
	assert.LessOrEqual(t, told, rounds+2*pings)
	assert.EqualValues(t, 1, others, "INFO of this test")
	require.NoError(t, held.Release(t.Context()))
}
