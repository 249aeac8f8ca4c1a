package keepalive_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/keepalive"
)

// holdsUp is the owner of a lease who holds up the timer goroutine when it is lost, as a
// process does that gets no processor.
type holdsUp struct {
	held
	until time.Time
}

func (h *holdsUp) Lost(error) { time.Sleep(time.Until(h.until)) }

// holdUp has the timer goroutine do nothing from a second before that moment on, for so long after it.
func holdUp(k *keepalive.Keeper, at time.Time, late time.Duration) {
	h := &holdsUp{until: at.Add(late)}
	h.lease = driver.Lease{Kind: driver.Mutex, Name: "holds up"}
	h.Owner, h.Fixed = h, true
	time.Sleep(time.Until(at) - 2*time.Second)
	k.Add(&h.Entry, h.lease, keepalive.NewTrust(time.Now(), time.Second))
}

// A keeper whose timer is late renews earlier by that much, up to twice as often, lest the next
// renewal come too late. It says how late it was, once. In time again, it renews at TTL/3.
func TestRenewalsAreEarlierByWhatTheTimerWasLate(t *testing.T) {
	for _, late := range []time.Duration{0, 100 * time.Millisecond, time.Second, 4 * time.Second} {
		s, said := &store{}, []time.Duration(nil)
		bubble(t, s, func(t *testing.T, k *keepalive.Keeper) {
			s.renew = func(leases []driver.Lease) []error {
				late := k.Late()
				s.mu.Lock()
				defer s.mu.Unlock()
				said = append(said, late)
				return all(nil)(leases)
			}
			began := time.Now()
			hold(k, "x", began)
			holdUp(k, began.Add(ttl/3), late)
			time.Sleep(10 * time.Minute)
			synctest.Wait()
			s.mu.Lock()
			defer s.mu.Unlock()
			times := s.times
			require.GreaterOrEqual(t, len(times), 2)
			require.Equal(t, ttl/3+late, times[0].Sub(began), "late by %v", late)
			require.Equal(t, ttl/3-min(late, ttl/6), times[1].Sub(times[0]), "FOUL: late by %v", late)
			require.Equal(t, []time.Duration{late, 0}, said[:2])
			require.InDelta(t, ttl/3, times[len(times)-1].Sub(times[len(times)-2]), float64(time.Millisecond), "in time again")
		})
	}
}

// What was lately the most counts, and half of it is forgotten in 30 s.
func TestLatenessFades(t *testing.T) {
	for ago, early := range map[time.Duration]time.Duration{
		0: time.Second, 30 * time.Second: time.Second / 2, time.Minute: time.Second / 4, time.Hour: 0,
	} {
		s := &store{renew: all(nil)}
		bubble(t, s, func(t *testing.T, k *keepalive.Keeper) {
			at := time.Now().Add(ttl / 3)
			x := hold(k, "x", time.Now())
			holdUp(k, at, time.Second)
			time.Sleep(time.Until(at.Add(time.Second)))
			synctest.Wait()
			require.True(t, k.Remove(&x.Entry))
			time.Sleep(ago)
			began := time.Now()
			hold(k, "y", began)
			time.Sleep(ttl / 3)
			synctest.Wait()
			s.mu.Lock()
			defer s.mu.Unlock()
			times := s.times
			require.InDelta(t, ttl/3-early, times[len(times)-1].Sub(began), float64(time.Millisecond), "after %v", ago)
		})
	}
}

// A lease that is lost because nobody came to renew it says so.
func TestLossByALateTimerSaysSo(t *testing.T) {
	s := &store{renew: all(nil)}
	bubble(t, s, func(t *testing.T, k *keepalive.Keeper) {
		began := time.Now()
		h := hold(k, "x", began)
		holdUp(k, began.Add(ttl/3), ttl)
		require.EqualError(t, h.loss(t), "a timer of this process was late by 9s")
	})
}
