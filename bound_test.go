package holdfast_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/memdriver"
	"github.com/holdfast-go/holdfast/internal/test/behavior/lab"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

func TestMinHoldIsForTheGoroutinesOfOneClientToo(t *testing.T) {
	t.Parallel()
	lab.WithPatience(t, func(t *testing.T, l *lab.Lab) {
		const hold = 300 * time.Millisecond
		for what, mu := range map[string]interface {
			Lock()
			Unlock()
		}{
			"mutex":  l.Mates(holdfast.WithMinHold(hold)).Mutex("x"),
			"linger": l.Mates(holdfast.WithLinger(time.Hour)).Mutex("y", holdfast.WithMinHold(hold)),
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

// The store knows a repeat for one, and the lock is free when the first one said. Nobody is told
// in vain: if the lease is over before the store hears of it, the lock was not kept. That a lock
// stays taken is a case of package behavior, for all stores.
func TestMinHoldEndsInTimeHoweverManyAnswersAreLost(t *testing.T) {
	for n := range 6 {
		lost, ttl := n/2, []time.Duration{20 * time.Second, 2 * time.Minute}[n%2] // which it outlasts, or cuts short
		lab.InBubble(t, func(t *testing.T, l *lab.Lab) {
			l.Remember()
			const least = 30 * time.Second
			far, near := l.Far(holdfast.WithTTL(ttl)), l.Near(holdfast.WithTTL(ttl))
			l.Ready(far)
			warm := l.Lease(near, "warm", holdfast.WithMinHold(least)) // the server knows the script
			require.NoError(t, warm.Release(t.Context()))
			lease := l.Lease(far, "x", holdfast.WithMinHold(least))
			began := time.Now()
			time.Sleep(time.Second)
			l.Link.BlackHoleReplies(lost > 0)
			released := make(chan error, 1)
			go func() { released <- lease.Release(context.Background()) }()
			time.Sleep(time.Duration(lost) * 5 * time.Second)
			l.Link.BlackHoleReplies(false) // what was silent stays silent
			next, err := near.Mutex("x").Lease(t.Context())
			require.NoError(t, err)
			assert.GreaterOrEqual(t, time.Since(began), least)
			assert.Less(t, time.Since(began), least+600*time.Millisecond)
			require.NoError(t, <-released)
			require.NoError(t, next.Release(t.Context()))

			// It costs nothing when the lock has been held for as long.
			lease = l.Lease(near, "x", holdfast.WithMinHold(least))
			l.Keeps(lease, least)
			require.NoError(t, lease.Release(t.Context()))
			l.Free(far, "x")
		})
	}
}

func TestMinHoldThatIsNotKeptIsTold(t *testing.T) {
	lab.InBubble(t, func(t *testing.T, l *lab.Lab) {
		l.Remember()
		const ttl = 6 * time.Second
		far, near := l.Far(holdfast.WithTTL(ttl)), l.Near()
		l.Ready(far)
		lease := l.Lease(far, "x", holdfast.WithMinHold(time.Minute))
		l.Link.BlackHole(true)
		released := make(chan error, 1)
		go func() { released <- lease.Release(context.Background()) }()
		time.Sleep(ttl + time.Second)
		l.Heal()
		require.ErrorIs(t, <-released, holdfast.ErrLost)
		require.Contains(t, l.Log.String(), "not kept")
		l.SoonFree(near, "x")
	})
}

// As long as the store refuses to keep the lock, as with full memory, the lease is renewed.
func TestMinHoldIsRenewedUntilTheStoreKeepsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &deaf{Driver: memdriver.New()}
		store.refuses.Store(true)
		a, b := holdfast.Open(store, holdfast.WithMinHold(time.Minute)), holdfast.Open(store.Driver)
		defer func() { require.NoError(t, errors.Join(a.Close(), b.Close())) }()
		began := time.Now()
		lease, err := a.Mutex("x").Lease(t.Context())
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, lease.Release(ctx), context.Canceled, "it goes on in the background")
		time.Sleep(30 * time.Second)
		require.ErrorIs(t, lock(b), holdfast.ErrLocked, "it outlasts its TTL")
		store.refuses.Store(false)
		next, err := b.Mutex("x").Lease(t.Context())
		require.NoError(t, err)
		assert.GreaterOrEqual(t, time.Since(began), time.Minute)
		require.NoError(t, next.Release(t.Context()))
	})
}

func lock(c *holdfast.Client) error {
	_, err := c.Mutex("x").TryLease(context.Background())
	return err
}

// The lock of a holder that held it for too long goes to the next, although the store cannot be
// reached just then. The wrong version tried once, and the next waited for the TTL.
func TestHeldTooLongIsGivenUpThoughTheFirstAttemptFails(t *testing.T) {
	lab.InBubble(t, func(t *testing.T, l *lab.Lab) {
		l.Remember()
		far, near := l.Far(holdfast.WithTTL(10*time.Minute)), l.Near(holdfast.WithTTL(10*time.Minute))
		l.Ready(far)
		lease := l.Lease(far, "x", holdfast.WithMaxHold(5*time.Second))
		w := l.Wait(near, "x")
		l.UntilQueue("x", 1)
		<-lease.Done()
		require.ErrorIs(t, lease.Err(), holdfast.ErrHeldTooLong)
		began := time.Now()
		l.Link.Refuse(true)
		l.Link.Cut()
		time.Sleep(1500 * time.Millisecond)
		l.Link.Refuse(false)
		next := w.Granted(20 * time.Minute)
		require.Less(t, time.Since(began), 10*time.Second)
		l.GiveBack(next)
	})
}

// deaf is a driver of which some answers to Attach are lost.
type deaf struct {
	*memdriver.Driver
	silent   atomic.Int32
	refuses  atomic.Bool
	detached []string
}

func (d *deaf) Detach(l driver.Lease) {
	d.detached = append(d.detached, l.Token)
	d.Driver.Detach(l)
}

func (d *deaf) Attach(ctx context.Context, old driver.Lease, r *driver.Request) (driver.Grant, error) {
	if d.refuses.Load() {
		return driver.Grant{}, errors.Join(driver.ErrTransient, driver.ErrNotExecuted)
	}
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
	t.Parallel()
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		var asked atomic.Int64
		c := l.Near(holdfast.WithMaxWaiters(1), holdfast.WithHolder("job 7"))
		c.AddHook(lab.Meddler{Acquire: func(next holdfast.AcquireFunc, ctx context.Context, op *holdfast.AcquireOp) (*holdfast.Lease, error) {
			defer func() { asked.Add(int64(op.Asked)) }()
			return next(ctx, op)
		}})
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
		_, err = c.Mutex("x", holdfast.WithWait(l.Time(100*time.Millisecond))).Lease(t.Context())
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, holdfast.ErrLocked)
		require.NoError(t, held.Release(t.Context()))
	})
}

// Of a crowd that comes at one moment as many wait as may, and the rest is turned away at once.
func TestCrowdDoesNotOverfillTheQueue(t *testing.T) {
	const bound, crowd = 5, 250
	s := redistest.Real(t)
	var clients []*holdfast.Client
	for range 2 {
		clients = append(clients, holdfast.New(s.Client(t), holdfast.WithPrefix(s.Prefix()), holdfast.WithMaxWaiters(bound)))
	}
	held, err := clients[0].Mutex("x").Lease(t.Context())
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var crowds sync.WaitGroup
	turned, start := make(chan error, crowd), make(chan struct{})
	for i := range crowd {
		crowds.Go(func() {
			<-start
			if _, err := clients[i%2].Mutex("x").Lease(ctx); ctx.Err() == nil {
				turned <- err
			}
		})
	}
	close(start)
	for range crowd - bound {
		select {
		case err := <-turned:
			require.ErrorIs(t, err, holdfast.ErrQueueFull)
			require.ErrorIs(t, err, holdfast.ErrLocked)
		case <-time.After(lab.Soon):
			require.FailNow(t, "more wait than may")
		}
	}
	info, err := clients[0].Mutex("x").Inspect(t.Context())
	require.NoError(t, err)
	assert.Len(t, info.Queue, bound, "and no fewer")
	cancel()
	crowds.Wait()
	assert.Empty(t, turned)
	require.NoError(t, held.Release(t.Context()))
	for _, c := range clients {
		require.NoError(t, c.Close())
	}
}

// A store can take a waiter for dead, and give its place to another. A waiter that is alive comes
// back, and is not turned away although the queue is full by then.
func TestWaiterThatWasLetInIsNotTurnedAwayLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &forgetful{Driver: memdriver.New()}
		there, here := holdfast.Open(store.Driver), holdfast.Open(store, holdfast.WithMaxWaiters(1))
		defer func() { require.NoError(t, errors.Join(here.Close(), there.Close())) }()
		held, err := there.Mutex("x").Lease(t.Context())
		require.NoError(t, err)
		order := make(chan string, 2)
		wait := func(who string, c *holdfast.Client) {
			l, err := c.Mutex("x").Lease(t.Context())
			if assert.NoError(t, err, who) {
				order <- who
				assert.NoError(t, l.Release(t.Context()))
			}
		}
		go wait("the waiter", here)
		synctest.Wait()
		require.NoError(t, store.Release(t.Context(), store.asked.Load().(driver.Lease)), "its place")
		go wait("another", there)
		time.Sleep(5 * time.Second) // a heartbeat, and half
		require.NoError(t, held.Release(t.Context()))
		assert.Equal(t, "another", <-order)
		assert.Equal(t, "the waiter", <-order)
	})
}

// forgetful knows who has asked last.
type forgetful struct {
	*memdriver.Driver
	asked atomic.Value
}

func (f *forgetful) Acquire(ctx context.Context, r *driver.Request) (driver.Grant, error) {
	f.asked.Store(driver.Lease{Kind: r.Kind, Name: r.Name, Token: r.Token, TTL: r.TTL})
	return f.Driver.Acquire(ctx, r)
}

// The context for f ends with that of the caller. The bound of the hold stays until f returns.
func TestMaxHoldCountsAlthoughTheContextOfDoHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := holdfast.Open(memdriver.New(), holdfast.WithMaxHold(time.Minute))
		ctx, cancel := context.WithCancel(t.Context())
		err := c.Mutex("x").Do(ctx, func(ctx context.Context) error {
			cancel()
			<-ctx.Done()
			time.Sleep(2 * time.Minute)
			return nil
		})
		require.ErrorIs(t, err, holdfast.ErrLost)
		require.ErrorIs(t, err, holdfast.ErrHeldTooLong)
		require.NoError(t, c.Close())
	})
}

// loading is a store that has just been started, and confirms nothing.
type loading struct{ *memdriver.Driver }

var errLoading = fmt.Errorf("LOADING: %w", driver.ErrTransient)

func (loading) Release(context.Context, driver.Lease) error { return errLoading }

func (loading) Confirm(_ context.Context, _ driver.Lease, c driver.Confirmation) error {
	time.Sleep(c.Timeout)
	return driver.ErrNotConfirmed
}

func TestReleaseThatIsCalledOffSaysWhyTheStoreWasNotTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := holdfast.Open(loading{memdriver.New()}, holdfast.WithTTL(time.Minute))
		for _, m := range []*holdfast.Mutex{c.Mutex("x"), c.Mutex("y", holdfast.WithOutageWait(2*time.Second))} {
			lease, err := m.Lease(t.Context())
			require.NoError(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			err = lease.Release(ctx)
			require.ErrorContains(t, err, "LOADING")
			require.ErrorIs(t, err, holdfast.ErrUnavailable)
			require.Equal(t, ctx.Err() != nil, errors.Is(err, context.DeadlineExceeded))
			cancel()
		}
		require.ErrorContains(t, c.Close(), "close")
	})
}

// A lock that was not confirmed is given back within the time that TryLock has.
func TestTryLockThatGivesBackTakesNoLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := holdfast.Open(loading{memdriver.New()}, holdfast.WithReplicas(1, 900*time.Millisecond))
		began := time.Now()
		require.False(t, c.Mutex("x").TryLock())
		require.LessOrEqual(t, time.Since(began), time.Second)
		_ = c.Close()
	})
}

// impatient is a hook that lets nobody wait for more than a second at a time.
type impatient struct {
	holdfast.HookBase
	ended atomic.Int32
}

func (i *impatient) AcquireHook(next holdfast.AcquireFunc) holdfast.AcquireFunc {
	return func(ctx context.Context, op *holdfast.AcquireOp) (*holdfast.Lease, error) {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		l, err := next(ctx, op)
		if errors.Is(err, context.DeadlineExceeded) {
			i.ended.Add(1)
		}
		return l, err
	}
}

// Also the wait for the Unlock of a lock that was lost ends with the context that a hook has given it.
func TestWaitForTheUnlockOfALostLockEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := holdfast.Open(memdriver.New(), holdfast.WithMaxHold(time.Second))
		var hook impatient
		c.AddHook(&hook)
		mu := c.Mutex("x")
		mu.Lock()
		time.Sleep(5 * time.Second) // it is lost
		locked := make(chan struct{})
		go func() { mu.Lock(); close(locked) }()
		time.Sleep(10 * time.Second)
		require.Positive(t, hook.ended.Load())
		mu.Unlock()
		<-locked
		mu.Unlock()
		require.NoError(t, c.Close())
	})
}
