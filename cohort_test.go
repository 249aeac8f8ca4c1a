package holdfast_test

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver/memdriver"
	"github.com/holdfast-go/holdfast/internal/redistest"
)

// The goroutines of one client pass a lock on among themselves. Nobody outside can see
// where one of them is in their queue, but in a bubble they have all come to where they
// wait before any time passes.

// farMates is a client at the end of the link whose waiters wait together.
func (l *lab) farMates(opts ...holdfast.Option) *holdfast.Client {
	l.t.Helper()
	return l.start(l.link.Client(l.t), opts...)
}

// queue begins to wait n times, one behind the other.
func (l *lab) queue(n int, lease leasing) []*pending {
	l.t.Helper()
	var ws []*pending
	for range n {
		ws = append(ws, l.ask(lease))
		l.settle()
	}
	return ws
}

func (l *lab) settle() {
	require.True(l.t, l.virtual, "only in a bubble")
	time.Sleep(time.Millisecond)
}

// waits checks that none of them has returned.
func (l *lab) waits(ws ...*pending) {
	l.t.Helper()
	l.settle()
	for i, w := range ws {
		select {
		case <-w.done:
			l.t.Fatalf("number %d waits no more: %v", i, w.err)
		default:
		}
	}
}

func everything([]string) bool { return true }

// known lets the store know a lock, and some time pass. One that it does not know has but one
// fence to begin with.
func (l *lab) known(lease leasing) {
	l.t.Helper()
	require.NoError(l.t, l.take(lease).Release(l.t.Context()))
	time.Sleep(time.Millisecond)
}

func TestLockPassesWithoutCommands(t *testing.T) {
	inBubble(t, func(t *testing.T, l *lab) {
		c := l.farMates()
		for what, lease := range map[string]leasing{"mutex": c.Mutex("x").Lease, "rwmutex": c.RWMutex("x").Lease} {
			l.known(lease)
			held := l.take(lease)
			ws := l.queue(10, lease)
			n := l.count(everything)
			first := held.Fence()
			for i, w := range ws {
				require.NoError(t, held.Release(t.Context()))
				require.ErrorIs(t, held.Err(), holdfast.ErrNotHeld)
				held = w.granted(soon)
				require.Equal(t, first+int64(i)+1, held.Fence(), "each has its own, in the order of arrival")
				l.waits(ws[i+1:]...)
			}
			require.Zero(t, n.Load(), "commands: %s", what)
			require.NoError(t, held.Release(t.Context()))
		}
		l.isClean("mutex", "x")
		l.isClean("rwmutex", "x")
		assert.Zero(t, c.Doors())
	})
}

// A hammer of one client goes on for ever with few commands, and each hold has its fence.
func TestThrongOfOneClientNeedsFewCommands(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		l := newLab(t, s)
		c := l.farMates()
		l.ready(c)
		const goroutines, rounds = 16, 100
		n := l.count(l.on("mutex", "x"))
		r := &referee{limit: 1}
		var last int64
		var wg sync.WaitGroup
		for i := range goroutines {
			wg.Go(func() {
				mu := c.Mutex("x")
				if i%2 == 0 {
					hammer(r, mu, 1, rounds)
					return
				}
				for range rounds {
					lease, err := mu.Lease(t.Context())
					if !assert.NoError(t, err) {
						return
					}
					r.enter(1)
					assert.Greater(t, lease.Fence(), last)
					last = lease.Fence()
					r.leave(1)
					assert.NoError(t, lease.Release(t.Context()))
				}
			})
		}
		promptly(t, 2*soon, func() error { wg.Wait(); return nil })
		r.requireFair(t, goroutines*rounds)
		t.Logf("%d commands for %d holds", n.Load(), goroutines*rounds)
		assert.Less(t, n.Load(), int64(goroutines*rounds/4))
		assert.Greater(t, l.free(l.near(), "x"), last)
	})
}

// turns passes the lock on until the other has it, and returns how many of ws had it before.
func (l *lab) turns(held *holdfast.Lease, ws []*pending, other *pending, hold time.Duration) int {
	l.t.Helper()
	for i, w := range ws {
		time.Sleep(hold)
		require.NoError(l.t, held.Release(l.t.Context()))
		l.settle()
		select {
		case <-other.done:
			l.waits(ws[i:]...)
			return i
		default:
			held = w.granted(soon)
		}
	}
	l.t.Fatalf("the other got no turn while %d passed", len(ws))
	return 0
}

func TestOthersGetTheirTurn(t *testing.T) {
	for name, c := range map[string]struct {
		before  int           // passes before the other comes
		hold    time.Duration // how long each holds
		atLeast int
		atMost  int
	}{
		"after 32 passes":           {0, 0, 16, 32},
		"when a further turn began": {20, 0, 16, 64},
		"after a quarter of a TTL":  {0, ages / 16, 3, 4},
		"at once after a long hold": {0, ages / 3, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, l *lab) {
				a, b := l.mates(), l.near()
				held := l.lease(a, "x")
				ws := l.queue(100, a.Mutex("x").Lease)
				for _, w := range ws[:c.before] {
					require.NoError(t, held.Release(t.Context()))
					held = w.granted(soon)
					l.settle() // the store has answered whether others wait
				}
				other := l.wait(b, "x")
				l.untilQueue("x", 1)
				n := l.turns(held, ws[c.before:], other, c.hold)
				assert.GreaterOrEqual(t, n, c.atLeast)
				assert.LessOrEqual(t, n, c.atMost)
				// Then it is their turn again.
				l.untilQueue("x", 1)
				require.NoError(t, other.granted(soon).Release(t.Context()))
				for _, w := range ws[c.before+n:] {
					require.NoError(t, w.granted(soon).Release(t.Context()))
				}
				l.free(b, "x")
			})
		})
	}
}

// While a slow store is asked whether others wait, the lock does not go round for longer than
// a quick one would need to answer.
func TestTurnIsNoLongerOnASlowStore(t *testing.T) {
	inBubble(t, func(t *testing.T, l *lab) {
		mu := l.farMates().Mutex("x")
		mu.Lock()
		var had atomic.Int64
		for range 100 {
			go func() {
				mu.Lock()
				had.Add(1)
				time.Sleep(time.Millisecond)
				mu.Unlock()
			}()
		}
		l.settle()
		l.link.Delay(ages / 10)
		mu.Unlock()
		time.Sleep(200 * time.Millisecond)
		assert.GreaterOrEqual(t, had.Load(), int64(16))
		assert.LessOrEqual(t, had.Load(), int64(32), "the store has said nothing yet")
		l.link.Delay(0)
		l.until("all have had it", func() bool { return had.Load() == 100 })
	})
}

// Such a store cannot be asked whether others wait.
func TestOthersGetTheirTurnOnAStoreThatCannotExtend(t *testing.T) {
	inBubble(t, func(t *testing.T, l *lab) {
		store := memdriver.New()
		c := holdfast.Open(bare{store}, holdfast.WithTTL(ages), holdfast.WithLinger(ages))
		other := holdfast.Open(store, holdfast.WithTTL(ages))
		defer c.Close()
		defer other.Close()
		c.Mutex("x").Lock()
		var passed atomic.Int64
		for range 100 {
			go func() {
				c.Mutex("x").Lock()
				passed.Add(1)
				c.Mutex("x").Unlock()
			}()
		}
		l.settle()
		w := l.queue(1, other.Mutex("x").Lease)[0]
		c.Mutex("x").Unlock()
		lease := w.granted(soon)
		assert.Positive(t, passed.Load())
		assert.LessOrEqual(t, passed.Load(), int64(32))
		require.NoError(t, lease.Release(t.Context()))
		l.until("all had the lock", func() bool { return passed.Load() == 100 })
		// Nor would it tell that somebody waits for a lock that is kept.
		l.settle()
		lease, err := other.Mutex("x").TryLease(t.Context())
		require.NoError(t, err)
		require.NoError(t, lease.Release(t.Context()))
	})
}

// A client with many goroutines is one among others.
func TestManyGoroutinesKeepNoOtherClientWaiting(t *testing.T) {
	inBubble(t, func(t *testing.T, l *lab) {
		var mu sync.Mutex
		var turns []int
		var stop atomic.Bool
		var wg sync.WaitGroup
		for i, goroutines := range []int{64, 1, 1, 1} {
			c := l.mates()
			for range goroutines {
				wg.Go(func() {
					for !stop.Load() {
						c.Mutex("x").Lock()
						mu.Lock()
						if len(turns) == 0 || turns[len(turns)-1] != i {
							turns = append(turns, i)
						}
						mu.Unlock()
						time.Sleep(time.Millisecond)
						c.Mutex("x").Unlock()
					}
				})
			}
		}
		l.until("there were enough turns", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return len(turns) > 100
		})
		stop.Store(true)
		wg.Wait()
		for window := range slices.Chunk(turns[8:len(turns)-len(turns)%4], 4) {
			slices.Sort(window)
			require.Equal(t, []int{0, 1, 2, 3}, window, "each has one turn in four")
		}
	})
}

func TestStrictFIFOIsTheOrderOfAll(t *testing.T) {
	inBubble(t, func(t *testing.T, l *lab) {
		a, b := l.mates(), l.mates()
		strict := holdfast.WithStrictFIFO()
		held := l.lease(a, "x", strict)
		var ws []*pending
		for i := range 6 {
			ws = append(ws, l.wait([]*holdfast.Client{a, b}[i%2], "x", strict))
			l.untilQueue("x", i+1)
		}
		for i, w := range ws {
			require.NoError(t, held.Release(t.Context()))
			held = w.granted(soon)
			l.waits(ws[i+1:]...)
		}
		require.NoError(t, held.Release(t.Context()))
	})
}

func TestLeaseDoesNotPassToOneWhoAskedOtherwise(t *testing.T) {
	for name, opt := range map[string]holdfast.LockOption{
		"TTL":     holdfast.WithTTL(2 * ages),
		"fixed":   holdfast.WithoutRenewal(),
		"strict":  holdfast.WithStrictFIFO(),
		"owner":   holdfast.WithOwner("me"),
		"nesting": holdfast.WithReentrancy(),
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, l *lab) {
				c := l.mates()
				l.known(c.Mutex("x").Lease)
				held := l.lease(c, "x")
				alike, other := l.queue(1, c.Mutex("x").Lease)[0], l.queue(1, c.Mutex("x", opt).Lease)[0]
				require.NoError(t, held.Release(t.Context()))
				first := alike.granted(soon)
				require.Equal(t, held.Fence()+1, first.Fence())
				l.untilQueue("x", 1)
				require.NoError(t, first.Release(t.Context()))
				lease := other.granted(soon)
				l.holds(lease)
				if name == "TTL" {
					assert.Greater(t, time.Until(lease.Deadline()), ages)
				}
				require.NoError(t, lease.Release(t.Context()))
			})
		})
	}
}

// Readers have each their own lease, and they and writers take turns at the store.
func TestReadersDoNotPassTheirLeases(t *testing.T) {
	inBubble(t, func(t *testing.T, l *lab) {
		c := l.mates()
		rw := c.RWMutex("x")
		held := l.take(rw.RLease)
		writers := l.queue(2, rw.Lease)
		readers := l.queue(2, rw.RLease)
		l.waits(readers...)
		require.NoError(t, held.Release(t.Context()))
		first := writers[0].granted(soon)
		require.NoError(t, first.Release(t.Context()))
		second := writers[1].granted(soon)
		assert.Equal(t, first.Fence()+1, second.Fence())
		require.NoError(t, second.Release(t.Context()))
		l.giveBack(readers[0].granted(soon), readers[1].granted(soon))
		l.isClean("rwmutex", "x")
	})
}

func TestTryLockIsBusyForAMateWithoutACommand(t *testing.T) {
	inBubble(t, func(t *testing.T, l *lab) {
		c := l.farMates()
		mu := c.Mutex("x")
		require.True(t, mu.TryLock())
		n := l.count(everything)
		require.False(t, mu.TryLock())
		_, err := mu.TryLease(t.Context())
		require.ErrorIs(t, err, holdfast.ErrLocked)
		assert.Zero(t, n.Load())
		mu.Unlock()
		require.True(t, mu.TryLock())
		mu.Unlock()
		l.free(l.near(), "x")
	})
}

func TestNestedLeasesEndBeforeALeasePasses(t *testing.T) {
	inBubble(t, func(t *testing.T, l *lab) {
		c := l.mates(holdfast.WithReentrancy())
		l.known(c.Mutex("x").Lease)
		held := l.lease(c, "x")
		w := l.queue(1, c.Mutex("x").Lease)[0]
		nested, err := c.Mutex("x").Lease(held.Context())
		require.NoError(t, err)
		require.Equal(t, held.Fence(), nested.Fence())
		require.NoError(t, held.Release(t.Context()))
		l.waits(w)
		require.NoError(t, nested.Release(t.Context()))
		next := w.granted(soon)
		require.Equal(t, held.Fence()+1, next.Fence())
		again, err := c.Mutex("x").Lease(next.Context())
		require.NoError(t, err)
		l.giveBack(again, next)
		l.free(l.near(), "x")
	})
}

func TestClientForgetsLocksThatNobodyUses(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		c := l.mates(holdfast.WithLinger(10 * time.Millisecond))
		for i := range 20 {
			name := fmt.Sprint(i)
			c.Mutex(name).Lock()
			c.Mutex(name).Unlock()
			lease := l.lease(c, "leased "+name)
			w := l.wait(c, "leased "+name)
			w.cancel(nil)
			require.Error(t, w.failed(soon))
			require.False(t, c.Mutex("leased "+name).TryLock())
			require.NoError(t, lease.Release(t.Context()))
		}
		l.until("the client knows of no lock", func() bool { return c.Doors() == 0 })
	})
}

// A lock that the store did not know comes with one fence. Nobody goes to the store's queue
// for want of others: the first in ours waits for them, and the lock passes.
func TestLockThatTheStoreDidNotKnowPassesInTheProcess(t *testing.T) {
	inBubble(t, func(t *testing.T, l *lab) {
		c := l.mates()
		mu := c.Mutex("x")
		held := l.lease(c, "x")
		for _, w := range l.queue(10, mu.Lease) {
			require.Empty(t, l.look(mu).Queue)
			require.NoError(t, held.Release(t.Context()))
			next := w.granted(soon)
			require.Greater(t, next.Fence(), held.Fence())
			held = next
		}
		require.NoError(t, held.Release(t.Context()))
	})
}
