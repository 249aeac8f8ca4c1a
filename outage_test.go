package holdfast_test

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

func TestWaitersAreServedAfter(t *testing.T) {
	t.Parallel()
	const ttl = 900 * time.Millisecond
	for name, scene := range map[string]struct {
		strike   func(*lab)
		dataLost bool
	}{
		"SCRIPT FLUSH": {
			strike: func(l *lab) { require.NoError(l.t, l.direct.ScriptFlush(l.t.Context()).Err()) },
		},
		"a kill of all subscriptions": {
			strike: func(l *lab) {
				n, err := l.direct.ClientKillByFilter(l.t.Context(), "TYPE", "pubsub").Result()
				require.NoError(l.t, err)
				require.EqualValues(l.t, 3, n)
			},
		},
		"a cut of all connections": {
			strike: func(l *lab) { l.link.Cut() },
		},
		"a while without connections": {
			strike: func(l *lab) {
				l.link.Refuse(true)
				l.link.Cut()
				time.Sleep(ttl / 3)
				l.link.Refuse(false)
			},
		},
		"a pause of the server": {
			strike: func(l *lab) { l.s.Pause(); time.Sleep(ttl / 3); l.s.Resume() },
		},
		"a restart without the data": {
			strike:   func(l *lab) { l.s.Restart() },
			dataLost: true,
		},
		"FLUSHALL": {
			strike:   func(l *lab) { require.NoError(l.t, l.direct.FlushAll(l.t.Context()).Err()) },
			dataLost: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, redistest.Real(t))
			near := l.near(holdfast.WithTTL(ttl))
			far := make([]*holdfast.Client, 3)
			for i := range far {
				far[i] = l.far(holdfast.WithTTL(ttl))
			}
			held, other := l.lease(near, "x"), l.lease(far[0], "other")
			c := l.crowd("x", 3, far...)
			c.last.Store(held.Fence())
			l.untilQueue("x", 9)
			l.untilListening(3)

			scene.strike(l)
			if err := held.Release(t.Context()); scene.dataLost && err != nil {
				require.ErrorIs(t, err, holdfast.ErrLost)
			} else {
				require.NoError(t, err)
			}
			c.requireServed(ttl/3 + l.slack)
			l.free(near, "x")
			if scene.dataLost {
				l.loses(other, ttl+l.slack)
				return
			}
			l.keeps(other, ttl) // its renewals got through
			require.NoError(t, other.Release(t.Context()))
		})
	}
}

// After a black hole the connections stay silent for ever, and so does the subscription:
// no FIN, no RST.
func TestWaiterIsServedAfterItsConnectionsWentDead(t *testing.T) {
	t.Parallel()
	withPatience(t, func(t *testing.T, l *lab) {
		l.remember()
		const ttl, readTimeout = 900 * time.Millisecond, 300 * time.Millisecond
		far := l.open(l.link.Client(t, func(o *redis.Options) { o.ReadTimeout = readTimeout }), holdfast.WithTTL(ttl))
		near := l.near()
		l.ready(far)
		for _, dead := range []time.Duration{ttl / 3, 2 * ttl} {
			held := l.lease(near, "x")
			w := l.wait(far, "x")
			l.untilQueue("x", 1)
			l.untilListening(1)
			l.link.BlackHole(true)
			time.Sleep(dead)
			l.link.BlackHole(false)
			require.NoError(t, held.Release(t.Context()))
			lease := w.granted(readTimeout + ttl/3 + l.slack)
			l.holds(lease)
			require.NoError(t, lease.Release(t.Context()))
			l.soonFree(near, "x")
			l.link.Cut()
		}
	})
}

func TestHolderOnAFrozenServerStopsInTime(t *testing.T) {
	t.Parallel()
	const ttl = 600 * time.Millisecond
	l := newLab(t, redistest.Real(t))
	a, b := l.near(holdfast.WithTTL(ttl)), l.near(holdfast.WithTTL(ttl))
	lease := l.lease(a, "x")
	w := l.wait(b, "x")
	l.untilQueue("x", 1)
	l.s.Pause()
	defer l.s.Resume()
	l.loses(lease, ttl+l.slack)
	l.s.Resume()
	// Whatever the server finds in its sockets now, only one gets the lock.
	next := w.granted(ttl + l.slack)
	assert.Greater(t, next.Fence(), lease.Fence())
	require.ErrorIs(t, lease.Release(t.Context()), holdfast.ErrLost)
	l.holds(next)
	require.NoError(t, next.Release(t.Context()))
	l.free(a, "x")
}

func TestLockWaitsOutAnOutage(t *testing.T) {
	t.Parallel()
	l := newLab(t, redistest.Real(t))
	mu := l.near().Mutex("x")
	mu.Lock()
	mu.Unlock()
	l.s.Stop()
	locked := make(chan struct{})
	go func() { mu.Lock(); close(locked) }()
	select {
	case <-locked:
		t.Fatal("locked without a server")
	case <-time.After(300 * time.Millisecond):
	}
	l.s.Restart()
	promptly(t, 2*soon, func() error { <-locked; return nil })
	mu.Unlock()
	l.free(l.near(), "x")
}

func TestWaiterWhosePushIsLostIsServedByItsHeartbeat(t *testing.T) {
	t.Parallel()
	withPatience(t, func(t *testing.T, l *lab) {
		const ttl = 900 * time.Millisecond
		far, near := l.far(holdfast.WithTTL(ttl)), l.near()
		l.ready(far)
		for range 2 {
			held := l.lease(near, "x")
			w := l.wait(far, "x")
			l.untilQueue("x", 1)
			l.untilListening(1)
			var lost atomic.Int64
			l.link.DropPush(func(_, payload string) bool {
				return strings.HasPrefix(payload, "granted ") && lost.Add(1) == 1
			})
			began := time.Now()
			require.NoError(t, held.Release(t.Context()))
			lease := w.granted(ttl/3 + l.slack)
			if l.virtual {
				assert.LessOrEqual(t, w.at.Sub(began), ttl/3)
				assert.EqualValues(t, 1, lost.Load())
			}
			l.holds(lease)
			require.NoError(t, lease.Release(t.Context()))
			l.free(near, "x")
		}
	})
}

// A subscription whose connection is open but dead is worse than one that broke:
// nobody is told.
func TestHalfOpenSubscriptionIsFoundAndMadeAnew(t *testing.T) {
	t.Parallel()
	withPatience(t, func(t *testing.T, l *lab) {
		const ttl = 900 * time.Millisecond
		far, near := l.far(), l.near()
		l.ready(far)
		subscribed := l.count(func(cmd []string) bool { return strings.EqualFold(cmd[0], "subscribe") })

		// As long as it is not found, the heartbeat serves.
		held := l.lease(near, "x")
		w := l.wait(far, "x", holdfast.WithTTL(ttl))
		l.untilQueue("x", 1)
		l.untilListening(1)
		l.link.DropPush(func(string, string) bool { return true })
		require.NoError(t, held.Release(t.Context()))
		lease := w.granted(ttl/3 + l.slack)
		require.NoError(t, lease.Release(t.Context()))

		// Here the heartbeat is 10 s away. The test hears of the new subscription by the
		// ask that follows it.
		held = l.lease(near, "x")
		was := subscribed.Load()
		var asked atomic.Bool
		l.tap(func(cmd []string) {
			if subscribed.Load() > was && l.asking("x")(cmd) {
				asked.Store(true)
			}
		})
		w = l.wait(far, "x")
		l.untilQueue("x", 1)
		l.until("the subscription is made anew", func() bool { return subscribed.Load() > was })
		l.link.DropPush(nil)
		l.until("the waiter has asked", asked.Load)
		began := time.Now()
		require.NoError(t, held.Release(t.Context()))
		lease = w.granted(soon)
		if l.virtual {
			assert.Less(t, w.at.Sub(began), 250*time.Millisecond)
		}
		require.NoError(t, lease.Release(t.Context()))

		// And pushes are heard again.
		held = l.lease(near, "x")
		w = l.wait(far, "x")
		l.untilQueue("x", 1)
		l.untilListening(1)
		time.Sleep(500 * time.Millisecond) // longer than the polls of who is not subscribed
		began = time.Now()
		require.NoError(t, held.Release(t.Context()))
		lease = w.granted(soon)
		if l.virtual {
			assert.Zero(t, w.at.Sub(began))
		}
		require.NoError(t, lease.Release(t.Context()))
	})
}
