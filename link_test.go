package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

// The holder may be wrong about the lock, but only in one direction.
func TestHolderThatIsCutOffStopsBeforeTheStoreLetsAnotherIn(t *testing.T) {
	t.Parallel()
	for name, blackHole := range map[string]func(*redistest.Proxy, bool){
		"both ways":    (*redistest.Proxy).BlackHole,
		"its requests": (*redistest.Proxy).BlackHoleRequests,
		"its replies":  (*redistest.Proxy).BlackHoleReplies,
	} {
		t.Run(name, func(t *testing.T) {
			withPatience(t, func(t *testing.T, l *lab) {
				l.remember()
				const ttl = 800 * time.Millisecond
				far, near := l.far(holdfast.WithTTL(ttl)), l.near()
				l.ready(far)
				lease := l.lease(far, "x")
				w := l.wait(near, "x")
				l.untilQueue("x", 1)
				l.keeps(lease, ttl/2)

				blackHole(l.link, true)
				select {
				case <-lease.Done():
				case <-w.done:
					if l.virtual {
						t.Fatal("two held the lock")
					}
				}
				// Err looks at the clock: it must be right even where the machine was too
				// busy to end the context in time.
				require.ErrorIs(t, lease.Err(), holdfast.ErrLost)
				l.loses(lease, l.slack)
				if l.virtual {
					assert.Positive(t, l.leaseLeft("x"), "the store was first")
				}
				next := w.granted(2*ttl + l.slack)
				assert.Greater(t, next.Fence(), lease.Fence())

				ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				defer cancel()
				err := promptly(t, 1100*time.Millisecond+l.slack, func() error { return lease.Release(ctx) })
				assert.ErrorIs(t, err, holdfast.ErrLost)
				blackHole(l.link, false)
				l.link.Cut()
				l.holds(next)
				require.NoError(t, next.Release(t.Context()))
				l.soonFree(near, "x")
			})
		})
	}
}

// leaseLeft is how long the lease still lasts on the server.
func (l *lab) leaseLeft(name string) time.Duration {
	l.t.Helper()
	expires, err := l.direct.HGet(l.t.Context(), l.key(name), "expires").Int64()
	require.NoError(l.t, err)
	now, err := l.direct.Time(l.t.Context()).Result()
	require.NoError(l.t, err)
	return time.UnixMilli(expires).Sub(now)
}

func TestLossIsReportedThoughTheLinkIsDead(t *testing.T) {
	t.Parallel()
	withPatience(t, func(t *testing.T, l *lab) {
		l.remember()
		far := l.far(holdfast.WithTTL(300 * time.Millisecond))
		l.ready(far)
		heal := func() { l.link.BlackHole(false); l.link.Cut() }

		// Do, whose context has ended as well.
		ctx, cancel := context.WithCancel(t.Context())
		err := promptly(t, 2*soon, func() error {
			return far.Mutex("do").Do(ctx, func(ctx context.Context) error {
				l.link.BlackHole(true)
				<-ctx.Done()
				assert.ErrorIs(t, context.Cause(ctx), holdfast.ErrLost)
				cancel()
				return nil
			})
		})
		assert.ErrorIs(t, err, holdfast.ErrLost)
		heal()

		// Release that may take all the time it wants, which is a while.
		if l.virtual {
			lease := l.lease(far, "release")
			l.link.BlackHole(true)
			l.loses(lease, 300*time.Millisecond+l.slack)
			err := promptly(t, 3*soon, func() error { return lease.Release(context.Background()) })
			assert.ErrorIs(t, err, holdfast.ErrLost)
			heal()
		}

		// Lock cannot return it, but it stays locked here, and says so in the log.
		mu := far.Mutex("lock")
		mu.Lock()
		l.link.BlackHole(true)
		l.until("the loss is in the log", func() bool { return strings.Contains(l.log.String(), "lock=lock") })
		assert.False(t, mu.TryLock())
		promptly(t, time.Second+l.slack, func() error { mu.Unlock(); return nil })
		heal()
		promptly(t, soon, func() error { mu.Lock(); mu.Unlock(); return nil })
	})
}

// While Redis does not answer, a caller who has had enough can leave.
func TestCancelReturnsAtOnceThoughTheLinkIsDead(t *testing.T) {
	t.Parallel()
	gone := errors.New("gone")
	for name, scene := range map[string]struct {
		fresh  bool // the client has never been answered
		queued bool // the waiter is in the queue already
		hole   func(*redistest.Proxy, bool)
	}{
		"before it ever answered":              {true, false, (*redistest.Proxy).BlackHole},
		"before it answered this":              {false, false, (*redistest.Proxy).BlackHole},
		"after it granted without being heard": {false, false, (*redistest.Proxy).BlackHoleReplies},
		"in the queue":                         {false, true, (*redistest.Proxy).BlackHole},
		"in the queue, unheard":                {false, true, (*redistest.Proxy).BlackHoleReplies},
	} {
		t.Run(name, func(t *testing.T) {
			withPatience(t, func(t *testing.T, l *lab) {
				l.remember()
				near := l.near()
				l.ready(near)
				// The machine may be busy once, not every time.
				fastest := time.Hour
				for range 3 {
					far := l.far()
					if !scene.fresh {
						l.ready(far)
					}
					var held *holdfast.Lease
					if scene.queued {
						held = l.lease(near, "x")
					}
					before := l.link.Swallowed()
					if !scene.queued {
						scene.hole(l.link, true)
					}
					w := l.wait(far, "x")
					if scene.queued {
						l.untilQueue("x", 1)
						l.untilListening(1)
						l.ready(far) // by now it has heard that it is in the queue
						scene.hole(l.link, true)
					} else {
						l.until("something is under way", func() bool { return l.link.Swallowed() > before })
					}
					began := time.Now()
					w.cancel(gone)
					err := w.failed(soon)
					fastest = min(fastest, w.at.Sub(began))
					assert.ErrorIs(t, err, gone)
					if scene.queued {
						assert.ErrorIs(t, err, holdfast.ErrLocked)
					}

					scene.hole(l.link, false)
					l.link.Cut()
					if held != nil {
						require.NoError(t, held.Release(t.Context()))
					}
					l.soonFree(near, "x")
					require.NoError(t, promptly(t, 2*soon, far.Close))
					l.untilListening(0)
				}
				limit := 50 * time.Millisecond
				if l.virtual {
					limit = time.Millisecond
				}
				assert.Less(t, fastest, limit)
			})
		})
	}
}

func TestUnlockAndTryLockWaitASecondForADeadLink(t *testing.T) {
	t.Parallel()
	withPatience(t, func(t *testing.T, l *lab) {
		l.remember()
		far, near := l.far(), l.near()
		l.ready(far)
		mu := far.Mutex("x")
		mu.Lock()
		l.link.BlackHole(true)
		promptly(t, time.Second+l.slack, func() error { mu.Unlock(); return nil })
		assert.False(t, promptly(t, time.Second+l.slack, mu.TryLock))
		l.link.BlackHole(false)
		l.link.Cut()
		l.soonFree(near, "x")
		promptly(t, soon, func() error { mu.Lock(); mu.Unlock(); return nil })
	})
}

func TestReleaseWithADoneContextWaitsASecondForADeadLink(t *testing.T) {
	t.Parallel()
	withPatience(t, func(t *testing.T, l *lab) {
		l.remember()
		far, near := l.far(), l.near()
		l.ready(far)
		lease := l.lease(far, "x")
		l.link.BlackHole(true)
		gone := errors.New("gone")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(gone)
		err := promptly(t, time.Second+l.slack, func() error { return lease.Release(ctx) })
		assert.ErrorIs(t, err, gone)
		assert.ErrorIs(t, lease.Err(), holdfast.ErrNotHeld)
		l.link.BlackHole(false)
		l.link.Cut()
		l.soonFree(near, "x")
	})
}

func TestEveryCallEndsWithItsContextThoughTheLinkIsDead(t *testing.T) {
	t.Parallel()
	withPatience(t, func(t *testing.T, l *lab) {
		l.remember()
		far := l.far()
		l.ready(far)
		lease := l.lease(far, "x")
		l.link.BlackHole(true)
		gone := errors.New("gone")
		mu := far.Mutex("y")
		for what, call := range map[string]func(context.Context) error{
			"Lease":       func(ctx context.Context) error { _, err := mu.Lease(ctx); return err },
			"TryLease":    func(ctx context.Context) error { _, err := mu.TryLease(ctx); return err },
			"Do":          func(ctx context.Context) error { return mu.Do(ctx, nil) },
			"Inspect":     func(ctx context.Context) error { _, err := mu.Inspect(ctx); return err },
			"ForceUnlock": mu.ForceUnlock,
			"Renew":       lease.Renew,
		} {
			ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, gone)
			began := time.Now()
			err := promptly(t, 50*time.Millisecond+l.slack, func() error { return call(ctx) })
			cancel()
			assert.ErrorIs(t, err, gone, what)
			if l.virtual {
				assert.Equal(t, 50*time.Millisecond, time.Since(began), what)
			}
		}
		require.NoError(t, lease.Err())
		l.link.BlackHole(false)
		l.link.Cut()
		l.holds(lease)
		require.NoError(t, lease.Release(t.Context()))
		l.soonFree(l.near(), "y")
	})
}

func TestCloseGivesUpOnADeadLink(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T, s *redistest.Server) {
		l := newLab(t, s)
		far, near := l.far(holdfast.WithTTL(time.Second)), l.near()
		l.ready(far)
		lease := l.lease(far, "x")
		l.link.BlackHole(true)
		began := time.Now()
		require.Error(t, promptly(t, 11*time.Second, far.Close))
		assert.Greater(t, time.Since(began), time.Second)
		require.Error(t, lease.Err())
		require.NoError(t, far.Close())
		l.soonFree(near, "x")
	})
}

func TestCloseEndsThoseWhoWaitOnADeadLink(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T, s *redistest.Server) {
		l := newLab(t, s)
		l.virtual = true
		for _, fresh := range []bool{true, false} {
			far := l.far()
			if !fresh {
				l.ready(far)
			}
			l.link.BlackHole(true)
			w := l.wait(far, "x")
			background := make(chan error, 1)
			go func() {
				_, err := far.Mutex("x").Lease(context.Background())
				background <- err
			}()
			locked := make(chan any, 1)
			go func() {
				defer func() { locked <- recover() }()
				far.Mutex("x").Lock()
			}()
			time.Sleep(100 * time.Millisecond)
			closed := make(chan error, 1)
			go func() { closed <- far.Close() }()
			require.ErrorIs(t, w.failed(time.Millisecond), holdfast.ErrClosed)
			require.ErrorIs(t, promptly(t, 15*time.Second, func() error { return <-background }), holdfast.ErrClosed)
			assert.Contains(t, fmt.Sprint(promptly(t, 15*time.Second, func() any { return <-locked })), "closed")
			_ = promptly(t, 15*time.Second, func() error { return <-closed })
			l.link.BlackHole(false)
			l.link.Cut()
			l.soonFree(l.near(), "x")
		}
	})
}

// crowd are waiters of several clients that each take the lock for a moment.
type crowd struct {
	*lab
	inside, overlaps atomic.Int64
	served           sync.WaitGroup
	last             atomic.Int64 // the last fence
	unordered        atomic.Int64
}

func (l *lab) crowd(name string, each int, clients ...*holdfast.Client) *crowd {
	l.t.Helper()
	c := &crowd{lab: l}
	for _, client := range clients {
		for range each {
			c.served.Go(func() {
				lease, err := client.Mutex(name).Lease(l.t.Context())
				if !assert.NoError(l.t, err) {
					return
				}
				if c.inside.Add(1) > 1 {
					c.overlaps.Add(1)
				}
				if c.last.Swap(lease.Fence()) >= lease.Fence() {
					c.unordered.Add(1)
				}
				c.inside.Add(-1)
				assert.NoError(l.t, lease.Release(l.t.Context()))
			})
		}
	}
	return c
}

func (c *crowd) requireServed(limit time.Duration) {
	c.t.Helper()
	promptly(c.t, limit, func() error { c.served.Wait(); return nil })
	assert.Zero(c.t, c.overlaps.Load(), "two held the lock")
	assert.Zero(c.t, c.unordered.Load(), "fences went back")
}
