package token_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/test/behavior/lab"
	"github.com/holdfast-go/holdfast/internal/token"
)

// holder is one that would still hold the lock, or not.
type holder bool

func (h holder) FoundGone() bool { return bool(h) }

// release gives the token up in the background.
func (c *contender) release(h token.LastHolder) (told <-chan error) {
	require.True(c.t, c.s.Begin())
	r, _ := c.Release(context.Background(), token.Ending{Last: h}, false)
	return r.Told()
}

// granted has the token granted.
func (c *contender) granted(s *store) {
	c.t.Helper()
	w := c.wait(c.t.Context())
	(<-s.Asks).Granted(1)
	require.True(c.t, w.returned())
	require.NoError(c.t, w.err)
	c.Granted()
}

// after returns the answers in turn, and the last one from then on.
func after(answers ...error) func(int) error {
	return func(n int) error { return answers[min(n, len(answers))-1] }
}

func TestReleaseIsRepeatedUntilItIsAnswered(t *testing.T) {
	lost := driver.ErrTransient
	unsent := errors.Join(driver.ErrTransient, driver.ErrNotExecuted)
	unknown := errors.New("upstream failure")
	for name, test := range map[string]struct {
		answers  []error
		trusted  holder
		want     error
		releases int
	}{
		"at once":                            {[]error{nil}, true, nil, 1},
		"after two lost answers":             {[]error{lost, lost, nil}, true, nil, 3},
		"after two unknown answers":          {[]error{unknown, unknown, nil}, true, nil, 3},
		"not held, by an unknown one":        {[]error{unknown, driver.ErrNotHeld}, true, nil, 2},
		"unknown to the end":                 {[]error{unknown}, true, unknown, 0},
		"not held, by its own lost release":  {[]error{lost, driver.ErrNotHeld}, true, nil, 2},
		"not held, and no release had come":  {[]error{unsent, driver.ErrNotHeld}, true, driver.ErrNotHeld, 2},
		"not held, it was taken away":        {[]error{driver.ErrNotHeld}, true, driver.ErrNotHeld, 1},
		"not held, its time had run out":     {[]error{driver.ErrNotHeld}, false, nil, 1},
		"not held, nobody had ever used it":  {[]error{unsent, driver.ErrNotHeld}, false, nil, 2},
		"never carried out, which is logged": {[]error{unsent}, true, unsent, 0},
	} {
		t.Run(name, func(t *testing.T) {
			alone(t, true, func(t *testing.T, s *store, c *contender) {
				c.granted(s)
				s.release = after(test.answers...)
				began := time.Now()
				err := <-c.release(test.trusted)
				if test.want == nil {
					require.NoError(t, err)
				} else {
					require.ErrorIs(t, err, test.want)
				}
				if test.releases > 0 {
					require.Len(t, s.Released(), test.releases)
					require.Empty(t, c.log.String())
					return
				}
				require.Greater(t, time.Since(began), ttl, "by then the store has ended it by itself")
				require.Less(t, time.Since(began), ttl+5*time.Second)
				require.Contains(t, c.log.String(), "not released")
			})
		})
	}
}

// A refusal may be transient, too. The caller hears of it at once, and the release goes on.
func TestRefusedReleaseIsToldAtOnceAndGoesOn(t *testing.T) {
	alone(t, true, func(t *testing.T, s *store, c *contender) {
		c.granted(s)
		refused := fmt.Errorf("NOPERM: %w", driver.ErrDenied)
		s.release = after(refused, refused, refused, nil)
		began := time.Now()
		require.ErrorIs(t, <-c.release(holder(true)), refused)
		require.Less(t, time.Since(began), time.Second)
		time.Sleep(2 * time.Second)
		require.Len(t, s.Released(), 4)
	})
}

// Rule 5. An ask that is answered after its token was released may have got the lock for nobody. The
// release says that there is one, and is repeated by whichever comes last.
func TestStragglingAskHasTheReleaseRepeated(t *testing.T) {
	alone(t, true, func(t *testing.T, s *store, c *contender) {
		w := c.wait(t.Context())
		first := <-s.Asks
		first.Queued()
		heartbeat := <-s.Asks
		first.Wake(driver.Grant{Status: driver.Granted, Ask: 1, Fence: 1})
		require.True(t, w.returned())
		c.Granted()
		require.NoError(t, <-c.release(holder(true)))
		require.Len(t, s.Released(), 1)
		require.True(t, s.Released()[0].Unsettled)
		heartbeat.Granted(2)
		synctest.Wait()
		require.Len(t, s.Released(), 2)
		require.False(t, s.Released()[1].Unsettled, "nothing is under way any more")
	})
}

// Of several asks under way, one that is answered late has the release repeated. The others
// must find that the token was given up.
func TestRepeatedReleaseSaysThatOtherAsksMayStillArrive(t *testing.T) {
	alone(t, true, func(t *testing.T, s *store, c *contender) {
		hangs := make(chan struct{})
		s.release = func(int) error { <-hangs; return driver.ErrTransient }
		ctx, cancel := context.WithCancel(t.Context())
		w := c.wait(ctx)
		first, heartbeat := <-s.Asks, <-s.Asks
		cancel()
		require.True(t, w.returned())
		c.withdraw()
		synctest.Wait()
		first.Granted(1)
		time.Sleep(2 * ttl)
		released := s.Released()
		close(hangs)
		heartbeat.Answer <- lab.Result{Err: driver.ErrTransient}
		require.Len(t, released, 4, "three hang, and the one that the late answer asks for")
		for _, l := range released {
			require.True(t, l.Unsettled)
		}
	})
}

// News of a loss and of others that wait reaches the holder as long as it listens.
func TestHolderHearsOfItsLossAndOfOthers(t *testing.T) {
	alone(t, true, func(t *testing.T, s *store, c *contender) {
		w := c.wait(t.Context())
		ask := <-s.Asks
		ask.Granted(1)
		require.True(t, w.returned())
		c.Granted()
		ask.Wake(driver.Grant{Status: driver.Wanted})
		ask.Wake(driver.Grant{Status: driver.Granted, Ask: 1}) // late, and in nobody's way
		ask.Wake(driver.Grant{Status: driver.Lost})
		require.Equal(t, 1, c.wanted)
		require.Equal(t, []error{token.ErrTakenAway}, c.lost)
	})
}

// A waiter that gives up while the store fails is withdrawn, unless the store surely knows
// nothing of it, in which case the driver is told once. If the store is never reached, it is given up
// after some time. Nobody is told of a failure: in an outage there would be a line for each call.
func TestWaiterIsWithdrawnUntilTheStoreSurelyKnowsNothingOfIt(t *testing.T) {
	unsent := errors.Join(driver.ErrTransient, driver.ErrNotExecuted)
	queued, unknown := lab.Result{Grant: driver.Grant{Status: driver.Queued}}, lab.Result{Err: driver.ErrTransient}
	for name, test := range map[string]struct {
		answer   lab.Result
		release  []error
		releases int // 0: until it is given up
	}{
		"in the queue":                 {queued, []error{unsent, unsent, nil}, 3},
		"not known":                    {unknown, []error{unsent, unsent, nil}, 3},
		"not sent":                     {lab.Result{Err: unsent}, []error{unsent, unsent, nil}, 1},
		"in the queue of a lost store": {queued, []error{driver.ErrTransient}, 0},
		"not known to a lost store":    {unknown, []error{driver.ErrTransient}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			alone(t, true, func(t *testing.T, s *store, c *contender) {
				s.release = after(test.release...)
				ctx, cancel := context.WithCancel(t.Context())
				w := c.wait(ctx)
				(<-s.Asks).Answer <- test.answer
				synctest.Wait()
				cancel()
				require.True(t, w.returned())
				c.withdraw()
				time.Sleep(2*ttl + 5*time.Second)
				tried := len(s.Released())
				if test.releases > 0 {
					require.Equal(t, test.releases, tried)
				}
				time.Sleep(ttl)
				require.Len(t, s.Released(), tried, "it was given up")
				require.Empty(t, c.log.String())
			})
		})
	}
}

// It becomes sure when the last ask that is under way fails.
func TestWithdrawalEndsWhenTheLastAskTurnsOutNotToBeSent(t *testing.T) {
	alone(t, true, func(t *testing.T, s *store, c *contender) {
		s.release = after(driver.ErrTransient)
		ctx, cancel := context.WithCancel(t.Context())
		w := c.wait(ctx)
		ask := <-s.Asks
		cancel()
		require.True(t, w.returned())
		c.withdraw()
		time.Sleep(ttl / 2)
		require.Greater(t, len(s.Released()), 2)
		ask.Answer <- lab.Result{Err: errors.Join(driver.ErrTransient, driver.ErrNotExecuted)}
		time.Sleep(2 * time.Second) // the longest pause, with jitter
		ends := len(s.Released())
		time.Sleep(ttl)
		require.Len(t, s.Released(), ends)
		require.Empty(t, c.log.String())
	})
}
