package holdfast_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/internal/test/behavior/lab"
	"github.com/holdfast-go/holdfast/internal/test/referee"
)

// Each waits at the store, or together with the others of its client, whose readers join.
func TestReadersAndWritersNeverMeet(t *testing.T) {
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		for together, open := range map[bool]func(...holdfast.Option) *holdfast.Client{false: l.Near, true: l.Mates} {
			clients := []*holdfast.Client{open(), open(), open()}
			for readers, n := range map[int]int{1: 5, 5: 5, 18: 15} {
				for _, among := range []int{1, 3} {
					r, name := &referee.Referee{Limit: lab.CrowdOf}, fmt.Sprintf("%d readers of %d clients, together %v", readers, among, together)
					var wg sync.WaitGroup
					for i := range 3 {
						wg.Go(func() { lab.Hammer(r, clients[i%among].RWMutex(name), lab.CrowdOf, n) })
					}
					for i := range readers {
						wg.Go(func() { lab.Hammer(r, clients[i%among].RWMutex(name).RLocker(), 1, n) })
					}
					lab.Promptly(t, 6*lab.Soon, func() error { wg.Wait(); return nil })
					r.RequireFair(t, int64(n*(3+readers)))
					l.IsClean("rwmutex", name)
				}
			}
		}
	})
}

func TestReadersReadTogether(t *testing.T) {
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		clients := []*holdfast.Client{l.Near(), l.Near(), l.Near()}
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
				lab.Promptly(t, lab.Soon, func() error { in.Wait(); return nil })
				info := l.Look(clients[0].RWMutex("x"))
				assert.Len(t, info.Holders, readers)
				for _, h := range info.Holders {
					assert.True(t, h.Shared)
				}
				close(leave)
				lab.Promptly(t, lab.Soon, func() error { out.Wait(); return nil })
			}
		}
		l.IsClean("rwmutex", "x")
	})
}

func TestTryLockOfRWMutex(t *testing.T) {
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		a, b := l.Near(), l.Near()
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
		l.GiveBack(write)
		read, err := rw.TryRLease(t.Context())
		require.NoError(t, err)
		for i, other := range others {
			_, err := other.TryLease(t.Context())
			require.ErrorIs(t, err, holdfast.ErrLocked, "handle %d", i)
			second, err := other.TryRLease(t.Context())
			require.NoError(t, err, "handle %d", i)
			assert.Greater(t, second.Fence(), read.Fence(), "FOUL: fences went back")
			l.GiveBack(second)
		}
		l.GiveBack(read)
		l.IsClean("rwmutex", "x")
	})
}

func TestRLockerReadLocks(t *testing.T) {
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		wl := l.Near().RWMutex("x")
		rl := wl.RLocker()
		wlocked, rlocked := make(chan bool, 1), make(chan bool, 1)
		const n = 10
		done := lab.Begin(func() {
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
		l.Ends(done)
		assert.Contains(t, lab.Panics(t, rl.Unlock), "RUnlock of unlocked RWMutex")
	})
}

func TestUnlockOfUnlockedRWMutexPanics(t *testing.T) {
	const unlock, runlock = `holdfast: Unlock of unlocked RWMutex "x"`, `holdfast: RUnlock of unlocked RWMutex "x"`
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		a, b := l.Near(), l.Near()
		rw, other := a.RWMutex("x"), b.RWMutex("x")
		neither := func(why string) {
			t.Helper()
			assert.Equal(t, unlock, lab.Panics(t, rw.Unlock), why)
			assert.Equal(t, runlock, lab.Panics(t, rw.RUnlock), why)
		}
		neither("never locked")
		rw.Lock()
		assert.Equal(t, runlock, lab.Panics(t, rw.RUnlock), "locked for writing")
		assert.False(t, other.TryRLock(), "RUnlock has unlocked the writer")
		rw.Unlock()
		neither("one too many")

		rw.RLock()
		require.True(t, rw.TryRLock())
		assert.Equal(t, unlock, lab.Panics(t, rw.Unlock), "locked for reading")
		assert.Len(t, l.Look(rw).Holders, 2)
		rw.RUnlock()
		assert.Len(t, l.Look(rw).Holders, 1)
		rw.RUnlock()
		neither("one too many")

		// A lock of another client, or another lock, is not locked here.
		other.RLock()
		a.Mutex("x").Lock()
		a.RWMutex("y").RLock()
		neither("locked by another")
		assert.Len(t, l.Look(rw).Holders, 1)
		other.RUnlock()
		a.Mutex("x").Unlock()
		a.RWMutex("y").RUnlock()
		require.True(t, rw.TryLock(), "it works on")
		rw.Unlock()
	})
}

func TestUnlockNeverTouchesALeaseOfAnRWMutex(t *testing.T) {
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		c := l.Near()
		rw := c.RWMutex("x")
		lease := l.Take(rw.RLease)
		assert.Contains(t, lab.Panics(t, rw.RUnlock), "RUnlock of unlocked")
		rw.RLock()
		rw.RUnlock()
		l.IsHeldBy(rw, lease)
		l.GiveBack(lease)

		// Neither one that was taken between a Lock that was lost and its Unlock.
		rw.Lock()
		require.NoError(t, rw.ForceUnlock(t.Context()))
		lease = l.Take(rw.Lease)
		rw.Unlock()
		l.IsHeldBy(rw, lease)
		l.GiveBack(lease)
	})
}

// Also where nobody can see it: the first of the two waits inside of its client.
func TestWaitingWriterHoldsUpNewReaders(t *testing.T) {
	t.Parallel()
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		a, b := l.Near(), l.Near()
		for what, writer := range map[string]*holdfast.RWMutex{"here": a.RWMutex("x"), "elsewhere": b.RWMutex("x")} {
			rw := a.RWMutex("x")
			rw.RLock()
			var mu sync.Mutex
			var order []string
			note := func(who string) { mu.Lock(); order = append(order, who); mu.Unlock() }
			wrote := lab.Begin(func() { writer.Lock(); note("writer") })
			l.Until("the writer waits", func() bool {
				if !rw.TryRLock() {
					return true
				}
				rw.RUnlock()
				return false
			})
			l.Stays(wrote)
			read := lab.Begin(func() { rw.RLock(); note("reader"); rw.RUnlock() })
			l.Stays(read)
			rw.RUnlock()
			l.Ends(wrote)
			l.Stays(read)
			writer.Unlock()
			l.Ends(read)
			assert.Equal(t, []string{"writer", "reader"}, order, what)
		}
		l.IsClean("rwmutex", "x")
	})
}

func TestReadersAndWritersAreServedInOrder(t *testing.T) {
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		a, b := l.Near().RWMutex("x"), l.Near().RWMutex("x")
		held := l.Take(a.Lease)
		var queue []*lab.Pending
		for i, ask := range []lab.Leasing{a.RLease, b.RLease, b.Lease, a.RLease, b.RLease, a.Lease, b.Lease} {
			queue = append(queue, l.Ask(ask))
			l.UntilWaiting(a, i+1)
		}
		var shared []bool
		for _, w := range l.Look(a).Queue {
			shared = append(shared, w.Shared)
		}
		assert.Equal(t, []bool{true, true, false, true, true, false, false}, shared)
		l.GiveBack(held)
		for _, together := range [][]*lab.Pending{queue[0:2], queue[2:3], queue[3:5], queue[5:6], queue[6:7]} {
			var leases []*holdfast.Lease
			for _, p := range together {
				lease := p.Granted(lab.Soon)
				assert.Greater(t, lease.Fence(), held.Fence(), "FOUL: fences went back")
				leases = append(leases, lease)
			}
			l.IsHeldBy(a, leases...)
			held = leases[len(leases)-1]
			l.GiveBack(leases...)
		}
		l.IsClean("rwmutex", "x")
	})
}
