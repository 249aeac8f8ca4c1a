package holdfast_test

import (
	"fmt"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
)

// These are the tests of sync.RWMutex, in one process and over several clients.

// crowdOf is so many readers that no test has them.
const crowdOf = 10000

// hammer goes in and out n times.
func hammer(r *referee, lock sync.Locker, weight int64, n int) {
	for range n {
		lock.Lock()
		r.enter(weight)
		runtime.Gosched()
		r.leave(weight)
		lock.Unlock()
	}
}

func TestReadersAndWritersNeverMeet(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		clients := []*holdfast.Client{l.near(), l.near(), l.near()}
		for _, readers := range []int{1, 3, 5, 10, 16} {
			for _, among := range []int{1, 3} {
				r, n := &referee{limit: crowdOf}, 5
				var wg sync.WaitGroup
				handle := func(i int) *holdfast.RWMutex {
					return clients[i%among].RWMutex(fmt.Sprintf("%d readers of %d clients", readers, among))
				}
				for i := range 2 {
					wg.Go(func() { hammer(r, handle(i), crowdOf, n) })
				}
				for i := range readers {
					wg.Go(func() { hammer(r, handle(i).RLocker(), 1, n) })
				}
				promptly(t, 6*soon, func() error { wg.Wait(); return nil })
				r.requireFair(t, int64(n*(2+readers)))
				l.isClean("rwmutex", fmt.Sprintf("%d readers of %d clients", readers, among))
			}
		}
	})
}

func TestReadersReadTogether(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		clients := []*holdfast.Client{l.near(), l.near(), l.near()}
		for _, readers := range []int{1, 3, 4, 16} {
			for _, among := range []int{1, 3} {
				var in, out sync.WaitGroup
				leave := make(chan struct{})
				in.Add(readers)
				for i := range readers {
					rw := clients[i%among].RWMutex("x")
					out.Go(func() {
						rw.RLock()
						in.Done()
						<-leave
						rw.RUnlock()
					})
				}
				promptly(t, soon, func() error { in.Wait(); return nil })
				info := l.look(clients[0].RWMutex("x"))
				assert.Len(t, info.Holders, readers)
				for _, h := range info.Holders {
					assert.True(t, h.Shared)
				}
				close(leave)
				promptly(t, soon, func() error { out.Wait(); return nil })
			}
		}
		l.isClean("rwmutex", "x")
	})
}

func TestTryLockOfRWMutex(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		a, b := l.near(), l.near()
		rw := a.RWMutex("x")
		others := []*holdfast.RWMutex{rw, a.RWMutex("x"), b.RWMutex("x")}

		rw.Lock()
		for i, other := range others {
			assert.False(t, other.TryLock(), "written, handle %d", i)
			assert.False(t, other.TryRLock(), "written, handle %d", i)
		}
		rw.Unlock()
		for i, other := range others {
			require.True(t, other.TryLock(), "free, handle %d", i)
			other.Unlock()
			require.True(t, other.TryRLock(), "free, handle %d", i)
			require.True(t, other.TryRLock(), "read, handle %d", i)
			for j, another := range others {
				assert.False(t, another.TryLock(), "read by %d, handle %d", i, j)
				require.True(t, another.TryRLock(), "read by %d, handle %d", i, j)
				another.RUnlock()
			}
			other.RUnlock()
			assert.False(t, other.TryLock(), "still read, handle %d", i)
			other.RUnlock()
		}

		// The same with leases, which tell why.
		write, err := rw.TryLease(t.Context())
		require.NoError(t, err)
		for i, other := range others {
			_, err := other.TryLease(t.Context())
			require.ErrorIs(t, err, holdfast.ErrLocked, "handle %d", i)
			_, err = other.TryRLease(t.Context())
			require.ErrorIs(t, err, holdfast.ErrLocked, "handle %d", i)
		}
		l.giveBack(write)
		read, err := rw.TryRLease(t.Context())
		require.NoError(t, err)
		for i, other := range others {
			_, err := other.TryLease(t.Context())
			require.ErrorIs(t, err, holdfast.ErrLocked, "handle %d", i)
			second, err := other.TryRLease(t.Context())
			require.NoError(t, err, "handle %d", i)
			assert.Greater(t, second.Fence(), read.Fence())
			l.giveBack(second)
		}
		l.giveBack(read)
		l.isClean("rwmutex", "x")
	})
}

func TestRLockerReadLocks(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		wl := l.near().RWMutex("x")
		rl := wl.RLocker()
		wlocked, rlocked := make(chan bool, 1), make(chan bool, 1)
		const n = 10
		done := begin(func() {
			for range n {
				rl.Lock()
				rl.Lock()
				rlocked <- true
				wl.Lock()
				wlocked <- true
			}
		})
		for range n {
			<-rlocked
			rl.Unlock()
			select {
			case <-wlocked:
				t.Fatal("RLocker did not read-lock it")
			default:
			}
			rl.Unlock()
			<-wlocked
			select {
			case <-rlocked:
				t.Fatal("RLocker did not respect the write lock")
			default:
			}
			wl.Unlock()
		}
		l.ends(done)
		assert.Contains(t, panics(t, rl.Unlock), "RUnlock of unlocked RWMutex")
	})
}

func TestUnlockOfUnlockedRWMutexPanics(t *testing.T) {
	const unlock, runlock = "holdfast: Unlock of unlocked RWMutex", "holdfast: RUnlock of unlocked RWMutex"
	everywhere(t, func(t *testing.T, l *lab) {
		a, b := l.near(), l.near()
		rw, other := a.RWMutex("x"), b.RWMutex("x")
		neither := func(why string) {
			t.Helper()
			assert.Equal(t, unlock, panics(t, rw.Unlock), why)
			assert.Equal(t, runlock, panics(t, rw.RUnlock), why)
		}
		neither("never locked")
		rw.Lock()
		assert.Equal(t, runlock, panics(t, rw.RUnlock), "locked for writing")
		assert.False(t, other.TryRLock(), "RUnlock has unlocked the writer")
		rw.Unlock()
		neither("one too many")

		rw.RLock()
		require.True(t, rw.TryRLock())
		assert.Equal(t, unlock, panics(t, rw.Unlock), "locked for reading")
		assert.Len(t, l.look(rw).Holders, 2)
		rw.RUnlock()
		assert.Len(t, l.look(rw).Holders, 1)
		rw.RUnlock()
		neither("one too many")

		// What another client or another lock has locked is not locked here.
		other.RLock()
		a.Mutex("x").Lock()
		a.RWMutex("y").RLock()
		neither("locked by another")
		assert.Len(t, l.look(rw).Holders, 1)
		other.RUnlock()
		a.Mutex("x").Unlock()
		a.RWMutex("y").RUnlock()
		require.True(t, rw.TryLock(), "it works on")
		rw.Unlock()
	})
}

func TestUnlockNeverTouchesALeaseOfAnRWMutex(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		c := l.near()
		rw := c.RWMutex("x")
		lease := l.take(rw.RLease)
		assert.Contains(t, panics(t, rw.RUnlock), "RUnlock of unlocked")
		rw.RLock()
		rw.RUnlock()
		l.isHeldBy(rw, lease)
		l.giveBack(lease)

		// Neither one that was taken between a Lock that was lost and its Unlock.
		rw.Lock()
		require.NoError(t, rw.ForceUnlock(t.Context()))
		lease = l.take(rw.Lease)
		rw.Unlock()
		l.isHeldBy(rw, lease)
		l.giveBack(lease)
	})
}

// Also where nobody can see it: the first of the two waits inside of its client.
func TestWaitingWriterHoldsUpNewReaders(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		a, b := l.near(), l.near()
		for what, writer := range map[string]*holdfast.RWMutex{"here": a.RWMutex("x"), "elsewhere": b.RWMutex("x")} {
			rw := a.RWMutex("x")
			rw.RLock()
			var mu sync.Mutex
			var order []string
			note := func(who string) { mu.Lock(); order = append(order, who); mu.Unlock() }
			wrote := begin(func() { writer.Lock(); note("writer") })
			l.until("the writer waits", func() bool {
				if !rw.TryRLock() {
					return true
				}
				rw.RUnlock()
				return false
			})
			l.stays(wrote)
			read := begin(func() { rw.RLock(); note("reader"); rw.RUnlock() })
			l.stays(read)
			rw.RUnlock()
			l.ends(wrote)
			l.stays(read)
			writer.Unlock()
			l.ends(read)
			assert.Equal(t, []string{"writer", "reader"}, order, what)
		}
		l.isClean("rwmutex", "x")
	})
}

func TestReadersAndWritersAreServedInOrder(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		a, b := l.near().RWMutex("x"), l.near().RWMutex("x")
		held := l.take(a.Lease)
		var queue []*pending
		for i, ask := range []leasing{a.RLease, b.RLease, b.Lease, a.RLease, b.RLease, a.Lease, b.Lease} {
			queue = append(queue, l.ask(ask))
			l.untilWaiting(a, i+1)
		}
		var shared []bool
		for _, w := range l.look(a).Queue {
			shared = append(shared, w.Shared)
		}
		assert.Equal(t, []bool{true, true, false, true, true, false, false}, shared)
		l.giveBack(held)
		for _, together := range [][]*pending{queue[0:2], queue[2:3], queue[3:5], queue[5:6], queue[6:7]} {
			var leases []*holdfast.Lease
			for _, p := range together {
				lease := p.granted(soon)
				assert.Greater(t, lease.Fence(), held.Fence())
				leases = append(leases, lease)
			}
			l.isHeldBy(a, leases...)
			held = leases[len(leases)-1]
			l.giveBack(leases...)
		}
		l.isClean("rwmutex", "x")
	})
}
