//go:build unix

package holdfast_test

import (
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
)

// What happens to the others when one of several processes gives up, dies or sleeps.

// queue has the processes ask, each when the one before is in the queue.
func (a *arena) queue(o order, behind []*contender, cs ...*contender) {
	a.Helper()
	o.Do, o.Lock = "lease", "l"
	for _, c := range cs {
		c.tell(o)
		behind = append(behind, c)
		a.untilQueued("l", behind...)
	}
}

// kinds have what a process can ask for: a little, beside others, or all there is.
var kinds = map[driver.Kind]struct{ little, all order }{
	driver.RWMutex:   {order{Kind: "read"}, order{Kind: "write"}},
	driver.Semaphore: {order{Kind: "permits", Weight: 1, Limit: 3}, order{Kind: "permits", Weight: 3, Limit: 3}},
}

// take has the process lease what is free.
func (c *contender) take(o order) report {
	c.a.Helper()
	o.Do, o.Lock = "lease", "l"
	c.tell(o)
	return c.expect("leased", "l")
}

func TestCancelledHeadWakesThoseBehindItInOtherProcesses(t *testing.T) {
	t.Parallel()
	for kind, scene := range kinds {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			a, cs := newFleet(t, kind, 10*time.Second)
			cs[0].take(scene.little)
			a.queue(scene.all, nil, cs[1])
			a.queue(scene.little, cs[1:2], cs[2], cs[3])
			cs[1].tell(order{Do: "cancel", Lock: "l"})
			assert.Contains(t, cs[1].expect("refused", "l").Is, "Canceled")
			for _, c := range cs[2:] {
				c.expect("leased", "l")
			}
			assert.Len(t, a.inspect("l").Holders, 3, a.situation("l"))
			for _, c := range []*contender{cs[0], cs[2], cs[3]} {
				c.release("l")
			}
		})
	}
}

// What a process held when it was killed is free when its leases have ended, though
// another goes on to renew its own.
func TestKilledHoldersOfPartsBlockNobodyLongerThanTheirTTL(t *testing.T) {
	t.Parallel()
	const ttl = 3 * time.Second // who lives must renew in time, however busy the machine is
	for kind, scene := range kinds {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			a, cs := newFleet(t, kind, ttl)
			victim, alive, next := cs[0], cs[1], cs[2]
			for range 2 { // more than one
				held := scene.little
				held.Do, held.Lock = "lock", "l"
				victim.tell(held)
				victim.expect("locked", "l")
			}
			mine := alive.take(scene.little)
			want := scene.all
			if kind == driver.Semaphore {
				want.Weight = 2 // beside the one that lives
			} else {
				alive.release("l")
			}
			a.queue(want, nil, next)
			killed := monotonic()
			victim.Kill()
			got := next.expect("leased", "l").At
			t.Logf("%v after the kill", got-killed)
			assert.LessOrEqual(t, got-killed, 2*ttl)
			assert.Greater(t, got-killed, ttl/2, "before the leases had ended")
			if kind == driver.Semaphore {
				alive.tell(order{Do: "check", Lock: "l"})
				assert.Empty(t, alive.expect("checked", "l").Err)
				assert.Greater(t, got, mine.At)
				alive.release("l")
			}
			next.release("l")
		})
	}
}

// It says RUnlock when it wakes up, and a writer has the lock.
func TestSuspendedReaderThatUnlocksLateLetsNobodyIn(t *testing.T) {
	t.Parallel()
	a, cs := newFleet(t, driver.RWMutex, 2*time.Second)
	reader, writer, other := cs[0], cs[1], cs[2]
	for range 2 {
		reader.tell(order{Do: "lock", Kind: "read", Lock: "l"})
		reader.expect("locked", "l")
	}
	a.queue(order{Kind: "write"}, nil, writer)
	require.NoError(t, reader.Signal(syscall.SIGSTOP))
	taken := writer.expect("leased", "l")
	a.queue(order{Kind: "read"}, nil, other)
	for range 2 {
		reader.tell(order{Do: "unlock", Kind: "read", Lock: "l"}) // is read when it goes on
	}
	require.NoError(t, reader.Signal(syscall.SIGCONT))
	for range 2 {
		reader.expect("unlocked", "l")
	}
	// Also what it does in the background is over when it has closed.
	reader.tell(order{Do: "close"})
	require.Empty(t, reader.expect("closed", "").Err)
	info := a.inspect("l")
	require.Len(t, info.Holders, 1, a.situation("l"))
	assert.Equal(t, taken.Fence, info.Holders[0].Fence)
	assert.Len(t, info.Queue, 1, a.situation("l"))
	left := writer.release("l").Began
	assert.Greater(t, other.expect("leased", "l").At, left)
	other.release("l")
}

func TestSuspendedWaitingWriterLosesItsTurnAndComesBack(t *testing.T) {
	t.Parallel()
	const ttl = 2 * time.Second
	a, cs := newFleet(t, driver.RWMutex, ttl)
	reader, writer, behind := cs[0], cs[1], cs[2]
	reader.take(order{Kind: "read"})
	a.queue(order{Kind: "write"}, nil, writer)
	a.queue(order{Kind: "read"}, []*contender{writer}, behind)
	stopped := monotonic()
	require.NoError(t, writer.Signal(syscall.SIGSTOP))
	got := behind.expect("leased", "l").At
	t.Logf("%v after the writer stopped", got-stopped)
	assert.LessOrEqual(t, got-stopped, 2*ttl) // 2/3 of its TTL to go, and a heartbeat of who is behind
	require.NoError(t, writer.Signal(syscall.SIGCONT))
	a.untilQueued("l", writer)
	reader.release("l")
	left := behind.release("l").Began
	taken := writer.expect("leased", "l")
	assert.Greater(t, taken.At, left, "beside a reader")
	writer.release("l")
}
