//go:build unix

package loss_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/test/behavior/lab"
	"github.com/holdfast-go/holdfast/internal/test/crew"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
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
			looked, left := crew.Clock(), time.Duration(0)
			for _, h := range a.Inspect("l").Holders {
				if lab.IsFrom(victim, h.Holder) {
					left = max(left, h.TimeLeft)
				}
			}
			require.Positive(t, left)
			victim.Kill()
			// A lease that the renewals of others put off never ends, and next gives up after some time.
			got := next.Expect("leased", "l").At
			t.Logf("after %v; they had %v left", got-looked, left)
			assert.Greater(t, got-looked, left-clocks, "FOUL: before the leases had ended")
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
	a, cs := lab.NewFleet(t, driver.RWMutex, 3*time.Second)
	reader, writer, other := cs[0], cs[1], cs[2]
	for range 2 {
		reader.Tell(lab.Order{Do: "lock", Kind: "read", Lock: "l"})
		reader.Expect("locked", "l")
	}
	a.Queue(lab.Order{Kind: "write"}, nil, writer)
	reader.Pause()
	taken := writer.Expect("leased", "l")
	a.Queue(lab.Order{Kind: "read"}, nil, other)
	for range 2 {
		reader.Tell(lab.Order{Do: "unlock", Kind: "read", Lock: "l"}) // is read when it goes on
	}
	reader.Resume()
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
	assert.Greater(t, other.Expect("leased", "l").At, left, "FOUL: beside a writer")
	other.Release("l")
}

func TestSuspendedWaitingWriterLosesItsTurnAndComesBack(t *testing.T) {
	t.Parallel()
	a, cs := lab.NewFleet(t, driver.RWMutex, 3*time.Second)
	reader, writer, behind := cs[0], cs[1], cs[2]
	reader.Take(lab.Order{Kind: "read"})
	a.Queue(lab.Order{Kind: "write"}, nil, writer)
	a.Queue(lab.Order{Kind: "read"}, []*lab.Contender{writer}, behind)
	stopped := crew.Clock()
	writer.Pause()
	// After 2/3 of the writer's TTL, and a heartbeat of who is behind. A writer that is not passed over
	// has its turn for ever, since the reader stays, and who is behind gives up after some time.
	got := behind.Expect("leased", "l").At
	t.Logf("%v after the writer stopped", got-stopped)
	writer.Resume()
	a.UntilQueued("l", writer)
	reader.Release("l")
	left := behind.Release("l").Began
	taken := writer.Expect("leased", "l")
	assert.Greater(t, taken.At, left, "FOUL: beside a reader")
	writer.Release("l")
}

const (
	// brief is the TTL of who is killed, and long that of who is next: it looks by itself only after a
	// third of that, which is what a defect takes.
	brief, long = 3 * time.Second, time.Minute
	// noise is what a test allows the machine to be late.
	noise = 3 * time.Second
	// clocks may differ by so much: that of the server is the wall clock, in milliseconds.
	clocks = 20 * time.Millisecond
)

// grace is how much longer a lease lasts in the store than its holder believes.
func grace(ttl time.Duration) time.Duration {
	return min(max(ttl/20, 5*time.Millisecond), 500*time.Millisecond)
}

func TestKilledHolderBlocksNobodyLongerThanItsTTL(t *testing.T) {
	t.Parallel()
	for _, renewed := range []bool{false, true} {
		t.Run(fmt.Sprint("renewed ", renewed), func(t *testing.T) {
			t.Parallel()
			a := lab.NewArena(t, brief)
			holder := a.Contenders(1)[0]
			a.TTL = long
			cs := a.Contenders(2)
			first, next := cs[0], cs[1]
			first.Lease("l")
			a.Wait("lease", "l", holder, next)
			first.Release("l")
			expires := holder.Expect("leased", "l").Expires
			if renewed {
				a.UntilRenewed("l")
			}

			killed := crew.Clock()
			holder.Kill()
			got := next.Expect("leased", "l").At
			t.Logf("%v after the kill", got-killed)
			assert.LessOrEqual(t, got-killed, brief+grace(brief)+noise)
			assert.Greater(t, got, expires, "FOUL: the lease was still trusted")
			next.Release("l")
		})
	}
}

func TestHolderSuspendedBeyondItsTTLStopsAtOnceAndTouchesNobody(t *testing.T) {
	t.Parallel()
	// Connected, it looks at the lease before anything else. Cut off, it only waits for
	// the context to end, and has nothing but its own clock to learn it from.
	const ttl = 2 * brief
	for _, cutOff := range []bool{false, true} {
		t.Run(fmt.Sprint("cut off ", cutOff), func(t *testing.T) {
			t.Parallel()
			a := lab.NewArena(t, ttl)
			link := redistest.NewProxy(t, a.Server)
			holder := a.ContendersAt(link, 1)[0]
			a.TTL = long
			next := a.Contenders(1)[0]
			old := holder.Lease("l")
			a.Wait("lease", "l", next)

			holder.Pause()
			link.BlackHole(cutOff)
			taken := next.Expect("leased", "l")
			assert.Greater(t, taken.Fence, old.Fence, "FOUL: fences went back")
			look := func() { holder.Tell(lab.Order{Do: "check", Lock: "l"}) }
			if !cutOff {
				look() // is read when it goes on
			}
			resumed := crew.Clock()
			holder.Resume()

			ended := holder.Expect("ended", "l")
			t.Logf("told %v after it was continued", ended.At-resumed)
			assert.Contains(t, ended.Is, "ErrLost")
			assert.GreaterOrEqual(t, ended.At, resumed, "it was not suspended")
			// A clock that stood still with the process has two thirds of the TTL to go, at least.
			assert.LessOrEqual(t, ended.At-resumed, ttl/3)
			if cutOff {
				look()
			}
			check := holder.Expect("checked", "l")
			assert.Contains(t, check.Is, "ErrLost")
			assert.Less(t, check.Expires, taken.At, "FOUL: trusted while another held it")

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
	const ttl = 9 * time.Second // which the lock would be lost for, if it were granted to the dead
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
				assert.LessOrEqual(t, got-released, noise)
				holder = c
			}
			holder.Release("l")
		})
	}
}

func TestWaiterKilledJustAsItIsGrantedBlocksNobodyLongerThanItsTTL(t *testing.T) {
	t.Parallel()
	a := lab.NewArena(t, brief)
	victim := a.Contenders(1)[0]
	a.TTL = long
	cs := a.Contenders(2)
	holder, next := cs[0], cs[1]
	holder.Lease("l")
	a.Wait("lease", "l", victim, next)

	victim.Pause() // so that it cannot even read the news
	released := holder.Release("l").Began
	a.UntilHeldBy(victim, "l")
	victim.Kill()
	got := next.Expect("leased", "l").At
	t.Logf("%v after the grant", got-released)
	assert.LessOrEqual(t, got-released, brief+grace(brief)+noise)
	next.Release("l")
}
