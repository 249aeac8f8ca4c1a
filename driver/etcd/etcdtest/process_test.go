package etcdtest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// late is how much longer than its TTL a lease may last, and a machine may be late.
const late = 5 * time.Second

var kinds = []string{"mutex", "rwmutex", "semaphore"}

func TestKilledHolderIsReplacedByTheNextWaiter(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			r := newReferee(t)
			e := embedded(t)
			a, b := r.contender(kind, e), r.contender(kind, e)
			a.tell("lock")
			a.hears("in")
			b.tell("lock")
			time.Sleep(ttl / 3) // The first renewal is due; b waits, or will.
			a.Kill()
			killed := time.Now()
			b.hears("in")
			require.Less(t, time.Since(killed), ttl+late)
			b.tell("unlock")
			b.hears("out")
			require.Equal(t, 2, r.decide())
		})
	}
}

// A holder that is paused for longer than its lease has lost it when it wakes up, and knows.
func TestPausedHolderLosesTheLockAndKnows(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			r := newReferee(t)
			e := embedded(t)
			a, b := r.contender(kind, e), r.contender(kind, e)
			a.tell("lock")
			a.hears("in")
			b.tell("lock")
			a.pause()
			b.hears("in")
			a.resume()
			a.hears("lost")
			a.tell("unlock") // which takes nothing from b
			a.hears("out")
			a.tell("lock")
			b.tell("unlock")
			a.hears("in")
			require.Equal(t, 3, r.decide())
		})
	}
}

// Waiters that are dead, or paused for longer than their lease, do not keep the lock from others
// for longer than that.
func TestDeadAndPausedWaitersArePassedOver(t *testing.T) {
	for _, kind := range kinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			r := newReferee(t)
			e := embedded(t)
			a, dead, paused, b := r.contender(kind, e), r.contender(kind, e), r.contender(kind, e), r.contender(kind, e)
			look := inspector(t, kind, e)
			a.tell("lock")
			a.hears("in")
			for i, c := range []*contender{dead, paused, b} {
				c.tell("lock")
				require.Eventually(t, func() bool { return len(look().Queue) == i+1 }, patience, 10*time.Millisecond)
			}
			dead.Kill()
			paused.pause()
			a.tell("unlock")
			released := time.Now()
			b.hears("in")
			require.Less(t, time.Since(released), ttl+late)
			paused.resume()
			b.tell("unlock")
			paused.hears("in") // It has come back by asking.
			require.Equal(t, 3, r.decide())
		})
	}
}

// Eight processes, some of which are killed and paused all the time, exclude each other.
func TestProcessesExcludeEachOtherWhateverHappensToThem(t *testing.T) {
	t.Parallel()
	r := newReferee(t)
	e := embedded(t)
	crew := make([]*contender, 8)
	for i := range crew {
		crew[i] = r.contender(kinds[0], e)
		crew[i].tell("hammer")
	}
	for round := range 3 {
		r.advances(30)
		crew[round].pause()
		crew[round+3].Kill()
		crew[round+3] = r.contender(kinds[0], e)
		crew[round+3].tell("hammer")
		r.advances(30)
		time.Sleep(ttl + time.Second) // One pause is as long as a lease.
		crew[round].resume()
	}
	for _, c := range crew {
		c.Kill()
	}
	require.GreaterOrEqual(t, r.decide(), 180)
}
