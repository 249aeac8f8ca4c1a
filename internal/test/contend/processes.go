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
	for name, scene := range map[string]func(r *Referee, kind, addr string){
		"KilledHolderIsReplacedByTheNextWaiter": killedHolderIsReplacedByTheNextWaiter,
		"PausedHolderLosesTheLockAndKnows":      pausedHolderLosesTheLockAndKnows,
		"DeadAndPausedWaitersArePassedOver":     deadAndPausedWaitersArePassedOver,
	} {
		for _, kind := range Kinds {
			t.Run(name+"/"+kind, func(t *testing.T) {
				t.Parallel()
				scene(NewReferee(t), kind, start(t))
			})
		}
	}
	t.Run("ProcessesExcludeEachOtherWhateverHappensToThem", func(t *testing.T) {
		processesExcludeEachOtherWhateverHappensToThem(t, start)
	})
}

func killedHolderIsReplacedByTheNextWaiter(r *Referee, kind, addr string) {
	a, b := r.Contender(kind, addr), r.Contender(kind, addr)
	a.Tell("lock")
	a.Hears("in")
	b.Tell("lock")
	time.Sleep(TTL / 3) // The first renewal is due; b waits, or will.
	a.Kill()
	killed := time.Now()
	b.Hears("in")
	require.Less(r, time.Since(killed), TTL+Late)
	b.Tell("unlock")
	b.Hears("out")
	require.Equal(r, 2, r.Decide())
}

// A holder that is paused for longer than its lease has lost it when it wakes up, and knows.
func pausedHolderLosesTheLockAndKnows(r *Referee, kind, addr string) {
	a, b := r.Contender(kind, addr), r.Contender(kind, addr)
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
	require.Equal(r, 3, r.Decide())
}

// Waiters that are dead, or paused for longer than their lease, do not keep the lock from others
// for longer than that.
func deadAndPausedWaitersArePassedOver(r *Referee, kind, addr string) {
	a, dead, paused, b := r.Contender(kind, addr), r.Contender(kind, addr), r.Contender(kind, addr), r.Contender(kind, addr)
	r.line(kind, addr, a, dead, paused, b)
	dead.Kill()
	paused.Pause()
	a.Tell("unlock")
	released := time.Now()
	b.Hears("in")
	require.Less(r, time.Since(released), TTL+Late)
	paused.Resume()
	b.Tell("unlock")
	paused.Hears("in") // It has come back by asking.
	require.Equal(r, 3, r.Decide())
}

// line has the first hold the lock, and the others wait for it in their order.
func (r *Referee) line(kind, addr string, cs ...*Contender) {
	r.Helper()
	look := Inspector(r, kind, addr)
	for i, c := range cs {
		c.Tell("lock")
		if i == 0 {
			c.Hears("in")
		}
		require.Eventually(r, func() bool { return len(look().Queue) == i }, Patience, 10*time.Millisecond)
	}
}

// Eight processes, some of which are killed and paused all the time, exclude each other.
func processesExcludeEachOtherWhateverHappensToThem(t *testing.T, start func(testing.TB) string) {
	redistest.SoakOnly(t)
	t.Parallel()
	r := NewReferee(t)
	e := start(t)
	crew := r.hammering(8, e)
	n := redistest.Rounds(30)
	for round := range n {
		paused, killed := round%8, (round+3)%8
		r.Advances(30)
		crew[paused].Pause()
		crew[killed].Kill()
		crew[killed] = r.hammering(1, e)[0]
		r.Advances(30)
		time.Sleep(TTL + time.Second) // One pause is as long as a lease.
		crew[paused].Resume()
	}
	turns := r.decideOf(crew)
	t.Logf("%d rounds, %d turns", n, turns)
	require.GreaterOrEqual(t, turns, 60*n)
}

// hammering starts n contenders that hammer.
func (r *Referee) hammering(n int, addrs ...string) (crew []*Contender) {
	r.Helper()
	for range n {
		c := r.Contender(Kinds[0], addrs...)
		c.Tell("hammer")
		crew = append(crew, c)
	}
	return crew
}

// decideOf is [Referee.Decide] when the crew has ended.
func (r *Referee) decideOf(crew []*Contender) int {
	r.Helper()
	for _, c := range crew {
		c.Kill()
	}
	return r.Decide()
}

// Server is one that a test hurts.
type Server interface {
	Kill()
	Restart() // after Kill
	Pause()
	Resume()
}

// Outlive has the server at addr killed and started again. It has forgotten nothing: the holder
// keeps the lock, the waiters their places, and fences increase. A server may take longer to start
// than a lease lasts, so these last for long.
func Outlive(t *testing.T, addr string, server Server) {
	r := NewReferee(t)
	r.Lease = Patience
	a, b, c := r.Contender(Kinds[0], addr), r.Contender(Kinds[0], addr), r.Contender(Kinds[0], addr)
	r.line(Kinds[0], addr, a, b, c)
	server.Kill()
	server.Restart()
	a.Tell("unlock")
	b.Hears("in")
	b.Tell("unlock")
	c.Hears("in")
	require.Equal(t, 3, r.Decide())
}

// OutliveLeader has leaders of the cluster at these addresses killed. That costs some time, but no lease,
// and gives nobody a second one.
func OutliveLeader(t *testing.T, addrs []string, leader func() Server) {
	r := NewReferee(t)
	crew := r.hammering(4, addrs...)
	for range 2 {
		r.Advances(20)
		old := leader()
		old.Kill()
		r.Advances(20)
		old.Restart()
	}
	require.GreaterOrEqual(t, r.decideOf(crew), 80)
}

// DistrustPausedLeader has leaders paused, each of which is replaced by another, and wakes up believing that
// it still leads. A holder that knows only this one must not trust what it says of its lease. leader also
// returns the address of the leader, and those of the others.
func DistrustPausedLeader(t *testing.T, leader func() (s Server, addr string, others []string)) {
	r := NewReferee(t)
	for range 2 {
		old, addr, others := leader()
		a, b := r.Contender(Kinds[0], addr), r.Contender(Kinds[0], others...)
		a.Tell("lock")
		a.Hears("in")
		b.Tell("lock")
		time.Sleep(TTL / 2)
		old.Pause()
		b.Hears("in")
		old.Resume()
		a.Hears("lost")
		b.Tell("unlock")
		b.Hears("out")
		a.Kill()
		b.Kill()
	}
	require.Equal(t, 4, r.Decide())
}
