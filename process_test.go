//go:build unix

package holdfast_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

// noise is what a test allows the machine to be late.
const noise = 500 * time.Millisecond

// grace is how much longer a lease lasts in the store than its holder believes.
func grace(ttl time.Duration) time.Duration {
	return min(max(ttl/20, 5*time.Millisecond), 500*time.Millisecond)
}

// arena is where the processes of one test compete. The test itself only looks on.
type arena struct {
	*testing.T
	server *redistest.Server
	rdb    *redis.Client
	locks  *holdfast.Client
	ttl    time.Duration
	kind   driver.Kind
}

func newArena(t *testing.T, ttl time.Duration) *arena {
	t.Helper()
	s := redistest.Shared(t)
	rdb := s.Client(t)
	a := &arena{t, s, rdb, holdfast.New(rdb, holdfast.WithPrefix(s.Prefix())), ttl, driver.Mutex}
	t.Cleanup(func() {
		assert.NoError(t, a.locks.Close())
		assert.NotEmpty(t, s.Keys(t, s.Prefix()))
		s.RequireTTLs(t, s.Prefix())
	})
	return a
}

// lock is one of the kind that the processes compete for.
func (a *arena) lock(name string) lock {
	switch a.kind {
	case driver.RWMutex:
		return a.locks.RWMutex(name)
	case driver.Semaphore:
		return a.locks.Semaphore(name, 1)
	}
	return a.locks.Mutex(name)
}

func (a *arena) inspect(lock string) holdfast.Info {
	a.Helper()
	info, err := a.lock(lock).Inspect(a.Context())
	require.NoError(a, err)
	return info
}

// until looks at the lock until it is as it should be.
func (a *arena) until(lock, what string, good func(holdfast.Info) bool) {
	a.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		info := a.inspect(lock)
		if good(info) {
			return
		}
		if time.Now().After(end) {
			a.Fatalf("never seen: %s; %s", what, a.situation(lock))
		}
	}
}

// untilHeldBy and untilQueued wait until the store knows.
func (a *arena) untilHeldBy(c *contender, lock string) {
	a.Helper()
	a.until(lock, fmt.Sprintf("held by %d", c.Pid()), func(i holdfast.Info) bool {
		return len(i.Holders) > 0 && isFrom(c, i.Holders[0].Holder)
	})
}

// untilQueued waits until exactly these are in the queue, in whatever order.
func (a *arena) untilQueued(lock string, cs ...*contender) {
	a.Helper()
	a.until(lock, fmt.Sprintf("%d in the queue", len(cs)), func(i holdfast.Info) bool {
		return len(i.Queue) == len(cs) && !slices.ContainsFunc(cs, func(c *contender) bool {
			return !slices.ContainsFunc(i.Queue, func(w holdfast.Waiter) bool { return isFrom(c, w.Holder) })
		})
	})
}

// untilRenewed waits for the moment when the most of the lease is left.
func (a *arena) untilRenewed(lock string) {
	a.Helper()
	left := a.ttl * 2
	a.until(lock, "renewal", func(i holdfast.Info) bool {
		before := left
		if len(i.Holders) > 0 {
			left = i.Holders[0].TimeLeft
		}
		return left > before
	})
}

// untilGone waits until the server knows that the process is dead.
func (a *arena) untilGone(c *contender) {
	a.Helper()
	require.Eventually(a, func() bool {
		clients, err := a.rdb.ClientList(a.Context()).Result()
		return err == nil && !strings.Contains(clients, "name="+connectionName(c.Pid())+" ")
	}, patience, time.Millisecond)
}

func isFrom(c *contender, holder string) bool {
	return strings.HasSuffix(holder, ":"+strconv.Itoa(c.Pid()))
}

// situation tells who holds the lock and who waits, for a test that fails.
func (a *arena) situation(lock string) string {
	info, err := a.lock(lock).Inspect(a.Context())
	switch {
	case err != nil:
		return err.Error()
	case len(info.Holders) == 0:
		return fmt.Sprintf("%s is free, queue %+v", lock, info.Queue)
	default:
		return fmt.Sprintf("%s is held by %+v, queue %+v", lock, info.Holders, info.Queue)
	}
}

// rehearse has all but the first wait once, for a client listens for its turn, and
// can be missed, only since it first had to wait.
func (a *arena) rehearse(cs []*contender) {
	a.Helper()
	cs[0].lease("rehearsal")
	a.wait("lease", "rehearsal", cs[1:]...)
	require.Eventually(a, func() bool {
		listening, err := a.rdb.PubSubChannels(a.Context(), a.server.Prefix()+"*").Result()
		return err == nil && len(listening) == 2*(len(cs)-1) // one of them for notices
	}, patience, time.Millisecond)
	cs[0].release("rehearsal")
	for _, c := range cs[1:] {
		c.expect("leased", "rehearsal")
		c.release("rehearsal")
	}
}

// wait has the processes ask for the lock, each when the one before is in the queue.
func (a *arena) wait(do, lock string, cs ...*contender) {
	a.Helper()
	for i, c := range cs {
		c.tell(order{Do: do, Lock: lock})
		a.untilQueued(lock, cs[:i+1]...)
	}
}

func TestProcessesExcludeEachOtherAndTakeEvenTurns(t *testing.T) {
	const processes, turns = 8, 200
	a := newArena(t, 10*time.Second)
	dir := t.TempDir()
	cs := a.contenders(processes)
	for _, c := range cs {
		c.tell(order{Do: "turns", Lock: "l", N: turns, Dir: dir})
	}
	byProcess := make([][]report, processes)
	var all []report
	for i, c := range cs {
		c.expect("turned", "l")
		for range turns {
			r := c.expect("turn", "l")
			require.Empty(t, r.Err)
			byProcess[i] = append(byProcess[i], r)
		}
		all = append(all, byProcess[i]...)
	}

	t.Run("no update is lost", func(t *testing.T) {
		counter, err := os.ReadFile(filepath.Join(dir, "counter"))
		require.NoError(t, err)
		assert.Equal(t, strconv.Itoa(processes*turns), string(counter))
	})
	t.Run("fences increase in the order of entry", func(t *testing.T) {
		journal, err := os.ReadFile(filepath.Join(dir, "journal"))
		require.NoError(t, err)
		lines := strings.Fields(string(journal))
		require.Len(t, lines, processes*turns)
		last := int64(0)
		for i, line := range lines {
			fence, err := strconv.ParseInt(line, 10, 64)
			require.NoError(t, err)
			require.Greater(t, fence, last, "entry %d", i)
			last = fence
		}
	})
	t.Run("critical sections never overlap", func(t *testing.T) {
		slices.SortFunc(all, func(x, y report) int { return cmp.Compare(x.At, y.At) })
		for i := range all[1:] {
			require.Greater(t, all[i+1].At, all[i].Left, "%+v\n%+v", all[i], all[i+1])
		}
	})
	t.Run("turns are even", func(t *testing.T) {
		got := whileAllCompete(byProcess)
		t.Logf("Jain %.4f of turns %v", jain(got), got)
		assert.GreaterOrEqual(t, jain(got), 0.99, "turns %v", got)
	})
}

// whileAllCompete counts the turns that each process had between the moment when
// the last began to compete and the moment when the first was through.
func whileAllCompete(byProcess [][]report) []int {
	from, to := time.Duration(0), time.Duration(1<<63-1)
	for _, turns := range byProcess {
		from = max(from, turns[0].Began)
		to = min(to, turns[len(turns)-1].Left)
	}
	counts := make([]int, len(byProcess))
	for i, turns := range byProcess {
		for _, turn := range turns {
			if turn.At >= from && turn.Left <= to {
				counts[i]++
			}
		}
	}
	return counts
}

// jain is Jain's fairness index: 1 if all are equal, 1/n if one has everything.
// R. Jain, D. Chiu, W. Hawe, DEC-TR-301, 1984.
func jain(counts []int) float64 {
	var sum, squares float64
	for _, n := range counts {
		sum += float64(n)
		squares += float64(n) * float64(n)
	}
	return sum * sum / (float64(len(counts)) * squares)
}

func TestProcessesAreServedInOrderOfArrival(t *testing.T) {
	t.Parallel()
	a := newArena(t, 10*time.Second)
	cs := a.contenders(6)
	for round := range 3 {
		lock := fmt.Sprint("l", round)
		// Process ids and places in a hash must not be what decides.
		rand.Shuffle(len(cs), func(i, j int) { cs[i], cs[j] = cs[j], cs[i] })
		holder, waiters := cs[0], cs[1:]
		holder.lease(lock)
		a.wait("turn", lock, waiters...)
		for i, w := range a.inspect(lock).Queue {
			assert.True(t, isFrom(waiters[i], w.Holder), a.situation(lock))
		}
		// The holder asks again as soon as it can, and it comes last, too.
		holder.tell(order{Do: "release", Lock: lock})
		holder.tell(order{Do: "turn", Lock: lock})

		left, fence := holder.expect("released", lock).Began, int64(0)
		for i, c := range append(waiters, holder) {
			r := c.expect("turn", lock)
			require.Empty(t, r.Err)
			require.Greater(t, r.At, left, "number %d of %d", i+1, len(cs))
			require.Greater(t, r.Fence, fence, "number %d of %d", i+1, len(cs))
			left, fence = r.Left, r.Fence
		}
	}
}

func TestKilledHolderBlocksNobodyLongerThanItsTTL(t *testing.T) {
	t.Parallel()
	const ttl = time.Second
	for _, renewed := range []bool{false, true} {
		t.Run(fmt.Sprint("renewed ", renewed), func(t *testing.T) {
			t.Parallel()
			a := newArena(t, ttl)
			cs := a.contenders(3)
			first, holder, next := cs[0], cs[1], cs[2]
			first.lease("l")
			a.wait("lease", "l", holder, next)
			first.release("l")
			expires := holder.expect("leased", "l").Expires
			if renewed {
				a.untilRenewed("l")
			}

			killed := monotonic()
			holder.Kill()
			got := next.expect("leased", "l").At
			t.Logf("%v after the kill", got-killed)
			assert.LessOrEqual(t, got-killed, ttl+grace(ttl)+noise)
			assert.Greater(t, got, expires, "the lease was still trusted")
			next.release("l")
		})
	}
}

func TestHolderSuspendedBeyondItsTTLStopsAtOnceAndTouchesNobody(t *testing.T) {
	t.Parallel()
	// Connected, it looks at the lease before anything else. Cut off, it only waits for
	// the context to end, and has nothing but its own clock to learn it from.
	for _, cutOff := range []bool{false, true} {
		t.Run(fmt.Sprint("cut off ", cutOff), func(t *testing.T) {
			t.Parallel()
			a := newArena(t, time.Second)
			link := redistest.NewProxy(t, a.server)
			holder, next := a.contendersAt(link, 1)[0], a.contenders(1)[0]
			old := holder.lease("l")
			a.wait("lease", "l", next)

			require.NoError(t, holder.Signal(syscall.SIGSTOP))
			link.BlackHole(cutOff)
			taken := next.expect("leased", "l")
			assert.Greater(t, taken.Fence, old.Fence)
			look := func() { holder.tell(order{Do: "check", Lock: "l"}) }
			if !cutOff {
				look() // is read when it goes on
			}
			resumed := monotonic()
			require.NoError(t, holder.Signal(syscall.SIGCONT))

			ended := holder.expect("ended", "l")
			t.Logf("told %v after it was continued", ended.At-resumed)
			assert.Contains(t, ended.Is, "ErrLost")
			assert.GreaterOrEqual(t, ended.At, resumed, "it was not suspended")
			assert.LessOrEqual(t, ended.At-resumed, noise)
			if cutOff {
				look()
			}
			check := holder.expect("checked", "l")
			assert.Contains(t, check.Is, "ErrLost")
			assert.Less(t, check.Expires, taken.At, "trusted while another held it")

			link.BlackHole(false)
			link.Cut()
			holder.tell(order{Do: "release", Lock: "l"})
			assert.Contains(t, holder.expect("released", "l").Is, "ErrLost")
			now := a.inspect("l")
			require.NotEmpty(t, now.Holders)
			assert.True(t, isFrom(next, now.Holders[0].Holder), a.situation("l"))
			assert.Equal(t, taken.Fence, now.Holders[0].Fence)
			next.tell(order{Do: "check", Lock: "l"})
			assert.Empty(t, next.expect("checked", "l").Err)
			next.release("l")
		})
	}
}

func TestKilledWaiterDelaysNobody(t *testing.T) {
	t.Parallel()
	const ttl = time.Second
	for _, test := range []struct {
		name            string
		waiters, victim int
		later           bool
	}{
		{"first, just queued", 2, 0, false},
		{"first, after heartbeats", 2, 0, true},
		{"in the middle, just queued", 3, 1, false},
		{"in the middle, after heartbeats", 3, 1, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			a := newArena(t, ttl)
			cs := a.contenders(1 + test.waiters)
			if !test.later {
				a.rehearse(cs)
			}
			holder, waiters := cs[0], cs[1:]
			holder.lease("l")
			a.wait("lease", "l", waiters...)
			if test.later {
				a.untilRenewed("l")
				a.untilRenewed("l")
			}
			victim := waiters[test.victim]
			victim.Kill()
			a.untilGone(victim)

			for _, c := range slices.Delete(waiters, test.victim, test.victim+1) {
				released := holder.release("l").Began
				got := c.expect("leased", "l").At
				t.Logf("handed over in %v", got-released)
				assert.LessOrEqual(t, got-released, ttl/3+noise)
				holder = c
			}
			holder.release("l")
		})
	}
}

func TestWaiterKilledJustAsItIsGrantedBlocksNobodyLongerThanItsTTL(t *testing.T) {
	t.Parallel()
	const ttl = 1500 * time.Millisecond
	a := newArena(t, ttl)
	cs := a.contenders(3)
	holder, victim, next := cs[0], cs[1], cs[2]
	holder.lease("l")
	a.wait("lease", "l", victim, next)

	require.NoError(t, victim.Signal(syscall.SIGSTOP)) // so that it cannot even read the news
	released := holder.release("l").Began
	a.untilHeldBy(victim, "l")
	victim.Kill()
	got := next.expect("leased", "l").At
	t.Logf("%v after the grant", got-released)
	assert.LessOrEqual(t, got-released, ttl+grace(ttl)+ttl/3+noise)
	next.release("l")
}

// atOnce is what Close may take until others proceed; the TTL is ten times that.
const atOnce = time.Second

func TestCloseHandsOverAllThatAProcessHas(t *testing.T) {
	t.Parallel()
	a := newArena(t, 10*atOnce)
	cs := a.contenders(3)
	closer, other, behind := cs[0], cs[1], cs[2]
	held, busy := []string{"held 0", "held 1"}, []string{"busy 0", "busy 1"}
	for i := range held {
		closer.lease(held[i])
		a.wait("lease", held[i], behind)
		other.lease(busy[i])
		a.wait("lease", busy[i], closer, behind)
	}
	closer.lease("alone")

	closer.tell(order{Do: "close"})
	closed := closer.expect("closed", "")
	assert.Empty(t, closed.Err)
	assert.LessOrEqual(t, closed.At-closed.Began, atOnce)
	for _, lock := range append(held, "alone") {
		assert.LessOrEqual(t, closer.expect("ended", lock).At-closed.Began, atOnce)
	}
	info := a.inspect("alone")
	assert.Empty(t, info.Holders, a.situation("alone"))
	for i := range held {
		assert.LessOrEqual(t, behind.expect("leased", held[i]).At-closed.Began, atOnce)
		assert.Contains(t, closer.expect("refused", busy[i]).Is, "ErrClosed")
		assert.Len(t, a.inspect(busy[i]).Queue, 1, a.situation(busy[i]))
		released := other.release(busy[i]).Began
		assert.LessOrEqual(t, behind.expect("leased", busy[i]).At-released, atOnce)
	}
	require.NoError(t, closer.Stdin().Close())
	require.NoError(t, closer.Wait(), closer.Stderr())
}

func TestCloseLeavesNothingOfWhatHasJustBegun(t *testing.T) {
	t.Parallel()
	a := newArena(t, 10*atOnce)
	cs := a.contenders(2)
	closer, other := cs[0], cs[1]
	other.lease("busy")
	const fresh = 16
	for i := range fresh {
		closer.tell(order{Do: "lease", Lock: fmt.Sprint("free", i)})
		closer.tell(order{Do: "lease", Lock: "busy"})
	}
	closer.tell(order{Do: "close"})
	require.Empty(t, closer.expect("closed", "").Err)

	for i := range fresh {
		info := a.inspect(fmt.Sprint("free", i))
		assert.Empty(t, info.Holders, a.situation(info.Name))
	}
	assert.Empty(t, a.inspect("busy").Queue, a.situation("busy"))
	other.release("busy")
}
