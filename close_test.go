package holdfast_test

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

// slowRouter takes its time between the grant and the care for the lease.
type slowRouter struct {
	play
	asked, answer chan struct{}
}

func (s *slowRouter) Node(driver.Kind, string) string {
	close(s.asked)
	<-s.answer
	return ""
}

func TestGrantThatArrivesDuringCloseIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &slowRouter{play: play{asks: make(chan *ask, 16)}, asked: make(chan struct{}), answer: make(chan struct{})}
		c := holdfast.Open(p, holdfast.WithTTL(playTTL))
		w := wait(t.Context(), c.Mutex("x"))
		(<-p.asks).granted(1)
		<-p.asked
		closed := make(chan error)
		go func() { closed <- c.Close() }()
		synctest.Wait()
		close(p.answer)
		require.NoError(t, <-closed)
		<-w.done
		require.ErrorIs(t, w.err, holdfast.ErrClosed)
		require.Equal(t, []string{"acquire", "release", "close"}, p.log)
	})
}

// counting grants everything and counts what is given back.
type counting struct {
	instant
	released sync.Map
}

func (c *counting) Release(_ context.Context, l driver.Lease) error {
	c.released.Store(l.Token, true)
	return nil
}

func TestReleaseBesideCloseLeavesNothingHeld(t *testing.T) {
	const leases = 2000
	d := &counting{}
	c := holdfast.Open(d, holdfast.WithStrictFIFO()) // so that all can hold it, in a store that does not mind
	var held []*holdfast.Lease
	for range leases {
		l, err := c.Mutex("x").Lease(t.Context())
		require.NoError(t, err)
		held = append(held, l)
	}
	var wg sync.WaitGroup
	for _, l := range held {
		wg.Go(func() { _ = l.Release(context.Background()) })
	}
	require.NoError(t, c.Close())
	wg.Wait()
	n := 0
	d.released.Range(func(any, any) bool { n++; return true })
	require.Equal(t, leases, n)
}

// silent answers nothing but acquires until it is told to.
type silent struct {
	instant
	speak  chan struct{}
	closed atomic.Bool
}

func (s *silent) Release(context.Context, driver.Lease) error { <-s.speak; return nil }
func (s *silent) Close() error                                { s.closed.Store(true); return nil }

func TestCloseThatGaveUpStillClosesTheDriverInTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &silent{speak: make(chan struct{})}
		c := holdfast.Open(d)
		_, err := c.Mutex("x").Lease(t.Context())
		require.NoError(t, err)
		began := time.Now()
		require.Error(t, c.Close())
		require.Equal(t, 10*time.Second, time.Since(began))
		require.False(t, d.closed.Load())
		close(d.speak)
		synctest.Wait()
		require.True(t, d.closed.Load())
	})
}

// A try whose first ask hung. Both answers arrive; whichever is read first, what was
// granted is used or given back.
func TestTryThatWasAnsweredBusyAndGrantedGivesBack(t *testing.T) {
	stage(t, func(t *testing.T, p *play, c *holdfast.Client) {
		for i := range 300 {
			w := &waiter{done: make(chan struct{})}
			go func() {
				defer close(w.done)
				w.lease, w.err = c.Mutex("x").TryLease(t.Context())
			}()
			first, second := <-p.asks, <-p.asks
			if i%2 == 0 { // the scheduler likes to run first who was woken last
				first, second = second, first
			}
			first.answer <- result{driver.Grant{Status: driver.Granted, Ask: 2, Fence: 1}, nil}
			second.answer <- result{driver.Grant{Status: driver.Busy}, nil}
			require.True(t, w.returned())
			if w.err == nil {
				require.NoError(t, w.lease.Release(t.Context()))
			} else {
				require.ErrorIs(t, w.err, holdfast.ErrLocked)
			}
			synctest.Wait()
			require.Equal(t, first.Token, p.lease[len(p.lease)-1].Token, "given back")
		}
	})
}

// ForceUnlock can hit a waiter that does not know yet that it was granted the lock.
func TestWaiterThatWasForcedOutUnawaresQueuesAgain(t *testing.T) {
	stage(t, func(t *testing.T, p *play, c *holdfast.Client) {
		w := wait(t.Context(), c.Mutex("x"))
		first := <-p.asks
		first.answer <- result{error: driver.ErrNotHeld}
		again := <-p.asks
		require.NotEqual(t, first.Token, again.Token)
		again.granted(1)
		require.True(t, w.returned())
		require.NoError(t, w.err)
		require.NoError(t, w.lease.Release(t.Context()))
	})
}

// slowly answers what is asked with a grant, later than a lease lasts for as long as slow says.
func (p *play) slowly(t *testing.T, slow func() bool) (asked *atomic.Int64) {
	asked, stop := new(atomic.Int64), make(chan struct{})
	t.Cleanup(func() { close(stop) })
	go func() {
		for {
			select {
			case a := <-p.asks:
				asked.Add(1)
				if slow() {
					time.AfterFunc(playTTL, func() { a.granted(1) })
				} else {
					a.granted(1)
				}
			case <-stop:
				return
			}
		}
	}()
	return asked
}

// Latency passes. Until then each grant keeps the lock from the others for a TTL, and nobody
// has it, so the others must get their turn.
func TestWaiterOutlastsAStoreThatIsTooSlowForTheTTL(t *testing.T) {
	stage(t, func(t *testing.T, p *play, c *holdfast.Client) {
		began := time.Now()
		asked := p.slowly(t, func() bool { return time.Since(began) < time.Minute })
		w := wait(t.Context(), c.Mutex("x"))
		<-w.done
		require.NoError(t, w.err)
		require.NoError(t, w.lease.Err())
		require.Less(t, time.Since(began), time.Minute+10*max(playTTL, time.Second))
		require.Less(t, asked.Load(), int64(time.Minute/max(playTTL, time.Second)*2))
		require.NoError(t, w.lease.Release(t.Context()))
	})
}

func TestStoreThatIsTooSlowForTheTTLIsWhyAWaitEnds(t *testing.T) {
	stage(t, func(t *testing.T, p *play, c *holdfast.Client) {
		p.slowly(t, func() bool { return true })
		ctx, cancel := context.WithTimeout(t.Context(), 20*playTTL)
		defer cancel()
		w := wait(ctx, c.Mutex("x"))
		<-w.done
		require.ErrorIs(t, w.err, context.DeadlineExceeded)
		require.ErrorIs(t, w.err, driver.ErrTransient)
		require.ErrorContains(t, w.err, "longer to answer than a lease lasts")

		_, err := c.Mutex("x").TryLease(t.Context())
		require.ErrorIs(t, err, driver.ErrTransient)
		time.Sleep(2 * playTTL)
	})
}

// lateRenewal succeeds when the lease is over.
type lateRenewal struct{ instant }

func (lateRenewal) Renew(_ context.Context, l []driver.Lease) []error {
	time.Sleep(2 * playTTL)
	return make([]error, len(l))
}

func TestRenewalThatComesTooLateIsALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := holdfast.Open(lateRenewal{}, holdfast.WithTTL(playTTL), holdfast.WithoutRenewal())
		l, err := c.Mutex("x").Lease(t.Context())
		require.NoError(t, err)
		require.ErrorIs(t, l.Renew(t.Context()), holdfast.ErrLost)
		require.NoError(t, c.Close())
	})
}

func TestWithContextForgetsContextsThatHaveEnded(t *testing.T) {
	c := holdfast.Open(instant{})
	defer c.Close()
	l, err := c.Mutex("x").Lease(t.Context())
	require.NoError(t, err)
	const n = 20_000
	heap := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := heap()
	for range n {
		ctx, cancel := context.WithCancel(t.Context())
		request := l.WithContext(ctx)
		cancel()
		<-request.Done()
	}
	require.Eventually(t, func() bool { return heap() < before+n*100 }, 10*time.Second, 50*time.Millisecond)
	require.NoError(t, l.Release(t.Context()))
	require.ErrorIs(t, context.Cause(l.WithContext(t.Context())), context.Canceled, "over already")
}

func TestErrorTypeNamesTheCause(t *testing.T) {
	for want, err := range map[string]error{
		"locked":       holdfast.ErrLocked,
		"not_held":     holdfast.ErrNotHeld,
		"closed":       holdfast.ErrClosed,
		"deadlock":     holdfast.ErrDeadlock,
		"invalid_name": holdfast.ErrInvalidName,
		"timeout":      errors.Join(context.DeadlineExceeded, holdfast.ErrLocked),
		"canceled":     errors.Join(context.Canceled, driver.ErrTransient),
		"lock_lost":    errors.Join(holdfast.ErrLost, context.DeadlineExceeded),
		"store":        errors.New("NOPERM"),
	} {
		require.Equal(t, want, (&holdfast.LockError{Err: err}).ErrorType())
	}
}

// breaking answers quickly until it is broken, and then fails quickly.
type breaking struct {
	instant
	broken atomic.Bool
}

func (b *breaking) Release(context.Context, driver.Lease) error {
	if b.broken.Load() {
		return driver.ErrTransient
	}
	return nil
}

func TestUnlockAfterABurstWaitsNoLongerThanASecond(t *testing.T) {
	d := &breaking{}
	c := holdfast.Open(d, holdfast.WithTTL(4*time.Second))
	defer c.Close()
	mu := c.Mutex("x")
	for range 1000 {
		mu.Lock()
		mu.Unlock()
	}
	mu.Lock()
	d.broken.Store(true)
	began := time.Now()
	mu.Unlock()
	require.Less(t, time.Since(began), 3*time.Second)
	d.broken.Store(false)
}

func TestLockSaysInTheLogThatItWaitsForTheStore(t *testing.T) {
	s := redistest.Real(t)
	log := &labLog{}
	locks := holdfast.New(s.Client(t), holdfast.WithPrefix(s.Prefix()),
		holdfast.WithLogger(slog.New(slog.NewTextHandler(log, nil))))
	defer locks.Close()
	s.Kill()
	locked := make(chan struct{})
	go func() {
		defer close(locked)
		locks.Mutex("orders").Lock()
	}()
	require.Eventually(t, func() bool { return strings.Contains(log.String(), "lock=orders") }, 10*time.Second, 10*time.Millisecond)
	s.Restart()
	<-locked
	locks.Mutex("orders").Unlock()
	require.Equal(t, 1, strings.Count(log.String(), "\n"), "once, not at every attempt")
}
