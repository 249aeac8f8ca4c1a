package keepalive_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/keepalive"
)

// holdFor takes a lease with a TTL of its own.
func holdFor(k *keepalive.Keeper, name string, ttl time.Duration, fixed bool) *held {
	h := newHeld(name)
	h.lease.TTL, h.Fixed = ttl, fixed
	k.Add(&h.Entry, h.lease, keepalive.NewTrust(time.Now(), ttl))
	return h
}

// Rule 4. The monotonic clock stands still while a virtual machine is suspended; only
// the wall clock shows that the lease is over.
func TestTrustEndsByTheWallClockToo(t *testing.T) {
	for _, ttl := range []time.Duration{9 * time.Second, time.Minute, 24 * time.Hour} {
		for _, fixed := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v,fixed=%v", ttl, fixed), func(t *testing.T) {
				s := &store{renew: all(nil)}
				bubble(t, s, func(t *testing.T, k *keepalive.Keeper) {
					h := holdFor(k, "a", ttl, fixed)
					trust := h.Entry.Trust()
					require.Positive(t, trust.Left())
					require.NoError(t, trust.Cause())
					keepalive.StepWallClock(t, ttl)
					require.LessOrEqual(t, trust.Left(), time.Duration(0), "whoever asks sees it at once")
					require.ErrorIs(t, trust.Cause(), keepalive.ErrClock)
					require.ErrorIs(t, <-h.lost, keepalive.ErrClock)
					require.LessOrEqual(t, time.Since(h.since), min(5*time.Second, ttl)+time.Millisecond)
					require.Zero(t, s.renewals())
				})
			})
		}
	}
}

// A machine that was suspended for less than the TTL still holds its lease, but not for as
// long as the monotonic clock, by which renewals are planned, would have it.
func TestLeaseIsRenewedAtOnceAfterASuspensionThatUsedUpMuchOfIt(t *testing.T) {
	s := &store{renew: all(nil)}
	bubble(t, s, func(t *testing.T, k *keepalive.Keeper) {
		h := holdFor(k, "a", time.Minute, false)
		keepalive.StepWallClock(t, 40*time.Second)
		time.Sleep(6 * time.Second)
		require.Equal(t, 1, s.renewals())
		time.Sleep(2 * time.Minute)
		require.Empty(t, h.lost)
		require.True(t, k.Remove(&h.Entry))
	})
}

// The renewal was sent before the suspension and answered after it. Its proof is as old
// as the wall clock says.
func TestRenewalThatIsAnsweredAfterASuspensionProvesNoMoreThanIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answer := make(chan struct{})
		s, first := &store{}, true
		s.renew = func(l []driver.Lease) []error {
			s.mu.Lock()
			was := first
			first = false
			s.mu.Unlock()
			if !was {
				return all(errors.New("broken"))(l)
			}
			<-answer
			return all(nil)(l)
		}
		k := s.keeper()
		h := hold(k, "a", time.Now())
		time.Sleep(ttl / 3)
		synctest.Wait()
		require.Equal(t, 1, s.renewals())
		const asleep = ttl / 3
		keepalive.StepWallClock(t, asleep)
		time.Sleep(ttl / 30)
		close(answer)
		require.Error(t, <-h.lost)
		require.InDelta(t, ttl/3+trusted-asleep, time.Since(h.since), float64(time.Millisecond))
		k.Close()
	})
}

func TestWallClockSetBackChangesNothing(t *testing.T) {
	s := &store{renew: all(nil)}
	bubble(t, s, func(t *testing.T, k *keepalive.Keeper) {
		trust := keepalive.NewTrust(time.Now(), ttl)
		h := hold(k, "a", time.Now())
		keepalive.StepWallClock(t, -time.Hour)
		require.Equal(t, trusted-time.Nanosecond, trust.Left())
		time.Sleep(trusted - time.Nanosecond)
		require.Zero(t, trust.Left())
		time.Sleep(10 * ttl)
		require.Empty(t, h.lost)
		keepalive.StepWallClock(t, 0) // forward to where it was
		require.Error(t, <-h.lost, "a lease that was renewed in between")
	})
}

// An idle machine should not be woken without need. A renewal is due every third of
// the TTL; besides, see lookEvery.
func TestKeeperWakesOnlyWhenSomethingIsDue(t *testing.T) {
	for _, c := range []struct {
		ttl    time.Duration
		leases int
		most   int // wake-ups in a minute
	}{
		{10 * time.Second, 0, 0}, {10 * time.Second, 1, 18}, {time.Minute, 1, 15}, {24 * time.Hour, 1, 12},
		{10 * time.Second, 1000, 250}, {time.Minute, 1000, 60}, {24 * time.Hour, 1000, 12},
	} {
		t.Run(fmt.Sprintf("%v,leases=%d", c.ttl, c.leases), func(t *testing.T) {
			s := &store{renew: all(nil)}
			bubble(t, s, func(t *testing.T, k *keepalive.Keeper) {
				one := holdFor(k, "released", c.ttl, false) // so that it runs
				for i := range c.leases {
					holdFor(k, fmt.Sprint(i), c.ttl, false)
				}
				require.True(t, k.Remove(&one.Entry))
				time.Sleep(c.ttl)
				synctest.Wait()
				wakes := 0
				for end := time.Now().Add(time.Minute); k.Planned().Before(end); wakes++ {
					time.Sleep(time.Until(k.Planned()))
					synctest.Wait()
				}
				t.Logf("%d wake-ups in a minute", wakes)
				require.LessOrEqual(t, wakes, c.most)
			})
		})
	}
}
