package holdfast_test

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
	"github.com/holdfast-go/holdfast/internal/redistest"
)

// complaints are the lines of the log about the lock that say why a caller still waits.
func (l *lab) complaints(name string) (lines []string) {
	for line := range strings.Lines(l.log.String()) {
		if strings.Contains(line, "still waiting for the store") && strings.Contains(line, "lock="+name+" ") {
			lines = append(lines, line)
		}
	}
	return lines
}

func (l *lab) untilComplaint(name, reason string) {
	l.t.Helper()
	l.until("the log says "+reason, func() bool { return len(l.complaints(name)) > 0 })
	line := l.complaints(name)[0]
	assert.Contains(l.t, line, "kind=mutex")
	assert.Contains(l.t, line, reason)
}

// Nobody waits for a store in silence: neither a call that can return an error, as long as
// the trouble may pass, nor Lock, which has no error to return.
func TestWaiterIsToldWhatIsWrongWithTheStore(t *testing.T) {
	t.Parallel()
	config := func(l *lab, name, value string) {
		require.NoError(l.t, l.direct.ConfigSet(l.t.Context(), name, value).Err())
	}
	allowed := func(l *lab, rules ...any) { l.user("app", append([]any{"~*", "&*", "+@all"}, rules...)...) }
	for name, scene := range map[string]struct {
		strike, heal func(*lab)
		reason       string
		passes       bool // so Lease waits, too
	}{
		"memory is full": {
			func(l *lab) { config(l, "maxmemory", "1") },
			func(l *lab) { config(l, "maxmemory", "0") },
			"OOM", true,
		},
		"it became a replica": {
			func(l *lab) { require.NoError(l.t, l.direct.ReplicaOf(l.t.Context(), "127.0.0.1", "1").Err()) },
			func(l *lab) { require.NoError(l.t, l.direct.ReplicaOf(l.t.Context(), "no", "one").Err()) },
			"READONLY", true,
		},
		"too few replicas": {
			func(l *lab) { config(l, "min-replicas-to-write", "1") },
			func(l *lab) { config(l, "min-replicas-to-write", "0") },
			"NOREPLICAS", true,
		},
		"a right was taken away": {
			func(l *lab) { allowed(l, "-evalsha", "-eval") },
			func(l *lab) { allowed(l) },
			"NOPERM", false,
		},
		"the password was changed": {
			func(l *lab) {
				require.NoError(l.t, l.direct.Do(l.t.Context(), "ACL", "SETUSER", "app", "resetpass", ">other").Err())
				l.link.Cut()
			},
			func(l *lab) { allowed(l) },
			"WRONGPASS", false,
		},
		"it is cut off": {
			func(l *lab) { l.link.Refuse(true); l.link.Cut() },
			func(l *lab) { l.link.Refuse(false) },
			"connection refused", true,
		},
		"it is silent": {
			func(l *lab) { l.link.BlackHole(true) },
			func(l *lab) { l.link.BlackHole(false); l.link.Cut() },
			"does not answer", true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, redistest.Real(t))
			l.remember()
			allowed(l)
			c := l.open(l.link.Client(t, func(o *redis.Options) { o.Username, o.Password = "app", "secret" }))
			l.ready(c)
			scene.strike(l)
			began := time.Now()
			locked := begin(c.Mutex("locked").Lock)
			w := l.wait(c, "leased")
			l.untilComplaint("locked", scene.reason)
			assert.GreaterOrEqual(t, time.Since(began), 2*time.Second, "a hiccup is not worth a line")
			if scene.passes {
				l.untilComplaint("leased", scene.reason)
			} else {
				require.ErrorContains(t, w.failed(soon), scene.reason)
			}
			scene.heal(l)
			l.ends(locked)
			if scene.passes {
				require.NoError(t, w.granted(2*soon).Release(t.Context()))
			}
			c.Mutex("locked").Unlock()
		})
	}
}

// A waiter that has its place in the queue, and waits for others, learns of the outage, too.
func TestOutageIsLoggedForAWaiterThatQueuedBefore(t *testing.T) {
	t.Parallel()
	l := newLab(t, redistest.Real(t))
	l.remember()
	near, far := l.near(), l.far()
	l.ready(far)
	held := l.lease(near, "x")
	locked := begin(far.Mutex("x").Lock)
	l.untilQueue("x", 1)
	l.untilListening(1)
	l.link.Refuse(true)
	l.link.Cut()
	l.untilComplaint("x", "connection refused")
	l.link.Refuse(false)
	l.giveBack(held)
	l.ends(locked)
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

// An outage of an hour must not fill the disk, and whoever looks must see that it goes on.
func TestLongOutageIsLoggedEverMoreRarely(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, log := &failing{Driver: memdriver.New()}, new(labLog)
		c := holdfast.Open(d, holdfast.WithLogger(slog.New(slog.NewTextHandler(log, nil))))
		d.down.Store(true)
		lines := func() int { return strings.Count(log.String(), "\n") }
		var done []<-chan any
		for _, f := range []func(){
			c.Mutex("x").Lock,
			func() { _, err := c.Mutex("y").Lease(t.Context()); assert.NoError(t, err) },
			func() { _, err := c.Mutex("z").Inspect(t.Context()); assert.NoError(t, err) },
		} {
			done = append(done, begin(f))
		}
		time.Sleep(1900 * time.Millisecond)
		require.Zero(t, lines())
		time.Sleep(300 * time.Millisecond)
		require.Equal(t, 3, lines(), log.String())
		time.Sleep(time.Hour)
		require.Less(t, lines(), 3*13, "at 2, 4, 8, 16 s and so on")
		require.Greater(t, lines(), 3*9)
		require.Equal(t, lines(), strings.Count(log.String(), "an outage"), "the reason")
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

// What is meant for another node of a Cluster will never be answered by this one.
func TestClientOfOneNodeOfAClusterIsToldSo(t *testing.T) {
	cluster := redistest.NewCluster(t)
	key := func(i int) string { return fmt.Sprintf("holdfast:1:mutex:%d", i) }
	here, there := cluster.Owner(t, key(0)), 1
	for cluster.Owner(t, key(there)).Addr() == here.Addr() {
		there++
	}
	c := holdfast.New(here.Client(t))
	defer func() { require.NoError(t, c.Close()) }()
	mu := c.Mutex(fmt.Sprint(there))
	for what, err := range errorsOf(t, mu) {
		require.ErrorContains(t, err, "redis.NewClusterClient", what)
	}
	require.Contains(t, panics(t, mu.Lock), "redis.NewClusterClient")
}
