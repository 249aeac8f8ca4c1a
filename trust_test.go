package holdfast_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/keepalive"
)

// play is a store whose answers the test gives one by one, in virtual time: it shows
// interleavings that a real store has once in a million.
type play struct {
	asks chan *ask

	mu    sync.Mutex
	log   []string
	lease []driver.Lease // of the releases
	renew error
}

type ask struct {
	*driver.Request
	answer chan result
}

type result struct {
	driver.Grant
	error
}

func (p *play) note(what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.log = append(p.log, what)
}

func (p *play) Acquire(_ context.Context, r *driver.Request) (driver.Grant, error) {
	p.note("acquire")
	a := &ask{r, make(chan result, 1)}
	p.asks <- a
	g := <-a.answer
	return g.Grant, g.error
}

func (p *play) Renew(_ context.Context, leases []driver.Lease) []error {
	p.mu.Lock()
	defer p.mu.Unlock()
	errs := make([]error, len(leases))
	for i := range errs {
		errs[i] = p.renew
	}
	return errs
}

func (p *play) Release(_ context.Context, l driver.Lease) error {
	p.note("release")
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lease = append(p.lease, l)
	return nil
}

func (p *play) Close() error { p.note("close"); return nil }

func (a *ask) queued() { a.answer <- result{driver.Grant{Status: driver.Queued}, nil} }

func (a *ask) granted(fence int64) {
	a.answer <- result{driver.Grant{Status: driver.Granted, Ask: a.Ask, Fence: fence}, nil}
}

const playTTL = 9 * time.Second

// stage runs body in virtual time with a client of a play.
func stage(t *testing.T, body func(t *testing.T, p *play, c *holdfast.Client)) {
	synctest.Test(t, func(t *testing.T) {
		p := &play{asks: make(chan *ask, 16)}
		c := holdfast.Open(p, holdfast.WithTTL(playTTL))
		body(t, p, c)
		require.NoError(t, c.Close())
	})
}

// waiter acquires in the background.
type waiter struct {
	lease *holdfast.Lease
	err   error
	done  chan struct{}
}

func wait(ctx context.Context, m *holdfast.Mutex) *waiter {
	w := &waiter{done: make(chan struct{})}
	go func() {
		defer close(w.done)
		w.lease, w.err = m.Lease(ctx)
	}()
	return w
}

func (w *waiter) returned() bool {
	synctest.Wait()
	select {
	case <-w.done:
		return true
	default:
		return false
	}
}

// Rule 1. The waiter was granted the lock after its first ask and cut off. The lease
// ran out, another holds the lock. When the network heals, the waiter's newest ask is
// answered "queued", and then the old push comes in.
func TestStalePushIsNotBelieved(t *testing.T) {
	stage(t, func(t *testing.T, p *play, c *holdfast.Client) {
		ctx, cancel := context.WithCancel(t.Context())
		w := wait(ctx, c.Mutex("x"))
		first := <-p.asks
		first.queued()
		for range 4 { // heartbeats of 12 s
			(<-p.asks).queued()
		}
		require.False(t, w.returned())
		first.Wake(driver.Grant{Status: driver.Granted, Ask: first.Ask, Fence: 1})
		require.False(t, w.returned(), "the push tells of a lease that is over")
		next := <-p.asks // it asks instead of believing
		next.granted(2)
		require.True(t, w.returned())
		require.EqualValues(t, 2, w.lease.Fence())
		cancel()
	})
}

// Rule 1. Trust is counted from the ask that the push names, not from a later one.
func TestTrustCountsFromTheAskThatThePushNames(t *testing.T) {
	stage(t, func(t *testing.T, p *play, c *holdfast.Client) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		began := time.Now()
		w := wait(ctx, c.Mutex("x"))
		first := <-p.asks
		first.queued()
		second := <-p.asks // not answered yet
		p.renew = errors.New("cut off")
		first.Wake(driver.Grant{Status: driver.Granted, Ask: first.Ask, Fence: 1})
		require.True(t, w.returned())
		require.Equal(t, began.Add(playTTL-playTTL/100-2*time.Millisecond), w.lease.Deadline())
		<-w.lease.Done()
		require.Equal(t, w.lease.Deadline(), time.Now())
		require.ErrorIs(t, context.Cause(w.lease.Context()), holdfast.ErrLost)
		second.queued()
		require.ErrorIs(t, w.lease.Release(context.Background()), holdfast.ErrLost)
	})
}

// Rule 4. "Not renewed in time" would have people look for what is wrong with Redis.
func TestLeaseThatEndsByTheWallClockSaysSo(t *testing.T) {
	for name, end := range map[string]func(*holdfast.Lease){
		"to who asks":    func(*holdfast.Lease) {},
		"in its context": func(l *holdfast.Lease) { <-l.Done() },
	} {
		t.Run(name, func(t *testing.T) {
			stage(t, func(t *testing.T, p *play, c *holdfast.Client) {
				w := wait(t.Context(), c.Mutex("x"))
				(<-p.asks).granted(1)
				require.True(t, w.returned())
				began := time.Now()
				keepalive.StepWallClock(t, playTTL)
				end(w.lease)
				require.LessOrEqual(t, time.Since(began), playTTL/3)
				for _, err := range []error{w.lease.Err(), context.Cause(w.lease.Context()), w.lease.Release(t.Context())} {
					require.ErrorIs(t, err, holdfast.ErrLost)
					require.ErrorContains(t, err, "the wall clock was set forward, or the machine was suspended")
					require.NotContains(t, err.Error(), "not renewed")
				}
			})
		})
	}
}

// Rule 5. A heartbeat is on its way when the push comes. It may arrive after the lock
// was released, so the release must tell the store.
func TestReleaseSaysThatAnAskMayStillArrive(t *testing.T) {
	for _, answered := range []bool{false, true} {
		stage(t, func(t *testing.T, p *play, c *holdfast.Client) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			w := wait(ctx, c.Mutex("x"))
			first := <-p.asks
			first.queued()
			heartbeat := <-p.asks
			first.Wake(driver.Grant{Status: driver.Granted, Ask: first.Ask, Fence: 1})
			require.True(t, w.returned())
			if answered {
				heartbeat.granted(1)
				synctest.Wait()
			}
			require.NoError(t, w.lease.Release(context.Background()))
			require.Equal(t, !answered, p.lease[0].Unsettled)
			if !answered {
				heartbeat.queued()
			}
		})
	}
}

// Rule 5. An ask that failed without a known outcome may have been carried out, or may
// still be.
func TestFailedAskIsUnsettledUnlessItWasNotExecuted(t *testing.T) {
	for _, c := range []struct {
		err       error
		unsettled bool
	}{
		{driver.ErrTransient, true},
		{errors.Join(driver.ErrTransient, driver.ErrNotExecuted), false},
	} {
		stage(t, func(t *testing.T, p *play, client *holdfast.Client) {
			w := wait(t.Context(), client.Mutex("x"))
			(<-p.asks).answer <- result{error: c.err}
			(<-p.asks).granted(1)
			require.True(t, w.returned())
			require.NoError(t, w.lease.Release(context.Background()))
			require.Equal(t, c.unsettled, p.lease[0].Unsettled)
		})
	}
}

// Rule 6. A token identifies one acquisition, also in a clone of the process.
func TestTokensAreFreshForEveryAcquisition(t *testing.T) {
	stage(t, func(t *testing.T, p *play, c *holdfast.Client) {
		seen := map[string]bool{}
		for range 100 {
			w := wait(t.Context(), c.Mutex("x"))
			a := <-p.asks
			parts := strings.Split(a.Token, "-")
			require.Len(t, parts, 3, "client, counter, random")
			require.Len(t, parts[2], 16, "64 random bits")
			require.False(t, seen[parts[2]], "drawn afresh, not once per client")
			seen[parts[2]] = true
			a.granted(1)
			require.True(t, w.returned())
			require.NoError(t, w.lease.Release(context.Background()))
		}
	})
}

// Rule 13. Without news a waiter asks every third of its TTL; that is how a lost push
// is found.
func TestWaiterAsksEveryThirdOfItsTTL(t *testing.T) {
	stage(t, func(t *testing.T, p *play, c *holdfast.Client) {
		ctx, cancel := context.WithCancel(t.Context())
		w := wait(ctx, c.Mutex("x"))
		(<-p.asks).queued()
		for range 10 {
			before := time.Now()
			(<-p.asks).queued()
			require.Equal(t, playTTL/3, time.Since(before))
		}
		cancel()
		<-w.done
		require.ErrorIs(t, w.err, context.Canceled)
		require.ErrorIs(t, w.err, holdfast.ErrLocked)
	})
}

// An ask that hangs does not keep the waiter from asking again, nor from leaving.
func TestHangingAskHoldsUpNothing(t *testing.T) {
	stage(t, func(t *testing.T, p *play, c *holdfast.Client) {
		ctx, cancel := context.WithCancel(t.Context())
		w := wait(ctx, c.Mutex("x"))
		hanging := []*ask{<-p.asks, <-p.asks, <-p.asks}
		time.Sleep(10 * playTTL)
		require.Empty(t, p.asks, "no more than three at a time")
		hanging[0].queued()
		fourth := <-p.asks
		cancel()
		require.True(t, w.returned())
		require.ErrorIs(t, w.err, context.Canceled)
		synctest.Wait()
		require.True(t, p.lease[0].Unsettled)
		for _, a := range append(hanging[1:], fourth) {
			a.queued()
		}
	})
}

// Rule 14. A waiter withdraws, with a context of its own, however it ends; and Close
// lets all do so before it closes the driver.
func TestWaitersWithdrawBeforeTheDriverIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &play{asks: make(chan *ask, 16)}
		c := holdfast.Open(p, holdfast.WithTTL(playTTL), holdfast.WithStrictFIFO())
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var waiters []*waiter
		for range 3 {
			waiters = append(waiters, wait(ctx, c.Mutex("x")))
			(<-p.asks).queued()
		}
		synctest.Wait()
		require.NoError(t, c.Close())
		for _, w := range waiters {
			<-w.done
			require.ErrorIs(t, w.err, holdfast.ErrClosed)
		}
		require.Equal(t, []string{"acquire", "acquire", "acquire", "release", "release", "release", "close"}, p.log)
	})
}

// A release whose answer was lost is repeated, and "not held" is what it hears then.
func TestReleaseThatHadToBeRepeatedIsNoLoss(t *testing.T) {
	for _, lost := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			p := &flakyRelease{play: play{asks: make(chan *ask, 16)}, first: driver.ErrNotHeld}
			if lost {
				p.first = driver.ErrTransient
			}
			c := holdfast.Open(p, holdfast.WithTTL(playTTL))
			w := wait(t.Context(), c.Mutex("x"))
			(<-p.asks).granted(1)
			require.True(t, w.returned())
			err := w.lease.Release(context.Background())
			if lost {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, holdfast.ErrLost, "somebody took it without a word")
			}
			require.NoError(t, c.Close())
		})
	}
}

// flakyRelease answers first to the first release and ErrNotHeld to the others.
type flakyRelease struct {
	play
	first error
}

func (f *flakyRelease) Release(context.Context, driver.Lease) error {
	err := f.first
	f.first = driver.ErrNotHeld
	return err
}
