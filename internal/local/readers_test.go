package local_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
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
)

// Readers of one client join one that has the lock already. In a bubble it is certain who
// came first.

// read locks n times for reading, which must not have to wait.
func read(l *lab.Lab, rw *holdfast.RWMutex, n int) {
	l.T.Helper()
	for range n {
		l.Ends(lab.Begin(rw.RLock))
	}
}

// joins reads until it would have to wait, and returns how often it did not, and who waits.
func joins(l *lab.Lab, rw *holdfast.RWMutex) (n int, waits <-chan any) {
	l.T.Helper()
	for ; n < 1000; n++ {
		waits = lab.Begin(rw.RLock)
		l.Settle()
		select {
		case v := <-waits:
			require.Nil(l.T, v)
		default:
			return n, waits
		}
	}
	l.T.Fatal("nobody ever has to wait")
	return n, nil
}

func TestReadersOfOneClientNeedFewCommands(t *testing.T) {
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		const readers = 64
		c, other := l.FarMates(), l.Near().RWMutex("x")
		l.Ready(c)
		n := l.Count(l.On("rwmutex", "x"))
		rw := c.RWMutex("x")
		var in sync.WaitGroup
		for range readers {
			in.Go(c.RWMutex("x").RLock)
		}
		lab.Promptly(t, lab.Soon, func() error { in.Wait(); return nil })
		// A turn is for 32 of them at least, and for all that come within a millisecond.
		assert.LessOrEqual(t, len(l.Look(other).Holders), readers/32)
		for i := range readers - 1 {
			rw.RUnlock()
			require.False(t, other.TryLock(), "%d are gone", i+1)
		}
		rw.RUnlock()
		assert.Contains(t, lab.Panics(t, rw.RUnlock), "RUnlock of unlocked RWMutex")
		require.True(t, other.TryLock(), "all are gone")
		other.Unlock()
		t.Logf("%d commands", n.Load())
		assert.LessOrEqual(t, n.Load(), int64(8))
		assert.Zero(t, inUse(c))
		l.IsClean("rwmutex", "x")
	})
}

// Nobody waits elsewhere, so it goes on and on.
func TestReadersThatOverlapNeedFewCommands(t *testing.T) {
	lab.InBubble(t, func(t *testing.T, l *lab.Lab) {
		c := l.FarMates()
		l.Ready(c)
		rw := c.RWMutex("x")
		n := l.Count(l.On("rwmutex", "x"))
		rw.RLock()
		for i := range 1000 {
			if i%2 == 0 {
				rw.RLock()
			} else {
				require.True(t, rw.TryRLock())
			}
			rw.RUnlock()
			l.Settle()
		}
		assert.LessOrEqual(t, n.Load(), int64(1000/16+1))
		_, err := rw.TryLease(t.Context())
		require.ErrorIs(t, err, holdfast.ErrLocked)
		read(l, rw, 1) // a writer who does not wait is not overtaken
		assert.Len(t, l.Look(rw).Holders, 1)
		rw.RUnlock()
		rw.RUnlock()
		l.IsClean("rwmutex", "x")
	})
}

// This is what their turn is for.
func TestWriterGetsInBesideReadersThatOverlapForEver(t *testing.T) {
	for name, hold := range map[string]time.Duration{"many": 2 * time.Millisecond, "long": 3 * time.Second} {
		t.Run(name, func(t *testing.T) {
			body := func(t *testing.T, l *lab.Lab) {
				const ttl = 2 * lab.Soon
				c, other := l.Mates(holdfast.WithTTL(ttl)), l.Near()
				var reads atomic.Int64
				var stop atomic.Bool
				var readers sync.WaitGroup
				for i := range 4 {
					readers.Go(func() {
						time.Sleep(time.Duration(i) * hold / 4)
						for !stop.Load() {
							c.RWMutex("x").RLock()
							reads.Add(1)
							time.Sleep(hold)
							c.RWMutex("x").RUnlock()
						}
					})
				}
				time.Sleep(10 * hold)
				writer := l.Ask(other.RWMutex("x").Lease)
				l.Until("the writer waits", func() bool { return len(l.Look(other.RWMutex("x")).Queue) > 0 })
				before, began := reads.Load(), time.Now()
				lease := writer.Granted(ttl/4 + hold + l.Slack)
				if l.Virtual {
					t.Logf("waited for %d reads and %v", reads.Load()-before, time.Since(began))
					assert.LessOrEqual(t, reads.Load()-before, int64(64), "two turns, if the first was just over")
				}
				l.GiveBack(lease)
				stop.Store(true)
				lab.Promptly(t, 2*lab.Soon, func() error { readers.Wait(); return nil })
				l.IsClean("rwmutex", "x")
			}
			if name == "many" {
				lab.WithPatience(t, body)
			} else {
				lab.InBubble(t, body)
			}
		})
	}
}

// A reader that comes when the turn is over queues behind the writer.
func TestReadersJoinForOneTurnAtMost(t *testing.T) {
	const turn = lab.Ages / 4
	for name, c := range map[string]struct {
		wait            time.Duration // before the others come
		atLeast, atMost int
	}{
		"32 of them":           {0, 32, 32},
		"a quarter of the TTL": {turn + time.Millisecond, 0, 0},
		"almost":               {turn - 10*time.Millisecond, 1, 11},
	} {
		t.Run(name, func(t *testing.T) {
			lab.InBubble(t, func(t *testing.T, l *lab.Lab) {
				rw, other := l.Mates().RWMutex("x"), l.Near().RWMutex("x")
				rw.RLock()
				writer := l.Ask(other.Lease)
				l.UntilWaiting(other, 1)
				time.Sleep(c.wait)
				n, late := joins(l, rw)
				assert.GreaterOrEqual(t, n, c.atLeast)
				assert.LessOrEqual(t, n, c.atMost)
				assert.False(t, rw.TryRLock())
				later := lab.Begin(rw.RLock)
				for range n {
					rw.RUnlock()
				}
				waits(l, writer)
				rw.RUnlock()
				lease := writer.Granted(lab.Soon)
				l.Stays(late)
				l.GiveBack(lease)
				l.Ends(late)
				l.Ends(later)
				rw.RUnlock()
				rw.RUnlock()
				l.IsClean("rwmutex", "x")
			})
		})
	}
}

// Such a store cannot be asked whether a writer waits.
func TestReadersJoinForOneTurnOnAStoreThatDoesNotTell(t *testing.T) {
	lab.InBubble(t, func(t *testing.T, l *lab.Lab) {
		store := memdriver.New()
		c, other := holdfast.Open(lab.Bare{Driver: store}, holdfast.WithLinger(lab.Ages)), holdfast.Open(store)
		defer c.Close()
		defer other.Close()
		rw, elsewhere := c.RWMutex("x"), other.RWMutex("x")
		for turns := range 3 {
			read(l, rw, 33)
			assert.Len(t, l.Look(elsewhere).Holders, turns+1)
		}
		read(l, rw, 1)
		rw.RUnlock()
		assert.Len(t, l.Look(elsewhere).Holders, 4, "nobody can join the oldest")
		for range 99 {
			rw.RUnlock()
		}
		require.True(t, elsewhere.TryLock())
	})
}

// Those that are too many for one lease stay together, and others can join them.
func TestReadersWhoAreTooManyGoOnTogether(t *testing.T) {
	lab.InBubble(t, func(t *testing.T, l *lab.Lab) {
		store := memdriver.New()
		c, other := holdfast.Open(lab.Bare{Driver: store}), holdfast.Open(store)
		defer c.Close()
		defer other.Close()
		rw, elsewhere := c.RWMutex("x"), other.RWMutex("x")
		held := l.Take(elsewhere.Lease)
		var in atomic.Int64
		read := func() { rw.RLock(); in.Add(1) }
		lab.Begin(read)
		l.Settle()
		writer := l.Ask(elsewhere.Lease)
		l.UntilWaiting(elsewhere, 2)
		for range 39 {
			lab.Begin(read)
		}
		l.Settle()
		l.GiveBack(held)
		l.Settle()
		assert.Equal(t, int64(33), in.Load())
		lab.Begin(read)
		l.Settle()
		assert.Len(t, l.Look(elsewhere).Queue, 2, "the writer and one reader")
		for range 33 {
			waits(l, writer)
			rw.RUnlock()
		}
		l.GiveBack(writer.Granted(lab.Soon))
		l.Settle()
		assert.Equal(t, int64(41), in.Load())
		assert.Len(t, l.Look(elsewhere).Holders, 1)
		for range 8 {
			rw.RUnlock()
		}
		assert.Zero(t, inUse(c))
	})
}

// Also where the store has said that nobody waits, however the writer waits.
func TestReadersDoNotJoinAheadOfAWriterOfTheirClient(t *testing.T) {
	strict := holdfast.WithStrictFIFO()
	for name, writer := range map[string]func(*holdfast.Client) lab.Leasing{
		"beside them": func(c *holdfast.Client) lab.Leasing { return c.RWMutex("x").Lease },
		"strict":      func(c *holdfast.Client) lab.Leasing { return c.RWMutex("x", strict).Lease },
		"an owner":    func(c *holdfast.Client) lab.Leasing { return c.RWMutex("x", holdfast.WithOwner("me")).Lease },
	} {
		t.Run(name, func(t *testing.T) {
			lab.InBubble(t, func(t *testing.T, l *lab.Lab) {
				c := l.Mates()
				rw := c.RWMutex("x")
				read(l, rw, 3)
				w := l.Queue(1, writer(c))[0]
				first := lab.Begin(rw.RLock)
				l.Stays(first)
				assert.False(t, rw.TryRLock())
				time.Sleep(lab.Ages / 2) // the writer has asked again, which is nothing new
				second := lab.Begin(rw.RLock)
				l.Stays(second)
				assert.Len(t, l.Look(rw).Queue, 2, "the readers have one place")
				last := l.Queue(1, c.RWMutex("x", strict).Lease)[0]
				third := lab.Begin(rw.RLock)
				l.Stays(third)
				for range 3 {
					waits(l, w)
					rw.RUnlock()
				}
				lease := w.Granted(lab.Soon)
				l.Stays(first)
				l.GiveBack(lease)
				l.Ends(first)
				l.Ends(second)
				l.Stays(third)
				waits(l, last)
				rw.RUnlock()
				l.Stays(third)
				rw.RUnlock()
				lease = last.Granted(lab.Soon)
				l.Stays(third)
				l.GiveBack(lease)
				l.Ends(third)
				rw.RUnlock()
				l.IsClean("rwmutex", "x")
				assert.Zero(t, inUse(c))
			})
		})
	}
}

// The writer that both wait for is elsewhere.
func TestReadersDoNotJoinAheadOfAReaderOfTheirClient(t *testing.T) {
	lab.InBubble(t, func(t *testing.T, l *lab.Lab) {
		c, other := l.Mates(), l.Near().RWMutex("x")
		rw := c.RWMutex("x")
		read(l, rw, 2)
		writer := l.Ask(other.Lease)
		l.UntilWaiting(other, 1)
		read(l, rw, 1)
		shown := l.Ask(rw.RLease)
		l.UntilWaiting(other, 2)
		synctest.Wait() // Its client has heard so, too.
		hidden := lab.Begin(rw.RLock)
		l.Stays(hidden)
		for range 3 {
			rw.RUnlock()
		}
		l.GiveBack(writer.Granted(lab.Soon))
		l.Ends(hidden)
		l.GiveBack(shown.Granted(lab.Soon))
		rw.RUnlock()
		l.IsClean("rwmutex", "x")
	})
}

func TestReadersWhoJoinedLoseTheLockTogether(t *testing.T) {
	lab.InBubble(t, func(t *testing.T, l *lab.Lab) {
		const ttl = time.Second
		c, other := l.FarMates(holdfast.WithTTL(ttl)), l.Near().RWMutex("x")
		rw := c.RWMutex("x")
		read(l, rw, 3)
		time.Sleep(2 * ttl)
		require.False(t, other.TryLock(), "it is renewed")
		writer := l.Ask(other.Lease)
		l.UntilWaiting(other, 1)
		l.Link.BlackHole(true)
		writer.Granted(ttl + ttl/20 + ttl/3 + l.Slack)
		l.UntilLogged("x", 1)
		l.Heal()
		assert.Equal(t, 1, strings.Count(l.Log.String(), "lock lost"), "there was one lease")

		// Nobody joins them any more, and they are locked in until they go.
		late := lab.Begin(rw.RLock)
		l.Stays(late)
		wrote := lab.Begin(rw.Lock)
		for range 3 {
			rw.RUnlock()
			l.IsHeldBy(other, writer.Lease)
		}
		l.Stays(late)
		l.GiveBack(writer.Lease)
		l.Ends(late)
		l.Stays(wrote)
		rw.RUnlock()
		l.Ends(wrote)
		rw.Unlock()
		assert.Contains(t, lab.Panics(t, rw.RUnlock), "RUnlock of unlocked RWMutex")
		l.IsClean("rwmutex", "x")
	})
}

// Not even at the moment when it is, before anybody has been told. The turn would go on: the
// store has taken its time to answer.
func TestNobodyJoinsWhenTheTrustIsOver(t *testing.T) {
	const ttl = time.Second
	for range 50 { // who is first of those that wait for the same moment is left to chance
		synctest.Test(t, func(t *testing.T) {
			p := lab.NewPlay()
			p.RenewErr = driver.ErrTransient
			c := holdfast.Open(p, holdfast.WithTTL(ttl), holdfast.WithLogger(slog.New(slog.DiscardHandler)))
			rw := c.RWMutex("x")
			first := lab.Begin(rw.RLock)
			slow := <-p.Asks // A first answer that is late is asked for again.
			time.AfterFunc(ttl-ttl/10, func() { slow.Granted(1) })
			between := []*lab.Ask{<-p.Asks, <-p.Asks}
			again := <-p.Asks
			over := time.Now().Add(ttl - ttl/100 - 2*time.Millisecond)
			time.AfterFunc(ttl-ttl/10, func() { again.Granted(1) })
			require.Nil(t, <-first)
			for _, a := range between {
				a.Answer <- lab.Result{Err: driver.ErrTransient}
			}
			for len(p.Asks) > 0 { // heartbeats
				(<-p.Asks).Answer <- lab.Result{Err: driver.ErrTransient}
			}
			time.Sleep(time.Until(over) - time.Millisecond)
			rw.RLock()
			require.Empty(t, p.Asks)
			time.Sleep(time.Millisecond)
			late := lab.Begin(rw.RLock)
			synctest.Wait()
			require.Len(t, p.Asks, 1, "it joins what is over")
			(<-p.Asks).Granted(2)
			require.Nil(t, <-late)
			require.NoError(t, c.Close())
		})
	}
}

// The lock was taken away from a writer, whose Unlock comes first. Until then no reader is in, and none of
// them keeps the others from asking.
func TestReadersWaitTogetherForTheUnlockOfALostLock(t *testing.T) {
	lab.InBubble(t, func(t *testing.T, l *lab.Lab) {
		const readers = 30
		c, other := l.FarMates(), l.Near().RWMutex("x")
		l.Ready(c)
		rw := c.RWMutex("x")
		rw.Lock()
		var in []<-chan any
		for range readers {
			in = append(in, lab.Begin(rw.RLock))
		}
		l.UntilWaiting(other, 1)
		n := l.Count(l.On("rwmutex", "x"))
		require.NoError(t, other.ForceUnlock(t.Context()))
		for _, done := range in {
			l.Stays(done)
		}
		l.GiveBack(l.Take(other.Lease)) // they hold nothing meanwhile
		assert.Less(t, n.Load(), int64(readers), "one of them went and saw")
		rw.Unlock()
		for _, done := range in {
			l.Ends(done)
		}
		for range in {
			rw.RUnlock()
		}
		l.IsClean("rwmutex", "x")
		assert.Zero(t, inUse(c))
	})
}

// The last of those who shared a lease has undone its RLock, but not yet told the store.
func TestReadersDoNotJoinWhatIsBeingGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memdriver.New()
		p := newProcess(t, store)
		id, cached := local.ID{Kind: driver.RWMutex, Name: "x"}, new(local.Cached)
		w := local.Want{Shared: true, Wait: true, Sync: true, Options: &local.Options{TTL: time.Second}}
		holders := func() int {
			info, err := store.Inspect(t.Context(), id.Kind, id.Name)
			require.NoError(t, err)
			return len(info.Holders)
		}
		read := func() []local.Part {
			_, err := p.Acquire(t.Context(), id, cached, &w)
			require.NoError(t, err)
			left, ok := p.TakeBack(id, cached, true, 1, nil)
			require.True(t, ok)
			return left
		}
		first := read()
		second := read()
		require.Len(t, first, 1)
		require.Len(t, second, 1)
		assert.Equal(t, 2, holders())
		for _, last := range [][]local.Part{first, second} {
			require.NoError(t, last[0].Hold.ReleaseBriefly(t.Context()))
		}
		assert.Zero(t, holders())
		p.end()
	})
}

func TestForcedReadersAreNotJoined(t *testing.T) {
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		c, other := l.Mates(holdfast.WithTTL(l.Time(900*time.Millisecond))), l.Near().RWMutex("x")
		rw := c.RWMutex("x")
		read(l, rw, 3)
		require.NoError(t, other.ForceUnlock(t.Context()))
		l.UntilLogged("x", 1)
		require.True(t, other.TryLock())
		assert.False(t, rw.TryRLock())
		other.Unlock()
		read(l, rw, 2)
		assert.Len(t, l.Look(other).Holders, 1)
		for range 4 {
			rw.RUnlock()
			assert.False(t, other.TryLock())
		}
		rw.RUnlock()
		require.True(t, other.TryLock())
		other.Unlock()
	})
}

func TestCloseEndsReadersWhoJoined(t *testing.T) {
	lab.Everywhere(t, func(t *testing.T, l *lab.Lab) {
		c, other := l.Mates(), l.Near()
		in, out := c.RWMutex("in"), c.RWMutex("out")
		read(l, in, 3)
		held := l.Take(other.RWMutex("out").Lease)
		var late []<-chan any
		for range 5 {
			late = append(late, lab.Begin(out.RLock))
		}
		l.UntilWaiting(other.RWMutex("out"), 1)
		require.NoError(t, lab.Promptly(t, lab.Soon, c.Close))
		for _, locked := range late {
			assert.Contains(t, fmt.Sprint(lab.Promptly(t, lab.Soon, func() any { return <-locked })), "closed")
		}
		assert.Contains(t, lab.Panics(t, in.RLock), "closed")
		assert.Empty(t, l.Look(other.RWMutex("in")).Holders)
		assert.Empty(t, l.Look(other.RWMutex("out")).Queue)
		for range 3 {
			in.RUnlock()
		}
		assert.Contains(t, lab.Panics(t, in.RUnlock), "RUnlock of unlocked RWMutex")
		assert.Zero(t, inUse(c))
		l.GiveBack(held)
	})
}

func TestReadersWithALeaseOfTheirOwn(t *testing.T) {
	for name, opts := range map[string][]holdfast.LockOption{
		"strict":  {holdfast.WithStrictFIFO()},
		"fixed":   {holdfast.WithoutRenewal()},
		"nesting": {holdfast.WithReentrancy()},
		"owner":   {holdfast.WithOwner("me")},
		"shown":   nil,
		"hooked":  nil,
		"TTL":     {holdfast.WithTTL(2 * lab.Ages)},
	} {
		t.Run(name, func(t *testing.T) {
			lab.InBubble(t, func(t *testing.T, l *lab.Lab) {
				c := l.Mates()
				if name == "hooked" {
					c.AddHook(holdfast.HookBase{})
				}
				rw := c.RWMutex("x", opts...)
				switch name {
				case "shown":
					first := l.Take(rw.RLease)
					rw.RLock()
					second := l.Take(rw.RLease)
					assert.Len(t, l.Look(rw).Holders, 3)
					assert.Less(t, first.Fence(), second.Fence())
					l.GiveBack(first, second)
				case "TTL":
					held := l.Take(l.Near().RWMutex("x").Lease)
					in := []<-chan any{lab.Begin(c.RWMutex("x").RLock), lab.Begin(rw.RLock)}
					l.UntilWaiting(rw, 2)
					l.GiveBack(held)
					l.Ends(in[0])
					l.Ends(in[1])
					rw.RUnlock()
					rw.RUnlock()
					c.RWMutex("x").RLock()
					read(l, rw, 2)
					assert.Len(t, l.Look(rw).Holders, 2)
					rw.RUnlock()
					rw.RUnlock()
				default:
					read(l, rw, 2)
					assert.Len(t, l.Look(rw).Holders, 2)
					rw.RUnlock()
				}
				assert.Len(t, l.Look(rw).Holders, 1)
				rw.RUnlock()
				l.IsClean("rwmutex", "x")
			})
		})
	}
}

// moody fails the first ask of each of so many tokens, but not at once.
type moody struct {
	driver.Driver
	left atomic.Int64
}

func (m *moody) Acquire(ctx context.Context, r *driver.Request) (driver.Grant, error) {
	if m.left.Add(-1) >= 0 {
		time.Sleep(time.Millisecond)
		return driver.Grant{}, errors.Join(driver.ErrNotExecuted, errors.New("not in the mood"))
	}
	return m.Driver.Acquire(ctx, r)
}

func (m *moody) Unwrap() driver.Driver { return m.Driver }

func TestReadersGoOnWithoutOneThatFails(t *testing.T) {
	lab.InBubble(t, func(t *testing.T, l *lab.Lab) {
		m := &moody{Driver: memdriver.New()}
		c := holdfast.Open(m)
		defer c.Close()
		rw := c.RWMutex("x")
		rw.RLock()
		rw.RUnlock() // the store has been of use, so a failure is waited out
		m.left.Store(3)
		var in []<-chan any
		for range 5 {
			in = append(in, lab.Begin(rw.RLock))
		}
		for _, done := range in {
			l.Ends(done)
		}
		for range in {
			rw.RUnlock()
		}
		assert.Zero(t, inUse(c))
	})
}

func TestReadersGoOnWithoutOneThatOnlyTried(t *testing.T) {
	lab.InBubble(t, func(t *testing.T, l *lab.Lab) {
		c := l.FarMates()
		l.Ready(c)
		rw := c.RWMutex("x")
		l.Link.BlackHole(true)
		tried := make(chan bool, 1)
		go func() { tried <- rw.TryRLock() }()
		l.Settle()
		in := []<-chan any{lab.Begin(rw.RLock), lab.Begin(rw.RLock)}
		require.False(t, <-tried)
		l.Heal()
		for _, done := range in {
			l.Ends(done)
		}
		assert.Len(t, l.Look(rw).Holders, 1)
		rw.RUnlock()
		rw.RUnlock()
	})
}

// robber is a store that takes a lock away from a reader just as it has waited for it.
type robber struct{ *memdriver.Driver }

func (r robber) Acquire(ctx context.Context, of *driver.Request) (driver.Grant, error) {
	own, once := *of, sync.Once{}
	own.Wake = func(g driver.Grant) {
		of.Wake(g)
		if of.Shared && g.Status == driver.Granted {
			once.Do(func() { of.Wake(driver.Grant{Status: driver.Lost}) })
		}
	}
	return r.Driver.Acquire(ctx, &own)
}

// A reader has its grant, which is lost already, and must wait for Unlock of a lost lock. The wrong version
// believed that it was still at the store, and had it and all readers after it wait for it.
func TestLostGrantOfAReaderThatMustWaitForUnlockIsWaitedForByNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := robber{memdriver.New()}
		c := holdfast.Open(store, holdfast.WithLogger(slog.New(slog.DiscardHandler)))
		rw := c.RWMutex("x")
		rw.Lock()
		in := lab.Begin(rw.RLock)
		synctest.Wait()
		require.NoError(t, store.ForceRelease(t.Context(), driver.RWMutex, "x"))
		synctest.Wait()
		rw.Unlock()
		lab.Promptly(t, time.Minute, func() error { <-in; return nil })
		require.True(t, rw.TryRLock())
		rw.RUnlock()
		rw.RUnlock()
		require.NoError(t, c.Close())
	})
}
