package redisdriver_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/redisdriver"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

// Rule 3. The holder counts its trust from each ask that was answered Granted, so each
// such answer must give the full TTL again, and more than the holder counts with.
func TestEveryGrantedAnswerGivesTheFullTTLAndGrace(t *testing.T) {
	bubble(t, func(t *testing.T, s *redistest.Server, d *redisdriver.Driver) {
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
	bubble(t, func(t *testing.T, s *redistest.Server, d *redisdriver.Driver) {
		a := join(t, d, "a", ttl)
		first := a.must(driver.Granted)
		time.Sleep(2 * ttl)
		require.ErrorIs(t, d.Renew(context.Background(), []driver.Lease{a.lease()})[0], driver.ErrNotHeld)
		require.Nil(t, holder(t, d))
		require.Greater(t, a.must(driver.Granted).Fence, first.Fence, "a new grant, not the old one")
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

// Rule 4, for those who share. One sweep finds the leases that end later than they can;
// that it is time for one shows in the bound of all ends. It is the clock of the server that goes on
// for some TTLs, and not the time.
func TestServerClockStepsBackWhileReadersHold(t *testing.T) {
	t.Parallel()
	const ttl, grace = 10 * time.Minute, 500 * time.Millisecond
	s, clock := redistest.RealWithClock(t)
	d := open(t, s.Client(t), s)
	reader := func(token string) *party {
		p := join(t, d, token, ttl)
		p.req.Kind, p.req.Shared = driver.RWMutex, true
		return p
	}
	dead, alive, w := reader("dead"), reader("alive"), reader("writer")
	w.req.Shared = false
	dead.must(driver.Granted)
	alive.must(driver.Granted)
	clock.Set(-time.Hour)
	w.must(driver.Queued)
	var gone time.Duration
	for passed := time.Duration(0); passed < 4*ttl; passed += ttl / 20 {
		clock.Set(-time.Hour + passed)
		require.NoError(t, d.Renew(context.Background(), []driver.Lease{alive.lease()})[0])
		info, err := d.Inspect(context.Background(), driver.RWMutex, "rule")
		require.NoError(t, err)
		require.NotEmpty(t, info.Holders)
		w.must(driver.Queued)
		if gone == 0 && len(info.Holders) == 1 {
			gone = passed
		}
	}
	require.NotZero(t, gone, "the dead one holds until the clock has caught up")
	require.Greater(t, gone, ttl/2)
	require.Less(t, gone, 2*(ttl+grace)+ttl)
	alive.release()
	w.must(driver.Granted)
}

// A lease that was cut to what it can have left is not lengthened again by its renewal
// to where it ended before.
func TestRenewalAfterTheClockSteppedBackIsNotTooLong(t *testing.T) {
	t.Parallel()
	s, clock := redistest.RealWithClock(t)
	d := open(t, s.Client(t), s)
	p := join(t, d, "a", ttl)
	p.req.Kind, p.req.Shared = driver.RWMutex, true
	p.must(driver.Granted)
	clock.Set(-time.Hour)
	require.NoError(t, d.Renew(context.Background(), []driver.Lease{p.lease()})[0])
	info, err := d.Inspect(context.Background(), driver.RWMutex, "rule")
	require.NoError(t, err)
	require.LessOrEqual(t, info.Holders[0].TimeLeft, ttl+ttl/20)
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
	each(t, func(t *testing.T, s *redistest.Server, d *redisdriver.Driver) {
		rdb := s.Client(t)
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
	bubble(t, func(t *testing.T, s *redistest.Server, d *redisdriver.Driver) {
		rdb := s.Client(t)
		l := join(t, d, "old", ttl).lease()
		l.Unsettled = true
		require.ErrorIs(t, d.Release(context.Background(), l), driver.ErrNotHeld)
		a := join(t, d, "a", 10*time.Minute)
		a.must(driver.Granted) // keeps the key beyond the tombstone's time
		time.Sleep(2 * time.Minute)
		waits(t, d, "b", ttl)
		require.False(t, rdb.HExists(context.Background(), key(s), "dead").Val())
	})
}

// Rule 11. When memory is full, those who are there can still renew, ask, withdraw and
// give up, and the next one gets the lock.
func TestFullMemoryStopsNobodyWhoIsThere(t *testing.T) {
	s := redistest.Real(t)
	rdb := s.Client(t)
	d := open(t, rdb, s)
	a, b, c, e := holds(t, d, "a", ttl), waits(t, d, "b", ttl), waits(t, d, "c", ttl), join(t, d, "e", ttl)
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

// A lease lasts until the end of a millisecond, and Inspect must not say before that nobody
// holds the lock, or who looks and then asks is surprised.
func TestInspectSaysFreeWhenTheLockIs(t *testing.T) {
	bubble(t, func(t *testing.T, s *redistest.Server, d *redisdriver.Driver) {
		holder, other := join(t, d, "holder", 100*time.Millisecond), join(t, d, "other", time.Second)
		other.req.Wait = false
		time.Sleep(300 * time.Microsecond)
		holder.must(driver.Granted)
		time.Sleep(105 * time.Millisecond) // with the grace, in the last ms
		for _, held := range []bool{true, false} {
			info, err := d.Inspect(t.Context(), driver.Mutex, "rule")
			require.NoError(t, err)
			require.Equal(t, held, len(info.Holders) == 1)
			want := driver.Granted
			if held {
				want = driver.Busy
			}
			other.must(want)
			time.Sleep(time.Millisecond)
		}
	})
}
