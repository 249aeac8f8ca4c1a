package local_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/memdriver"
	"github.com/holdfast-go/holdfast/internal/local"
	"github.com/holdfast-go/holdfast/internal/test/behavior/lab"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
	"github.com/holdfast-go/holdfast/internal/test/referee"
)

// waits checks that none of them has returned.
func waits(l *lab.Lab, ws ...*lab.Pending) {
	l.T.Helper()
	l.Settle()
	for i, w := range ws {
		select {
		case <-w.Done:
			l.T.Fatalf("number %d waits no more: %v", i, w.Err)
		default:
		}
	}
}

func everything([]string) bool { return true }

// known lets the store know a lock, and some time pass. One that it does not know has but one
// fence to begin with.
func known(l *lab.Lab, lease lab.Leasing) {
	l.T.Helper()
	require.NoError(l.T, l.Take(lease).Release(l.T.Context()))
	time.Sleep(time.Millisecond)
}

func TestLockPassesWithoutCommands(t *testing.T) {
	lab.InBubble(t, func(t *testing.T, l *lab.Lab) {
		c := l.FarMates()
		for what, lease := range map[string]lab.Leasing{"mutex": c.Mutex("x").Lease, "rwmutex": c.RWMutex("x").Lease} {
			known(l, lease)
			held := l.Take(lease)
			ws := l.Queue(10, lease)
			n := l.Count(everything)
			first := held.Fence()
			for i, w := range ws {
				require.NoError(t, held.Release(t.Context()))
				require.ErrorIs(t, held.Err(), holdfast.ErrNotHeld)
				held = w.Granted(lab.Soon)
				require.Equal(t, first+int64(i)+1, held.Fence(), "each has its own, in the order of arrival")
				waits(l, ws[i+1:]...)
			}
			require.Zero(t, n.Load(), "commands: %s", what)
			require.NoError(t, held.Release(t.Context()))
		}
		l.IsClean("mutex", "x")
		l.IsClean("rwmutex", "x")
		assert.Zero(t, inUse(c))
	})
}

// A hammer of one client goes on for ever with few commands, and each hold has its fence.
func TestThrongOfOneClientNeedsFewCommands(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		l := lab.New(t, s)
		c := l.FarMates()
		l.Ready(c)
		const goroutines, rounds = 16, 100
		n := l.Count(l.On("mutex", "x"))
		r := &referee.Referee{Limit: 1}
		var last int64
		var wg sync.WaitGroup
		for i := range goroutines {
			wg.Go(func() {
				mu := c.Mutex("x")
				if i%2 == 0 {
					lab.Hammer(r, mu, 1, rounds)
					return
				}
				for range rounds {
					lease, err := mu.Lease(t.Context())
					if !assert.NoError(t, err) {
						return
					}
					r.EnterWith(1, lease.Fence())
					last = lease.Fence()
					r.Leave(1)
					assert.NoError(t, lease.Release(t.Context()))
				}
			})
		}
		lab.Promptly(t, 2*lab.Soon, func() error { wg.Wait(); return nil })
		r.RequireFair(t, goroutines*rounds)
		t.Logf("%d commands for %d holds", n.Load(), goroutines*rounds)
		assert.Less(t, n.Load(), int64(goroutines*rounds/4))
		assert.Greater(t, l.Free(l.Near(), "x"), last)
	})
}

// turns passes the lock on until the other has it, and returns how many of ws had it before.
func turns(l *lab.Lab, held *holdfast.Lease, ws []*lab.Pending, other *lab.Pending, hold time.Duration) int {
	l.T.Helper()
	for i, w := range ws {
		time.Sleep(hold)
		require.NoError(l.T, held.Release(l.T.Context()))
		l.Settle()
		select {
		case <-other.Done:
			waits(l, ws[i:]...)
			return i
		default:
			held = w.Granted(lab.Soon)
		}
	}
	l.T.Fatalf("the other got no turn while %d passed", len(ws))
	return 0
}

func TestOthersGetTheirTurn(t *testing.T) {
	for name, c := range map[string]struct {
		before  int           // passes before the other comes
		hold    time.Duration // how long each holds
		linger  time.Duration
		atLeast int
		atMost  int
	}{
		"after 32 passes":           {0, 0, 0, 16, 32},
		"when nobody waited before": {20, 0, 0, 16, 32},
		"after a quarter of a TTL":  {0, lab.Ages / 16, 0, 3, 4},
		"at once after a long hold": {0, lab.Ages / 3, 0, 0, 0},
		"of a lock that may linger": {0, 0, time.Hour, 1, 32},
	} {
		t.Run(name, func(t *testing.T) {
			lab.InBubble(t, func(t *testing.T, l *lab.Lab) {
				b, opts := l.Near(), []holdfast.Option(nil)
				if c.linger > 0 {
					opts = append(opts, holdfast.WithLinger(c.linger))
				}
				a := distant(l, opts...)
				known(l, a.Mutex("x").Lease)
				held := l.Lease(a, "x")
				ws := l.Queue(100, a.Mutex("x").Lease)
				for _, w := range ws[:c.before] {
					require.NoError(t, held.Release(t.Context()))
					held = w.Granted(lab.Soon)
					l.Settle() // the store has answered whether others wait
				}
				other := l.Wait(b, "x")
				l.UntilQueue("x", 1)
				n := turns(l, held, ws[c.before:], other, c.hold)
				assert.GreaterOrEqual(t, n, c.atLeast)
				assert.LessOrEqual(t, n, c.atMost)
				// Then it is their turn again.
				l.UntilQueue("x", 1)
				require.NoError(t, other.Granted(lab.Soon).Release(t.Context()))
				for _, w := range ws[c.before+n:] {
					require.NoError(t, w.Granted(lab.Soon).Release(t.Context()))
				}
				if c.linger == 0 {
					l.Free(b, "x")
					return
				}
				l.Settle()
				require.Len(t, l.Inspect("x").Holders, 1, "it is kept")
			})
		})
	}
}

// While a slow store is asked whether others wait, the lock does not go round for longer than
// a quick one would need to answer.
func TestTurnIsNoLongerOnASlowStore(t *testing.T) {
	lab.InBubble(t, func(t *testing.T, l *lab.Lab) {
		mu := l.FarMates().Mutex("x")
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
		l.Settle()
		l.Link.Delay(lab.Ages / 10)
		mu.Unlock()
		time.Sleep(200 * time.Millisecond)
		assert.GreaterOrEqual(t, had.Load(), int64(16))
		assert.LessOrEqual(t, had.Load(), int64(32), "the store has said nothing yet")
		l.Link.Delay(0)
		l.Until("all have had it", func() bool { return had.Load() == 100 })
	})
}

// A turn of 32 holds that take nothing would be over before the lock could come back from elsewhere.
func TestTurnOfShortHoldsLastsForAMillisecond(t *testing.T) {
	lab.InBubble(t, func(t *testing.T, l *lab.Lab) {
		const hold = 10 * time.Microsecond
		mu := l.FarMates().Mutex("x")
		before := l.Lease(l.Near(), "x")
		var had atomic.Int64
		for range 500 {
			go func() {
				mu.Lock()
				had.Add(1)
				time.Sleep(hold)
				mu.Unlock()
			}()
		}
		l.UntilQueue("x", 1)
		other := l.Wait(l.Near(), "x")
		l.UntilQueue("x", 2)
		l.GiveBack(before)
		l.GiveBack(other.Granted(lab.Soon))
		assert.InDelta(t, time.Millisecond/hold, had.Load(), 2)
		l.Until("all have had it", func() bool { return had.Load() == 500 })
	})
}

// observed sees what a client wants to be told.
type observed struct {
	*memdriver.Driver
	mute    bool         // it cannot be told now
	ended   func(string) // the client hears that its connection for news has ended
	notices atomic.Int64
	notice  atomic.Bool // the last token that asked for the lock asked for this, too
}

func (o *observed) Acquire(ctx context.Context, r *driver.Request) (driver.Grant, error) {
	o.notice.Store(r.Notice)
	return o.Driver.Acquire(ctx, r)
}

func (o *observed) Notice(ctx context.Context, l driver.Lease) (wanted bool, err error) {
	o.notices.Add(1)
	wanted, err = o.Driver.Notice(ctx, l)
	if o.mute {
		err = errors.ErrUnsupported
	}
	return wanted, err
}

func (o *observed) OnReconnect(f func(reason string)) { o.ended = f }

// Once it has asked the store whether others wait, a crowd need not ask again for each grant. A client that
// cannot be told, or perhaps not any more, must not take silence for an answer.
func TestCrowdIsToldWithTheGrantThatOthersWait(t *testing.T) {
	for name, scene := range map[string]struct {
		mute  bool
		ended string
		told  bool
	}{
		"it can be told":             {false, "", true},
		"its connection was mended":  {false, "heard", true},
		"it cannot":                  {true, "", false},
		"its connection has ended":   {false, "error", false},
		"its connection is mute now": {false, "mute", false},
	} {
		t.Run(name, func(t *testing.T) {
			lab.InBubble(t, func(t *testing.T, l *lab.Lab) {
				store := &observed{Driver: memdriver.New(), mute: scene.mute}
				c := holdfast.Open(store, holdfast.WithTTL(lab.Ages))
				defer c.Close()
				mu := c.Mutex("x")
				crowd := func(n int) (has *atomic.Int64) {
					has = new(atomic.Int64)
					for range n {
						go func() {
							mu.Lock()
							has.Add(1)
							time.Sleep(time.Microsecond) // the store has time to answer
							mu.Unlock()
						}()
					}
					l.Settle()
					return has
				}
				mu.Lock()
				many := crowd(40)
				assert.False(t, store.notice.Load(), "nobody was here")
				mu.Unlock()
				l.Until("all have had it", func() bool { return many.Load() == 40 })
				l.Settle()
				asked := store.notices.Load()
				assert.Positive(t, asked)
				if scene.ended != "" {
					store.ended(scene.ended)
				}

				mu.Lock()
				assert.False(t, store.notice.Load(), "nobody is here")
				two := crowd(2)
				time.Sleep(lab.Ages / 2) // the turn is over: one goes to the store
				l.Settle()
				assert.Equal(t, scene.told, store.notice.Load())
				many = crowd(20)
				mu.Unlock()
				l.Until("all have had it", func() bool { return two.Load()+many.Load() == 22 })
				if scene.told {
					assert.Equal(t, asked, store.notices.Load(), "the grant goes round and is known to tell")
				}
			})
		})
	}
}

// Such a store cannot be asked whether others wait.
func TestOthersGetTheirTurnOnAStoreThatDoesNotTell(t *testing.T) {
	lab.InBubble(t, func(t *testing.T, l *lab.Lab) {
		store := memdriver.New()
		c := holdfast.Open(lab.Bare{Driver: store}, holdfast.WithTTL(lab.Ages), holdfast.WithLinger(lab.Ages))
		other := holdfast.Open(store, holdfast.WithTTL(lab.Ages))
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
		l.Settle()
		w := l.Queue(1, other.Mutex("x").Lease)[0]
		c.Mutex("x").Unlock()
		lease := w.Granted(lab.Soon)
		assert.Positive(t, passed.Load())
		assert.LessOrEqual(t, passed.Load(), int64(32))
		require.NoError(t, lease.Release(t.Context()))
		l.Until("all had the lock", func() bool { return passed.Load() == 100 })
		// Nor would it tell that somebody waits for a lock that is kept.
		l.Settle()
		lease, err := other.Mutex("x").TryLease(t.Context())
		require.NoError(t, err)
		require.NoError(t, lease.Release(t.Context()))
	})
}

// A client with many goroutines is one among others.
func TestManyGoroutinesKeepNoOtherClientWaiting(t *testing.T) {
	lab.InBubble(t, func(t *testing.T, l *lab.Lab) {
		var mu sync.Mutex
		var turns []int
		var stop atomic.Bool
		var wg sync.WaitGroup
		for i, goroutines := range []int{64, 1, 1, 1} {
			c := l.Mates()
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
		l.Until("there were enough turns", func() bool {
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
	lab.InBubble(t, func(t *testing.T, l *lab.Lab) {
		a, b := l.Mates(), l.Mates()
		strict := holdfast.WithStrictFIFO()
		held := l.Lease(a, "x", strict)
		var ws []*lab.Pending
		for i := range 6 {
			ws = append(ws, l.Wait([]*holdfast.Client{a, b}[i%2], "x", strict))
			l.UntilQueue("x", i+1)
		}
		for i, w := range ws {
			require.NoError(t, held.Release(t.Context()))
			held = w.Granted(lab.Soon)
			waits(l, ws[i+1:]...)
		}
		require.NoError(t, held.Release(t.Context()))
	})
}

func TestLeaseDoesNotPassToOneWhoAskedOtherwise(t *testing.T) {
	for name, opt := range map[string]holdfast.LockOption{
		"TTL":     holdfast.WithTTL(2 * lab.Ages),
		"fixed":   holdfast.WithoutRenewal(),
		"strict":  holdfast.WithStrictFIFO(),
		"owner":   holdfast.WithOwner("me"),
		"nesting": holdfast.WithReentrancy(),
	} {
		t.Run(name, func(t *testing.T) {
			lab.InBubble(t, func(t *testing.T, l *lab.Lab) {
				c := l.Mates()
				known(l, c.Mutex("x").Lease)
				held := l.Lease(c, "x")
				alike, other := l.Queue(1, c.Mutex("x").Lease)[0], l.Queue(1, c.Mutex("x", opt).Lease)[0]
				require.NoError(t, held.Release(t.Context()))
				first := alike.Granted(lab.Soon)
				require.Equal(t, held.Fence()+1, first.Fence())
				l.Settle()
				require.Len(t, l.Inspect("x").Queue, 1, "it need not wait until the turn is over")
				require.NoError(t, first.Release(t.Context()))
				lease := other.Granted(lab.Soon)
				l.Holds(lease)
				if name == "TTL" {
					assert.Greater(t, time.Until(lease.Deadline()), lab.Ages)
				}
				require.NoError(t, lease.Release(t.Context()))
			})
		})
	}
}

// Readers have each their own lease, and they and writers take turns at the store.
func TestReadersDoNotPassTheirLeases(t *testing.T) {
	lab.InBubble(t, func(t *testing.T, l *lab.Lab) {
		c := l.Mates()
		rw := c.RWMutex("x")
		held := l.Take(rw.RLease)
		writers := l.Queue(2, rw.Lease)
		readers := l.Queue(2, rw.RLease)
		waits(l, readers...)
		require.NoError(t, held.Release(t.Context()))
		first := writers[0].Granted(lab.Soon)
		require.NoError(t, first.Release(t.Context()))
		second := writers[1].Granted(lab.Soon)
		assert.Equal(t, first.Fence()+1, second.Fence())
		require.NoError(t, second.Release(t.Context()))
		l.GiveBack(readers[0].Granted(lab.Soon), readers[1].Granted(lab.Soon))
		l.IsClean("rwmutex", "x")
	})
}

func TestTryLockIsBusyForAMateWithoutACommand(t *testing.T) {
	lab.InBubble(t, func(t *testing.T, l *lab.Lab) {
		c := l.FarMates()
		mu := c.Mutex("x")
		require.True(t, mu.TryLock())
		n := l.Count(everything)
		require.False(t, mu.TryLock())
		_, err := mu.TryLease(t.Context())
		require.ErrorIs(t, err, holdfast.ErrLocked)
		assert.Zero(t, n.Load())
		mu.Unlock()
		require.True(t, mu.TryLock())
		mu.Unlock()
		l.Free(l.Near(), "x")
	})
}

func TestNestedLeasesEndBeforeALeasePasses(t *testing.T) {
	lab.InBubble(t, func(t *testing.T, l *lab.Lab) {
		c := l.Mates(holdfast.WithReentrancy())
		known(l, c.Mutex("x").Lease)
		held := l.Lease(c, "x")
		w := l.Queue(1, c.Mutex("x").Lease)[0]
		nested, err := c.Mutex("x").Lease(held.Context())
		require.NoError(t, err)
		require.Equal(t, held.Fence(), nested.Fence())
		require.NoError(t, held.Release(t.Context()))
		waits(l, w)
		require.NoError(t, nested.Release(t.Context()))
		next := w.Granted(lab.Soon)
		require.Equal(t, held.Fence()+1, next.Fence())
		again, err := c.Mutex("x").Lease(next.Context())
		require.NoError(t, err)
		l.GiveBack(again, next)
		l.Free(l.Near(), "x")
	})
}

// A lock that the store did not know comes with one fence. The first in our queue waits at the
// store then, and the lock passes from it on.
func TestLockThatTheStoreDidNotKnowPassesInTheProcess(t *testing.T) {
	lab.InBubble(t, func(t *testing.T, l *lab.Lab) {
		c := l.Mates()
		mu := c.Mutex("x")
		held := l.Lease(c, "x")
		ws := l.Queue(10, mu.Lease)
		time.Sleep(time.Millisecond) // in which the clock shows fences
		for i, w := range ws {
			require.Len(t, l.Look(mu).Queue, max(0, 1-i))
			require.NoError(t, held.Release(t.Context()))
			next := w.Granted(lab.Soon)
			require.Greater(t, next.Fence(), held.Fence())
			held = next
		}
		require.NoError(t, held.Release(t.Context()))
	})
}

// Who asks the store behind a goroutine of its own process knows what is in the way, before the store answers.
func TestLockThatIsHeldHereIsHeldThoughTheStoreHasNotAnsweredYet(t *testing.T) {
	lab.InBubble(t, func(t *testing.T, l *lab.Lab) {
		c := l.FarMates()
		c.Mutex("x").Lock()
		l.Link.Delay(100 * time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		_, err := c.Mutex("x").Lease(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorIs(t, err, holdfast.ErrLocked)
		l.Link.Delay(0)
		c.Mutex("x").Unlock()
		l.SoonFree(l.Near(), "x")
	})
}

// When the fences of a grant are used up, who comes next is at the store before it is released.
func TestLockGoesOnWhenItsFencesAreUsedUp(t *testing.T) {
	lab.InBubble(t, func(t *testing.T, l *lab.Lab) {
		c := l.Mates()
		l.Ready(c)
		mu := c.Mutex("x")
		known(l, mu.Lease)
		time.Sleep(time.Second)
		n := l.Count(l.On("mutex", "x"))
		held := l.Lease(c, "x")
		for i, w := range l.Queue(local.MaxFences+100, mu.Lease) {
			l.Settle()
			if i == local.MaxFences-1 {
				require.Len(t, l.Look(mu).Queue, 1)
				time.Sleep(10 * time.Millisecond) // in which the clock shows fences
			} else {
				require.Empty(t, l.Look(mu).Queue, i)
			}
			require.NoError(t, held.Release(t.Context()))
			next := w.Granted(lab.Soon)
			require.Greater(t, next.Fence(), held.Fence())
			held = next
		}
		require.NoError(t, held.Release(t.Context()))
		assert.LessOrEqual(t, n.Load(), int64(10), "commands")
		l.Free(l.Near(), "x")
	})
}

// A hold that nobody sees goes on with the fence of the one before, and one that is seen needs its own.
func TestWhoNeedsAFenceWaitsAtTheStoreWhenThereIsNone(t *testing.T) {
	lab.InBubble(t, func(t *testing.T, l *lab.Lab) {
		c, other := l.Mates(), l.Near()
		mu := c.Mutex("x")
		mu.Lock() // for the first time, so there is no fence for another
		second := lab.Begin(mu.Lock)
		l.Settle()
		third := l.Ask(mu.Lease)
		l.Settle()
		mu.Unlock()
		l.Ends(second)
		l.Settle()
		require.Len(t, l.Look(other.Mutex("x")).Queue, 1)
		mu.Unlock()
		require.NoError(t, third.Granted(lab.Soon).Release(t.Context()))
	})
}

// The message that somebody waits is lost: then the store is asked again.
func TestOthersGetTheirTurnThoughTheMessageIsLost(t *testing.T) {
	lab.InBubble(t, func(t *testing.T, l *lab.Lab) {
		a, b := distant(l, holdfast.WithTTL(24*time.Hour)), distant(l)
		l.Link.DropPush(func(_, payload string) bool { return strings.HasPrefix(payload, "wanted") })
		var held, stop atomic.Int64
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				for stop.Load() == 0 {
					a.Mutex("x").Lock()
					held.Add(1)
					time.Sleep(time.Millisecond)
					a.Mutex("x").Unlock()
				}
			})
		}
		time.Sleep(3 * time.Second)
		before := held.Load()
		lease := l.Wait(b, "x").Granted(lab.Ages)
		assert.LessOrEqual(t, held.Load()-before, int64(local.MaxUnasked+32))
		require.NoError(t, lease.Release(t.Context()))
		stop.Store(1)
		all.Wait()
	})
}

// A turn ends when somebody else waits, however often the lock has gone round before.
func TestTurnEndsHoweverManyPassesWereBefore(t *testing.T) {
	for _, before := range []int{100, 40_000} {
		t.Run(fmt.Sprint(before), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memdriver.New()
				a, b := holdfast.Open(store, holdfast.WithLinger(time.Hour), holdfast.WithTTL(24*time.Hour)), holdfast.Open(store)
				mu := a.Mutex("x")
				for range before {
					mu.Lock()
					mu.Unlock()
				}
				mu.Lock()
				var passes atomic.Int64
				var wanted, stop atomic.Bool
				var wg sync.WaitGroup
				for range 2 {
					wg.Go(func() {
						for !stop.Load() {
							mu.Lock()
							if wanted.Load() {
								passes.Add(1)
							}
							time.Sleep(time.Millisecond)
							mu.Unlock()
						}
					})
				}
				synctest.Wait()
				wg.Go(func() {
					lease, err := b.Mutex("x").Lease(context.Background())
					stop.Store(true)
					if assert.NoError(t, err) {
						assert.LessOrEqual(t, passes.Load(), int64(40))
						assert.NoError(t, lease.Release(context.Background()))
					}
				})
				synctest.Wait()
				wanted.Store(true)
				mu.Unlock()
				wg.Wait()
				require.NoError(t, a.Close())
				require.NoError(t, b.Close())
			})
		})
	}
}

// single tells when a lock is wanted, but gives one number with each, and no more later.
type single struct{ d *memdriver.Driver }

func (s single) Acquire(ctx context.Context, r *driver.Request) (driver.Grant, error) {
	one := *r
	one.Fences = 1
	return s.d.Acquire(ctx, &one)
}

func (s single) Renew(ctx context.Context, l []driver.Lease) []error { return s.d.Renew(ctx, l) }

func (s single) Release(ctx context.Context, l driver.Lease) error { return s.d.Release(ctx, l) }

func (s single) Close() error { return s.d.Close() }

func (s single) Notices() bool { return true }

func (s single) Notice(ctx context.Context, l driver.Lease) (bool, error) { return s.d.Notice(ctx, l) }
