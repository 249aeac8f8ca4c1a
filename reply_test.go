package holdfast_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

func TestGrantWhoseReplyIsLostIsTheSameWhenAskedAgain(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		far, near := l.far(), l.near()
		l.ready(far)
		lost := l.link.DropReply(l.askingFirst("x"))
		w := l.wait(far, "x")
		l.untilStruck(lost)
		granted := l.inspect("x").Holders
		require.Len(t, granted, 1)

		lease := w.granted(soon)
		assert.Equal(t, granted[0].Fence, lease.Fence())
		l.holds(lease)
		_, err := near.Mutex("x").TryLease(t.Context())
		require.ErrorIs(t, err, holdfast.ErrLocked)
		require.NoError(t, lease.Release(t.Context()))
		assert.Greater(t, l.free(near, "x"), lease.Fence())
	})
}

func TestLockWhoseReplyIsLostIsLockedOnce(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		far, near := l.far(), l.near()
		l.ready(far)
		mu := far.Mutex("x")
		lost := l.link.DropReply(l.askingFirst("x"))
		promptly(t, soon, func() error { mu.Lock(); return nil })
		l.untilStruck(lost)
		_, err := near.Mutex("x").TryLease(t.Context())
		require.ErrorIs(t, err, holdfast.ErrLocked)
		mu.Unlock()
		l.free(near, "x")
	})
}

func TestGrantToTryLockWhoseReplyIsLostIsNotLeftBehind(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		l.remember()
		far, near := l.far(), l.near()
		l.ready(far)
		lost := l.link.DropReply(l.askingFirst("x"))
		locked := promptly(t, soon, far.Mutex("x").TryLock)
		l.untilStruck(lost)
		if locked {
			far.Mutex("x").Unlock()
		}
		l.soonFree(near, "x")
	})
}

func TestWaiterWhoseReplyIsLostQueuesOnce(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		far, near := l.far(), l.near()
		l.ready(far)
		queued := 0
		// The first time a client may look at the lock before it queues.
		for _, name := range []string{"x", "y"} {
			held := l.lease(near, name)
			asks := l.count(l.asking(name))
			lost := l.link.DropReply(l.asking(name))
			w := l.wait(far, name)
			l.untilStruck(lost)
			was := len(l.inspect(name).Queue)
			assert.LessOrEqual(t, was, 1)
			queued += was
			l.until("it asked again", func() bool { return asks.Load() > 1 })
			l.untilListening(1)
			l.untilQueue(name, 1)

			require.NoError(t, held.Release(t.Context()))
			lease := w.granted(soon)
			assert.Greater(t, lease.Fence(), held.Fence())
			l.holds(lease)
			require.NoError(t, lease.Release(t.Context()))
			l.free(near, name)
		}
		assert.Positive(t, queued, "no ask that queued has lost its reply")
	})
}

func TestHeartbeatThatIsGrantedMayLoseItsReply(t *testing.T) {
	t.Parallel()
	withPatience(t, func(t *testing.T, l *lab) {
		far, near := l.far(holdfast.WithTTL(900*time.Millisecond)), l.near()
		l.ready(far)
		l.link.DropPush(func(string, string) bool { return true })
		var released atomic.Bool
		lost := l.link.DropReply(func(cmd []string) bool { return released.Load() && l.asking("x")(cmd) })
		for try := 1; ; try++ {
			held := l.lease(near, "x")
			w := l.wait(far, "x")
			l.untilQueue("x", 1)
			require.NoError(t, held.Release(t.Context()))
			released.Store(true)
			granted := l.inspect("x").Holders
			require.Len(t, granted, 1)
			lease := w.granted(900*time.Millisecond/3 + l.slack)
			l.holds(lease)
			assert.Equal(t, granted[0].Fence, lease.Fence())
			require.NoError(t, lease.Release(t.Context()))
			l.free(near, "x")
			select {
			case <-lost:
				return
			default: // a heartbeat was faster than released
			}
			require.Less(t, try, 20, "the fault did not strike")
			released.Store(false)
		}
	})
}

func TestRenewalWhoseReplyIsLostKeepsTheLease(t *testing.T) {
	t.Parallel()
	withPatience(t, func(t *testing.T, l *lab) {
		const ttl = time.Second
		far, near := l.far(holdfast.WithTTL(ttl)), l.near()
		l.ready(far)
		lease := l.lease(far, "x")
		for range 2 {
			l.untilStruck(l.link.DropReply(l.renewing("x")))
		}
		l.keeps(lease, ttl)
		require.NoError(t, lease.Release(t.Context()))
		l.free(near, "x")
	})
}

// What can be repeated is, until its context ends: a connection that breaks is no answer.
func TestCallsWhoseReplyIsLostAreRepeated(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		l.remember()
		far, near := l.far(), l.near()
		l.ready(far)
		sem := far.Semaphore("x", 3)
		for name, call := range map[string]func(lease *holdfast.Lease) error{
			"Renew":     func(lease *holdfast.Lease) error { return lease.Renew(t.Context()) },
			"Downgrade": func(lease *holdfast.Lease) error { return lease.Downgrade(t.Context()) },
			"Resize":    func(*holdfast.Lease) error { return sem.Resize(t.Context(), 5) },
			"Inspect": func(*holdfast.Lease) error {
				info, err := far.RWMutex("x").Inspect(t.Context())
				assert.Len(t, info.Holders, 1)
				return err
			},
			"Detach": func(lease *holdfast.Lease) error {
				token, err := lease.Detach(t.Context())
				if err == nil {
					l.giveBack(l.attach(near, token))
				}
				return err
			},
		} {
			for _, fault := range []string{"lost reply", "cut"} {
				lease := l.take(far.RWMutex("x").Lease)
				script := func(cmd []string) bool { return strings.HasPrefix(strings.ToLower(cmd[0]), "eval") }
				var struck <-chan struct{}
				if fault == "lost reply" {
					struck = l.link.DropReply(script)
				} else {
					caught, release := l.link.HoldRequest(script)
					go func() { <-caught; l.link.Cut(); release() }()
					struck = caught
				}
				require.NoError(t, promptly(t, soon, func() error { return call(lease) }), name+", "+fault)
				l.untilStruck(struck)
				if name != "Detach" {
					require.NoError(t, lease.Err())
					l.giveBack(lease)
				}
				l.until("it is free", near.RWMutex("x").TryLock)
				near.RWMutex("x").Unlock()
			}
		}
		assert.EqualValues(t, 5, l.look(near.Semaphore("x", 1)).Limit)
	})
}

func TestRepeatedCallEndsWithItsContextAndSaysWhatItWaitedFor(t *testing.T) {
	inBubble(t, func(t *testing.T, l *lab) {
		far := l.far(holdfast.WithTTL(time.Hour))
		l.ready(far)
		lease := l.take(far.RWMutex("x").Lease)
		l.link.Refuse(true)
		l.link.Cut()
		for name, call := range map[string]func(context.Context) error{
			"Renew":     lease.Renew,
			"Downgrade": lease.Downgrade,
			"Detach":    func(ctx context.Context) error { _, err := lease.Detach(ctx); return err },
			"Inspect":   func(ctx context.Context) error { _, err := far.RWMutex("x").Inspect(ctx); return err },
			"Resize":    func(ctx context.Context) error { return far.Semaphore("x", 3).Resize(ctx, 4) },
		} {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			began := time.Now()
			err := call(ctx)
			cancel()
			require.ErrorIs(t, err, context.DeadlineExceeded, name)
			require.ErrorIs(t, err, driver.ErrTransient, name)
			require.ErrorContains(t, err, "refused", name)
			require.Equal(t, 10*time.Second, time.Since(began), name)
		}
		l.link.Refuse(false)
		require.NoError(t, lease.Err())
		l.giveBack(lease)
	})
}

// Force is not repeated: it would hit the next holder.
func TestForceUnlockWhoseReplyIsLostSparesTheNextHolder(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		far, near := l.far(), l.near()
		l.ready(far)
		require.NoError(t, l.lease(far, "y").Release(t.Context()))
		known := l.lease(near, "y")
		require.NoError(t, far.Mutex("y").ForceUnlock(t.Context())) // which the server knows now
		require.ErrorIs(t, known.Release(t.Context()), holdfast.ErrLost)
		held := l.lease(near, "x")
		next := l.wait(near, "x")
		l.untilQueue("x", 1)
		lost := l.link.DropReply(l.on("mutex", "x"))
		err := promptly(t, soon, func() error { return far.Mutex("x").ForceUnlock(t.Context()) })
		l.untilStruck(lost)
		require.ErrorIs(t, err, driver.ErrTransient)
		l.holds(next.granted(soon))
		require.ErrorIs(t, held.Release(t.Context()), holdfast.ErrLost)
		l.holds(next.lease)

		// But what surely was not carried out is.
		l.link.Refuse(true)
		l.link.Cut()
		noted, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err = far.Mutex("x").Inspect(noted) // which finds that the old connections are broken
		require.Error(t, err)
		forced := make(chan error, 1)
		go func() { forced <- far.Mutex("x").ForceUnlock(t.Context()) }()
		time.Sleep(20 * time.Millisecond)
		l.link.Refuse(false)
		require.NoError(t, promptly(t, soon, func() error { return <-forced }))
		require.Empty(t, l.inspect("x").Holders)
		require.ErrorIs(t, next.lease.Release(t.Context()), holdfast.ErrLost)
	})
}

func TestReleaseWhoseReplyIsLostSucceeds(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		far, near := l.far(), l.near()
		l.ready(far)
		lease := l.lease(far, "x")
		lost := l.link.DropReply(l.releasing("x"))
		require.NoError(t, promptly(t, soon, func() error { return lease.Release(t.Context()) }))
		l.untilStruck(lost)
		l.free(near, "x")

		far.Mutex("x").Lock()
		lost = l.link.DropReply(l.releasing("x"))
		far.Mutex("x").Unlock()
		l.untilStruck(lost)
		l.free(near, "x")
	})
}

func TestReleaseWhoseReplyIsLostHandsOverOnce(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		far, near := l.far(), l.near()
		l.ready(far)
		lease := l.lease(far, "x")
		first := l.wait(near, "x")
		l.untilQueue("x", 1)
		second := l.wait(near, "x")
		l.untilQueue("x", 2)

		lost := l.link.DropReply(l.releasing("x"))
		require.NoError(t, promptly(t, soon, func() error { return lease.Release(t.Context()) }))
		l.untilStruck(lost)
		next := first.granted(soon)
		l.holds(next)
		assert.Greater(t, next.Fence(), lease.Fence())
		assert.Len(t, l.inspect("x").Queue, 1, "the repeated release gave away what it did not hold")
		require.NoError(t, next.Release(t.Context()))
		require.NoError(t, second.granted(soon).Release(t.Context()))
		l.free(near, "x")
	})
}

// A straggler is an ask that arrives when its waiter has long given up.
func TestStragglingAskTakesNothing(t *testing.T) {
	t.Parallel()
	gone := errors.New("gone")
	type scene struct {
		*lab
		far, near *holdfast.Client
		deliver   func()
		lost      *holdfast.Lease
	}
	// catch holds the next ask for x on its way.
	catch := func(s *scene) <-chan struct{} {
		caught, deliver := s.link.HoldRequest(s.asking("x"))
		s.deliver = deliver
		s.t.Cleanup(deliver)
		return caught
	}
	for name, play := range map[string]func(*testing.T, *scene){
		"of a waiter who gave up": func(t *testing.T, s *scene) {
			caught := catch(s)
			w := s.wait(s.far, "x")
			s.untilStruck(caught)
			w.cancel(gone)
			require.ErrorIs(t, w.failed(soon), gone)
		},
		"of a waiter who saw the connection break, and gave up": func(t *testing.T, s *scene) {
			s.link.Refuse(true)
			defer s.link.Refuse(false)
			caught := catch(s)
			w := s.wait(s.far, "x")
			s.untilStruck(caught)
			s.link.Cut()
			w.cancel(gone)
			require.ErrorIs(t, w.failed(soon), gone)
		},
		"of a waiter whose time was over": func(t *testing.T, s *scene) {
			caught := catch(s)
			w := s.wait(s.far, "x", holdfast.WithWait(200*time.Millisecond))
			s.untilStruck(caught)
			require.ErrorIs(t, w.failed(soon), context.DeadlineExceeded)
		},
		"of TryLease": func(t *testing.T, s *scene) {
			caught := catch(s)
			ctx, cancel := context.WithCancelCause(t.Context())
			errs := make(chan error, 1)
			go func() {
				_, err := s.far.Mutex("x").TryLease(ctx)
				errs <- err
			}()
			s.untilStruck(caught)
			cancel(gone)
			require.ErrorIs(t, <-errs, gone)
		},
		"of one who had waited long": func(t *testing.T, s *scene) {
			held := s.lease(s.near, "x")
			w := s.wait(s.far, "x", holdfast.WithTTL(600*time.Millisecond))
			s.untilQueue("x", 1)
			s.untilListening(1)
			s.untilStruck(catch(s))
			w.cancel(gone)
			require.ErrorIs(t, w.failed(soon), gone)
			require.NoError(t, held.Release(t.Context()))
		},
		"of one who was granted the lock, and has released it": func(t *testing.T, s *scene) {
			held := s.lease(s.near, "x")
			w := s.wait(s.far, "x", holdfast.WithTTL(600*time.Millisecond))
			s.untilQueue("x", 1)
			s.untilListening(1)
			s.untilStruck(catch(s))
			require.NoError(t, held.Release(t.Context()))
			require.NoError(t, w.granted(soon).Release(t.Context()))
		},
		"of one from whom the lock was taken": func(t *testing.T, s *scene) {
			held := s.lease(s.near, "x")
			w := s.wait(s.far, "x", holdfast.WithTTL(600*time.Millisecond))
			s.untilQueue("x", 1)
			s.untilListening(1)
			s.untilStruck(catch(s))
			require.NoError(t, held.Release(t.Context()))
			s.lost = w.granted(soon)
			require.NoError(t, s.near.Mutex("x").ForceUnlock(t.Context()))
			s.loses(s.lost, soon)
		},
	} {
		t.Run(name, func(t *testing.T) {
			withPatience(t, func(t *testing.T, l *lab) {
				l.remember()
				s := &scene{lab: l, far: l.far(), near: l.near()}
				l.ready(s.far)
				undone := l.count(l.releasing("x"))
				play(t, s)
				// The undo is on its way. If it is not, so much the worse: go on.
				for deadline := time.Now().Add(time.Second); s.lost == nil && undone.Load() == 0 && time.Now().Before(deadline); {
					time.Sleep(time.Millisecond)
				}
				l.soonFree(s.near, "x")
				promptly(t, 2*soon, func() error { s.deliver(); return nil })
				assert.Empty(t, l.inspect("x").Holders, "the straggler has taken the lock")
				l.free(s.near, "x")
				if s.lost != nil {
					require.ErrorIs(t, s.lost.Release(t.Context()), holdfast.ErrLost)
				}
			})
		})
	}
}

func TestStragglingRenewalAndReleaseTouchNobodyElse(t *testing.T) {
	t.Parallel()
	withPatience(t, func(t *testing.T, l *lab) {
		far, near := l.far(), l.near()
		l.ready(far)

		lease := l.lease(far, "x", holdfast.WithTTL(900*time.Millisecond))
		caught, deliver := l.link.HoldRequest(l.renewing("x"))
		l.untilStruck(caught)
		require.NoError(t, lease.Release(t.Context()))
		next := l.lease(near, "x")
		deliver()
		l.holds(next)
		require.NoError(t, next.Release(t.Context()))

		lease = l.lease(far, "x")
		caught, deliver = l.link.HoldRequest(l.releasing("x"))
		released := make(chan error, 1)
		go func() { released <- lease.Release(t.Context()) }()
		l.untilStruck(caught)
		l.link.Cut()
		require.NoError(t, promptly(t, soon, func() error { return <-released }))
		next = l.lease(near, "x")
		deliver()
		l.holds(next)
		require.NoError(t, next.Release(t.Context()))
	})
}
