package holdfast_test

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
	"github.com/holdfast-go/holdfast/internal/redistest"
)

func TestCancelledWaiterLeavesTheQueue(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		l.remember()
		a, b := l.near(), l.near()
		held := l.lease(a, "x")
		first := l.wait(b, "x")
		l.untilQueue("x", 1)
		second := l.wait(b, "x")
		l.untilQueue("x", 2)
		l.untilListening(1)

		gone := errors.New("gone")
		first.cancel(gone)
		err := first.failed(soon)
		assert.ErrorIs(t, err, gone)
		assert.ErrorIs(t, err, holdfast.ErrLocked)
		l.untilQueue("x", 1)
		l.holds(held)
		require.NoError(t, held.Release(t.Context()))
		require.NoError(t, second.granted(soon).Release(t.Context()))
		l.free(a, "x")
	})
}

// The waiter is granted the lock and gives up at the same time. Whoever wins, the lock
// must go on. With a TTL of 30 s one that is stuck cannot be missed.
func TestCancelAtTheMomentOfTheHandOver(t *testing.T) {
	t.Parallel()
	body := func(rounds int) func(*testing.T, *redistest.Server) {
		return func(t *testing.T, s *redistest.Server) {
			l := newLab(t, s)
			l.remember()
			h := &handOver{lab: l, holder: l.near(), waiter: l.near(), third: l.near(), aim: time.Millisecond}
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
	*lab
	holder, waiter, third *holdfast.Client
	aim                   time.Duration // when to cancel, for half of the waiters to be granted the lock
	granted, cancelled    int
}

func (h *handOver) round(i int) {
	t := h.t
	gone := errors.New("gone")
	held := h.lease(h.holder, "x")
	w := h.wait(h.waiter, "x")
	h.untilQueue("x", 1)

	start := time.Now().Add(50 * time.Microsecond)
	offset := h.aim/2 + rand.N(h.aim)
	if i%10 == 0 {
		offset = -time.Hour // surely before
	}
	released := make(chan error, 1)
	cancelled := make(chan struct{})
	go func() {
		spin(start.Add(offset))
		w.cancel(gone)
		close(cancelled)
	}()
	if i%10 == 0 {
		<-cancelled
	}
	go func() {
		spin(start)
		released <- held.Release(t.Context())
	}()
	w.returned(soon)
	require.NoError(t, promptly(t, soon, func() error { return <-released }))
	<-cancelled

	last := held.Fence()
	switch {
	case w.err == nil:
		h.granted++
		h.aim -= h.aim / 16
		require.NotEqual(t, 0, i%10, "a context that had ended got the lock")
		require.NoError(t, w.lease.Err())
		require.Greater(t, w.lease.Fence(), last)
		last = w.lease.Fence()
		require.NoError(t, w.lease.Release(t.Context()))
	default:
		h.cancelled++
		if offset > 0 {
			h.aim += h.aim / 16
		}
		require.ErrorIs(t, w.err, gone)
		requireNoToken(t, w.err.Error())
	}

	if i%2 == 0 {
		next := h.lease(h.third, "x")
		require.Greater(t, next.Fence(), last)
		require.NoError(t, next.Release(t.Context()))
	} else {
		h.soonFree(h.third, "x")
	}
	h.untilQueue("x", 0)
	require.Empty(t, h.inspect("x").Holders)
	if i%100 == 0 {
		h.s.RequireTTLs(t, h.s.Prefix())
	}
}

// spin waits more exactly than a timer.
func spin(until time.Time) {
	for time.Now().Before(until) {
		runtime.Gosched()
	}
}

func TestCancelledWaitersDelayNobody(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		l.remember()
		clients := []*holdfast.Client{l.near(), l.near(), l.near()}
		held := l.lease(clients[0], "x")
		var leaving []*pending
		staying := l.crowd("x", 4, clients...)
		for i := range 12 {
			leaving = append(leaving, l.wait(clients[i%3], "x"))
		}
		l.untilQueue("x", 24)
		gone := errors.New("gone")
		left := make(chan struct{})
		go func() {
			defer close(left)
			for _, w := range leaving {
				w.cancel(gone)
				time.Sleep(rand.N(time.Millisecond))
			}
		}()
		require.NoError(t, held.Release(t.Context()))
		for _, w := range leaving {
			w.returned(soon)
			if w.err == nil {
				require.NoError(t, w.lease.Release(t.Context()))
			} else {
				assert.ErrorIs(t, w.err, gone)
			}
		}
		staying.requireServed(soon)
		<-left
		l.soonFree(clients[0], "x")
	})
}

// That all who wait give up at once, and the holder too, must leave a free lock.
func TestEverybodyGivesUpAtOnce(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		l.remember()
		a, b := l.near(), l.near()
		for range 10 {
			held := l.lease(a, "x")
			var crowd []*pending
			for range 8 {
				crowd = append(crowd, l.wait(a, "x"), l.wait(b, "x"))
			}
			l.until("some are in the queue", func() bool { return len(l.inspect("x").Queue) > 4 })
			released := make(chan error, 1)
			go func() { released <- held.Release(t.Context()) }()
			for _, w := range crowd {
				go w.cancel(nil)
			}
			for _, w := range crowd {
				w.returned(soon)
				if w.err == nil {
					require.NoError(t, w.lease.Release(t.Context()))
				} else {
					require.ErrorIs(t, w.err, context.Canceled)
				}
			}
			require.NoError(t, <-released)
			l.soonFree(a, "x")
		}
	})
}

func TestWaitingEndsWithItsDeadline(t *testing.T) {
	t.Parallel()
	const limit = 100 * time.Millisecond
	cause := errors.New("too late for the train")
	for name, scene := range map[string]struct {
		ctx   func(context.Context) (context.Context, context.CancelFunc)
		opts  []holdfast.LockOption
		cause error
		kind  string
	}{
		"of the context": {
			ctx: func(ctx context.Context) (context.Context, context.CancelFunc) {
				return context.WithTimeout(ctx, limit)
			},
			cause: context.DeadlineExceeded, kind: "timeout",
		},
		"with a cause": {
			ctx: func(ctx context.Context) (context.Context, context.CancelFunc) {
				return context.WithTimeoutCause(ctx, limit, cause)
			},
			cause: cause, kind: "locked",
		},
		"of WithWait": {
			ctx:   context.WithCancel,
			opts:  []holdfast.LockOption{holdfast.WithWait(limit)},
			cause: context.DeadlineExceeded, kind: "timeout",
		},
		"of WithWait, before that of the context": {
			ctx: func(ctx context.Context) (context.Context, context.CancelFunc) {
				return context.WithTimeout(ctx, time.Hour)
			},
			opts:  []holdfast.LockOption{holdfast.WithWait(limit)},
			cause: context.DeadlineExceeded, kind: "timeout",
		},
		"of the context, before that of WithWait": {
			ctx: func(ctx context.Context) (context.Context, context.CancelFunc) {
				return context.WithTimeoutCause(ctx, limit, cause)
			},
			opts:  []holdfast.LockOption{holdfast.WithWait(time.Hour)},
			cause: cause, kind: "locked",
		},
	} {
		t.Run(name, func(t *testing.T) {
			withPatience(t, func(t *testing.T, l *lab) {
				l.remember()
				a, b := l.near(), l.near()
				l.ready(b)
				held := l.lease(a, "x")
				mu := b.Mutex("x", scene.opts...)
				for what, call := range map[string]func(context.Context) error{
					"Lease": func(ctx context.Context) error { _, err := mu.Lease(ctx); return err },
					"Do": func(ctx context.Context) error {
						return mu.Do(ctx, func(context.Context) error { t.Error("called"); return nil })
					},
				} {
					ctx, cancel := scene.ctx(t.Context())
					began := time.Now()
					err := promptly(t, limit+l.slack, func() error { return call(ctx) })
					assert.GreaterOrEqual(t, time.Since(began), limit, what)
					if l.virtual {
						assert.Equal(t, limit, time.Since(began), what)
					}
					assert.ErrorIs(t, err, scene.cause, what)
					assert.ErrorIs(t, err, holdfast.ErrLocked, what)
					var lockError *holdfast.LockError
					if assert.ErrorAs(t, err, &lockError) {
						assert.Equal(t, "x", lockError.Name)
						assert.Equal(t, scene.kind, lockError.ErrorType())
					}
					l.untilQueue("x", 0)
					cancel()
				}
				require.NoError(t, held.Release(t.Context()))
				l.free(a, "x")
			})
		})
	}
}

func TestLockWaitsLongerThanWithWait(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		a, b := l.near(), l.near(holdfast.WithWait(20*time.Millisecond))
		held := l.lease(a, "x")
		locked := make(chan struct{})
		go func() { b.Mutex("x").Lock(); close(locked) }()
		select {
		case <-locked:
			t.Fatal("locked though another holds it")
		case <-time.After(200 * time.Millisecond):
		}
		require.NoError(t, held.Release(t.Context()))
		promptly(t, soon, func() error { <-locked; return nil })
		b.Mutex("x").Unlock()
		l.free(a, "x")
	})
}

func TestDoneContextNeverAcquires(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		c := l.near()
		cause := errors.New("gone")
		cancelled, cancel := context.WithCancelCause(t.Context())
		cancel(cause)
		late, stop := context.WithDeadline(t.Context(), time.Now().Add(-time.Hour))
		defer stop()
		for ctx, want := range map[context.Context]error{cancelled: cause, late: context.DeadlineExceeded} {
			for range 20 {
				lease, err := c.Mutex("x").Lease(ctx)
				require.ErrorIs(t, err, want)
				require.Nil(t, lease)
				lease, err = c.Mutex("x").TryLease(ctx)
				require.ErrorIs(t, err, want)
				require.Nil(t, lease)
				require.ErrorIs(t, c.Mutex("x").Do(ctx, func(context.Context) error {
					t.Error("called")
					return nil
				}), want)
			}
		}
		assert.Empty(t, l.s.Keys(t, l.s.Prefix()))
		l.free(c, "x")
	})
}

// The context of Lease bounds the waiting, not the holding.
func TestLeaseOutlivesTheContextItWasAcquiredWith(t *testing.T) {
	t.Parallel()
	withPatience(t, func(t *testing.T, l *lab) {
		const ttl = 300 * time.Millisecond
		type word struct{}
		ctx, cancel := context.WithCancel(context.WithValue(t.Context(), word{}, "value"))
		lease, err := l.near(holdfast.WithTTL(ttl)).Mutex("x").Lease(ctx)
		require.NoError(t, err)
		with := lease.WithContext(ctx)
		cancel()
		select {
		case <-with.Done():
		case <-time.After(soon):
			t.Fatal("WithContext outlives its context")
		}
		assert.ErrorIs(t, context.Cause(with), context.Canceled)
		l.keeps(lease, 2*ttl)
		assert.Equal(t, "value", lease.Context().Value(word{}))
		// Also when everything is over Release works.
		require.NoError(t, lease.Release(ctx))
		l.free(l.near(), "x")
	})
}
