package order_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/test/behavior/lab"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

func TestCancelledWaiterLeavesTheQueue(t *testing.T) {
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		l.Remember()
		a, b := l.Near(), l.Near()
		held := l.Lease(a, "x")
		first := l.Wait(b, "x")
		l.UntilQueue("x", 1)
		second := l.Wait(b, "x")
		l.UntilQueue("x", 2)
		l.UntilListening(1)

		gone := errors.New("gone")
		first.Cancel(gone)
		err := first.Failed(lab.Soon)
		assert.ErrorIs(t, err, gone)
		assert.ErrorIs(t, err, holdfast.ErrLocked)
		l.UntilQueue("x", 1)
		l.Holds(held)
		require.NoError(t, held.Release(t.Context()))
		require.NoError(t, second.Granted(lab.Soon).Release(t.Context()))
		l.Free(a, "x")
	})
}

// The waiter is granted the lock and gives up at the same time. Either may win, but the lock
// must go on. With a TTL of 30 s one that is stuck cannot be missed. Its cancellations are aimed, which
// takes luck; package simulation has those that are planned.
func TestCancelAtTheMomentOfTheHandOver(t *testing.T) {
	redistest.SoakOnly(t)
	t.Parallel()
	body := func(rounds int) func(*testing.T, *redistest.Server) {
		return func(t *testing.T, s *redistest.Server) {
			l := lab.New(t, s)
			l.Remember()
			h := &handOver{Lab: l, holder: l.Near(), waiter: l.Near(), third: l.Near(), aim: time.Millisecond}
			for i := range rounds {
				h.round(i)
			}
			t.Logf("%d granted, %d cancelled, a hand-over takes %v", h.granted, h.cancelled, h.aim)
			assert.Greater(t, h.granted, rounds/20, "the cancellation comes too early to prove anything")
			assert.Greater(t, h.cancelled, rounds/20, "the cancellation comes too late to prove anything")
		}
	}
	t.Run("miniredis", func(t *testing.T) { t.Parallel(); body(200)(t, redistest.Mini(t)) })
	t.Run("redis", func(t *testing.T) { t.Parallel(); body(1000)(t, redistest.Shared(t)) })
}

type handOver struct {
	*lab.Lab
	holder, waiter, third *holdfast.Client
	aim                   time.Duration // when to cancel, for half of the waiters to be granted the lock
	granted, cancelled    int
}

func (h *handOver) round(i int) {
	t := h.T
	gone := errors.New("gone")
	held := h.Lease(h.holder, "x")
	w := h.Wait(h.waiter, "x")
	h.UntilQueue("x", 1)

	start := time.Now().Add(50 * time.Microsecond)
	offset := h.aim/2 + rand.N(h.aim)
	if i%10 == 0 {
		offset = -time.Hour // surely before
	}
	released := make(chan error, 1)
	cancelled := make(chan struct{})
	go func() {
		spin(start.Add(offset))
		w.Cancel(gone)
		close(cancelled)
	}()
	if i%10 == 0 {
		<-cancelled
	}
	go func() {
		spin(start)
		released <- held.Release(t.Context())
	}()
	w.Returned(lab.Soon)
	require.NoError(t, lab.Promptly(t, lab.Soon, func() error { return <-released }))
	<-cancelled

	last := held.Fence()
	switch {
	case w.Err == nil:
		h.granted++
		h.aim -= h.aim / 16
		require.NotEqual(t, 0, i%10, "a context that had ended got the lock")
		require.NoError(t, w.Lease.Err())
		require.Greater(t, w.Lease.Fence(), last, "FOUL: fences went back")
		last = w.Lease.Fence()
		require.NoError(t, w.Lease.Release(t.Context()))
	default:
		h.cancelled++
		if offset > 0 {
			h.aim += h.aim / 16
		}
		require.ErrorIs(t, w.Err, gone)
		lab.RequireNoToken(t, w.Err.Error())
	}

	if i%2 == 0 {
		next := h.Lease(h.third, "x")
		require.Greater(t, next.Fence(), last, "FOUL: fences went back")
		require.NoError(t, next.Release(t.Context()))
	} else {
		h.SoonFree(h.third, "x")
	}
	h.UntilQueue("x", 0)
	require.Empty(t, h.Inspect("x").Holders)
	if i%100 == 0 {
		h.Server.RequireTTLs(t, h.Server.Prefix())
	}
}

// spin waits more exactly than a timer.
func spin(until time.Time) {
	for time.Now().Before(until) {
		runtime.Gosched()
	}
}

func TestCancelledWaitersDelayNobody(t *testing.T) {
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		l.Remember()
		clients := []*holdfast.Client{l.Near(), l.Near(), l.Near()}
		held := l.Lease(clients[0], "x")
		var leaving []*lab.Pending
		staying := l.Crowd("x", 4, clients...)
		for i := range 12 {
			leaving = append(leaving, l.Wait(clients[i%3], "x"))
		}
		l.UntilQueue("x", 24)
		gone := errors.New("gone")
		left := make(chan struct{})
		go func() {
			defer close(left)
			for _, w := range leaving {
				w.Cancel(gone)
				time.Sleep(rand.N(time.Millisecond))
			}
		}()
		require.NoError(t, held.Release(t.Context()))
		for _, w := range leaving {
			w.Returned(lab.Soon)
			if w.Err == nil {
				require.NoError(t, w.Lease.Release(t.Context()))
			} else {
				assert.ErrorIs(t, w.Err, gone)
			}
		}
		staying.RequireServed(lab.Soon)
		<-left
		l.SoonFree(clients[0], "x")
	})
}

// That all who wait give up at once, and the holder too, must leave a free lock.
func TestEverybodyGivesUpAtOnce(t *testing.T) {
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		l.Remember()
		a, b := l.Near(), l.Near()
		for range 10 {
			held := l.Lease(a, "x")
			var crowd []*lab.Pending
			for range 8 {
				crowd = append(crowd, l.Wait(a, "x"), l.Wait(b, "x"))
			}
			l.Until("some are in the queue", func() bool { return len(l.Inspect("x").Queue) > 4 })
			released := make(chan error, 1)
			go func() { released <- held.Release(t.Context()) }()
			for _, w := range crowd {
				go w.Cancel(nil)
			}
			for _, w := range crowd {
				w.Returned(lab.Soon)
				if w.Err == nil {
					require.NoError(t, w.Lease.Release(t.Context()))
				} else {
					require.ErrorIs(t, w.Err, context.Canceled)
				}
			}
			require.NoError(t, <-released)
			l.SoonFree(a, "x")
		}
	})
}

// Without WithWait it is one of the ends of a context in package holdfast.
func TestWaitingEndsWithItsDeadline(t *testing.T) {
	t.Parallel()
	const limit = 100 * time.Millisecond
	cause := errors.New("too late for the train")
	for name, scene := range map[string]struct {
		ctx, wait time.Duration
		cause     error
	}{
		"of WithWait": {0, limit, context.DeadlineExceeded},
		"of WithWait, before that of the context": {time.Hour, limit, context.DeadlineExceeded},
		"of the context, before that of WithWait": {limit, time.Hour, cause},
	} {
		t.Run(name, func(t *testing.T) {
			lab.WithPatience(t, func(t *testing.T, l *lab.Lab) {
				l.Remember()
				a, b := l.Near(), l.Near()
				l.Ready(b)
				held := l.Lease(a, "x")
				mu := b.Mutex("x", holdfast.WithWait(scene.wait))
				for what, call := range map[string]func(context.Context) error{
					"Lease": func(ctx context.Context) error { _, err := mu.Lease(ctx); return err },
					"Do": func(ctx context.Context) error {
						return mu.Do(ctx, func(context.Context) error { t.Error("called"); return nil })
					},
				} {
					began, ctx, cancel := time.Now(), t.Context(), func() {}
					if scene.ctx > 0 {
						ctx, cancel = context.WithTimeoutCause(ctx, scene.ctx, cause)
					}
					err := lab.Promptly(t, limit+l.Slack, func() error { return call(ctx) })
					assert.GreaterOrEqual(t, time.Since(began), limit, what)
					if l.Virtual {
						assert.Equal(t, limit, time.Since(began), what)
					}
					assert.ErrorIs(t, err, scene.cause, what)
					assert.ErrorIs(t, err, holdfast.ErrLocked, what)
					var lockError *holdfast.LockError
					if assert.ErrorAs(t, err, &lockError) {
						assert.Equal(t, "x", lockError.Name)
						assert.Equal(t, "timeout", lockError.ErrorType())
					}
					l.UntilQueue("x", 0)
					cancel()
				}
				require.NoError(t, held.Release(t.Context()))
				l.Free(a, "x")
			})
		})
	}
}

func TestLockWaitsLongerThanWithWait(t *testing.T) {
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		a, b := l.Near(), l.Near(holdfast.WithWait(20*time.Millisecond))
		held := l.Lease(a, "x")
		locked := make(chan struct{})
		go func() { b.Mutex("x").Lock(); close(locked) }()
		select {
		case <-locked:
			t.Fatal("locked though another holds it")
		case <-time.After(200 * time.Millisecond):
		}
		require.NoError(t, held.Release(t.Context()))
		lab.Promptly(t, lab.Soon, func() error { <-locked; return nil })
		b.Mutex("x").Unlock()
		l.Free(a, "x")
	})
}
