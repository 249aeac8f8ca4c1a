package contend

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

// Run has contenders killed and paused while they hold the lock and wait for it. start starts a store
// that ends with the test, and returns its address.
func Run(t *testing.T, start func(testing.TB) string) {
	t.Run("KilledHolderIsReplacedByTheNextWaiter", func(t *testing.T) { killedHolderIsReplacedByTheNextWaiter(t, start) })
	t.Run("PausedHolderLosesTheLockAndKnows", func(t *testing.T) { pausedHolderLosesTheLockAndKnows(t, start) })
	t.Run("DeadAndPausedWaitersArePassedOver", func(t *testing.T) { deadAndPausedWaitersArePassedOver(t, start) })
	t.Run("ProcessesExcludeEachOtherWhateverHappensToThem", func(t *testing.T) {
		processesExcludeEachOtherWhateverHappensToThem(t, start)
	})
}

func killedHolderIsReplacedByTheNextWaiter(t *testing.T, start func(testing.TB) string) {
	for _, kind := range Kinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			r := NewReferee(t)
			e := start(t)
			a, b := r.Contender(kind, e), r.Contender(kind, e)
			a.Tell("lock")
			a.Hears("in")
			b.Tell("lock")
			time.Sleep(TTL / 3) // The first renewal is due; b waits, or will.
			a.Kill()
			killed := time.Now()
			b.Hears("in")
			require.Less(t, time.Since(killed), TTL+Late)
			b.Tell("unlock")
			b.Hears("out")
			require.Equal(t, 2, r.Decide())
		})
	}
}

// A holder that is paused for longer than its lease has lost it when it wakes up, and knows.
func pausedHolderLosesTheLockAndKnows(t *testing.T, start func(testing.TB) string) {
	for _, kind := range Kinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			r := NewReferee(t)
			e := start(t)
			a, b := r.Contender(kind, e), r.Contender(kind, e)
			a.Tell("lock")
			a.Hears("in")
			b.Tell("lock")
			a.Pause()
			b.Hears("in")
			a.Resume()
			a.Hears("lost")
			a.Tell("unlock") // which takes nothing from b
			a.Hears("out")
			a.Tell("lock")
			b.Tell("unlock")
			a.Hears("in")
			require.Equal(t, 3, r.Decide())
		})
	}
}

// Waiters that are dead, or paused for longer than their lease, do not keep the lock from others
// for longer than that.
func deadAndPausedWaitersArePassedOver(t *testing.T, start func(testing.TB) string) {
	for _, kind := range Kinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			r := NewReferee(t)
			e := start(t)
			a, dead, paused, b := r.Contender(kind, e), r.Contender(kind, e), r.Contender(kind, e), r.Contender(kind, e)
			look := Inspector(t, kind, e)
			a.Tell("lock")
			a.Hears("in")
			for i, c := range []*Contender{dead, paused, b} {
				c.Tell("lock")
				require.Eventually(t, func() bool { return len(look().Queue) == i+1 }, Patience, 10*time.Millisecond)
			}
			dead.Kill()
			paused.Pause()
			a.Tell("unlock")
			released := time.Now()
			b.Hears("in")
			require.Less(t, time.Since(released), TTL+Late)
			paused.Resume()
			b.Tell("unlock")
			paused.Hears("in") // It has come back by asking.
			require.Equal(t, 3, r.Decide())
		})
	}
}

// Eight processes, some of which are killed and paused all the time, exclude each other.
func processesExcludeEachOtherWhateverHappensToThem(t *testing.T, start func(testing.TB) string) {
	redistest.SoakOnly(t)
	t.Parallel()
	r := NewReferee(t)
	e := start(t)
	crew := make([]*Contender, 8)
	for i := range crew {
		crew[i] = r.Contender(Kinds[0], e)
		crew[i].Tell("hammer")
	}
	n := redistest.Rounds(30)
	for round := range n {
		paused, killed := round%8, (round+3)%8
		r.Advances(30)
		crew[paused].Pause()
		crew[killed].Kill()
		crew[killed] = r.Contender(Kinds[0], e)
		crew[killed].Tell("hammer")
		r.Advances(30)
		time.Sleep(TTL + time.Second) // One pause is as long as a lease.
		crew[paused].Resume()
	}
	for _, c := range crew {
		c.Kill()
	}
	turns := r.Decide()
	t.Logf("%d rounds, %d turns", n, turns)
	require.GreaterOrEqual(t, turns, 60*n)
}

// Outlive has the server at addr killed and started again. It has forgotten nothing: the holder
// keeps the lock, the waiters their places, and fences increase. A server may take longer to start
// than a lease lasts, so these last for long.
func Outlive(t *testing.T, addr string, restart func()) {
	r := NewReferee(t)
	r.Lease = Patience
	a, b, c := r.Contender(Kinds[0], addr), r.Contender(Kinds[0], addr), r.Contender(Kinds[0], addr)
	look := Inspector(t, Kinds[0], addr)
	a.Tell("lock")
	a.Hears("in")
	for i, w := range []*Contender{b, c} {
		w.Tell("lock")
		require.Eventually(t, func() bool { return len(look().Queue) == i+1 }, Patience, 10*time.Millisecond)
	}
	restart()
	a.Tell("unlock")
	b.Hears("in")
	b.Tell("unlock")
	c.Hears("in")
	require.Equal(t, 3, r.Decide())
}
