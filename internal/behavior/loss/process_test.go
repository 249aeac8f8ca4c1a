//go:build unix

package loss_test

import (
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/behavior/lab"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

// The permits of a process that was killed are free when its leases have ended, though
// another process goes on to renew its own.
func TestKilledHoldersOfPartsBlockNobodyLongerThanTheirTTL(t *testing.T) {
	t.Parallel()
	const ttl = 3 * time.Second // a process that lives must renew in time, however busy the machine is
	for kind, scene := range lab.Kinds {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			a, cs := lab.NewFleet(t, kind, ttl)
			victim, alive, next := cs[0], cs[1], cs[2]
			for range 2 { // more than one
				held := scene.Little
				held.Do, held.Lock = "lock", "l"
				victim.Tell(held)
				victim.Expect("locked", "l")
			}
			mine := alive.Take(scene.Little)
			want := scene.All
			if kind == driver.Semaphore {
				want.Weight = 2 // beside the one that lives
			} else {
				alive.Release("l")
			}
			a.Queue(want, nil, next)
			killed := lab.Monotonic()
			victim.Kill()
			got := next.Expect("leased", "l").At
			t.Logf("%v after the kill", got-killed)
			assert.LessOrEqual(t, got-killed, 2*ttl)
			assert.Greater(t, got-killed, ttl/2, "before the leases had ended")
			if kind == driver.Semaphore {
				alive.Tell(lab.Order{Do: "check", Lock: "l"})
				assert.Empty(t, alive.Expect("checked", "l").Err)
				assert.Greater(t, got, mine.At)
				alive.Release("l")
			}
			next.Release("l")
		})
	}
}

// It says RUnlock when it wakes up, and a writer has the lock.
func TestSuspendedReaderThatUnlocksLateLetsNobodyIn(t *testing.T) {
	t.Parallel()
	a, cs := lab.NewFleet(t, driver.RWMutex, 2*time.Second)
	reader, writer, other := cs[0], cs[1], cs[2]
	for range 2 {
		reader.Tell(lab.Order{Do: "lock", Kind: "read", Lock: "l"})
		reader.Expect("locked", "l")
	}
	a.Queue(lab.Order{Kind: "write"}, nil, writer)
	require.NoError(t, reader.Signal(syscall.SIGSTOP))
	taken := writer.Expect("leased", "l")
	a.Queue(lab.Order{Kind: "read"}, nil, other)
	for range 2 {
		reader.Tell(lab.Order{Do: "unlock", Kind: "read", Lock: "l"}) // is read when it goes on
	}
	require.NoError(t, reader.Signal(syscall.SIGCONT))
	for range 2 {
		reader.Expect("unlocked", "l")
	}
	// Also what it does in the background is over when it has closed.
	reader.Tell(lab.Order{Do: "close"})
	require.Empty(t, reader.Expect("closed", "").Err)
	info := a.Inspect("l")
	require.Len(t, info.Holders, 1, a.Situation("l"))
	assert.Equal(t, taken.Fence, info.Holders[0].Fence)
	assert.Len(t, info.Queue, 1, a.Situation("l"))
	left := writer.Release("l").Began
	assert.Greater(t, other.Expect("leased", "l").At, left)
	other.Release("l")
}

func TestSuspendedWaitingWriterLosesItsTurnAndComesBack(t *testing.T) {
	t.Parallel()
	const ttl = 2 * time.Second
	a, cs := lab.NewFleet(t, driver.RWMutex, ttl)
	reader, writer, behind := cs[0], cs[1], cs[2]
	reader.Take(lab.Order{Kind: "read"})
	a.Queue(lab.Order{Kind: "write"}, nil, writer)
	a.Queue(lab.Order{Kind: "read"}, []*lab.Contender{writer}, behind)
	stopped := lab.Monotonic()
	require.NoError(t, writer.Signal(syscall.SIGSTOP))
	got := behind.Expect("leased", "l").At
	t.Logf("%v after the writer stopped", got-stopped)
	assert.LessOrEqual(t, got-stopped, 2*ttl) // 2/3 of its TTL to go, and a heartbeat of who is behind
	require.NoError(t, writer.Signal(syscall.SIGCONT))
	a.UntilQueued("l", writer)
	reader.Release("l")
	left := behind.Release("l").Began
	taken := writer.Expect("leased", "l")
	assert.Greater(t, taken.At, left, "beside a reader")
	writer.Release("l")
}

// noise is what a test allows the machine to be late.
const noise = 500 * time.Millisecond

// grace is how much longer a lease lasts in the store than its holder believes.
func grace(ttl time.Duration) time.Duration {
	return min(max(ttl/20, 5*time.Millisecond), 500*time.Millisecond)
}

func TestKilledHolderBlocksNobodyLongerThanItsTTL(t *testing.T) {
	t.Parallel()
	const ttl = time.Second
	for _, renewed := range []bool{false, true} {
		t.Run(fmt.Sprint("renewed ", renewed), func(t *testing.T) {
			t.Parallel()
			a := lab.NewArena(t, ttl)
			cs := a.Contenders(3)
			first, holder, next := cs[0], cs[1], cs[2]
			first.Lease("l")
			a.Wait("lease", "l", holder, next)
			first.Release("l")
			expires := holder.Expect("leased", "l").Expires
			if renewed {
				a.UntilRenewed("l")
			}

			killed := lab.Monotonic()
			holder.Kill()
			got := next.Expect("leased", "l").At
			t.Logf("%v after the kill", got-killed)
			assert.LessOrEqual(t, got-killed, ttl+grace(ttl)+noise)
			assert.Greater(t, got, expires, "the lease was still trusted")
			next.Release("l")
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
			a := lab.NewArena(t, time.Second)
			link := redistest.NewProxy(t, a.Server)
			holder, next := a.ContendersAt(link, 1)[0], a.Contenders(1)[0]
			old := holder.Lease("l")
			a.Wait("lease", "l", next)

			require.NoError(t, holder.Signal(syscall.SIGSTOP))
			link.BlackHole(cutOff)
			taken := next.Expect("leased", "l")
			assert.Greater(t, taken.Fence, old.Fence)
			look := func() { holder.Tell(lab.Order{Do: "check", Lock: "l"}) }
			if !cutOff {
				look() // is read when it goes on
			}
			resumed := lab.Monotonic()
			require.NoError(t, holder.Signal(syscall.SIGCONT))

			ended := holder.Expect("ended", "l")
			t.Logf("told %v after it was continued", ended.At-resumed)
			assert.Contains(t, ended.Is, "ErrLost")
			assert.GreaterOrEqual(t, ended.At, resumed, "it was not suspended")
			assert.LessOrEqual(t, ended.At-resumed, noise)
			if cutOff {
				look()
			}
			check := holder.Expect("checked", "l")
			assert.Contains(t, check.Is, "ErrLost")
			assert.Less(t, check.Expires, taken.At, "trusted while another held it")

			link.BlackHole(false)
			link.Cut()
			holder.Tell(lab.Order{Do: "release", Lock: "l"})
			assert.Contains(t, holder.Expect("released", "l").Is, "ErrLost")
			now := a.Inspect("l")
			require.NotEmpty(t, now.Holders)
			assert.True(t, lab.IsFrom(next, now.Holders[0].Holder), a.Situation("l"))
			assert.Equal(t, taken.Fence, now.Holders[0].Fence)
			next.Tell(lab.Order{Do: "check", Lock: "l"})
			assert.Empty(t, next.Expect("checked", "l").Err)
			next.Release("l")
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
			a := lab.NewArena(t, ttl)
			cs := a.Contenders(1 + test.waiters)
			if !test.later {
				a.Rehearse(cs)
			}
			holder, waiters := cs[0], cs[1:]
			holder.Lease("l")
			a.Wait("lease", "l", waiters...)
			if test.later {
				a.UntilRenewed("l")
				a.UntilRenewed("l")
			}
			victim := waiters[test.victim]
			victim.Kill()
			a.UntilGone(victim)

			for _, c := range slices.Delete(waiters, test.victim, test.victim+1) {
				released := holder.Release("l").Began
				got := c.Expect("leased", "l").At
				t.Logf("handed over in %v", got-released)
				assert.LessOrEqual(t, got-released, ttl/3+noise)
				holder = c
			}
			holder.Release("l")
		})
	}
}

func TestWaiterKilledJustAsItIsGrantedBlocksNobodyLongerThanItsTTL(t *testing.T) {
	t.Parallel()
	const ttl = 1500 * time.Millisecond
	a := lab.NewArena(t, ttl)
	cs := a.Contenders(3)
	holder, victim, next := cs[0], cs[1], cs[2]
	holder.Lease("l")
	a.Wait("lease", "l", victim, next)

	require.NoError(t, victim.Signal(syscall.SIGSTOP)) // so that it cannot even read the news
	released := holder.Release("l").Began
	a.UntilHeldBy(victim, "l")
	victim.Kill()
	got := next.Expect("leased", "l").At
	t.Logf("%v after the grant", got-released)
	assert.LessOrEqual(t, got-released, ttl+grace(ttl)+ttl/3+noise)
	next.Release("l")
}
