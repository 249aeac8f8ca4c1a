package getset_test

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

func TestEachKeepsTheOtherOut(t *testing.T) {
	onStages(t, func(s *stage) {
		us, them := s.ours(), s.plain()
		require.True(t, us.lock())
		require.False(t, them.lock())
		require.NoError(t, us.renew())
		require.False(t, them.lock())
		require.NoError(t, us.release())
		require.True(t, them.lock())
		require.False(t, us.lock())
		them.unlock()
		require.True(t, us.lock())
	})
}

// P1 is ours and crashes. The plain program must not see its end before we do.
func TestPlainProgramGetsWhatWeLetExpire(t *testing.T) {
	t.Parallel()
	onStagesInTime(t, func(s *stage) {
		us, them := s.ours(), s.plain()
		require.True(t, us.lock())
		time.Sleep(s.ttl / 2)
		require.NoError(t, us.renew())
		us.trusted = time.Now().Add(s.ttl)
		for !them.lock() {
			require.Less(t, time.Since(us.trusted), s.ttl/2, "it never ends")
			time.Sleep(5 * time.Millisecond)
		}
		require.True(t, time.Now().After(us.trusted), "we still trust what they have")
		require.ErrorIs(t, us.renew(), driver.ErrNotHeld)
		require.ErrorIs(t, us.release(), driver.ErrNotHeld)
		require.False(t, us.lock())
		require.Equal(t, them.ends, s.value())
	})
}

// P1 crashes. P2 and P3 are plain, P4 is ours. However their steps follow on each other,
// one of them wins, and that one alone, by either rule, and also if P2 and P3 have different ones.
func TestOneOfAllWhoSeeTheExpiryWins(t *testing.T) {
	onStages(t, func(s *stage) {
		orders := interleavings("22", "33", "4")
		require.Len(t, orders, 30)
		for i := range 4 * len(orders) {
			order := orders[i/4]
			s.crashed()
			four, winners := s.ours(), ""
			plains := map[rune]*plain{'2': s.plain(), '3': s.plain()}
			plains['2'].rule, plains['3'].rule = rule(i%2), rule(i/2%2)
			saw := map[rune]bool{}
			for _, who := range order {
				p, looked := plains[who], false
				if _, looked = saw[who]; p != nil && !looked {
					saw[who] = p.look()
					continue
				}
				if p == nil && four.lock() || p != nil && saw[who] && p.swap() {
					winners += string(who)
				}
			}
			require.Len(t, winners, 1, "order %s: winners %q", order, winners)
			require.False(t, s.ours().lock(), "order %s: it has a holder", order)
			require.False(t, s.plain().lock(), "order %s: it has a holder", order)
		}
	})
}

// interleavings are all ways to merge the steps without changing the order of each.
func interleavings(steps ...string) []string {
	var all []string
	for i, s := range steps {
		if s == "" {
			continue
		}
		rest := slices.Clone(steps)
		rest[i] = s[1:]
		for _, tail := range interleavings(rest...) {
			all = append(all, s[:1]+tail)
		}
	}
	if strings.Join(steps, "") == "" {
		return []string{""}
	}
	return all
}

// P3 has lost against P2, which is ours, but its GETSET is done. We cannot know who wrote
// that, so the lease is lost, and the lock is free when P3's time is past.
func TestLateWriterCostsUsTheLease(t *testing.T) {
	onStagesInTime(t, func(s *stage) {
		s.crashed()
		us, late := s.ours(), s.plain()
		require.True(t, late.look())
		require.True(t, us.lock())
		late.lease /= 2
		require.False(t, late.swap())

		require.ErrorIs(t, us.renew(), driver.ErrNotHeld)
		require.False(t, us.lock())
		require.ErrorIs(t, us.release(), driver.ErrNotHeld)
		require.Equal(t, late.ends, s.value(), "we touch it no more")
		require.False(t, s.plain().lock())
		time.Sleep(late.lease + 5*time.Millisecond)
		require.True(t, s.ours().lock())
	})
}

// Nothing that we do is a late writer: P3 is ours, and busy leaves the time of P2 alone.
func TestWeAreNoLateWriter(t *testing.T) {
	onStages(t, func(s *stage) {
		s.crashed()
		them, us := s.plain(), s.ours()
		require.True(t, them.lock())
		require.False(t, us.lock())
		require.Equal(t, them.ends, s.value())
		require.ErrorIs(t, us.renew(), driver.ErrNotHeld)
		require.ErrorIs(t, us.release(), driver.ErrNotHeld)
		require.Equal(t, them.ends, s.value())
	})
}

// P4 looks at its clock, is held up, and deletes what is ours by then. There is nothing
// we can do but notice.
func TestSlowDeleterCostsUsTheLease(t *testing.T) {
	onStagesInTime(t, func(s *stage) {
		slow, us, next := s.plain(), s.ours(), s.ours()
		slow.lease = s.ttl / 10
		require.True(t, slow.lock())
		require.True(t, slow.mayDelete())
		time.Sleep(slow.lease + 5*time.Millisecond)
		require.True(t, us.lock())
		slow.del()
		require.True(t, next.lock())
		require.ErrorIs(t, us.renew(), driver.ErrNotHeld)
		require.ErrorIs(t, us.release(), driver.ErrNotHeld)
		require.NoError(t, next.renew())
	})
}

// P4's lease is over, and nothing has held it up between two steps. It deletes as its unlock looks
// at the end that is there now, which is ours: a late holder always does that, not only in a race.
func TestUnlockThatLooksAtTheLockOfTheNextDeletesIt(t *testing.T) {
	onStagesInTime(t, func(s *stage) {
		late, us, next := s.plain(), s.ours(), s.ours()
		late.lease = s.ttl / 10
		require.True(t, late.lock())
		time.Sleep(late.lease + 5*time.Millisecond)
		require.True(t, us.lock())
		require.False(t, late.mayDelete(), "it could have known")
		late.unlockNow()
		require.True(t, next.lock())
		require.ErrorIs(t, us.renew(), driver.ErrNotHeld)
		require.NoError(t, next.renew())
	})
}

// What has ended is held by nobody, although it stays: such a key has no TTL.
func TestEndThatIsPastIsNoHolder(t *testing.T) {
	onStages(t, func(s *stage) {
		s.crashed()
		d := s.ours().d
		info, err := d.Inspect(s.Context(), driver.Mutex, s.name)
		require.NoError(s, err)
		require.Empty(s, info.Holders)
		require.NoError(s, d.List(s.Context(), s.name, func(driver.Kind, string) error {
			return errors.New("a lock that nobody holds")
		}))
		far := "9999999999999999"
		require.NoError(s, s.rdb.Set(s.Context(), s.name, far, 0).Err())
		info, err = d.Inspect(s.Context(), driver.Mutex, s.name)
		require.NoError(s, err)
		require.Equal(s, []driver.Holder{{Holder: far, TimeLeft: math.MaxInt64}}, info.Holders)
	})
}

// P5 is ours and overran. If nobody took the lock it stays as it is: gone between the GET
// and the GETSET of P2 it would make P2 lose, and leave a time with no holder behind.
func TestOurSlowDeleteTouchesNothing(t *testing.T) {
	onStagesInTime(t, func(s *stage) {
		us, them := s.ours(), s.plain()
		us.lease.TTL = s.ttl / 10
		require.True(t, us.lock())
		time.Sleep(2 * us.lease.TTL)
		require.True(t, them.look())
		require.ErrorIs(t, us.release(), driver.ErrNotHeld)
		require.ErrorIs(t, us.renew(), driver.ErrNotHeld)
		require.True(t, them.swap())
		require.ErrorIs(t, us.release(), driver.ErrNotHeld)
		require.Equal(t, them.ends, s.value())
	})
}

// What a clock that is wrong does, and how far it may be wrong.
func TestClocksOfOthers(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T, server *redistest.Server) {
		const trust = 10 * time.Second
		for ahead, early := range map[time.Duration]bool{
			-time.Hour: false, 0: false, 499 * time.Millisecond: false, 600 * time.Millisecond: true,
		} {
			s := newStage(t, server)
			us, them := s.ours(), s.plain()
			us.lease.TTL, them.ahead = trust, ahead
			require.True(t, us.lock())
			time.Sleep(trust - time.Millisecond)
			require.Equal(t, early, them.lock(), "ahead by %v", ahead)
			time.Sleep(time.Minute)
			them.del()
		}
	})
}
