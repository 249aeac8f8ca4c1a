package fault_test

import (
	"context"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/test/behavior/lab"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

func TestWaitersAreServedAfter(t *testing.T) {
	redistest.SoakOnly(t)
	t.Parallel()
	const ttl = 900 * time.Millisecond
	for name, scene := range map[string]struct {
		strike   func(*lab.Lab)
		dataLost bool
	}{
		"SCRIPT FLUSH": {
			strike: func(l *lab.Lab) { require.NoError(l.T, l.Direct.ScriptFlush(l.T.Context()).Err()) },
		},
		"a kill of all subscriptions": {
			strike: func(l *lab.Lab) {
				n, err := l.Direct.ClientKillByFilter(l.T.Context(), "TYPE", "pubsub").Result()
				require.NoError(l.T, err)
				require.EqualValues(l.T, 3, n)
			},
		},
		"a cut of all connections": {
			strike: func(l *lab.Lab) { l.Link.Cut() },
		},
		"a while without connections": {
			strike: func(l *lab.Lab) {
				l.Link.Refuse(true)
				l.Link.Cut()
				time.Sleep(ttl / 3)
				l.Link.Refuse(false)
			},
		},
		"a pause of the server": {
			strike: func(l *lab.Lab) { l.Server.Pause(); time.Sleep(ttl / 3); l.Server.Resume() },
		},
		"a restart without the data": {
			strike:   func(l *lab.Lab) { l.Server.Restart() },
			dataLost: true,
		},
		"FLUSHALL": {
			strike:   func(l *lab.Lab) { require.NoError(l.T, l.Direct.FlushAll(l.T.Context()).Err()) },
			dataLost: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := lab.New(t, redistest.Real(t))
			near := l.Near(holdfast.WithTTL(ttl))
			far := make([]*holdfast.Client, 3)
			for i := range far {
				far[i] = l.Far(holdfast.WithTTL(ttl))
			}
			held, other := l.Lease(near, "x"), l.Lease(far[0], "other")
			c := l.Crowd("x", 3, far...)
			c.EnterWith(1, held.Fence())
			c.Leave(1)
			l.UntilQueue("x", 9)
			l.UntilListening(3)

			scene.strike(l)
			if err := held.Release(t.Context()); scene.dataLost && err != nil {
				require.ErrorIs(t, err, holdfast.ErrLost)
			} else {
				require.NoError(t, err)
			}
			c.RequireServed(ttl/3 + l.Slack)
			l.Free(near, "x")
			if scene.dataLost {
				l.Loses(other, ttl+l.Slack)
				return
			}
			l.Keeps(other, ttl) // its renewals got through
			require.NoError(t, other.Release(t.Context()))
		})
	}
}

// After a black hole the connections stay silent for ever, and so does the subscription:
// no FIN, no RST.
func TestWaiterIsServedAfterItsConnectionsWentDead(t *testing.T) {
	t.Parallel()
	lab.WithPatience(t, func(t *testing.T, l *lab.Lab) {
		l.Remember()
		const ttl, readTimeout = 900 * time.Millisecond, 300 * time.Millisecond
		far := l.Open(l.Link.Client(t, func(o *redis.Options) { o.ReadTimeout = readTimeout }), holdfast.WithTTL(ttl))
		near := l.Near()
		l.Ready(far)
		for _, dead := range []time.Duration{ttl / 3, 2 * ttl} {
			held := l.Lease(near, "x")
			w := l.Wait(far, "x")
			l.UntilQueue("x", 1)
			l.UntilListening(1)
			l.Link.BlackHole(true)
			time.Sleep(dead)
			l.Link.BlackHole(false)
			require.NoError(t, held.Release(t.Context()))
			lease := w.Granted(readTimeout + ttl/3 + l.Slack)
			l.Holds(lease)
			require.NoError(t, lease.Release(t.Context()))
			l.SoonFree(near, "x")
			l.Link.Cut()
		}
	})
}

func TestHolderOnAFrozenServerStopsInTime(t *testing.T) {
	t.Parallel()
	const ttl = 3 * time.Second
	l := lab.New(t, redistest.Real(t))
	a, b := l.Near(holdfast.WithTTL(ttl)), l.Near(holdfast.WithTTL(ttl))
	lease := l.Lease(a, "x")
	w := l.Wait(b, "x")
	l.UntilQueue("x", 1)
	l.Server.Pause()
	defer l.Server.Resume()
	l.Loses(lease, ttl+l.Slack)
	l.Server.Resume()
	// Whatever the server finds in its sockets now, only one gets the lock.
	next := w.Granted(ttl + l.Slack)
	assert.Greater(t, next.Fence(), lease.Fence(), "FOUL: fences went back")
	require.ErrorIs(t, lease.Release(t.Context()), holdfast.ErrLost)
	l.Holds(next)
	require.NoError(t, next.Release(t.Context()))
	l.Free(a, "x")
}

func TestLockWaitsOutAnOutage(t *testing.T) {
	t.Parallel()
	l := lab.New(t, redistest.Real(t))
	mu := l.Near().Mutex("x")
	mu.Lock()
	mu.Unlock()
	l.Server.Stop()
	locked := make(chan struct{})
	go func() { mu.Lock(); close(locked) }()
	select {
	case <-locked:
		t.Fatal("locked without a server")
	case <-time.After(300 * time.Millisecond):
	}
	l.Server.Restart()
	lab.Promptly(t, 2*lab.Soon, func() error { <-locked; return nil })
	mu.Unlock()
	l.Free(l.Near(), "x")
}

func TestWaiterWhosePushIsLostIsServedByItsHeartbeat(t *testing.T) {
	t.Parallel()
	lab.WithPatience(t, func(t *testing.T, l *lab.Lab) {
		const ttl = 900 * time.Millisecond
		far, near := l.Far(holdfast.WithTTL(ttl)), l.Near()
		l.Ready(far)
		for range 2 {
			held := l.Lease(near, "x")
			w := l.Wait(far, "x")
			l.UntilQueue("x", 1)
			l.UntilListening(1)
			var lost atomic.Int64
			l.Link.DropPush(func(_, payload string) bool {
				return strings.HasPrefix(payload, "granted ") && lost.Add(1) == 1
			})
			began := time.Now()
			require.NoError(t, held.Release(t.Context()))
			lease := w.Granted(ttl/3 + l.Slack)
			if l.Virtual {
				assert.LessOrEqual(t, w.At.Sub(began), ttl/3)
				assert.EqualValues(t, 1, lost.Load())
			}
			l.Holds(lease)
			require.NoError(t, lease.Release(t.Context()))
			l.Free(near, "x")
		}
	})
}

// prudish is the way through a proxy that hangs up when it sees a SUBSCRIBE.
type prudish struct {
	net.Conn
	hangUp *atomic.Bool
	tries  *atomic.Int64
}

func (p prudish) Write(b []byte) (int, error) {
	if strings.Contains(string(b), "subscribe") {
		if p.tries.Add(1); p.hangUp.Load() {
			return len(b), p.Close()
		}
	}
	return p.Conn.Write(b)
}

// Every hand-over is slower then by two orders, and nothing else tells of that.
func TestProxyThatHangsUpOnSubscriptionsIsSaidOnceAndLeftInPeace(t *testing.T) {
	lab.InBubble(t, func(t *testing.T, l *lab.Lab) {
		var hangUp atomic.Bool
		var tries atomic.Int64
		hangUp.Store(true)
		far := l.Open(l.Server.Client(t, func(o *redis.Options) {
			dial := o.Dialer
			o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
				if ctx.Err() != nil {
					return nil, ctx.Err()
				}
				conn, err := dial(ctx, network, addr)
				return prudish{conn, &hangUp, &tries}, err
			}
		}))
		near := l.Near()
		// handsOver has a waiter wait for so long, and returns how often it is subscribed meanwhile.
		handsOver := func(after time.Duration) int64 {
			held := l.Lease(near, "x")
			was := tries.Load()
			w := l.Wait(far, "x")
			time.Sleep(after)
			n := tries.Load() - was
			require.NoError(t, held.Release(t.Context()))
			require.NoError(t, w.Granted(250*time.Millisecond+l.Slack).Release(t.Context()))
			return n
		}
		require.LessOrEqual(t, handsOver(20*time.Second), int64(8))
		require.Equal(t, 1, strings.Count(l.Log.String(), "no news of locks"), l.Log.String())
		require.InDelta(t, 9, handsOver(5*time.Minute), 2)
		time.Sleep(time.Minute)
		was := tries.Load()
		time.Sleep(10 * time.Hour)
		require.Equal(t, was, tries.Load(), "FOUL: nobody waits")
		require.Equal(t, 1, strings.Count(l.Log.String(), "news of locks"), l.Log.String())

		hangUp.Store(false)
		handsOver(time.Minute)
		require.Equal(t, 1, strings.Count(l.Log.String(), "news of locks comes in again"), l.Log.String())
		require.Zero(t, handsOver(time.Minute))
		require.Equal(t, 2, strings.Count(l.Log.String(), "news of locks"), l.Log.String())
	})
}

// A subscription whose connection is open but dead is worse than one that broke:
// nobody is told.
func TestHalfOpenSubscriptionIsFoundAndMadeAnew(t *testing.T) {
	t.Parallel()
	lab.WithPatience(t, func(t *testing.T, l *lab.Lab) {
		const ttl = 900 * time.Millisecond
		far, near := l.Far(), l.Near()
		l.Ready(far)
		subscribed := l.Count(func(cmd []string) bool { return strings.EqualFold(cmd[0], "subscribe") })

		// As long as it is not found, the heartbeat serves.
		held := l.Lease(near, "x")
		w := l.Wait(far, "x", holdfast.WithTTL(ttl))
		l.UntilQueue("x", 1)
		l.UntilListening(1)
		l.Link.DropPush(func(string, string) bool { return true })
		require.NoError(t, held.Release(t.Context()))
		lease := w.Granted(ttl/3 + l.Slack)
		require.NoError(t, lease.Release(t.Context()))

		// Here the heartbeat is 12 s away. The test hears of the new subscription by the
		// ask that follows it.
		held = l.Lease(near, "x")
		was := subscribed.Load()
		var asked atomic.Bool
		l.Tap(func(cmd []string) {
			if subscribed.Load() > was && l.Asking("x")(cmd) {
				asked.Store(true)
			}
		})
		w = l.Wait(far, "x")
		l.UntilQueue("x", 1)
		l.Until("the subscription is made anew", func() bool { return subscribed.Load() > was })
		l.Link.DropPush(nil)
		l.Until("the waiter has asked", asked.Load)
		began := time.Now()
		require.NoError(t, held.Release(t.Context()))
		lease = w.Granted(lab.Soon)
		if l.Virtual {
			assert.Less(t, w.At.Sub(began), 250*time.Millisecond)
		}
		require.NoError(t, lease.Release(t.Context()))

		// And pushes are heard again.
		held = l.Lease(near, "x")
		w = l.Wait(far, "x")
		l.UntilQueue("x", 1)
		l.UntilListening(1)
		time.Sleep(500 * time.Millisecond) // longer than the polls of who is not subscribed
		began = time.Now()
		require.NoError(t, held.Release(t.Context()))
		lease = w.Granted(lab.Soon)
		if l.Virtual {
			assert.Zero(t, w.At.Sub(began))
		}
		require.NoError(t, lease.Release(t.Context()))
	})
}
