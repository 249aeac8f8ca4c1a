package fault_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/test/behavior/lab"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
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
			lab.WithPatience(t, func(t *testing.T, l *lab.Lab) {
				l.Remember()
				const ttl = 800 * time.Millisecond
				far, near := l.Far(holdfast.WithTTL(ttl)), l.Near()
				l.Ready(far)
				lease := l.Lease(far, "x")
				w := l.Wait(near, "x")
				l.UntilQueue("x", 1)
				l.Keeps(lease, ttl/2)

				blackHole(l.Link, true)
				select {
				case <-lease.Done():
				case <-w.Done:
					if l.Virtual {
						t.Fatal("FOUL: two held the lock")
					}
				}
				// Err looks at the clock: it must be right even where the machine was too
				// busy to end the context in time.
				require.ErrorIs(t, lease.Err(), holdfast.ErrLost)
				l.Loses(lease, l.Slack)
				if l.Virtual {
					assert.Positive(t, leaseLeft(l, "x"), "the store was first")
				}
				next := w.Granted(2*ttl + l.Slack)
				assert.Greater(t, next.Fence(), lease.Fence(), "FOUL: fences went back")

				ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
				defer cancel()
				err := lab.Promptly(t, 1100*time.Millisecond+l.Slack, func() error { return lease.Release(ctx) })
				assert.ErrorIs(t, err, holdfast.ErrLost)
				blackHole(l.Link, false)
				l.Link.Cut()
				l.Holds(next)
				require.NoError(t, next.Release(t.Context()))
				l.SoonFree(near, "x")
			})
		})
	}
}

// leaseLeft is how long the lease still lasts on the server.
func leaseLeft(l *lab.Lab, name string) time.Duration {
	l.T.Helper()
	holders := l.Look(l.Near().Mutex(name)).Holders
	require.Len(l.T, holders, 1)
	return holders[0].TimeLeft
}

func TestLossIsReportedThoughTheLinkIsDead(t *testing.T) {
	t.Parallel()
	lab.WithPatience(t, func(t *testing.T, l *lab.Lab) {
		l.Remember()
		far := l.Far(holdfast.WithTTL(300 * time.Millisecond))
		l.Ready(far)
		heal := func() { l.Link.BlackHole(false); l.Link.Cut() }

		// Do, whose context has ended as well.
		ctx, cancel := context.WithCancel(t.Context())
		err := lab.Promptly(t, 2*lab.Soon, func() error {
			return far.Mutex("do").Do(ctx, func(ctx context.Context) error {
				l.Link.BlackHole(true)
				<-ctx.Done()
				assert.ErrorIs(t, context.Cause(ctx), holdfast.ErrLost)
				cancel()
				return nil
			})
		})
		assert.ErrorIs(t, err, holdfast.ErrLost)
		heal()

		// Release that may take all the time it wants, which is a while.
		if l.Virtual {
			lease := l.Lease(far, "release")
			l.Link.BlackHole(true)
			l.Loses(lease, 300*time.Millisecond+l.Slack)
			err := lab.Promptly(t, 3*lab.Soon, func() error { return lease.Release(context.Background()) })
			assert.ErrorIs(t, err, holdfast.ErrLost)
			heal()
		}

		// Lock cannot return it, but it stays locked here, and says so in the log.
		mu := far.Mutex("lock")
		mu.Lock()
		l.Link.BlackHole(true)
		l.Until("the loss is in the log", func() bool { return strings.Contains(l.Log.String(), "lock=lock") })
		assert.False(t, mu.TryLock())
		lab.Promptly(t, time.Second+l.Slack, func() error { mu.Unlock(); return nil })
		heal()
		lab.Promptly(t, lab.Soon, func() error { mu.Lock(); mu.Unlock(); return nil })
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
			lab.WithPatience(t, func(t *testing.T, l *lab.Lab) {
				l.Remember()
				near := l.Near()
				l.Ready(near)
				// The machine may be busy once, not every time.
				fastest := time.Hour
				for range 3 {
					far := l.Far()
					if !scene.fresh {
						l.Ready(far)
						time.Sleep(lab.Lull)
					}
					var held *holdfast.Lease
					if scene.queued {
						held = l.Lease(near, "x")
					}
					before := l.Link.Swallowed()
					if !scene.queued {
						scene.hole(l.Link, true)
					}
					w := l.Wait(far, "x")
					if scene.queued {
						l.UntilQueue("x", 1)
						l.UntilListening(1)
						l.Ready(far) // by now it has heard that it is in the queue
						if l.Virtual {
							l.Settle()
						}
						scene.hole(l.Link, true)
					} else {
						l.Until("something is under way", func() bool { return l.Link.Swallowed() > before })
					}
					began := time.Now()
					w.Cancel(gone)
					err := w.Failed(lab.Soon)
					fastest = min(fastest, w.At.Sub(began))
					assert.ErrorIs(t, err, gone)
					if scene.queued {
						assert.ErrorIs(t, err, holdfast.ErrLocked)
					}

					scene.hole(l.Link, false)
					l.Link.Cut()
					if held != nil {
						require.NoError(t, held.Release(t.Context()))
					}
					l.SoonFree(near, "x")
					require.NoError(t, lab.Promptly(t, 2*lab.Soon, far.Close))
					l.UntilListening(0)
				}
				limit := 50 * time.Millisecond
				if l.Virtual {
					limit = time.Millisecond
				}
				assert.Less(t, fastest, limit)
			})
		})
	}
}

func TestUnlockAndTryLockWaitASecondForADeadLink(t *testing.T) {
	t.Parallel()
	lab.WithPatience(t, func(t *testing.T, l *lab.Lab) {
		l.Remember()
		far, near := l.Far(), l.Near()
		l.Ready(far)
		mu := far.Mutex("x")
		mu.Lock()
		l.Link.BlackHole(true)
		time.Sleep(lab.Lull)
		lab.Promptly(t, time.Second+l.Slack, func() error { mu.Unlock(); return nil })
		assert.False(t, lab.Promptly(t, time.Second+l.Slack, mu.TryLock))
		l.Link.BlackHole(false)
		l.Link.Cut()
		l.SoonFree(near, "x")
		lab.Promptly(t, lab.Soon, func() error { mu.Lock(); mu.Unlock(); return nil })
	})
}

// A store that has just answered is counted on, and waited for. If it falls silent, the lock is
// given up nevertheless, by a goroutine beside.
func TestStoreThatFallsSilentJustNowIsWaitedForAsLongAsItsClientDoes(t *testing.T) {
	lab.InBubble(t, func(t *testing.T, l *lab.Lab) {
		rdb := l.Link.Client(t)
		far := l.Open(rdb)
		l.Ready(far)
		mu := far.Mutex("x")
		mu.Lock()
		next := l.Wait(l.Near(), "x")
		l.UntilQueue("x", 1)
		l.Link.BlackHole(true)
		time.AfterFunc(100*time.Millisecond, func() { l.Link.BlackHole(false) }) // for new commands
		began := time.Now()
		mu.Unlock()
		took := time.Since(began)
		assert.Greater(t, took, time.Second)
		assert.LessOrEqual(t, took, rdb.Options().ReadTimeout+l.Slack)
		granted := next.Granted(lab.Soon)
		assert.Less(t, next.At.Sub(began), 2*time.Second, "it waits for the repeat beside, not for the connection")
		require.NoError(t, granted.Release(t.Context()))
	})
}

// A caller whose context may be canceled, too, counts on a store that has just answered. If that falls silent, the
// caller keeps to its deadline. It hears of a cancellation when its command ends, which the ReadTimeout bounds, also if
// it waits for a connection or with others. If that is too long, or half a TTL, it does not count on the store.
func TestCallerKeepsToItsContextThoughTheStoreHasJustAnswered(t *testing.T) {
	const never, canceled = time.Hour, 100 * time.Millisecond
	for _, scene := range []struct {
		read, ttl      time.Duration
		callers        int
		deadline       time.Duration // of a caller; never: it is canceled
		lease, release time.Duration // within which it returns, and not before the deadline
	}{
		{5 * time.Second, time.Hour, 1, 1500 * time.Millisecond, 1500 * time.Millisecond, 1500 * time.Millisecond},
		{5 * time.Second, time.Hour, 40, 5050 * time.Millisecond, 5050 * time.Millisecond, 5050 * time.Millisecond},
		{5 * time.Second, time.Hour, 1, 7100 * time.Millisecond, 7100 * time.Millisecond, 7100 * time.Millisecond},
		{5 * time.Second, time.Hour, 40, 7100 * time.Millisecond, 7100 * time.Millisecond, 7100 * time.Millisecond},
		{time.Second, time.Hour, 40, 3100 * time.Millisecond, 3100 * time.Millisecond, 3100 * time.Millisecond},
		{time.Minute, time.Hour, 1, 30 * time.Second, 30 * time.Second, 30 * time.Second},
		{-1, time.Hour, 1, 30 * time.Second, 30 * time.Second, 30 * time.Second},

		{5 * time.Second, time.Hour, 1, never, 5 * time.Second, 5 * time.Second},
		{5 * time.Second, time.Hour, 40, never, 7 * time.Second, 7 * time.Second},
		{5 * time.Second, 10 * time.Second, 1, never, 5 * time.Second, 5 * time.Second},
		{2 * time.Second, time.Hour, 40, never, 4 * time.Second, 4 * time.Second},
		{5 * time.Second, 9 * time.Second, 40, never, canceled, time.Second},
		{6 * time.Second, time.Hour, 1, never, canceled, time.Second},
		{-1, time.Hour, 40, never, canceled, time.Second},
	} {
		for _, releases := range []bool{false, true} {
			t.Run(fmt.Sprintf("read %v ttl %v callers %d deadline %v release %v", scene.read, scene.ttl, scene.callers, scene.deadline, releases), func(t *testing.T) {
				redistest.WithoutTimers(t)
				lab.InBubble(t, func(t *testing.T, l *lab.Lab) {
					far := l.Open(l.Link.Client(t, func(o *redis.Options) { o.ReadTimeout, o.PoolSize = scene.read, 2 }), holdfast.WithTTL(scene.ttl))
					l.Ready(far)
					var leases []*holdfast.Lease
					for i := range scene.callers {
						leases = append(leases, l.Lease(far, fmt.Sprint("x", i)))
					}
					l.Link.BlackHole(true)
					defer l.Heal()
					gone := errors.New("gone")
					within, why := scene.lease, context.DeadlineExceeded
					if releases {
						within = scene.release
					}
					if scene.deadline == never {
						why = gone
					}
					var all sync.WaitGroup
					for i, lease := range leases {
						all.Go(func() {
							ctx, cancel := context.WithCancelCause(t.Context())
							time.AfterFunc(canceled, func() {
								if scene.deadline == never {
									cancel(gone)
								}
							})
							ctx, end := context.WithTimeout(ctx, scene.deadline)
							defer end()
							began := time.Now()
							var err error
							if releases {
								err = lease.Release(ctx)
							} else {
								_, err = far.Mutex(fmt.Sprint("y", i)).Lease(ctx)
							}
							took := time.Since(began)
							assert.ErrorIs(t, err, why)
							assert.LessOrEqual(t, took, within+10*time.Millisecond)
							if scene.deadline != never {
								assert.GreaterOrEqual(t, took, scene.deadline)
								assert.NotErrorIs(t, err, context.Canceled, "nobody has called it off")
							}
						})
					}
					all.Wait()
				})
			})
		}
	}
}

// It waits no longer than the lease would have lasted, whatever keeps the store from answering. Nobody
// can have taken the lock away, so nothing was lost, but the store was not told.
func TestReleaseEndsWithTheLeaseThatItCannotEnd(t *testing.T) {
	for name, fault := range map[string]func(*lab.Lab){
		"no answer": func(l *lab.Lab) { l.Link.BlackHole(true) },
		"cut":       func(l *lab.Lab) { l.Link.Refuse(true); l.Link.Cut() },
	} {
		for _, ttl := range []time.Duration{300 * time.Millisecond, time.Second, 3 * time.Second} {
			for _, bounded := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s, TTL %v, bounded %t", name, ttl, bounded), func(t *testing.T) {
					lab.InBubble(t, func(t *testing.T, l *lab.Lab) {
						l.Remember()
						far := l.Far(holdfast.WithTTL(ttl))
						l.Ready(far)
						ctx := context.Background()
						if bounded {
							var cancel context.CancelFunc
							ctx, cancel = context.WithTimeout(ctx, time.Hour)
							defer cancel()
						}
						lease := l.Lease(far, "x")
						fault(l)
						began := time.Now()
						err := lease.Release(ctx)
						took := time.Since(began)
						l.Link.Refuse(false)
						l.Heal()
						require.ErrorIs(t, err, driver.ErrTransient)
						require.NotErrorIs(t, err, holdfast.ErrLost)
						require.GreaterOrEqual(t, took, ttl-ttl/50)
						require.LessOrEqual(t, took, max(ttl+ttl/10, time.Second)+l.Slack, "FOUL: the lease has ended")
						l.SoonFree(l.Near(), "x")
					})
				})
			}
		}
	}
}

func TestReleaseWithADoneContextWaitsASecondForADeadLink(t *testing.T) {
	t.Parallel()
	lab.WithPatience(t, func(t *testing.T, l *lab.Lab) {
		l.Remember()
		far, near := l.Far(), l.Near()
		l.Ready(far)
		lease := l.Lease(far, "x")
		l.Link.BlackHole(true)
		gone := errors.New("gone")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(gone)
		err := lab.Promptly(t, time.Second+l.Slack, func() error { return lease.Release(ctx) })
		assert.ErrorIs(t, err, gone)
		assert.ErrorIs(t, lease.Err(), holdfast.ErrNotHeld)
		l.Link.BlackHole(false)
		l.Link.Cut()
		l.SoonFree(near, "x")
	})
}

func TestEveryCallEndsWithItsContextThoughTheLinkIsDead(t *testing.T) {
	t.Parallel()
	lab.WithPatience(t, func(t *testing.T, l *lab.Lab) {
		l.Remember()
		far := l.Far()
		l.Ready(far)
		lease := l.Lease(far, "x")
		l.Link.BlackHole(true)
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
			err := lab.Promptly(t, 50*time.Millisecond+l.Slack, func() error { return call(ctx) })
			cancel()
			assert.ErrorIs(t, err, gone, what)
			if l.Virtual {
				assert.Equal(t, 50*time.Millisecond, time.Since(began), what)
			}
		}
		require.NoError(t, lease.Err())
		l.Link.BlackHole(false)
		l.Link.Cut()
		l.Holds(lease)
		require.NoError(t, lease.Release(t.Context()))
		l.SoonFree(l.Near(), "y")
	})
}

func TestCloseGivesUpOnADeadLink(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T, s *redistest.Server) {
		l := lab.New(t, s)
		far, near := l.Far(holdfast.WithTTL(time.Second)), l.Near()
		l.Ready(far)
		lease := l.Lease(far, "x")
		l.Link.BlackHole(true)
		began := time.Now()
		require.Error(t, lab.Promptly(t, 11*time.Second, far.Close))
		assert.Greater(t, time.Since(began), time.Second)
		require.Error(t, lease.Err())
		require.NoError(t, far.Close())
		l.SoonFree(near, "x")
	})
}

func TestCloseEndsThoseWhoWaitOnADeadLink(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T, s *redistest.Server) {
		l := lab.New(t, s)
		l.Virtual = true
		// A caller that counts on a store that has just answered hears it when its command ends.
		for _, scene := range []struct{ ready, lull bool }{{false, false}, {true, true}, {true, false}} {
			far := l.Far()
			within := time.Millisecond
			if scene.ready {
				l.Ready(far)
				within = 7 * time.Second
			}
			if scene.lull {
				time.Sleep(lab.Lull)
				within = time.Millisecond
			}
			l.Link.BlackHole(true)
			w := l.Wait(far, "x")
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
			require.ErrorIs(t, w.Failed(within), holdfast.ErrClosed)
			require.ErrorIs(t, lab.Promptly(t, 15*time.Second, func() error { return <-background }), holdfast.ErrClosed)
			assert.Contains(t, fmt.Sprint(lab.Promptly(t, 15*time.Second, func() any { return <-locked })), "closed")
			_ = lab.Promptly(t, 15*time.Second, func() error { return <-closed })
			l.Link.BlackHole(false)
			l.Link.Cut()
			l.SoonFree(l.Near(), "x")
		}
	})
}

// A lock that lingers is asked for with a subscription, through which its holder would hear
// that somebody waits. Nobody waits, so nobody finds out that the confirmation was lost.
func TestLockThatLingersIsHadWithoutASubscription(t *testing.T) {
	t.Parallel()
	lab.WithPatience(t, func(t *testing.T, l *lab.Lab) {
		l.Remember()
		const ttl = 400 * time.Millisecond // shorter than the wait for the confirmation
		c := l.FarMates(holdfast.WithTTL(ttl), holdfast.WithLinger(time.Millisecond))
		caught, release := l.Link.HoldRequest(redistest.Containing("subscribe"))
		defer release()
		ctx, cancel := context.WithTimeout(t.Context(), lab.Soon)
		defer cancel()
		lease, err := c.Mutex("x").Lease(ctx)
		require.NoError(t, err)
		<-caught
		require.NoError(t, lease.Release(t.Context()))
		began := time.Now()
		lease, err = c.Mutex("y").Lease(ctx)
		require.NoError(t, err)
		if l.Virtual {
			assert.Less(t, time.Since(began), ttl/2, "the next one waited for a subscription, too")
		}
		require.NoError(t, lease.Release(t.Context()))
	})
}
