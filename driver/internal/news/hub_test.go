package news_test

import (
	"context"
	"errors"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/internal/news"
)

var errRefused = errors.New("refused")

// radio is a Transport.
type radio struct {
	mu    sync.Mutex
	loss  bool  // pings are sent, and nobody hears them
	delay bool  // a ping is heard 3 s late
	err   error // of pings

	refusal error // of subscriptions
	tries   []time.Time

	pings, made int
	hear        func(string)
	cut         func()
}

func (r *radio) Subscribe(ctx context.Context, made func(int32), hear func(string)) error {
	var refusal error
	r.change(func() {
		r.tries = append(r.tries, time.Now())
		if refusal = r.refusal; refusal == nil {
			ctx, r.cut = context.WithCancel(ctx)
			r.made++
			r.hear = hear
		}
	})
	if refusal != nil {
		return refusal
	}
	made(int32(r.made))
	<-ctx.Done()
	return errors.New("cut")
}

func (r *radio) change(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
}

func (r *radio) Ping(context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pings++
	switch {
	case r.err != nil:
		return r.err
	case r.delay:
		hear := r.hear
		time.AfterFunc(3*time.Second, func() { hear("ping") })
	case !r.loss:
		if r.hear != nil {
			r.hear("ping")
		}
	}
	return nil
}

func (r *radio) Refused(err error) bool { return errors.Is(err, errRefused) }

// party is a hub with one token, that waits.
type party struct {
	*news.Hub[struct{}]
	token *news.Token[struct{}]

	mu      sync.Mutex
	heard   []driver.Grant
	reports []string
}

func tune(t *testing.T, r *radio, acknowledged bool) *party {
	p := &party{Hub: news.New(r, news.Pace{Ping: time.Second, Acknowledged: acknowledged},
		func(*driver.Request) (none struct{}) { return })}
	t.Cleanup(p.Close)
	p.OnReconnect(func(reason string) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.reports = append(p.reports, reason)
	})
	p.Prepare(t.Context())
	p.wait()
	return p
}

// wait has the token queued.
func (p *party) wait() (askAgain time.Duration) {
	p.token = p.Expect(&driver.Request{Token: "t", Wake: func(g driver.Grant) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.heard = append(p.heard, g)
	}})
	_, _, changes := p.Place(p.token)
	return p.Queued(p.token, 1, changes, driver.Place{Number: 1}, time.Hour)
}

func (p *party) polls() bool { return p.wait() <= 250*time.Millisecond }

// told returns what was reported since the last call.
func (p *party) told() (reports []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	reports, p.reports = p.reports, nil
	return reports
}

// woken returns what the token has heard since the last call.
func (p *party) woken() (heard []driver.Grant) {
	p.mu.Lock()
	defer p.mu.Unlock()
	heard, p.heard = p.heard, nil
	return heard
}

func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func TestSubscriptionCountsFromItsFirstPingUnlessTheStoreIsTakenByItsWord(t *testing.T) {
	for _, acknowledged := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			r := &radio{err: errors.New("overloaded")}
			p := tune(t, r, acknowledged)
			require.Equal(t, !acknowledged, p.polls())
			r.change(func() { r.err = nil })
			pass(2 * time.Second)
			require.False(t, p.polls())
			_, session, _ := p.Place(p.token)
			require.EqualValues(t, 1, session)
			require.Empty(t, p.told())
			r.change(func() { r.err = errors.New("overloaded") })
			pass(time.Minute)
			require.False(t, p.polls(), "a ping that could not be sent says nothing of the subscription")
		})
	}
}

func TestSilentSubscriptionIsMadeAnewAndAllWaitersAsk(t *testing.T) {
	for name, break_ := range map[string]func(*radio){
		"loss":  func(r *radio) { r.loss = true },
		"delay": func(r *radio) { r.delay = true }, // the last ping's echo does not count for the next
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := &radio{}
				p := tune(t, r, false)
				pass(10 * time.Second)
				require.Empty(t, p.told())
				p.woken()
				r.change(func() { break_(r) })
				pass(3600 * time.Millisecond)
				require.Equal(t, []string{"silent"}, p.told())
				require.Contains(t, p.woken(), driver.Grant{Status: driver.Queued, Reconnect: true})
				r.change(func() { require.Equal(t, 2, r.made) })
			})
		})
	}
}

func TestWaitersPollWhereNoNewsComesInUntilThatIsMended(t *testing.T) {
	for name, c := range map[string]struct {
		acknowledged bool
		radio        *radio
		reports      []string
	}{
		"refused":               {false, &radio{err: errRefused}, []string{"mute"}},
		"refused, acknowledged": {true, &radio{err: errRefused}, []string{"mute"}},
		"unheard":               {false, &radio{loss: true}, []string{"mute"}},
		"unheard, acknowledged": {true, &radio{loss: true}, []string{"silent", "silent", "mute"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := c.radio
				p := tune(t, r, c.acknowledged)
				pass(20 * time.Second)
				require.True(t, p.polls())
				require.Equal(t, c.reports, p.told())
				r.change(func() { r.pings = 0 })
				pass(time.Minute)
				r.change(func() { require.InDelta(t, 2, r.pings, 1, "it is tried now and then") })
				require.True(t, p.polls())
				require.Empty(t, p.told(), "it is told once")

				p.woken()
				r.change(func() { r.err, r.loss = nil, false })
				pass(41 * time.Second) // a ping may be under way
				require.False(t, p.polls())
				require.Contains(t, p.woken(), driver.Grant{Status: driver.Queued, Reconnect: true})
				require.Equal(t, []string{"heard"}, p.told())
				r.change(func() { r.cut() })
				pass(6 * time.Second)
				require.Equal(t, []string{"error"}, p.told())
				require.False(t, p.polls())
			})
		})
	}
}

// It may say so, hang up, or say what nobody has heard of.
func TestRefusedSubscriptionRestsAndIsNotTriedWhileNobodyWaits(t *testing.T) {
	for _, refusal := range []error{errRefused, io.EOF, errors.New("upstream failure")} {
		synctest.Test(t, func(t *testing.T) {
			r := &radio{refusal: refusal}
			p := tune(t, r, true)
			tries := func(during time.Duration) (n int) {
				r.change(func() { r.tries = nil })
				pass(during)
				r.change(func() { n = len(r.tries) })
				return n
			}
			require.LessOrEqual(t, tries(20*time.Second), 8)
			require.Equal(t, []string{"mute"}, p.told())
			require.InDelta(t, 18, tries(10*time.Minute), 2)
			p.Forget("t")
			require.LessOrEqual(t, tries(time.Minute), 1)
			require.Zero(t, tries(10*time.Hour), "FOUL: nobody waits")
			require.Equal(t, 1, func() int { p.wait(); return tries(time.Second) }(), "somebody waits")
			r.change(func() { r.tries = nil })
			for range 600 { // waits that are short
				p.Forget("t")
				p.wait()
				pass(time.Second)
			}
			r.change(func() {
				for i := 1; i < len(r.tries); i++ {
					require.GreaterOrEqual(t, r.tries[i].Sub(r.tries[i-1]), 30*time.Second)
				}
			})
			require.True(t, p.polls())
			require.Empty(t, p.told(), "it is told once")

			r.change(func() { r.refusal = nil })
			pass(38 * time.Second)
			require.Equal(t, []string{"heard"}, p.told())
			require.False(t, p.polls())
			r.change(func() { r.refusal = refusal })
			r.cut()
			pass(20 * time.Second)
			require.Equal(t, []string{"error", "mute"}, p.told(), "again")
		})
	}
}

// Else a line of the log would be false, and waiters would poll for long after it is over.
func TestSubscriptionThatFailsInPassingIsNotTakenForRefused(t *testing.T) {
	for what, c := range map[string]struct {
		pings, refusal error // meanwhile
		last           time.Duration
	}{
		"a bad second of new connections":  {nil, io.EOF, 2 * time.Second},
		"no new connections for some time": {nil, news.Unconnected{}, 10 * time.Minute},
		"a store that does not answer":     {errors.New("overloaded"), io.EOF, 10 * time.Minute},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := &radio{}
				p := tune(t, r, true)
				pass(time.Hour)
				for range 3 {
					r.change(func() { r.err, r.refusal, r.tries = c.pings, c.refusal, nil })
					r.cut()
					pass(c.last)
					r.change(func() {
						require.Greater(t, len(r.tries), int(c.last/(6*time.Second)))
						r.err, r.refusal = nil, nil
					})
					pass(6 * time.Second)
					require.False(t, p.polls())
					require.Equal(t, []string{"error"}, p.told())
					pass(time.Hour)
				}
			})
		})
	}
}

// A right that is taken away, and one that was never there, which takes the time of a ping to see.
func TestWaitersAskAtOnceWhenNoNewsComesInAnyMore(t *testing.T) {
	for _, live := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			r := &radio{err: errors.New("overloaded")}
			p := tune(t, r, true)
			if live {
				r.change(func() { r.err = nil })
			}
			pass(2 * time.Second)
			require.Empty(t, p.woken())
			r.change(func() { r.err = errRefused })
			pass(2 * time.Second)
			require.Equal(t, []driver.Grant{{Status: driver.Queued, Reconnect: true}}, p.woken())
			require.Equal(t, []string{"mute"}, p.told())
			pass(time.Hour)
			r.change(func() { require.Equal(t, 1, r.made, "others must not take the client for one that has gone") })
		})
	}
}

func TestNoPingsWhileNobodyWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &radio{}
		p := tune(t, r, false)
		for range 3 {
			pass(10 * time.Second)
			r.change(func() { require.InDelta(t, 10, r.pings, 1) })
			p.Forget("t")
			pass(2 * time.Second)
			r.change(func() { r.pings = 0 })
			pass(time.Hour)
			for range 5 { // too short for a ping
				p.wait()
				p.Forget("t")
			}
			pass(time.Hour)
			r.change(func() { require.Zero(t, r.pings) })
			p.wait()
		}
		require.Empty(t, p.told())
		r.change(func() { require.Equal(t, 1, r.made) })
	})
}

func TestCloseWakesWaitersAndEndsTheSubscription(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &radio{}
		p := tune(t, r, true)
		pass(time.Minute)
		p.woken()
		p.Close()
		require.Equal(t, []driver.Grant{{Status: driver.Queued, Reconnect: true}}, p.woken())
		require.Empty(t, p.told())
		_, counts := p.Known()
		require.False(t, counts)
		p.Prepare(t.Context())
		pass(time.Hour)
		r.change(func() { require.Equal(t, 1, r.made) })
	})
}

// The acknowledgement of the first subscription is lost.
func TestFirstWaitGoesOnWithoutASubscription(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &radio{err: errors.New("overloaded")}
		p := tune(t, r, false)
		began := time.Now()
		p.Prepare(t.Context())
		require.Zero(t, time.Since(began), "one waiter waits for it, not every one")
		require.True(t, p.Tried())
	})
}

// A process that was suspended hears of its grant when that is over. If it was robbed meanwhile, its place is its
// due; if the lease has ended, it had its turn.
func TestPlaceOfAGrantThatWasHeardTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := tune(t, &radio{}, true)
		seat := func() driver.Place {
			at, _, _ := p.Place(p.token)
			return at
		}
		stood := seat()
		require.NotZero(t, stood)
		p.Hear("granted t 1 5 1")
		require.Zero(t, seat())
		require.Equal(t, driver.Unheard{Place: stood}, p.Buried(p.token))
		require.Equal(t, driver.Unheard{}, p.Buried(p.Expect(&driver.Request{Token: "new"})))
	})
}

// News of a grant that is over must not take a token out of the queue in which it waits again.
func TestGrantOfAnAskBeforeTheLastThatWasQueuedIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := tune(t, &radio{}, true)
		var heard []uint64
		token := p.Expect(&driver.Request{Token: "late", Wake: func(g driver.Grant) { heard = append(heard, g.Ask) }})
		p.Queued(token, 1, 0, driver.Place{Number: 1}, 0)
		p.Expect(&driver.Request{Token: "late"})
		p.Queued(token, 2, 0, driver.Place{Number: 7}, 0) // its lease is over by then
		p.Hear("granted late 1 5 1")
		require.Empty(t, heard)
		at, _, _ := p.Place(token)
		require.EqualValues(t, 7, at.Number)
		p.Hear("granted late 2 9 1")
		require.Equal(t, []uint64{2}, heard)
		p.Forget("late")
	})
}
