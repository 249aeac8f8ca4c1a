package token_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/keepalive"
	"github.com/holdfast-go/holdfast/internal/session"
	"github.com/holdfast-go/holdfast/internal/test/behavior/lab"
	"github.com/holdfast-go/holdfast/internal/token"
)

// contender is a token over a play, without a client around it. It hears what its token is
// told.
type contender struct {
	token.Token
	t    *testing.T
	s    *session.Session
	log  lab.Log
	said *session.Complaint // of the caller

	mu     sync.Mutex
	lost   []error
	wanted int
	busy   int
}

func (c *contender) note(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
}

// obstacle is what a mate that waits behind the contender is told.
func (c *contender) obstacle() token.Obstacle {
	o, _ := c.Obstacle()
	return o
}

func (c *contender) Lost(cause error)  { c.note(func() { c.lost = append(c.lost, cause) }) }
func (c *contender) Wanted()           { c.note(func() { c.wanted++ }) }
func (c *contender) Busy()             { c.note(func() { c.busy++ }) }
func (c *contender) Log() *slog.Logger { return slog.New(slog.NewTextHandler(&c.log, nil)) }

const ttl = lab.PlayTTL

// margin is what a holder trusts its lease less than it lasts.
const margin = ttl/100 + 2*time.Millisecond

// store is a play whose releases the test answers, too.
type store struct {
	*lab.Play
	release func(n int) error // the answer to release number n, from 1 on
}

func (s *store) Release(ctx context.Context, l driver.Lease) error {
	_ = s.Play.Release(ctx, l)
	if s.release == nil {
		return nil
	}
	return s.release(len(s.Released()))
}

// alone runs body in virtual time with a token over a store.
func alone(t *testing.T, wait bool, body func(t *testing.T, s *store, c *contender)) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{Play: lab.NewPlay()}
		c := &contender{t: t, s: session.New(s)}
		require.True(t, c.s.Begin())
		c.Init(c.s, &token.Want{ID: &token.ID{Kind: driver.Mutex, Name: "x"}, Request: driver.Request{Wait: wait, TTL: ttl}, Log: c}, c)
		body(t, s, c)
		require.True(t, c.s.Close(func() {}), "returns when all operations have ended")
		c.s.End()
	})
}

// waiting is a call of Wait in the background.
type waiting struct {
	trust keepalive.Trust
	grant driver.Grant
	stats token.Stats
	err   error
	done  bool
}

// wait begins to wait. The operation of the session ends with it.
func (c *contender) wait(ctx context.Context) *waiting {
	w := new(waiting)
	go func() {
		w.trust, w.grant, w.err = c.Wait(ctx, &token.Caller{Complaint: c.said, Stats: &w.stats})
		w.done = true
		c.s.Done()
	}()
	return w
}

func (w *waiting) returned() bool { synctest.Wait(); return w.done }

// withdraw is what a caller does that has got nothing, beside the operation that has ended.
func (c *contender) withdraw() {
	c.s.BeginWithin()
	c.Withdraw(context.Background())
	c.s.Done()
}

func TestAnswerIsTrustedFromTheTimeItWasAskedFor(t *testing.T) {
	alone(t, true, func(t *testing.T, s *store, c *contender) {
		w := c.wait(t.Context())
		ask := <-s.Asks
		require.EqualValues(t, 1, ask.Ask)
		require.Equal(t, c.Value, ask.Token)
		time.Sleep(2 * time.Second) // on its way
		ask.Granted(7)
		require.True(t, w.returned())
		require.NoError(t, w.err)
		require.EqualValues(t, 7, w.grant.Fence)
		require.Equal(t, ttl-2*time.Second-margin, w.trust.Left())
		require.Equal(t, token.Stats{Asked: 1}, w.stats)
		require.Zero(t, c.busy)
	})
}

// Rule 1. The push names the first ask. That a later one was queued makes its lease no longer.
func TestPushIsTrustedFromTheAskThatItNames(t *testing.T) {
	alone(t, true, func(t *testing.T, s *store, c *contender) {
		w := c.wait(t.Context())
		first := <-s.Asks
		first.Queued()
		heartbeat := <-s.Asks
		heartbeat.Queued()
		require.False(t, w.returned())
		time.Sleep(time.Second)
		first.Wake(driver.Grant{Status: driver.Granted, Ask: 1, Fence: 7})
		require.True(t, w.returned())
		require.NoError(t, w.err)
		require.Equal(t, ttl-ttl/3-time.Second-margin, w.trust.Left())
		require.Equal(t, token.Stats{Contended: true, Asked: 2, Notify: 1, Poll: 1}, w.stats)
		require.Equal(t, 1, c.busy, "said once")
	})
}

// Rule 1. News of an ask that was never sent, or that was sent more than a TTL ago, proves nothing:
// the lease has run out, and another may hold the lock. The token asks instead.
func TestNewsThatProvesNothingHasTheTokenAsk(t *testing.T) {
	for name, stale := range map[string]uint64{"never sent": 99, "long ago": 1} {
		t.Run(name, func(t *testing.T) {
			alone(t, true, func(t *testing.T, s *store, c *contender) {
				w := c.wait(t.Context())
				first := <-s.Asks
				first.Queued()
				for range 4 {
					(<-s.Asks).Queued()
				}
				first.Wake(driver.Grant{Status: driver.Granted, Ask: stale, Fence: 7})
				require.False(t, w.returned())
				next := <-s.Asks
				require.EqualValues(t, 6, next.Ask)
				next.Granted(8)
				require.True(t, w.returned())
				require.EqualValues(t, 8, w.grant.Fence)
			})
		})
	}
}

// A lease of which nothing is left when the answer comes is of no use. A later ask has more.
func TestAnswerThatComesTooLateIsNotUsed(t *testing.T) {
	alone(t, true, func(t *testing.T, s *store, c *contender) {
		w := c.wait(t.Context())
		first := <-s.Asks
		time.Sleep(ttl - margin/2)
		first.Granted(1)
		require.False(t, w.returned())
		require.ErrorContains(t, c.obstacle().Trouble, "longer to answer than a lease lasts", "it counts as a grant")
		second, third := <-s.Asks, <-s.Asks
		third.Granted(1)
		require.True(t, w.returned())
		require.NoError(t, w.err)
		require.Equal(t, 2*ttl/3-margin/2, w.trust.Left(), "it was sent after 2/3 TTL")
		second.Granted(1)
	})
}

// Any other news, such as that the subscription is new, has the token ask at once.
func TestNewsWithoutAGrantHasTheTokenAskAtOnce(t *testing.T) {
	alone(t, true, func(t *testing.T, s *store, c *contender) {
		w := c.wait(t.Context())
		first := <-s.Asks
		first.Queued()
		require.False(t, w.returned())
		began := time.Now()
		first.Wake(driver.Grant{Status: driver.Queued, Reconnect: true})
		(<-s.Asks).Granted(1)
		require.Zero(t, time.Since(began))
		require.True(t, w.returned())
		require.Equal(t, 1, w.stats.Reconnect)
	})
}

// Rule 5. An answer that is lost is asked for again, by the same token with the next number. What
// became of the lost one nobody knows, so the release says so, unless it was not executed.
func TestLostReplyIsAskedForAgain(t *testing.T) {
	for name, test := range map[string]struct {
		err       error
		unsettled bool
	}{
		"lost":         {driver.ErrTransient, true},
		"not executed": {errors.Join(driver.ErrTransient, driver.ErrNotExecuted), false},
	} {
		t.Run(name, func(t *testing.T) {
			alone(t, true, func(t *testing.T, s *store, c *contender) {
				w := c.wait(t.Context())
				first := <-s.Asks
				first.Answer <- lab.Result{Err: test.err}
				again := <-s.Asks
				require.Equal(t, first.Token, again.Token)
				require.EqualValues(t, 2, again.Ask)
				require.Equal(t, test.err, c.obstacle().Trouble)
				again.Granted(1)
				require.True(t, w.returned())
				require.NoError(t, w.err)
				require.Zero(t, c.obstacle())
				require.NoError(t, <-c.release(nil))
				require.Equal(t, test.unsettled, s.Released()[0].Unsettled)
			})
		})
	}
}

// An error that is known to be the same next time ends the wait. So does, for a token that does not
// wait, the third failure. An error that nobody has heard of is waited out like an outage, also as the first
// answer, and the end of the context names it.
func TestErrorsThatEndTheWait(t *testing.T) {
	refused := errors.Join(errors.New("WRONGTYPE"), driver.ErrNotExecuted)
	denied := fmt.Errorf("NOPERM: %w", driver.ErrDenied)
	unsupported := fmt.Errorf("no semaphores: %w", errors.ErrUnsupported)
	unknown := errors.New("upstream failure")
	for name, test := range map[string]struct {
		wait bool
		err  error
		asks int
	}{
		"a refusal":               {true, refused, 1},
		"another limit":           {true, driver.ErrLimitConflict, 1},
		"what it cannot do":       {true, unsupported, 1},
		"a closed store":          {true, driver.ErrClosed, 1},
		"the user is not let in":  {true, denied, 1},
		"unknown, if it may wait": {true, unknown, 20},
		"unknown, if it may not":  {false, unknown, 3},
		"trouble, if it may wait": {true, driver.ErrTransient, 20},
		"trouble, if it may not":  {false, driver.ErrTransient, 3},
	} {
		t.Run(name, func(t *testing.T) {
			alone(t, test.wait, func(t *testing.T, s *store, c *contender) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				w := c.wait(ctx)
				for range test.asks {
					require.False(t, w.returned())
					(<-s.Asks).Answer <- lab.Result{Err: test.err}
				}
				if test.asks == 20 {
					require.False(t, w.returned())
					cancel()
				}
				require.True(t, w.returned())
				require.ErrorIs(t, w.err, test.err)
				require.Equal(t, test.asks > 1, errors.Is(w.err, driver.ErrTransient), "the store is unavailable")
			})
		})
	}
}

// A token with which another goroutine goes on complains for that one. The caller that has left is
// heard of no more.
func TestComplaintOfACallerThatHasLeftIsOver(t *testing.T) {
	alone(t, true, func(t *testing.T, s *store, c *contender) {
		gone := new(contender)
		said := c.s.Complaint("acquire", driver.Mutex, "x", gone)
		said.Persist(driver.ErrNotConfirmed)
		c.said = said
		c.s.BeginWithin() // for the heir
		ctx, cancel := context.WithCancel(t.Context())
		first := c.wait(ctx)
		ask := <-s.Asks
		cancel()
		require.True(t, first.returned())
		said.Leave()

		c.said = nil
		ctx, cancel = context.WithCancel(t.Context())
		heir := c.wait(ctx)
		time.Sleep(5 * time.Second)
		require.Contains(t, c.log.String(), "still waiting")
		cancel()
		require.True(t, heir.returned())
		asked := 0
		for more := true; more; asked++ {
			ask.Answer <- lab.Result{Grant: driver.Grant{Status: driver.Busy}}
			select {
			case ask = <-s.Asks:
			default:
				more = false
			}
		}
		require.Equal(t, asked-1, heir.stats.Asked, "without that of the caller that has left")
		said.AnsweredInPart() // as by what goes on for a caller that has left
		time.Sleep(time.Minute)
		require.Empty(t, gone.log.String())
	})
}

// A store without a queue is asked as often as it says, every 50 ms if it says nothing, and never
// twice at the same time.
func TestBusyStoreIsAskedWhenItSays(t *testing.T) {
	for said, want := range map[time.Duration]time.Duration{
		0:                    50 * time.Millisecond,
		-time.Second:         50 * time.Millisecond,
		4 * time.Millisecond: 4 * time.Millisecond,
		time.Hour:            ttl / 3,
	} {
		alone(t, true, func(t *testing.T, s *store, c *contender) {
			w := c.wait(t.Context())
			(<-s.Asks).Answer <- lab.Result{Grant: driver.Grant{Status: driver.Busy, RetryAfter: said}}
			for range 50 {
				require.False(t, w.returned())
				before := time.Now()
				next := <-s.Asks
				require.GreaterOrEqual(t, time.Since(before), want/2)
				require.Less(t, time.Since(before), want*3/2)
				next.Answer <- lab.Result{Grant: driver.Grant{Status: driver.Busy, RetryAfter: said}}
			}
			(<-s.Asks).Granted(1)
			require.True(t, w.returned())
		})
	}
}

// A token that is told busy and does not wait has nothing at the store to withdraw.
func TestTryThatIsBusyLeavesNothingToWithdraw(t *testing.T) {
	alone(t, false, func(t *testing.T, s *store, c *contender) {
		w := c.wait(t.Context())
		(<-s.Asks).Answer <- lab.Result{Grant: driver.Grant{Status: driver.Busy}}
		require.True(t, w.returned())
		require.ErrorIs(t, w.err, token.ErrLocked)
		c.Withdraw(context.Background())
		synctest.Wait()
		require.Empty(t, s.Released())
	})
}

// A mute store keeps nobody from giving up, neither by the context nor by Close. Three asks at
// most are under way, another one when one is answered, and the token is withdrawn as unsettled.
func TestMuteStoreKeepsNobodyFromGivingUp(t *testing.T) {
	for _, closing := range []bool{false, true} {
		alone(t, true, func(t *testing.T, s *store, c *contender) {
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			w := c.wait(ctx)
			time.Sleep(10 * ttl)
			require.False(t, w.returned())
			require.Len(t, s.Asks, 3)
			require.Contains(t, c.log.String(), "the store does not answer")
			(<-s.Asks).Queued()
			time.Sleep(ttl / 3)
			require.False(t, w.returned())
			require.Len(t, s.Asks, 3)
			began, why := time.Now(), errors.New("had enough")
			closed := make(chan bool, 1)
			c.s.BeginWithin() // for what is withdrawn below
			if closing {
				go func() { closed <- c.s.Close(func() {}) }()
			} else {
				cancel(why)
			}
			require.True(t, w.returned())
			require.Zero(t, time.Since(began))
			if closing {
				require.ErrorIs(t, w.err, session.ErrClosed)
			} else {
				require.ErrorIs(t, w.err, why)
			}
			c.Withdraw(context.Background())
			c.s.Done()
			synctest.Wait()
			require.True(t, s.Released()[0].Unsettled)
			for range 3 {
				(<-s.Asks).Answer <- lab.Result{Err: driver.ErrTransient}
			}
			if closing {
				require.True(t, <-closed, "when the last ask was answered")
				c.s = session.New(s) // for alone to close
			}
		})
	}
}

// The context may end at the moment of the grant. It is not used then.
// Also if the store has been in trouble since.
func TestHeirIsToldWhoWasInTheWay(t *testing.T) {
	alone(t, true, func(t *testing.T, s *store, c *contender) {
		ctx, cancel := context.WithCancel(t.Context())
		w := c.wait(ctx)
		(<-s.Asks).Answer <- lab.Result{Grant: driver.Grant{Status: driver.Queued, Holder: "job 7", HolderFence: 3}}
		(<-s.Asks).Answer <- lab.Result{Err: driver.ErrTransient}
		synctest.Wait()
		cancel()
		require.True(t, w.returned())
		var heirs token.Stats
		_, _, err := c.Wait(ctx, &token.Caller{Stats: &heirs})
		require.ErrorIs(t, err, context.Canceled)
		require.Equal(t, "job 7", heirs.Holder)
		require.EqualValues(t, 3, heirs.HolderFence)
		c.withdraw()
	})
}

func TestGrantToAContextThatHasEndedIsNotUsed(t *testing.T) {
	alone(t, true, func(t *testing.T, s *store, c *contender) {
		ctx, cancel := context.WithCancel(t.Context())
		w := c.wait(ctx)
		ask := <-s.Asks
		cancel()
		require.True(t, w.returned())
		ask.Granted(1)
		synctest.Wait()
		_, _, err := c.Wait(ctx, &token.Caller{}) // finds the answer first
		require.ErrorIs(t, err, context.Canceled)
		c.withdraw()
		synctest.Wait()
		require.Equal(t, c.Value, s.Released()[0].Token)
	})
}

// Waiters of one client with one TTL ask in step, whenever they came, so that the driver can
// put their asks into one call; and no waiter asks later than TTL/3 after it last did.
func TestHeartbeatsOfAClientKeepStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &store{Play: lab.NewPlay()}
		session := session.New(s)
		const each, waiters = ttl / 30, 40
		began, asked, times := time.Now(), map[string]time.Time{}, map[time.Duration]int{}
		go func() {
			for i := range waiters {
				c := &contender{t: t, s: session}
				require.True(t, session.Begin())
				c.Init(session, &token.Want{ID: &token.ID{Kind: driver.Mutex, Name: "x"}, Request: driver.Request{Wait: true, TTL: ttl}, Log: c}, c)
				c.wait(t.Context())
				time.Sleep(time.Duration(i+1) * 7 * time.Millisecond)
			}
		}()
		for range 5 * waiters {
			ask := <-s.Asks
			if before, again := asked[ask.Token]; again {
				require.LessOrEqual(t, time.Since(before), ttl/3)
				require.GreaterOrEqual(t, time.Since(before), ttl/3-each)
				times[time.Since(began)]++
			}
			asked[ask.Token] = time.Now()
			ask.Queued()
		}
		for at := range times {
			require.Zero(t, at%each)
		}
		require.Less(t, len(times), 5*waiters/2, "they meet")
		require.True(t, session.Close(func() {}))
		session.End()
	})
}

// What the store told of the holder was true then. The holder has held on since.
func TestLockedTellsOfTheHolderAsOfNow(t *testing.T) {
	alone(t, true, func(t *testing.T, s *store, c *contender) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		w := c.wait(ctx)
		ask := <-s.Asks
		time.Sleep(100 * time.Millisecond) // on its way
		ask.Answer <- lab.Result{Grant: driver.Grant{Status: driver.Queued, Holder: "job 7", HeldFor: 495 * time.Millisecond}}
		time.Sleep(time.Second)
		require.True(t, w.returned())
		require.ErrorIs(t, w.err, token.ErrLocked)
		var held *token.Held
		require.ErrorAs(t, w.err, &held)
		require.Equal(t, 1395*time.Millisecond, held.For)
		require.ErrorContains(t, w.err, `held by "job 7" for 1.395s`)
		c.withdraw()
	})
}

// A try ends soon, so nobody is told that it waits.
func TestOnlyAWaiterSaysThatItWaitsForTheStore(t *testing.T) {
	for _, wait := range []bool{true, false} {
		alone(t, wait, func(t *testing.T, s *store, c *contender) {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			w := c.wait(ctx)
			first := <-s.Asks
			time.Sleep(21 * time.Second)
			require.True(t, w.returned())
			require.Equal(t, wait, strings.Contains(c.log.String(), "still waiting"))
			c.withdraw()
			for _, ask := range []*lab.Ask{first, <-s.Asks, <-s.Asks} {
				ask.Answer <- lab.Result{Grant: driver.Grant{Status: driver.Busy}}
			}
		})
	}
}
