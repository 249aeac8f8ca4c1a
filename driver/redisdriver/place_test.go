package redisdriver_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/redisdriver"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

// Rule 2. A waiter that has been silent for more than 2/3 of its TTL could not use the
// grant for long enough; it is skipped. Until then it gets the grant.
func TestSilentWaiterIsSkippedAfterTwoThirdsOfItsTTL(t *testing.T) {
	for _, silent := range []struct {
		fraction float64
		served   bool
	}{{0.65, true}, {0.68, false}} {
		t.Run(fmt.Sprint(silent.fraction), func(t *testing.T) {
			bubble(t, func(t *testing.T, s *redistest.Server, d *redisdriver.Driver) {
				a := holds(t, d, "a", ttl)
				waits(t, d, "b", ttl)
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
	bubble(t, func(t *testing.T, s *redistest.Server, d *redisdriver.Driver) {
		a, b := holds(t, d, "a", ttl), join(t, d, "b", ttl)
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

// Rule 7. A waiter that only seems to have gone loses its turn. But it comes back to its place, and
// a waiter that asks while nobody listens is known to be alive all the same.
func TestWaiterThatSeemsGoneComesBackToItsPlace(t *testing.T) {
	s := redistest.Real(t)
	direct := s.Client(t)
	steady := open(t, s.Client(t), s)
	d, proxy := flaky(t, s)

	a, b, c, e := holds(t, steady, "a", ttl), waits(t, d, "b", ttl), waits(t, steady, "c", ttl), waits(t, steady, "e", ttl)
	lose := func() {
		proxy.Refuse(true)
		proxy.Cut()
		subscribed(t, direct, s, 1)
		require.Eventually(t, func() bool { return !d.Hears() }, 10*time.Second, time.Millisecond, "it would name what the server knows is gone")
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
			each(t, func(t *testing.T, s *redistest.Server, d *redisdriver.Driver) {
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

// Rule 7, and promise 2 of package holdfast. Redis knows of the crash of a waiter, also of one that it has
// taken for dead before, when its subscription broke for a moment.
func TestWaiterThatCrashesAfterItWasPassedOverDelaysNobody(t *testing.T) {
	s := redistest.Real(t)
	direct := s.Client(t)
	steady, shaky := open(t, s.Client(t), s), newEars(t, s)
	d := redisdriver.New(shaky, redisdriver.WithPrefix(s.Prefix()))
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	a, b, c, e := holds(t, steady, "a", minute), join(t, d, "b", minute), join(t, steady, "c", minute), join(t, steady, "e", minute)
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

// Rule 8. However many dead waiters stand before a live one, it is served by the
// release; and no single run of a script looks at more than 64 of them.
func TestLiveWaiterBehindManyDeadOnesIsServedPiecemeal(t *testing.T) {
	const crowd = 200
	s := redistest.Real(t)
	d := open(t, s.Client(t), s)
	a := holds(t, d, "a", time.Minute)
	a.release() // the scripts are loaded now
	a = join(t, d, "a2", time.Minute)
	a.must(driver.Granted)
	for i := range crowd {
		p := join(t, d, fmt.Sprint("dead", i), 100*time.Millisecond)
		p.req.Wake = nil
		p.must(driver.Queued)
	}
	waits(t, d, "b", time.Minute)
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
	const crowd = 200
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
			bubble(t, func(t *testing.T, s *redistest.Server, d *redisdriver.Driver) {
				holds(t, d, "a", ttl)
				for i := range crowd {
					p := join(t, d, fmt.Sprint("dead", i), time.Second)
					p.req.Wake = nil
					p.must(driver.Queued)
				}
				b := waits(t, d, "b", time.Hour)
				time.Sleep(time.Second)
				free(d, b)
				require.Equal(t, "b", holder(t, d).Holder)
			})
		})
	}
}

// Rule 9. Those who never wait are not locked out by the dead.
func TestTryOnlyUsersAreNotBlockedByDeadWaiters(t *testing.T) {
	bubble(t, func(t *testing.T, s *redistest.Server, d *redisdriver.Driver) {
		rdb := s.Client(t)
		holds(t, d, "a", ttl)
		for i := range 100 { // more than one call looks at
			waits(t, d, fmt.Sprint("dead", i), ttl)
		}
		time.Sleep(2 * ttl) // the holder has crashed, too
		b := join(t, d, "b", ttl)
		b.req.Wait = false
		b.must(driver.Granted)
		b.release()
		require.Zero(t, rdb.HExists(context.Background(), key(s), "head").Val())
	})
}

// A caller is turned away for those that wait, and not for those that have crashed behind one that
// waits for long.
func TestNobodyIsTurnedAwayBecauseOfTheDead(t *testing.T) {
	bubble(t, func(t *testing.T, s *redistest.Server, d *redisdriver.Driver) {
		a, b := holds(t, d, "a", time.Minute), waits(t, d, "b", time.Minute)
		for i := range 5 {
			waits(t, d, fmt.Sprint("dead", i), ttl)
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

// Rule 10. A waiter that was cut off and dropped comes back to the place it had.
func TestWaiterReturnsToItsPlace(t *testing.T) {
	bubble(t, func(t *testing.T, s *redistest.Server, d *redisdriver.Driver) {
		a, b, c, e := holds(t, d, "a", ttl), waits(t, d, "b", ttl), join(t, d, "c", ttl), join(t, d, "e", ttl)
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
	bubble(t, func(t *testing.T, s *redistest.Server, d *redisdriver.Driver) {
		x, a, b := holds(t, d, "x", ttl), waits(t, d, "a", ttl), join(t, d, "b", time.Hour)
		x.release()
		a.pushed()
		b.must(driver.Queued)
		time.Sleep(2 * ttl)
		a.must(driver.Queued)
		require.Equal(t, "b", holder(t, d).Holder)
	})
}

// Rule 10. Nor does a place of an earlier life lead before those who came in this one.
func TestPlaceOfAnEarlierLifeOvertakesNobody(t *testing.T) {
	each(t, func(t *testing.T, s *redistest.Server, d *redisdriver.Driver) {
		rdb := s.Client(t)
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
		holds(t, d, "a", brief)
		b, c, e := waits(t, d, "b", brief), join(t, d, "c", minute), join(t, d, "e", minute)
		gone := func() bool { return holder(t, d) == nil && len(queue(t, d)) == 0 }
		require.Eventually(t, gone, time.Minute, 10*time.Millisecond)
		c.must(driver.Granted) // b is dropped, and the queue is empty
		e.must(driver.Queued)
		b.must(driver.Queued)
		require.Equal(t, []string{"b", "e"}, queue(t, d), "b came first, and each has a place of its own")
	})
}

// A failover to a replica that had not heard of a waiter gives its place to the next one.
// The first on the old master must not push out the holder of now.
func TestPlaceThatAFailoverGaveToTwoIsHadByOne(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		rdb := s.Client(t)
		d := redisdriver.New(rdb, redisdriver.WithPrefix(s.Prefix()))
		t.Cleanup(func() { require.NoError(t, d.Close()) })
		holder := holds(t, d, "holder", time.Minute)
		join(t, d, "gone", time.Minute).must(driver.Queued) // so that the key has a queue
		key := s.Prefix() + ":2:mutex:rule"
		before := rdb.HGetAll(t.Context(), key).Val()

		first := waits(t, d, "first", time.Minute)
		require.NoError(t, rdb.Del(t.Context(), key).Err())
		require.NoError(t, rdb.HSet(t.Context(), key, before).Err())
		second := waits(t, d, "second", time.Minute)
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

// To the store it held the lock, so it stands in no queue any more. A thief after the other would
// keep it waiting for ever behind those who came later.
func TestWaiterThatIsRobbedUnheardHasItsPlaceAgain(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		link := redistest.NewProxy(t, s)
		d, deaf := open(t, s.Client(t), s), open(t, link.Client(t), s)
		holder, next := join(t, d, "holder", time.Minute), join(t, d, "next", time.Minute)
		waiter := join(t, deaf, "waiter", time.Minute)
		holder.must(driver.Granted)
		waiter.must(driver.Queued)
		next.must(driver.Queued)
		for i := range 3 {
			if i > 0 { // else it hears of its grant, and asks as if that had come too late
				link.DropPush(func(_, payload string) bool { return strings.Contains(payload, waiter.req.Token) })
			}
			holder.release()
			holder = join(t, d, fmt.Sprint("thief-", i), time.Minute)
			_, err := d.Steal(t.Context(), &holder.req)
			require.NoError(t, err)
			if i == 0 {
				waiter.pushed()
			}
			waiter.req.Ask++
			_, err = deaf.Acquire(t.Context(), &waiter.req)
			require.ErrorIs(t, err, driver.ErrNotHeld)
			link.DropPush(nil)
			unheard, ok := errors.AsType[driver.Unheard](err)
			require.True(t, ok)
			require.NotZero(t, unheard.Place)
			waiter = join(t, deaf, fmt.Sprint("heir-", i), time.Minute)
			waiter.req.Place = unheard.Place
			waiter.must(driver.Queued)
		}
		holder.release()
		next.must(driver.Queued)
		waiter.must(driver.Granted)
		waiter.release()
		next.must(driver.Granted)
	})
}
