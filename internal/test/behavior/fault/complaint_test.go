package fault_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/memdriver"
	"github.com/holdfast-go/holdfast/internal/test/behavior/lab"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

func TestLockSaysInTheLogThatItWaitsForTheStore(t *testing.T) {
	t.Parallel()
	s := redistest.Real(t)
	log := &lab.Log{}
	locks := holdfast.New(s.Client(t), holdfast.WithPrefix(s.Prefix()),
		holdfast.WithLogger(slog.New(slog.NewTextHandler(log, nil))))
	defer locks.Close()
	s.Kill()
	locked := make(chan struct{})
	go func() {
		defer close(locked)
		locks.Mutex("orders").Lock()
	}()
	require.Eventually(t, func() bool { return strings.Contains(log.String(), "lock=orders") }, 10*time.Second, 10*time.Millisecond)
	s.Restart()
	<-locked
	locks.Mutex("orders").Unlock()
	require.Equal(t, 1, strings.Count(log.String(), "\n"), "once, not at every attempt")
}

func untilComplaint(l *lab.Lab, of, reason string) {
	l.T.Helper()
	l.Until("the log says "+reason, func() bool { return len(l.Complaints(of)) > 0 })
	line := l.Complaints(of)[0]
	assert.Contains(l.T, line, "kind=mutex")
	assert.Contains(l.T, line, reason)
	assert.Contains(l.T, line, "127.0.0.1:", "where the store is")
}

// Nobody waits for a store in silence: neither a call that can return an error nor Lock, which
// has none to return. A password that is rotated, or a right that is taken away, ends neither, as
// the client has been of use. Whoever does not wait is told at once.
func TestWaiterIsToldWhatIsWrongWithTheStore(t *testing.T) {
	t.Parallel()
	config := func(l *lab.Lab, name, value string) {
		require.NoError(l.T, l.Direct.ConfigSet(l.T.Context(), name, value).Err())
	}
	allowed := func(l *lab.Lab, rules ...any) { l.User("app", append([]any{"~*", "&*", "+@all"}, rules...)...) }
	for name, scene := range map[string]struct {
		strike, heal func(*lab.Lab)
		reason       string
	}{
		"memory is full": {
			func(l *lab.Lab) { config(l, "maxmemory", "1") },
			func(l *lab.Lab) { config(l, "maxmemory", "0") },
			"OOM",
		},
		"it became a replica": {
			func(l *lab.Lab) { require.NoError(l.T, l.Direct.ReplicaOf(l.T.Context(), "127.0.0.1", "1").Err()) },
			func(l *lab.Lab) { require.NoError(l.T, l.Direct.ReplicaOf(l.T.Context(), "no", "one").Err()) },
			"READONLY",
		},
		"too few replicas": {
			func(l *lab.Lab) { config(l, "min-replicas-to-write", "1") },
			func(l *lab.Lab) { config(l, "min-replicas-to-write", "0") },
			"NOREPLICAS",
		},
		"a right was taken away": {
			func(l *lab.Lab) { allowed(l, "-evalsha", "-eval") },
			func(l *lab.Lab) { allowed(l) },
			"NOPERM",
		},
		"the password was changed": {
			func(l *lab.Lab) {
				require.NoError(l.T, l.Direct.Do(l.T.Context(), "ACL", "SETUSER", "app", "resetpass", ">other").Err())
				l.Link.Cut()
			},
			func(l *lab.Lab) { allowed(l) },
			"WRONGPASS",
		},
		"it is cut off": {
			func(l *lab.Lab) { l.Link.Refuse(true); l.Link.Cut() },
			func(l *lab.Lab) { l.Link.Refuse(false) },
			"connection refused",
		},
		"it is silent": {
			func(l *lab.Lab) { l.Link.BlackHole(true) },
			func(l *lab.Lab) { l.Link.BlackHole(false); l.Link.Cut() },
			"does not answer",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := lab.New(t, redistest.Real(t))
			l.Remember()
			allowed(l)
			c := l.Open(l.Link.Client(t, func(o *redis.Options) { o.Username, o.Password = "app", "secret" }))
			l.Ready(c)
			scene.strike(l)
			began := time.Now()
			locked := lab.Begin(c.Mutex("locked").Lock)
			w := l.Wait(c, "leased")
			done := lab.Begin(func() {
				assert.NoError(t, c.Mutex("done").Do(t.Context(), func(context.Context) error { return nil }))
			})
			untilComplaint(l, "waiting=3", scene.reason)
			assert.GreaterOrEqual(t, time.Since(began), 2*time.Second, "a hiccup is not worth a line")
			if scene.reason == "NOPERM" || scene.reason == "WRONGPASS" {
				_, err := c.Mutex("tried").TryLease(t.Context())
				require.ErrorContains(t, err, scene.reason)
				require.ErrorIs(t, err, driver.ErrDenied)
			}
			scene.heal(l)
			l.Ends(locked)
			l.Ends(done)
			require.NoError(t, w.Granted(2*lab.Soon).Release(t.Context()))
			c.Mutex("locked").Unlock()
		})
	}
}

// A waiter that has its place in the queue, and waits for others, learns of the outage, too.
func TestOutageIsLoggedForAWaiterThatQueuedBefore(t *testing.T) {
	t.Parallel()
	l := lab.New(t, redistest.Real(t))
	l.Remember()
	near, far := l.Near(), l.Far()
	l.Ready(far)
	held := l.Lease(near, "x")
	locked := lab.Begin(far.Mutex("x").Lock)
	l.UntilQueue("x", 1)
	l.UntilListening(1)
	l.Link.Refuse(true)
	l.Link.Cut()
	untilComplaint(l, "lock=x ", "connection refused")
	l.Link.Refuse(false)
	l.GiveBack(held)
	l.Ends(locked)
	far.Mutex("x").Unlock()
}

// failing is a store with an outage.
type failing struct {
	driver.Driver
	down atomic.Bool
}

func (f *failing) Unwrap() driver.Driver { return f.Driver }

func (f *failing) Acquire(ctx context.Context, r *driver.Request) (driver.Grant, error) {
	if f.down.Load() {
		return driver.Grant{}, fmt.Errorf("an outage: %w", driver.ErrTransient)
	}
	return f.Driver.Acquire(ctx, r)
}

func (f *failing) Inspect(ctx context.Context, k driver.Kind, name string) (driver.Info, error) {
	if f.down.Load() {
		return driver.Info{}, fmt.Errorf("an outage: %w", driver.ErrTransient)
	}
	return f.Driver.(driver.Inspector).Inspect(ctx, k, name)
}

// Requests come in all the time, and each has to wait. They share the lines.
func TestCrowdInAnOutageSharesTheLinesOfTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, log := &failing{Driver: memdriver.New()}, new(lab.Log)
		c := holdfast.Open(d, holdfast.WithLogger(slog.New(slog.NewTextHandler(log, nil))))
		d.down.Store(true)
		var done []<-chan any
		want := func(name string) <-chan any {
			return lab.Begin(func() {
				c.Mutex(name).Lock()
				c.Mutex(name).Unlock()
			})
		}
		for i := range 500 {
			done = append(done, want(fmt.Sprint("early", i)))
		}
		time.Sleep(50 * time.Millisecond)
		for i := range 100 {
			time.Sleep(100 * time.Millisecond)
			done = append(done, want(fmt.Sprint("late", i)))
		}
		time.Sleep(2 * time.Second)
		lines := strings.Split(strings.TrimSpace(log.String()), "\n")
		require.Len(t, lines, 3, "after 2, 4 and 8 s:\n"+log.String())
		require.Contains(t, lines[0], "waiting=500 waited=2.1s")
		require.Regexp(t, "waiting=5[0-9]{2} ", lines[2])
		d.down.Store(false)
		for _, ended := range done {
			require.Nil(t, <-ended)
		}
		time.Sleep(time.Second)
		require.Equal(t, len(lines), strings.Count(log.String(), "\n"))

		// The next outage is another one, though a line about this one would come seconds later.
		d.down.Store(true)
		again := want("again")
		time.Sleep(2200 * time.Millisecond)
		require.Contains(t, log.String(), "lock=again waited=2.1s")
		d.down.Store(false)
		require.Nil(t, <-again)
		require.NoError(t, c.Close())
	})
}

// An outage of an hour must not fill the disk, and whoever looks must see that it goes on.
func TestLongOutageIsLoggedEverMoreRarely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, log := &failing{Driver: memdriver.New()}, new(lab.Log)
		c := holdfast.Open(d, holdfast.WithLogger(slog.New(slog.NewTextHandler(log, nil))))
		d.down.Store(true)
		lines := func() int { return strings.Count(log.String(), "\n") }
		var done []<-chan any
		for _, f := range []func(){
			c.Mutex("x").Lock,
			func() { _, err := c.Mutex("y").Lease(t.Context()); assert.NoError(t, err) },
			func() { _, err := c.Mutex("z").Inspect(t.Context()); assert.NoError(t, err) },
		} {
			done = append(done, lab.Begin(f))
		}
		time.Sleep(1900 * time.Millisecond)
		require.Zero(t, lines())
		time.Sleep(300 * time.Millisecond)
		require.Equal(t, 1, lines(), log.String())
		time.Sleep(time.Hour)
		require.Less(t, lines(), 13, "at 2, 4, 8, 16 s and so on")
		require.Greater(t, lines(), 9)
		require.Equal(t, lines(), strings.Count(log.String(), "an outage"), "the reason")
		require.Equal(t, lines(), strings.Count(log.String(), "waiting=3"), log.String())
		d.down.Store(false)
		for _, ended := range done {
			require.Nil(t, <-ended)
		}
		after := lines()
		time.Sleep(time.Hour)
		require.Equal(t, after, lines())
		require.NoError(t, c.Close())
	})
}
