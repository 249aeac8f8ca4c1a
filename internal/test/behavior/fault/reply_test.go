package fault_test

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
	"github.com/holdfast-go/holdfast/internal/test/behavior/lab"
)

func TestGrantWhoseReplyIsLostIsTheSameWhenAskedAgain(t *testing.T) {
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		far, near := l.Far(), l.Near()
		l.Ready(far)
		lost := l.Link.DropReply(l.AskingFirst("x"))
		w := l.Wait(far, "x")
		l.UntilStruck(lost)
		granted := l.Inspect("x").Holders
		require.Len(t, granted, 1)

		lease := w.Granted(lab.Soon)
		assert.Equal(t, granted[0].Fence, lease.Fence())
		l.Holds(lease)
		_, err := near.Mutex("x").TryLease(t.Context())
		require.ErrorIs(t, err, holdfast.ErrLocked)
		require.NoError(t, lease.Release(t.Context()))
		assert.Greater(t, l.Free(near, "x"), lease.Fence())
	})
}

func TestLockWhoseReplyIsLostIsLockedOnce(t *testing.T) {
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		far, near := l.Far(), l.Near()
		l.Ready(far)
		mu := far.Mutex("x")
		lost := l.Link.DropReply(l.AskingFirst("x"))
		lab.Promptly(t, lab.Soon, func() error { mu.Lock(); return nil })
		l.UntilStruck(lost)
		_, err := near.Mutex("x").TryLease(t.Context())
		require.ErrorIs(t, err, holdfast.ErrLocked)
		mu.Unlock()
		l.Free(near, "x")
	})
}

func TestGrantToTryLockWhoseReplyIsLostIsNotLeftBehind(t *testing.T) {
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		l.Remember()
		far, near := l.Far(), l.Near()
		l.Ready(far)
		lost := l.Link.DropReply(l.AskingFirst("x"))
		locked := lab.Promptly(t, lab.Soon, far.Mutex("x").TryLock)
		l.UntilStruck(lost)
		if locked {
			far.Mutex("x").Unlock()
		}
		l.SoonFree(near, "x")
	})
}

func TestWaiterWhoseReplyIsLostQueuesOnce(t *testing.T) {
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		far, near := l.Far(), l.Near()
		l.Ready(far)
		queued := 0
		// The first time a client may look at the lock before it queues.
		for _, name := range []string{"x", "y"} {
			held := l.Lease(near, name)
			asks := l.Count(l.Asking(name))
			lost := l.Link.DropReply(l.Asking(name))
			w := l.Wait(far, name)
			l.UntilStruck(lost)
			was := len(l.Inspect(name).Queue)
			assert.LessOrEqual(t, was, 1)
			queued += was
			l.Until("it asked again", func() bool { return asks.Load() > 1 })
			l.UntilListening(1)
			l.UntilQueue(name, 1)

			require.NoError(t, held.Release(t.Context()))
			lease := w.Granted(lab.Soon)
			assert.Greater(t, lease.Fence(), held.Fence(), "FOUL: fences went back")
			l.Holds(lease)
			require.NoError(t, lease.Release(t.Context()))
			l.Free(near, name)
		}
		assert.Positive(t, queued, "no ask that queued has lost its reply")
	})
}

func TestHeartbeatThatIsGrantedMayLoseItsReply(t *testing.T) {
	t.Parallel()
	lab.WithPatience(t, func(t *testing.T, l *lab.Lab) {
		far, near := l.Far(holdfast.WithTTL(900*time.Millisecond)), l.Near()
		l.Ready(far)
		l.Link.DropPush(func(string, string) bool { return true })
		var released atomic.Bool
		lost := l.Link.DropReply(func(cmd []string) bool { return released.Load() && l.Asking("x")(cmd) })
		for try := 1; ; try++ {
			held := l.Lease(near, "x")
			w := l.Wait(far, "x")
			l.UntilQueue("x", 1)
			require.NoError(t, held.Release(t.Context()))
			released.Store(true)
			granted := l.Inspect("x").Holders
			require.Len(t, granted, 1)
			lease := w.Granted(900*time.Millisecond/3 + l.Slack)
			l.Holds(lease)
			assert.Equal(t, granted[0].Fence, lease.Fence())
			require.NoError(t, lease.Release(t.Context()))
			l.Free(near, "x")
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
	lab.WithPatience(t, func(t *testing.T, l *lab.Lab) {
		const ttl = time.Second
		far, near := l.Far(holdfast.WithTTL(ttl)), l.Near()
		l.Ready(far)
		lease := l.Lease(far, "x")
		for range 2 {
			l.UntilStruck(l.Link.DropReply(l.Renewing("x")))
		}
		l.Keeps(lease, ttl)
		require.NoError(t, lease.Release(t.Context()))
		l.Free(near, "x")
	})
}

// A call that can be repeated is, until its context ends: a connection that breaks is no answer.
func TestCallsWhoseReplyIsLostAreRepeated(t *testing.T) {
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		l.Remember()
		far, near := l.Far(), l.Near()
		l.Ready(far)
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
					l.GiveBack(l.Attach(near, token))
				}
				return err
			},
		} {
			for _, fault := range []string{"lost reply", "cut"} {
				lease := l.Take(far.RWMutex("x").Lease)
				script := func(cmd []string) bool { return strings.HasPrefix(strings.ToLower(cmd[0]), "eval") }
				var struck <-chan struct{}
				if fault == "lost reply" {
					struck = l.Link.DropReply(script)
				} else {
					caught, release := l.Link.HoldRequest(script)
					go func() { <-caught; l.Link.Cut(); release() }()
					struck = caught
				}
				require.NoError(t, lab.Promptly(t, lab.Soon, func() error { return call(lease) }), name+", "+fault)
				l.UntilStruck(struck)
				if name != "Detach" {
					require.NoError(t, lease.Err())
					l.GiveBack(lease)
				}
				l.Until("it is free", near.RWMutex("x").TryLock)
				near.RWMutex("x").Unlock()
			}
		}
		assert.EqualValues(t, 5, l.Look(near.Semaphore("x", 1)).Limit)
	})
}

func TestRepeatedCallEndsWithItsContextAndSaysWhatItWaitedFor(t *testing.T) {
	lab.InBubble(t, func(t *testing.T, l *lab.Lab) {
		far := l.Far(holdfast.WithTTL(time.Hour))
		l.Ready(far)
		lease := l.Take(far.RWMutex("x").Lease)
		l.Link.Refuse(true)
		l.Link.Cut()
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
		l.Link.Refuse(false)
		require.NoError(t, lease.Err())
		l.GiveBack(lease)
	})
}

// Force is not repeated: it would hit the next holder.
func TestForceUnlockWhoseReplyIsLostSparesTheNextHolder(t *testing.T) {
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		far, near := l.Far(), l.Near()
		l.Ready(far)
		require.NoError(t, l.Lease(far, "y").Release(t.Context()))
		known := l.Lease(near, "y")
		require.NoError(t, far.Mutex("y").ForceUnlock(t.Context())) // which the server knows now
		require.ErrorIs(t, known.Release(t.Context()), holdfast.ErrLost)
		held := l.Lease(near, "x")
		next := l.Wait(near, "x")
		l.UntilQueue("x", 1)
		lost := l.Link.DropReply(l.On("mutex", "x"))
		err := lab.Promptly(t, lab.Soon, func() error { return far.Mutex("x").ForceUnlock(t.Context()) })
		l.UntilStruck(lost)
		require.ErrorIs(t, err, driver.ErrTransient)
		l.Holds(next.Granted(lab.Soon))
		require.ErrorIs(t, held.Release(t.Context()), holdfast.ErrLost)
		l.Holds(next.Lease)

		// But what surely was not carried out is.
		l.Link.Refuse(true)
		l.Link.Cut()
		noted, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err = far.Mutex("x").Inspect(noted) // which finds that the old connections are broken
		require.Error(t, err)
		forced := make(chan error, 1)
		go func() { forced <- far.Mutex("x").ForceUnlock(t.Context()) }()
		time.Sleep(20 * time.Millisecond)
		l.Link.Refuse(false)
		require.NoError(t, lab.Promptly(t, lab.Soon, func() error { return <-forced }))
		require.Empty(t, l.Inspect("x").Holders)
		require.ErrorIs(t, next.Lease.Release(t.Context()), holdfast.ErrLost)
	})
}

func TestReleaseWhoseReplyIsLostSucceeds(t *testing.T) {
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		far, near := l.Far(), l.Near()
		l.Ready(far)
		lease := l.Lease(far, "x")
		lost := l.Link.DropReply(l.Releasing("x"))
		require.NoError(t, lab.Promptly(t, lab.Soon, func() error { return lease.Release(t.Context()) }))
		l.UntilStruck(lost)
		l.Free(near, "x")

		far.Mutex("x").Lock()
		lost = l.Link.DropReply(l.Releasing("x"))
		far.Mutex("x").Unlock()
		l.UntilStruck(lost)
		l.Free(near, "x")
	})
}

func TestReleaseWhoseReplyIsLostHandsOverOnce(t *testing.T) {
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		far, near := l.Far(), l.Near()
		l.Ready(far)
		lease := l.Lease(far, "x")
		first := l.Wait(near, "x")
		l.UntilQueue("x", 1)
		second := l.Wait(near, "x")
		l.UntilQueue("x", 2)

		lost := l.Link.DropReply(l.Releasing("x"))
		require.NoError(t, lab.Promptly(t, lab.Soon, func() error { return lease.Release(t.Context()) }))
		l.UntilStruck(lost)
		next := first.Granted(lab.Soon)
		l.Holds(next)
		assert.Greater(t, next.Fence(), lease.Fence(), "FOUL: fences went back")
		assert.Len(t, l.Inspect("x").Queue, 1, "the repeated release gave away what it did not hold")
		require.NoError(t, next.Release(t.Context()))
		require.NoError(t, second.Granted(lab.Soon).Release(t.Context()))
		l.Free(near, "x")
	})
}

// A straggler is an ask that arrives when its waiter has long given up.
func TestStragglingAskTakesNothing(t *testing.T) {
	t.Parallel()
	gone := errors.New("gone")
	type scene struct {
		*lab.Lab
		far, near *holdfast.Client
		deliver   func()
		lost      *holdfast.Lease
	}
	// catch holds the next ask for x on its way.
	catch := func(s *scene) <-chan struct{} {
		caught, deliver := s.Link.HoldRequest(s.Asking("x"))
		s.deliver = deliver
		s.T.Cleanup(deliver)
		return caught
	}
	for name, play := range map[string]func(*testing.T, *scene){
		"of a waiter who gave up": func(t *testing.T, s *scene) {
			caught := catch(s)
			w := s.Wait(s.far, "x")
			s.UntilStruck(caught)
			w.Cancel(gone)
			require.ErrorIs(t, w.Failed(lab.Soon), gone)
		},
		"of a waiter who saw the connection break, and gave up": func(t *testing.T, s *scene) {
			s.Link.Refuse(true)
			defer s.Link.Refuse(false)
			caught := catch(s)
			w := s.Wait(s.far, "x")
			s.UntilStruck(caught)
			s.Link.Cut()
			w.Cancel(gone)
			require.ErrorIs(t, w.Failed(lab.Soon), gone)
		},
		"of a waiter whose time was over": func(t *testing.T, s *scene) {
			caught := catch(s)
			w := s.Wait(s.far, "x", holdfast.WithWait(200*time.Millisecond))
			s.UntilStruck(caught)
			require.ErrorIs(t, w.Failed(lab.Soon), context.DeadlineExceeded)
		},
		"of TryLease": func(t *testing.T, s *scene) {
			caught := catch(s)
			ctx, cancel := context.WithCancelCause(t.Context())
			errs := make(chan error, 1)
			go func() {
				_, err := s.far.Mutex("x").TryLease(ctx)
				errs <- err
			}()
			s.UntilStruck(caught)
			cancel(gone)
			require.ErrorIs(t, <-errs, gone)
		},
		"of one who had waited long": func(t *testing.T, s *scene) {
			held := s.Lease(s.near, "x")
			w := s.Wait(s.far, "x", holdfast.WithTTL(600*time.Millisecond))
			s.UntilQueue("x", 1)
			s.UntilListening(1)
			s.UntilStruck(catch(s))
			w.Cancel(gone)
			require.ErrorIs(t, w.Failed(lab.Soon), gone)
			require.NoError(t, held.Release(t.Context()))
		},
		"of one who was granted the lock, and has released it": func(t *testing.T, s *scene) {
			held := s.Lease(s.near, "x")
			w := s.Wait(s.far, "x", holdfast.WithTTL(600*time.Millisecond))
			s.UntilQueue("x", 1)
			s.UntilListening(1)
			s.UntilStruck(catch(s))
			require.NoError(t, held.Release(t.Context()))
			require.NoError(t, w.Granted(lab.Soon).Release(t.Context()))
		},
		"of one from whom the lock was taken": func(t *testing.T, s *scene) {
			held := s.Lease(s.near, "x")
			w := s.Wait(s.far, "x", holdfast.WithTTL(600*time.Millisecond))
			s.UntilQueue("x", 1)
			s.UntilListening(1)
			s.UntilStruck(catch(s))
			require.NoError(t, held.Release(t.Context()))
			s.lost = w.Granted(lab.Soon)
			require.NoError(t, s.near.Mutex("x").ForceUnlock(t.Context()))
			s.Loses(s.lost, lab.Soon)
		},
	} {
		t.Run(name, func(t *testing.T) {
			lab.WithPatience(t, func(t *testing.T, l *lab.Lab) {
				l.Remember()
				s := &scene{Lab: l, far: l.Far(), near: l.Near()}
				l.Ready(s.far)
				undone := l.Count(l.Releasing("x"))
				play(t, s)
				// The undo is on its way. If it is not, so much the worse: go on.
				for deadline := time.Now().Add(time.Second); s.lost == nil && undone.Load() == 0 && time.Now().Before(deadline); {
					time.Sleep(time.Millisecond)
				}
				l.SoonFree(s.near, "x")
				lab.Promptly(t, 2*lab.Soon, func() error { s.deliver(); return nil })
				assert.Empty(t, l.Inspect("x").Holders, "the straggler has taken the lock")
				l.Free(s.near, "x")
				if s.lost != nil {
					require.ErrorIs(t, s.lost.Release(t.Context()), holdfast.ErrLost)
				}
			})
		})
	}
}

func TestStragglingRenewalAndReleaseTouchNobodyElse(t *testing.T) {
	t.Parallel()
	lab.WithPatience(t, func(t *testing.T, l *lab.Lab) {
		far, near := l.Far(), l.Near()
		l.Ready(far)

		lease := l.Lease(far, "x", holdfast.WithTTL(900*time.Millisecond))
		caught, deliver := l.Link.HoldRequest(l.Renewing("x"))
		l.UntilStruck(caught)
		require.NoError(t, lease.Release(t.Context()))
		next := l.Lease(near, "x")
		deliver()
		l.Holds(next)
		require.NoError(t, next.Release(t.Context()))

		lease = l.Lease(far, "x")
		caught, deliver = l.Link.HoldRequest(l.Releasing("x"))
		released := make(chan error, 1)
		go func() { released <- lease.Release(t.Context()) }()
		l.UntilStruck(caught)
		l.Link.Cut()
		require.NoError(t, lab.Promptly(t, lab.Soon, func() error { return <-released }))
		next = l.Lease(near, "x")
		deliver()
		l.Holds(next)
		require.NoError(t, next.Release(t.Context()))
	})
}
