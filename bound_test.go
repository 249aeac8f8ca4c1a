package holdfast_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/memdriver"
	"github.com/holdfast-go/holdfast/internal/behavior/lab"
)

// That a lock stays taken, and for how long, is a case of package behavior, for all stores.
func TestMinHoldShortensALongLeaseAndLengthensAShortOne(t *testing.T) {
	t.Parallel()
	lab.WithPatience(t, func(t *testing.T, l *lab.Lab) {
		const hold = time.Second
		for _, ttl := range []time.Duration{300 * time.Millisecond, lab.Ages} {
			a, b := l.Near(holdfast.WithMinHold(hold), holdfast.WithTTL(ttl)), l.Near()
			began := time.Now()
			lease := l.Lease(a, "x")
			w := l.Wait(b, "x")
			l.UntilQueue("x", 1)
			require.NoError(t, lease.Release(t.Context()))
			next := w.Granted(lab.Soon)
			assert.GreaterOrEqual(t, w.At.Sub(began), hold)
			assert.Less(t, w.At.Sub(began), hold+500*time.Millisecond+l.Slack)
			require.NoError(t, next.Release(t.Context()))

			// It costs nothing when it has been held for as long.
			lease = l.Lease(a, "x")
			l.Keeps(lease, hold)
			require.NoError(t, lease.Release(t.Context()))
			l.Free(b, "x")
		}
	})
}

func TestMinHoldIsForTheGoroutinesOfOneClientToo(t *testing.T) {
	t.Parallel()
	lab.WithPatience(t, func(t *testing.T, l *lab.Lab) {
		const hold = 300 * time.Millisecond
		for what, mu := range map[string]interface {
			Lock()
			Unlock()
		}{
			"mutex":  l.Mates(holdfast.WithMinHold(hold)).Mutex("x"),
			"linger": l.Mates(holdfast.WithMinHold(hold), holdfast.WithLinger(time.Hour)).Mutex("y"),
			"writer": l.Mates(holdfast.WithMinHold(hold)).RWMutex("x"),
		} {
			began := time.Now()
			lab.Promptly(t, lab.Soon, func() error {
				for range 3 {
					mu.Lock()
					mu.Unlock()
				}
				return nil
			})
			assert.GreaterOrEqual(t, time.Since(began), 2*hold, what)
		}

		// Readers let each other in. A writer waits for the one that came last.
		rw := l.Mates(holdfast.WithMinHold(hold)).RWMutex("y")
		rw.RLock()
		time.Sleep(hold / 2)
		began := time.Now()
		rw.RLock()
		rw.RUnlock()
		rw.RUnlock()
		l.Ends(lab.Begin(rw.Lock))
		assert.GreaterOrEqual(t, time.Since(began), hold)
		rw.Unlock()
	})
}

// A lost answer is made good by a repeat, which the store knows for one.
func TestMinHoldSurvivesALostAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &deaf{Driver: memdriver.New()}
		store.silent.Store(2)
		a, b := holdfast.Open(store, holdfast.WithMinHold(time.Minute)), holdfast.Open(store.Driver)
		defer func() { require.NoError(t, errors.Join(a.Close(), b.Close())) }()
		began := time.Now()
		lease, err := a.Mutex("x").Lease(t.Context())
		require.NoError(t, err)
		require.NoError(t, lease.Release(t.Context()))
		require.EqualValues(t, -1, store.silent.Load(), "it was repeated")
		require.Len(t, store.detached, 2, "nobody here waits for news of either token")
		next, err := b.Mutex("x").Lease(t.Context())
		require.NoError(t, err)
		assert.GreaterOrEqual(t, time.Since(began), time.Minute)
		assert.Less(t, time.Since(began), time.Minute+5*time.Second)
		require.NoError(t, next.Release(t.Context()))
	})
}

// deaf is a driver of which some answers to Attach are lost.
type deaf struct {
	*memdriver.Driver
	silent   atomic.Int32
	detached []string
}

func (d *deaf) Detach(l driver.Lease) {
	d.detached = append(d.detached, l.Token)
	d.Driver.Detach(l)
}

func (d *deaf) Attach(ctx context.Context, old driver.Lease, r *driver.Request) (driver.Grant, error) {
	g, err := d.Driver.Attach(ctx, old, r)
	if d.silent.Add(-1) >= 0 {
		return driver.Grant{}, driver.ErrTransient
	}
	return g, err
}

func TestMinHoldIsRefusedByAStoreThatCannotKeepIt(t *testing.T) {
	c := holdfast.Open(lab.Bare{Driver: memdriver.New()})
	defer c.Close()
	_, err := c.Mutex("x", holdfast.WithMinHold(time.Second)).Lease(t.Context())
	require.ErrorIs(t, err, errors.ErrUnsupported)
	require.True(t, c.Mutex("x").TryLock(), "it was taken nevertheless")
}

func TestHeldTooLongIsLostWithACauseOfItsOwn(t *testing.T) {
	t.Parallel()
	lab.WithPatience(t, func(t *testing.T, l *lab.Lab) {
		const hold = time.Second
		a, b := l.Near(holdfast.WithMaxHold(hold)), l.Near()
		began := time.Now()
		lease := l.Lease(a, "x")
		w := l.Wait(b, "x")
		l.UntilQueue("x", 1)
		l.Loses(lease, hold+l.Slack)
		assert.GreaterOrEqual(t, time.Since(began), hold)
		require.ErrorIs(t, context.Cause(lease.Context()), holdfast.ErrHeldTooLong)
		require.NotErrorIs(t, lease.Err(), holdfast.ErrExpired)
		next := w.Granted(lab.Soon) // far less than its TTL
		assert.GreaterOrEqual(t, w.At.Sub(began), hold+time.Second, "the holder had no time to stop")
		l.Until("the log says so", func() bool { return strings.Contains(l.Log.String(), "WithMaxHold") })
		require.ErrorIs(t, lease.Release(t.Context()), holdfast.ErrHeldTooLong)
		l.Holds(next)
		require.NoError(t, next.Release(t.Context()))
	})
}

// Goroutines of one client hold one grant after the other. Each has its own time.
func TestEachHoldHasItsOwnMaxHold(t *testing.T) {
	t.Parallel()
	lab.WithPatience(t, func(t *testing.T, l *lab.Lab) {
		const hold = time.Second
		lives := func(lease *holdfast.Lease, d time.Duration) {
			t.Helper()
			select {
			case <-lease.Done():
				t.Fatalf("lost: %v", context.Cause(lease.Context()))
			case <-time.After(d):
			}
		}
		c := l.Mates(holdfast.WithMaxHold(hold), holdfast.WithLinger(time.Hour), holdfast.WithReentrancy())
		first := l.Lease(c, "x")
		lives(first, hold*6/10)
		w := l.Wait(c, "x")
		require.NoError(t, first.Release(t.Context()))
		second := w.Granted(lab.Soon)
		lives(second, hold*6/10) // beyond the time of the first
		nested, err := c.Mutex("x").Lease(second.Context())
		require.NoError(t, err)
		require.NoError(t, second.Release(t.Context()))
		lives(nested, hold*6/10) // beyond that of the second
		require.ErrorIs(t, second.Err(), holdfast.ErrNotHeld)
		l.Loses(nested, hold+l.Slack)

		// Unlock undoes Lock although it is lost.
		mu := l.Near(holdfast.WithMaxHold(hold)).Mutex("y")
		mu.Lock()
		other := l.Lease(l.Near(), "y")
		assert.False(t, mu.TryLock())
		mu.Unlock()
		l.Holds(other)
		require.NoError(t, other.Release(t.Context()))
	})
}

// A hold may end just as its time is over. Then the end of its time is nothing to the hold
// after it on the same grant.
func TestMaxHoldOfAHoldThatHasEndedEndsNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const hold = time.Second
		c := holdfast.Open(memdriver.New(), holdfast.WithMaxHold(hold), holdfast.WithLogger(slog.New(slog.DiscardHandler)))
		defer c.Close()
		passed := 0
		for range 100 {
			first, err := c.Mutex("x").Lease(t.Context())
			require.NoError(t, err)
			granted := make(chan *holdfast.Lease)
			go func() {
				second, err := c.Mutex("x").Lease(t.Context())
				assert.NoError(t, err)
				granted <- second
			}()
			time.Sleep(hold) // so the release and the timer are due at one moment, in any order
			released := first.Release(t.Context())
			second := <-granted
			synctest.Wait()
			if released == nil {
				passed++
				require.NoError(t, second.Err(), "lost by the hold before it")
			} else {
				require.ErrorIs(t, released, holdfast.ErrHeldTooLong)
			}
			require.NoError(t, second.Release(t.Context()))
		}
		assert.NotZero(t, passed, "no release was in time")
	})
}

func TestFullQueueTurnsCallersAwayAtOnce(t *testing.T) {
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		var asked atomic.Int64
		c := l.Near(holdfast.WithMaxWaiters(1), holdfast.WithHolder("job 7"))
		c.AddHook(counting{asked: &asked})
		held := l.Lease(c, "x")
		assert.EqualValues(t, 1, asked.Load(), "a free lock takes one ask")
		first := l.Wait(c, "x")
		l.UntilQueue("x", 1)
		_, err := c.Mutex("x").Lease(t.Context())
		require.ErrorIs(t, err, holdfast.ErrQueueFull)
		var failed *holdfast.LockError
		require.ErrorAs(t, err, &failed)
		assert.Equal(t, "queue_full", failed.ErrorType())
		assert.Equal(t, "job 7", failed.Holder)
		l.UntilQueue("x", 1)

		first.Cancel(nil)
		first.Failed(lab.Soon)
		l.UntilQueue("x", 0)
		second := l.Wait(c, "x")
		l.UntilQueue("x", 1)
		unbounded := l.Wait(l.Near(), "x")
		l.UntilQueue("x", 2)
		require.NoError(t, held.Release(t.Context()))
		require.NoError(t, second.Granted(lab.Soon).Release(t.Context()))
		require.NoError(t, unbounded.Granted(lab.Soon).Release(t.Context()))

		// WithWait bounds all of it.
		held = l.Lease(c, "x")
		_, err = c.Mutex("x", holdfast.WithWait(50*time.Millisecond)).Lease(t.Context())
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, holdfast.ErrLocked)
		require.NoError(t, held.Release(t.Context()))
	})
}

// The look at the queue is part of the waiting: WithWait bounds both together.
func TestLookAtTheQueueIsPartOfTheWait(t *testing.T) {
	const wait = time.Second
	for what, answer := range map[string]time.Duration{
		"the look ends in time": wait / 4,
		"the wait ends first":   wait * 3 / 4,
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memdriver.New()
				there := holdfast.Open(store)
				here := holdfast.Open(slow{store, answer}, holdfast.WithMaxWaiters(1), holdfast.WithWait(wait))
				defer func() { require.NoError(t, errors.Join(here.Close(), there.Close())) }()
				held, err := there.Mutex("x").Lease(t.Context())
				require.NoError(t, err)
				began := time.Now()
				_, err = here.Mutex("x").Lease(t.Context())
				require.ErrorIs(t, err, context.DeadlineExceeded)
				assert.Equal(t, wait, time.Since(began))
				require.NoError(t, held.Release(t.Context()))
			})
		})
	}
}

// slow is a driver that takes its time for each answer.
type slow struct {
	*memdriver.Driver
	answer time.Duration
}

func (s slow) Acquire(ctx context.Context, r *driver.Request) (driver.Grant, error) {
	defer time.Sleep(s.answer)
	return s.Driver.Acquire(ctx, r)
}

func (s slow) Inspect(ctx context.Context, k driver.Kind, name string) (driver.Info, error) {
	defer time.Sleep(s.answer)
	return s.Driver.Inspect(ctx, k, name)
}

// counting counts asks of the store.
type counting struct {
	holdfast.HookBase
	asked *atomic.Int64
}

func (h counting) AcquireHook(next holdfast.AcquireFunc) holdfast.AcquireFunc {
	return func(ctx context.Context, op *holdfast.AcquireOp) (*holdfast.Lease, error) {
		defer func() { h.asked.Add(int64(op.Asked)) }()
		return next(ctx, op)
	}
}
