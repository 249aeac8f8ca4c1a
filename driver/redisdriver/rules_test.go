package redisdriver_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/redisdriver"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

// The rules of the native protocol that can be seen at the driver. Each test is named
// after what goes wrong without its rule; the numbers are those in the package's documentation
// and in docs/protocol.md. Tests of the rules about trust are in internal/claim and
// internal/keepalive, those about faults of the network in internal/test/behavior/fault.

// party is one client of a lock, with its news.
type party struct {
	t    *testing.T
	d    *redisdriver.Driver
	req  driver.Request
	news chan driver.Grant
}

func join(t *testing.T, d *redisdriver.Driver, token string, ttl time.Duration) *party {
	p := &party{t: t, d: d, news: make(chan driver.Grant, 16)}
	p.req = driver.Request{
		Kind: driver.Mutex, Name: "rule", Token: token, TTL: ttl, Wait: true, Holder: token,
		Wake: func(g driver.Grant) { p.news <- g },
	}
	return p
}

func (p *party) ask() driver.Grant {
	p.t.Helper()
	p.req.Ask++
	g, err := p.d.Acquire(context.Background(), &p.req)
	require.NoError(p.t, err)
	return g
}

func (p *party) must(want driver.Status) driver.Grant {
	p.t.Helper()
	g := p.ask()
	require.Equal(p.t, want, g.Status, "answer to %s", p.req.Token)
	return g
}

func (p *party) lease() driver.Lease {
	return driver.Lease{Kind: p.req.Kind, Name: p.req.Name, Token: p.req.Token, TTL: p.req.TTL}
}

func (p *party) release() {
	p.t.Helper()
	require.NoError(p.t, p.d.Release(context.Background(), p.lease()))
}

// pushed waits for a grant and returns it.
func (p *party) pushed() driver.Grant {
	p.t.Helper()
	for {
		select {
		case g := <-p.news:
			if g.Status == driver.Granted {
				return g
			}
		case <-time.After(5 * time.Second):
			require.FailNow(p.t, "not granted", p.req.Token)
		}
	}
}

func open(t *testing.T, rdb redis.UniversalClient, s *redistest.Server) *redisdriver.Driver {
	d := redisdriver.New(rdb, redisdriver.WithPrefix(s.Prefix()))
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return d
}

func key(s *redistest.Server) string { return s.Prefix() + ":2:mutex:rule" }

// queue returns the waiters in order.
func queue(t *testing.T, d *redisdriver.Driver) []string {
	t.Helper()
	info, err := d.Inspect(context.Background(), driver.Mutex, "rule")
	require.NoError(t, err)
	var names []string
	for _, w := range info.Queue {
		names = append(names, w.Holder)
	}
	return names
}

func holder(t *testing.T, d *redisdriver.Driver) *driver.Holder {
	t.Helper()
	info, err := d.Inspect(context.Background(), driver.Mutex, "rule")
	require.NoError(t, err)
	if len(info.Holders) == 0 {
		return nil
	}
	return &info.Holders[0]
}

// subscribed waits until somebody listens on a wake channel of this test, n in all.
func subscribed(t *testing.T, rdb *redis.Client, s *redistest.Server, n int) {
	t.Helper()
	require.Eventually(t, func() bool {
		channels, err := rdb.PubSubChannels(context.Background(), s.Prefix()+":2:wake:*").Result()
		return err == nil && len(channels) == n
	}, 10*time.Second, time.Millisecond)
}

const ttl = 9 * time.Second

// Rule 2. A waiter that has been silent for more than 2/3 of its TTL could not use the
// grant for long enough; it is skipped. Until then it gets the grant.
func TestSilentWaiterIsSkippedAfterTwoThirdsOfItsTTL(t *testing.T) {
	for _, silent := range []struct {
		fraction float64
		served   bool
	}{{0.65, true}, {0.68, false}} {
		t.Run(fmt.Sprint(silent.fraction), func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T, s *redistest.Server) {
				d := open(t, s.Client(t), s)
				a, b := join(t, d, "a", ttl), join(t, d, "b", ttl)
				a.must(driver.Granted)
				b.must(driver.Queued)
				time.Sleep(time.Duration(float64(ttl) * silent.fraction))
				a.release()
				h := holder(t, d)
				require.Equal(t, silent.served, h != nil && h.Holder == "b")
			})
		})
	}
}

// Rule 2. An old ask of a waiter that is overdue does not bring it back, and finds nobody else in
// the queue. Its answer has to do without the time at which to look again.
func TestOldAskOfAWaiterThatIsOverdue(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T, s *redistest.Server) {
		d := open(t, s.Client(t), s)
		a, b := join(t, d, "a", ttl), join(t, d, "b", ttl)
		a.must(driver.Granted)
		for range 3 {
			b.must(driver.Queued)
		}
		time.Sleep(ttl * 3 / 4) // then the lease ends before b would ask again
		b.req.Ask = 1
		b.must(driver.Queued)
		info, err := d.Inspect(t.Context(), a.req.Kind, a.req.Name)
		require.NoError(t, err)
		require.Empty(t, info.Queue)
	})
}

// Rule 3. The holder counts its trust from each ask that was answered Granted, so each
// such answer must give the full TTL again, and more than the holder counts with.
func TestEveryGrantedAnswerGivesTheFullTTLAndGrace(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T, s *redistest.Server) {
		d := open(t, s.Client(t), s)
		a := join(t, d, "a", ttl)
		first := a.must(driver.Granted)
		grace := ttl / 20
		require.InDelta(t, ttl+grace, holder(t, d).TimeLeft, float64(5*time.Millisecond))
		time.Sleep(ttl * 9 / 10)
		again := a.must(driver.Granted)
		require.Equal(t, first.Fence, again.Fence)
		require.InDelta(t, ttl+grace, holder(t, d).TimeLeft, float64(5*time.Millisecond))
		time.Sleep(ttl * 9 / 10)
		require.NoError(t, d.Renew(context.Background(), []driver.Lease{a.lease()})[0])
		require.InDelta(t, ttl+grace, holder(t, d).TimeLeft, float64(5*time.Millisecond))
	})
}

// Rule 3. An expired lease stays expired, also if nobody wanted the lock meanwhile: the
// holder has lost its trust and may have stopped its work in the middle.
func TestNothingRevivesAnExpiredLease(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T, s *redistest.Server) {
		d := open(t, s.Client(t), s)
		a := join(t, d, "a", ttl)
		first := a.must(driver.Granted)
		time.Sleep(2 * ttl)
		require.ErrorIs(t, d.Renew(context.Background(), []driver.Lease{a.lease()})[0], driver.ErrNotHeld)
		require.Nil(t, holder(t, d))
		require.Greater(t, a.must(driver.Granted).Fence, first.Fence, "a new grant, not the old one")
	})
}

// Rule 5. go-redis repeats commands by itself when their answer is lost. Of such a
// repeat we would not know, so it could arrive when nobody expects it any more.
func TestNoAskIsRepeatedBehindOurBack(t *testing.T) {
	s := redistest.Real(t)
	p := redistest.NewProxy(t, s)
	d := open(t, p.Client(t), s)
	join(t, d, "warm", ttl).must(driver.Granted) // the script is loaded now
	before := s.CommandStats(t)["evalsha"]

	dropped := p.DropReply(redistest.Containing("evalsha", "a"))
	a := join(t, d, "a", ttl)
	a.req.Ask++
	_, err := d.Acquire(context.Background(), &a.req)
	require.ErrorIs(t, err, driver.ErrTransient)
	require.NotErrorIs(t, err, driver.ErrNotExecuted)
	<-dropped
	require.EqualValues(t, before+1, s.CommandStats(t)["evalsha"])
}

// Rule 5. Tombstones are thrown away when they are old, and there is a bound on them.
func TestTombstonesDoNotPileUp(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		rdb := s.Client(t)
		d := open(t, rdb, s)
		for i := range 700 {
			l := join(t, d, fmt.Sprint("t", i), ttl).lease()
			l.Unsettled = true
			require.ErrorIs(t, d.Release(context.Background(), l), driver.ErrNotHeld)
		}
		dead := rdb.HGet(context.Background(), key(s), "dead").Val()
		require.LessOrEqual(t, len(dead), 8192)
		require.Greater(t, strings.Count(dead, "\n"), 128)
		require.Contains(t, dead, "\nt699 ")
		require.NotContains(t, dead, "\nt0 ")
		s.RequireTTLs(t, s.Prefix())
	})
	redistest.Bubble(t, func(t *testing.T, s *redistest.Server) {
		rdb := s.Client(t)
		d := open(t, rdb, s)
		l := join(t, d, "old", ttl).lease()
		l.Unsettled = true
		require.ErrorIs(t, d.Release(context.Background(), l), driver.ErrNotHeld)
		a := join(t, d, "a", 10*time.Minute)
		a.must(driver.Granted) // keeps the key beyond the tombstone's time
		time.Sleep(2 * time.Minute)
		join(t, d, "b", ttl).must(driver.Queued)
		require.False(t, rdb.HExists(context.Background(), key(s), "dead").Val())
	})
}

// flaky is a client whose subscription can be taken away.
func flaky(t *testing.T, s *redistest.Server) (*redisdriver.Driver, *redistest.Proxy) {
	p := redistest.NewProxy(t, s)
	return open(t, p.Client(t), s), p
}

// Rule 7. A waiter that only seems to have gone loses its turn. But it comes back to its place, and
// a waiter that asks while nobody listens is known to be alive all the same.
func TestWaiterThatSeemsGoneComesBackToItsPlace(t *testing.T) {
	s := redistest.Real(t)
	direct := s.Client(t)
	steady := open(t, s.Client(t), s)
	d, proxy := flaky(t, s)

	a, b, c, e := join(t, steady, "a", ttl), join(t, d, "b", ttl), join(t, steady, "c", ttl), join(t, steady, "e", ttl)
	a.must(driver.Granted)
	b.must(driver.Queued)
	c.must(driver.Queued)
	e.must(driver.Queued)
	lose := func() {
		proxy.Refuse(true)
		proxy.Cut()
		subscribed(t, direct, s, 1)
	}

	lose()
	a.release()
	c.pushed()
	proxy.Refuse(false)
	subscribed(t, direct, s, 2)
	b.must(driver.Queued)
	require.Equal(t, []string{"b", "e"}, queue(t, steady))

	lose()
	proxy.Refuse(false) // commands get through before the subscription is there again
	b.must(driver.Queued)
	c.release()
	b.must(driver.Granted)
	b.release()
	e.pushed()
}

// Rule 7. A waiter that was never heard of on the wake channel cannot be missed there.
func TestWaiterWithoutSubscriptionIsNotPassedOver(t *testing.T) {
	for name, unsettled := range map[string]bool{"short way": false, "general way": true} {
		t.Run(name, func(t *testing.T) {
			redistest.Each(t, func(t *testing.T, s *redistest.Server) {
				d := open(t, s.Client(t), s)
				a, b, c := join(t, d, "a", ttl), join(t, d, "b", ttl), join(t, d, "c", ttl)
				b.req.Wake = nil
				a.must(driver.Granted)
				b.must(driver.Queued)
				c.must(driver.Queued)
				l := a.lease()
				l.Unsettled = unsettled // which the short way leaves alone
				require.NoError(t, d.Release(t.Context(), l))
				b.must(driver.Granted)
			})
		})
	}
}

// Rule 7. A user may run scripts and not publish in them. A grant stays a grant.
func TestRefusedPublishUndoesNoGrant(t *testing.T) {
	s := redistest.Real(t)
	rdb := s.Client(t)
	require.NoError(t, rdb.Do(context.Background(), "acl", "setuser", "silent", "on", "nopass", "~*", "&*", "+@all", "-publish").Err())
	d := open(t, s.Client(t, func(o *redis.Options) { o.Username, o.Password = "silent", "any" }), s)
	a, b := join(t, d, "a", ttl), join(t, d, "b", ttl)
	a.must(driver.Granted)
	b.must(driver.Queued)
	a.release()
	require.Equal(t, "b", holder(t, d).Holder)
	b.must(driver.Granted)
	b.release()
}

// Rule 8. However many dead waiters stand before a live one, it is served by the
// release; and no single run of a script looks at more than 64 of them.
func TestLiveWaiterBehindManyDeadOnesIsServedPiecemeal(t *testing.T) {
	const crowd = 700
	s := redistest.Real(t)
	d := open(t, s.Client(t), s)
	a := join(t, d, "a", time.Minute)
	a.must(driver.Granted)
	a.release() // the scripts are loaded now
	a = join(t, d, "a2", time.Minute)
	a.must(driver.Granted)
	for i := range crowd {
		p := join(t, d, fmt.Sprint("dead", i), 100*time.Millisecond)
		p.req.Wake = nil
		p.must(driver.Queued)
	}
	b := join(t, d, "b", time.Minute)
	b.must(driver.Queued)
	// All of the crowd is overdue 2/3 of its TTL after its last ask.
	require.Eventually(t, func() bool { return len(queue(t, d)) == 1 }, 5*time.Second, 10*time.Millisecond)

	before := s.CommandStats(t)
	a.release()
	require.Equal(t, "b", holder(t, d).Holder)
	after := s.CommandStats(t)
	runs := after["evalsha"] - before["evalsha"] - 1 // one is Inspect
	looks := after["hget"] - before["hget"]
	require.EqualValues(t, crowd+2, looks, "the short way looks at the first, too")
	require.EqualValues(t, (crowd+1+63)/64, runs)
}

// Rule 8. So it is by whatever else finds the lock free.
func TestForceAndAskServeThoseBehindManyDeadOnes(t *testing.T) {
	const crowd = 600
	for name, free := range map[string]func(d *redisdriver.Driver, b *party){
		"force": func(d *redisdriver.Driver, b *party) {
			require.NoError(t, d.ForceRelease(context.Background(), driver.Mutex, "rule"))
		},
		"ask": func(d *redisdriver.Driver, b *party) {
			time.Sleep(ttl) // the holder has crashed, too
			b.must(driver.Granted)
		},
	} {
		t.Run(name, func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T, s *redistest.Server) {
				d := open(t, s.Client(t), s)
				join(t, d, "a", ttl).must(driver.Granted)
				for i := range crowd {
					p := join(t, d, fmt.Sprint("dead", i), time.Second)
					p.req.Wake = nil
					p.must(driver.Queued)
				}
				b := join(t, d, "b", time.Hour)
				b.must(driver.Queued)
				time.Sleep(time.Second)
				free(d, b)
				require.Equal(t, "b", holder(t, d).Holder)
			})
		})
	}
}

// Rule 9. Those who never wait are not locked out by the dead.
func TestTryOnlyUsersAreNotBlockedByDeadWaiters(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T, s *redistest.Server) {
		rdb := s.Client(t)
		d := open(t, rdb, s)
		a := join(t, d, "a", ttl)
		a.must(driver.Granted)
		for i := range 300 {
			join(t, d, fmt.Sprint("dead", i), ttl).must(driver.Queued)
		}
		time.Sleep(2 * ttl) // the holder has crashed, too
		b := join(t, d, "b", ttl)
		b.req.Wait = false
		b.must(driver.Granted)
		b.release()
		require.Zero(t, rdb.HExists(context.Background(), key(s), "head").Val())
	})
}

// Rule 10. A waiter that was cut off and dropped comes back to the place it had.
func TestWaiterReturnsToItsPlace(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T, s *redistest.Server) {
		d := open(t, s.Client(t), s)
		a, b, c, e := join(t, d, "a", ttl), join(t, d, "b", ttl), join(t, d, "c", ttl), join(t, d, "e", ttl)
		a.must(driver.Granted)
		b.must(driver.Queued)
		time.Sleep(ttl * 7 / 10) // b is silent
		c.must(driver.Queued)
		a.release() // drops b, serves c
		require.Equal(t, "c", holder(t, d).Holder)
		e.must(driver.Queued)
		b.must(driver.Queued)
		require.Equal(t, []string{"b", "e"}, queue(t, d))
	})
}

// Rule 10. A waiter that was served has no place any more: should its lease end and it ask again,
// it comes after those who have waited since.
func TestWhoWasServedHasNoPlace(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T, s *redistest.Server) {
		d := open(t, s.Client(t), s)
		x, a, b := join(t, d, "x", ttl), join(t, d, "a", ttl), join(t, d, "b", time.Hour)
		x.must(driver.Granted)
		a.must(driver.Queued)
		x.release()
		a.pushed()
		b.must(driver.Queued)
		time.Sleep(2 * ttl)
		a.must(driver.Queued)
		require.Equal(t, "b", holder(t, d).Holder)
	})
}

// Rule 3. A late ask knows nothing of a renewal for longer.
func TestLateAskDoesNotShortenALease(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T, s *redistest.Server) {
		for _, kind := range []driver.Kind{driver.Mutex, driver.RWMutex} {
			d := open(t, s.Client(t), s)
			a, b := join(t, d, "a", ttl), join(t, d, "b", ttl)
			a.req.Kind, b.req.Kind, b.req.Wait = kind, kind, false
			a.must(driver.Granted)
			long := a.lease()
			long.TTL = 10 * ttl
			require.NoError(t, d.Renew(context.Background(), []driver.Lease{long})[0])
			a.must(driver.Granted)
			b.must(driver.Busy) // a contender cuts leases to what they can have left
			time.Sleep(9 * ttl)
			b.must(driver.Busy)
		}
	})
}

// Rule 13. The first in the queue is told when to look, although the one before it left.
func TestHeadBehindAGapLooksWhenTheLeaseEnds(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T, s *redistest.Server) {
		rdb := s.Client(t)
		d := open(t, rdb, s)
		x, a, b := join(t, d, "x", ttl), join(t, d, "a", ttl), join(t, d, "b", ttl)
		c := join(t, d, "c", 4*ttl) // its next heartbeat comes after the end of the lease
		x.must(driver.Granted)
		a.must(driver.Queued)
		b.must(driver.Queued)
		c.must(driver.Queued)
		b.release()
		x.release()
		a.pushed()
		subscribed(t, rdb, s, 1)
		require.InDelta(t, ttl+ttl/20, c.must(driver.Queued).RetryAfter, float64(20*time.Millisecond))
	})
}

// Rule 10. A place of an earlier life of the key is worth nothing: its number belongs
// to somebody else now.
func TestPlaceOfAnEarlierLifeDoesNotCollide(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		rdb := s.Client(t)
		d := open(t, rdb, s)
		a, b, c, e := join(t, d, "a", ttl), join(t, d, "b", ttl), join(t, d, "c", ttl), join(t, d, "e", ttl)
		a.must(driver.Granted)
		b.must(driver.Queued)
		require.NoError(t, rdb.Del(context.Background(), key(s)).Err())
		c.must(driver.Granted)
		e.must(driver.Queued)
		b.must(driver.Queued)
		require.Equal(t, []string{"e", "b"}, queue(t, d))
	})
}

// Rule 10. Nor does a place of an earlier life lead before those who came in this one.
func TestPlaceOfAnEarlierLifeOvertakesNobody(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		rdb := s.Client(t)
		d := open(t, rdb, s)
		a, b, c := join(t, d, "a", ttl), join(t, d, "b", ttl), join(t, d, "c", ttl)
		e, f := join(t, d, "e", ttl), join(t, d, "f", ttl)
		a.must(driver.Granted)
		b.must(driver.Queued)
		require.NoError(t, rdb.Del(context.Background(), key(s)).Err())
		c.must(driver.Granted)
		e.must(driver.Queued)
		f.must(driver.Queued)
		e.release() // its place has the number of that of b
		b.must(driver.Queued)
		require.Equal(t, []string{"f", "b"}, queue(t, d))
	})
}

// Rule 10. Numbers are not used again while the key lives, or two could have one place.
func TestPlacesAreNotReused(t *testing.T) {
	t.Parallel()
	everywhere(t, func(t *testing.T, s *redistest.Server, _ bool) {
		const brief = 3 * time.Second
		d := open(t, s.Client(t), s)
		a, b, c, e := join(t, d, "a", brief), join(t, d, "b", brief), join(t, d, "c", minute), join(t, d, "e", minute)
		a.must(driver.Granted)
		b.must(driver.Queued)
		gone := func() bool { return holder(t, d) == nil && len(queue(t, d)) == 0 }
		require.Eventually(t, gone, time.Minute, 10*time.Millisecond)
		c.must(driver.Granted) // b is dropped, and the queue is empty
		e.must(driver.Queued)
		b.must(driver.Queued)
		require.Equal(t, []string{"b", "e"}, queue(t, d), "b came first, and each has a place of its own")
	})
}

// Rule 11. Somebody with a short lease or heartbeat must not shorten the life of a key
// that others count on.
func TestNobodyShortensTheLifeOfTheKey(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		rdb := s.Client(t)
		d := open(t, rdb, s)
		life := func() time.Duration { return rdb.PTTL(context.Background(), key(s)).Val() }
		a, b := join(t, d, "a", time.Hour), join(t, d, "b", time.Second)
		a.must(driver.Granted)
		require.Greater(t, life(), time.Hour)
		b.must(driver.Queued)
		b.must(driver.Queued)
		require.Greater(t, life(), time.Hour)
		c := join(t, d, "c", 2*time.Second) // a newcomer to a queue, and no short way as nobody has waited for so long
		c.must(driver.Queued)
		require.Greater(t, life(), time.Hour)
		c.release()
		unsettled := b.lease()
		unsettled.Unsettled = true
		require.NoError(t, d.Release(context.Background(), unsettled))
		require.Greater(t, life(), time.Hour)
		a.release()
		require.LessOrEqual(t, life(), time.Minute, "nobody counts on it any more")
	})
}

// Promise 6. It is the last use that counts, and not the longest.
func TestKeyIsForgottenInTimeAlsoAfterALongLease(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		rdb := s.Client(t)
		d := open(t, rdb, s)
		a, b := join(t, d, "a", time.Hour), join(t, d, "b", ttl)
		a.must(driver.Granted)
		b.must(driver.Queued)
		a.release()
		b.must(driver.Granted)
		b.release()
		require.LessOrEqual(t, rdb.PTTL(context.Background(), key(s)).Val(), time.Minute)
	})
}

// Rule 12. A fence ahead of the clock, as another server may have had it, must not be
// forgotten before the clock is there: the next would be smaller.
func TestFenceAheadOfTheClockIsRemembered(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T, s *redistest.Server) {
		d := open(t, s.Client(t), s)
		a := join(t, d, "a", ttl)
		ahead := a.must(driver.Granted).Fence + (10 * time.Minute).Microseconds()
		first, err := d.RaiseFence(context.Background(), a.lease(), ahead, 1)
		require.NoError(t, err)
		require.Equal(t, ahead, first)
		a.release()
		b := join(t, d, "b", ttl)
		second := b.must(driver.Granted).Fence
		require.Equal(t, first+1, second)
		b.release()
		time.Sleep(5 * time.Minute) // longer than the key is kept otherwise
		require.Greater(t, join(t, d, "c", ttl).must(driver.Granted).Fence, second)
	})
}

// Rule 12. Nor is it forgotten when the lock becomes a hash, as somebody waits.
func TestFenceAheadOfTheClockIsRememberedByAQueue(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T, s *redistest.Server) {
		d := open(t, s.Client(t), s)
		a, b := join(t, d, "a", ttl), join(t, d, "b", ttl)
		ahead := a.must(driver.Granted).Fence + (10 * time.Minute).Microseconds()
		first, err := d.RaiseFence(context.Background(), a.lease(), ahead, 1)
		require.NoError(t, err)
		b.must(driver.Queued)
		a.release()
		require.Greater(t, b.must(driver.Granted).Fence, first)
	})
}

// Rule 12. Fences increase although everything is forgotten, as in a restart without
// persistence or a failover that lost the last writes.
func TestFencesIncreaseAlthoughTheKeyIsLost(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		rdb := s.Client(t)
		d := open(t, rdb, s)
		var last int64
		for i := range 5 {
			fence := join(t, d, fmt.Sprint("t", i), ttl).must(driver.Granted).Fence
			require.Greater(t, fence, last)
			last = fence
			require.NoError(t, rdb.Del(context.Background(), key(s)).Err())
		}
	})
}

// Rule 11. When memory is full, those who are there can still renew, ask, withdraw and
// give up, and the next one gets the lock.
func TestFullMemoryStopsNobodyWhoIsThere(t *testing.T) {
	s := redistest.Real(t)
	rdb := s.Client(t)
	d := open(t, rdb, s)
	a, b, c, e := join(t, d, "a", ttl), join(t, d, "b", ttl), join(t, d, "c", ttl), join(t, d, "e", ttl)
	a.must(driver.Granted)
	b.must(driver.Queued)
	c.must(driver.Queued)
	require.NoError(t, rdb.ConfigSet(context.Background(), "maxmemory", "1").Err())

	e.req.Ask, e.req.Name = 1, "another lock"
	_, err := d.Acquire(context.Background(), &e.req)
	require.ErrorContains(t, err, "OOM", "memory is full indeed")
	require.ErrorIs(t, err, driver.ErrNotExecuted)
	a.must(driver.Granted)
	require.NoError(t, d.Renew(context.Background(), []driver.Lease{a.lease()})[0])
	c.must(driver.Queued)
	unsettled := b.lease()
	unsettled.Unsettled = true
	require.NoError(t, d.Release(context.Background(), unsettled))
	unsettled.Token = "unheard of"
	require.ErrorIs(t, d.Release(context.Background(), unsettled), driver.ErrNotHeld)
	a.release()
	c.pushed()
	c.release()
}

// Rule 13. Nobody tells a token that does not wait when a lease ends.
func TestTokenThatDoesNotWaitIsToldWhenTheLeaseEnds(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T, s *redistest.Server) {
		d := open(t, s.Client(t), s)
		join(t, d, "a", time.Minute).must(driver.Granted)
		b := join(t, d, "b", time.Minute)
		b.req.Wait = false
		for _, passed := range []time.Duration{0, 20 * time.Second} {
			time.Sleep(passed)
			require.Equal(t, time.Minute-passed+501*time.Millisecond, b.must(driver.Busy).RetryAfter)
		}
	})
}

// Rule 13. Nobody is told when a lease expires, so the first in the queue is told when
// to look, and gets the lock then.
func TestHeadOfTheQueueLooksWhenTheLeaseEnds(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T, s *redistest.Server) {
		rdb := s.Client(t)
		d := open(t, rdb, s)
		a, b, c := join(t, d, "a", 3*time.Second), join(t, d, "b", ttl), join(t, d, "c", ttl)
		a.must(driver.Granted)
		b.must(driver.Queued)
		subscribed(t, rdb, s, 1)
		after := b.must(driver.Queued).RetryAfter
		require.InDelta(t, 3*time.Second+150*time.Millisecond, after, float64(20*time.Millisecond))
		require.Zero(t, c.must(driver.Queued).RetryAfter, "only the head")
		time.Sleep(after)
		b.must(driver.Granted)

		holder, newcomer := join(t, d, "holder", 3*time.Second), join(t, d, "newcomer", ttl)
		holder.req.Name, newcomer.req.Name = "another", "another"
		holder.must(driver.Granted)
		require.InDelta(t, after, newcomer.must(driver.Queued).RetryAfter, float64(20*time.Millisecond), "at once")
	})
}

// Rule 13. Without a subscription waiters have to ask often; and when there is one
// again, at once, since news may have been missed.
func TestWaitersPollUntilTheSubscriptionIsThere(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		rdb := s.Client(t)
		d, proxy := flaky(t, s)
		join(t, d, "a", ttl).must(driver.Granted)
		b := join(t, d, "b", ttl)
		b.must(driver.Queued)
		told := func() {
			t.Helper()
			select {
			case g := <-b.news:
				require.Equal(t, driver.Queued, g.Status, "asked to ask again")
			case <-time.After(5 * time.Second):
				require.FailNow(t, "nobody said that the subscription has changed")
			}
		}
		proxy.Cut()
		told()
		told()
		subscribed(t, rdb, s, 1)
		b.must(driver.Queued)
	})
}

// Rule 13, and promise 2 of package holdfast. From its very first wait on, a client that
// nobody can hear is one that has gone.
func TestClientIsHeardBeforeItsFirstWait(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		rdb := s.Client(t)
		join(t, open(t, rdb, s), "a", ttl).must(driver.Granted)
		join(t, open(t, rdb, s), "b", ttl).must(driver.Queued)
		record := strings.Fields(rdb.HGet(context.Background(), key(s), "w:1").Val())
		require.Equal(t, "1", record[6], "heard")
	})
}

// Rule 13. A client that may not subscribe still waits, and asks often.
func TestWaitersPollWithoutASubscription(t *testing.T) {
	s := redistest.Real(t)
	rdb := s.Client(t)
	require.NoError(t, rdb.Do(context.Background(), "acl", "setuser", "mute", "on", "nopass", "~*", "&*", "+@all", "-subscribe").Err())
	d := open(t, s.Client(t, func(o *redis.Options) { o.Username, o.Password = "mute", "any" }), s)
	join(t, d, "a", ttl).must(driver.Granted)
	b := join(t, d, "b", ttl)
	for range 3 {
		after := b.must(driver.Queued).RetryAfter
		require.GreaterOrEqual(t, after, 50*time.Millisecond)
		require.LessOrEqual(t, after, 250*time.Millisecond)
	}
}

// A failover to a replica that had not heard of a waiter gives its place to the next one.
// The first on the old master must not push out the holder of now.
func TestPlaceThatAFailoverGaveToTwoIsHadByOne(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		rdb := s.Client(t)
		d := redisdriver.New(rdb, redisdriver.WithPrefix(s.Prefix()))
		t.Cleanup(func() { require.NoError(t, d.Close()) })
		holder := join(t, d, "holder", time.Minute)
		holder.must(driver.Granted)
		join(t, d, "gone", time.Minute).must(driver.Queued) // so that the key has a queue
		key := s.Prefix() + ":2:mutex:rule"
		before := rdb.HGetAll(t.Context(), key).Val()

		first := join(t, d, "first", time.Minute)
		first.must(driver.Queued)
		require.NoError(t, rdb.Del(t.Context(), key).Err())
		require.NoError(t, rdb.HSet(t.Context(), key, before).Err())
		second := join(t, d, "second", time.Minute)
		second.must(driver.Queued)
		first.must(driver.Queued)
		second.must(driver.Queued)

		info, err := d.Inspect(t.Context(), driver.Mutex, "rule")
		require.NoError(t, err)
		require.Len(t, info.Queue, 3)
		for _, leaving := range []*party{holder, second, first} {
			leaving.release()
		}
	})
}

// Rule 7, and promise 2 of package holdfast. Redis knows of the crash of a waiter, also of one that it has
// taken for dead before, when its subscription broke for a moment.
func TestWaiterThatCrashesAfterItWasPassedOverDelaysNobody(t *testing.T) {
	s := redistest.Real(t)
	direct := s.Client(t)
	steady, shaky := open(t, s.Client(t), s), newEars(t, s)
	d := redisdriver.New(shaky, redisdriver.WithPrefix(s.Prefix()))
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	a, b, c, e := join(t, steady, "a", minute), join(t, d, "b", minute), join(t, steady, "c", minute), join(t, steady, "e", minute)
	a.must(driver.Granted)
	for _, w := range []*party{b, c, e} {
		w.must(driver.Queued)
	}
	shaky.cut()
	subscribed(t, direct, s, 1)
	a.release()
	c.pushed()
	b.must(driver.Queued) // it is back, and nobody listens for it
	shaky.mend()
	subscribed(t, direct, s, 2)
	for range 2 {
		b.must(driver.Queued)
		e.must(driver.Queued)
	}
	shaky.cut() // for good
	subscribed(t, direct, s, 1)
	c.release()
	e.pushed()
	e.release()
}

// A caller is turned away for those that wait, and not for those that have crashed behind one that
// waits for long.
func TestNobodyIsTurnedAwayBecauseOfTheDead(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T, s *redistest.Server) {
		d := open(t, s.Client(t), s)
		a, b := join(t, d, "a", time.Minute), join(t, d, "b", time.Minute)
		a.must(driver.Granted)
		b.must(driver.Queued)
		for i := range 5 {
			join(t, d, fmt.Sprint("dead", i), ttl).must(driver.Queued)
		}
		newcomer := join(t, d, "newcomer", time.Minute)
		newcomer.req.MaxWaiters = 6
		newcomer.must(driver.Full)
		time.Sleep(ttl) // they are overdue
		newcomer.req.MaxWaiters = 2
		newcomer.must(driver.Queued)
		require.Equal(t, []string{"b", "newcomer"}, queue(t, d))
		a.release()
		b.pushed()
		b.release()
		newcomer.pushed()
		newcomer.release()
	})
}
