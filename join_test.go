package holdfast_test

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
)

// Readers of one client join one that has the lock already. In a bubble it is certain who
// came first.

// read locks n times for reading, which must not have to wait.
func (l *lab) read(rw *holdfast.RWMutex, n int) {
	l.t.Helper()
	for range n {
		l.ends(begin(rw.RLock))
	}
}

// joins reads until it would have to wait, and returns how often it did not, and who waits.
func (l *lab) joins(rw *holdfast.RWMutex) (n int, waits <-chan any) {
	l.t.Helper()
	for ; n < 1000; n++ {
		waits = begin(rw.RLock)
		l.settle()
		select {
		case v := <-waits:
			require.Nil(l.t, v)
		default:
			return n, waits
		}
	}
	l.t.Fatal("nobody ever has to wait")
	return n, nil
}

func TestReadersOfOneClientNeedFewCommands(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		const readers = 64
		c, other := l.farMates(), l.near().RWMutex("x")
		l.ready(c)
		n := l.count(l.on("rwmutex", "x"))
		rw := c.RWMutex("x")
		var in sync.WaitGroup
		for range readers {
			in.Go(c.RWMutex("x").RLock)
		}
		promptly(t, soon, func() error { in.Wait(); return nil })
		assert.Len(t, l.look(other).Holders, 1)
		for i := range readers - 1 {
			rw.RUnlock()
			require.False(t, other.TryLock(), "%d are gone", i+1)
		}
		rw.RUnlock()
		assert.Contains(t, panics(t, rw.RUnlock), "RUnlock of unlocked RWMutex")
		require.True(t, other.TryLock(), "all are gone")
		other.Unlock()
		t.Logf("%d commands", n.Load())
		assert.LessOrEqual(t, n.Load(), int64(8))
		assert.Zero(t, c.Doors())
		l.isClean("rwmutex", "x")
	})
}

// Nobody waits elsewhere, so it goes on and on.
func TestReadersThatOverlapNeedFewCommands(t *testing.T) {
	inBubble(t, func(t *testing.T, l *lab) {
		c := l.farMates()
		l.ready(c)
		rw := c.RWMutex("x")
		n := l.count(l.on("rwmutex", "x"))
		rw.RLock()
		for i := range 1000 {
			if i%2 == 0 {
				rw.RLock()
			} else {
				require.True(t, rw.TryRLock())
			}
			rw.RUnlock()
			l.settle()
		}
		assert.LessOrEqual(t, n.Load(), int64(1000/16+1))
		_, err := rw.TryLease(t.Context())
		require.ErrorIs(t, err, holdfast.ErrLocked)
		l.read(rw, 1) // a writer who does not wait is not overtaken
		assert.Len(t, l.look(rw).Holders, 1)
		rw.RUnlock()
		rw.RUnlock()
		l.isClean("rwmutex", "x")
	})
}

// This is what their turn is for.
func TestWriterGetsInBesideReadersThatOverlapForEver(t *testing.T) {
	for name, hold := range map[string]time.Duration{"many": 2 * time.Millisecond, "long": 3 * time.Second} {
		t.Run(name, func(t *testing.T) {
			body := func(t *testing.T, l *lab) {
				const ttl = 2 * soon
				c, other := l.mates(holdfast.WithTTL(ttl)), l.near()
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
				writer := l.ask(other.RWMutex("x").Lease)
				l.until("the writer waits", func() bool { return len(l.look(other.RWMutex("x")).Queue) > 0 })
				before, began := reads.Load(), time.Now()
				lease := writer.granted(ttl/4 + hold + l.slack)
				if l.virtual {
					t.Logf("waited for %d reads and %v", reads.Load()-before, time.Since(began))
					assert.LessOrEqual(t, reads.Load()-before, int64(64), "two turns, if the first was just over")
				}
				l.giveBack(lease)
				stop.Store(true)
				promptly(t, 2*soon, func() error { readers.Wait(); return nil })
				l.isClean("rwmutex", "x")
			}
			if name == "many" {
				withPatience(t, body)
			} else {
				inBubble(t, body)
			}
		})
	}
}

// Who comes when the turn is over queues behind the writer.
func TestReadersJoinForOneTurnAtMost(t *testing.T) {
	const turn = ages / 4
	for name, c := range map[string]struct {
		wait            time.Duration // before the others come
		atLeast, atMost int
	}{
		"32 of them":           {0, 32, 32},
		"a quarter of the TTL": {turn + time.Millisecond, 0, 0},
		"almost":               {turn - 10*time.Millisecond, 1, 11},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, l *lab) {
				rw, other := l.mates().RWMutex("x"), l.near().RWMutex("x")
				rw.RLock()
				writer := l.ask(other.Lease)
				l.untilWaiting(other, 1)
				time.Sleep(c.wait)
				n, late := l.joins(rw)
				assert.GreaterOrEqual(t, n, c.atLeast)
				assert.LessOrEqual(t, n, c.atMost)
				assert.False(t, rw.TryRLock())
				later := begin(rw.RLock)
				for range n {
					rw.RUnlock()
				}
				l.waits(writer)
				rw.RUnlock()
				lease := writer.granted(soon)
				l.stays(late)
				l.giveBack(lease)
				l.ends(late)
				l.ends(later)
				rw.RUnlock()
				rw.RUnlock()
				l.isClean("rwmutex", "x")
			})
		})
	}
}

// Such a store cannot be asked whether a writer waits.
func TestReadersJoinForOneTurnOnAStoreThatCannotExtend(t *testing.T) {
	inBubble(t, func(t *testing.T, l *lab) {
		store := memdriver.New()
		c, other := holdfast.Open(bare{store}, holdfast.WithLinger(ages)), holdfast.Open(store)
		defer c.Close()
		defer other.Close()
		rw, elsewhere := c.RWMutex("x"), other.RWMutex("x")
		for turns := range 3 {
			l.read(rw, 33)
			assert.Len(t, l.look(elsewhere).Holders, turns+1)
		}
		l.read(rw, 1)
		rw.RUnlock()
		assert.Len(t, l.look(elsewhere).Holders, 4, "nobody can join the oldest")
		for range 99 {
			rw.RUnlock()
		}
		require.True(t, elsewhere.TryLock())
	})
}

// Those that are too many for one lease stay together, and others can join them.
func TestReadersWhoAreTooManyGoOnTogether(t *testing.T) {
	inBubble(t, func(t *testing.T, l *lab) {
		store := memdriver.New()
		c, other := holdfast.Open(bare{store}), holdfast.Open(store)
		defer c.Close()
		defer other.Close()
		rw, elsewhere := c.RWMutex("x"), other.RWMutex("x")
		held := l.take(elsewhere.Lease)
		var in atomic.Int64
		read := func() { rw.RLock(); in.Add(1) }
		begin(read)
		l.settle()
		writer := l.ask(elsewhere.Lease)
		l.untilWaiting(elsewhere, 2)
		for range 39 {
			begin(read)
		}
		l.settle()
		l.giveBack(held)
		l.settle()
		assert.Equal(t, int64(33), in.Load())
		begin(read)
		l.settle()
		assert.Len(t, l.look(elsewhere).Queue, 2, "the writer and one reader")
		for range 33 {
			l.waits(writer)
			rw.RUnlock()
		}
		l.giveBack(writer.granted(soon))
		l.settle()
		assert.Equal(t, int64(41), in.Load())
		assert.Len(t, l.look(elsewhere).Holders, 1)
		for range 8 {
			rw.RUnlock()
		}
		assert.Zero(t, c.Doors())
	})
}

// Also of a turn that has just been extended, however the writer waits.
func TestReadersDoNotJoinAheadOfAWriterOfTheirClient(t *testing.T) {
	strict := holdfast.WithStrictFIFO()
	for name, writer := range map[string]func(*holdfast.Client) leasing{
		"beside them": func(c *holdfast.Client) leasing { return c.RWMutex("x").Lease },
		"strict":      func(c *holdfast.Client) leasing { return c.RWMutex("x", strict).Lease },
		"an owner":    func(c *holdfast.Client) leasing { return c.RWMutex("x", holdfast.WithOwner("me")).Lease },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, l *lab) {
				c := l.mates()
				rw := c.RWMutex("x")
				l.read(rw, 3)
				w := l.queue(1, writer(c))[0]
				first := begin(rw.RLock)
				l.stays(first)
				assert.False(t, rw.TryRLock())
				time.Sleep(ages / 2) // the writer has asked again, which is nothing new
				second := begin(rw.RLock)
				l.stays(second)
				assert.Len(t, l.look(rw).Queue, 2, "the readers have one place")
				last := l.queue(1, c.RWMutex("x", strict).Lease)[0]
				third := begin(rw.RLock)
				l.stays(third)
				for range 3 {
					l.waits(w)
					rw.RUnlock()
				}
				lease := w.granted(soon)
				l.stays(first)
				l.giveBack(lease)
				l.ends(first)
				l.ends(second)
				l.stays(third)
				l.waits(last)
				rw.RUnlock()
				l.stays(third)
				rw.RUnlock()
				lease = last.granted(soon)
				l.stays(third)
				l.giveBack(lease)
				l.ends(third)
				rw.RUnlock()
				l.isClean("rwmutex", "x")
				assert.Zero(t, c.Doors())
			})
		})
	}
}

// The writer that both wait for is elsewhere.
func TestReadersDoNotJoinAheadOfAReaderOfTheirClient(t *testing.T) {
	inBubble(t, func(t *testing.T, l *lab) {
		c, other := l.mates(), l.near().RWMutex("x")
		rw := c.RWMutex("x")
		l.read(rw, 2)
		writer := l.ask(other.Lease)
		l.untilWaiting(other, 1)
		l.read(rw, 1)
		shown := l.ask(rw.RLease)
		l.untilWaiting(other, 2)
		hidden := begin(rw.RLock)
		l.stays(hidden)
		for range 3 {
			rw.RUnlock()
		}
		l.giveBack(writer.granted(soon))
		l.ends(hidden)
		l.giveBack(shown.granted(soon))
		rw.RUnlock()
		l.isClean("rwmutex", "x")
	})
}

func TestReadersWhoJoinedLoseTheLockTogether(t *testing.T) {
	inBubble(t, func(t *testing.T, l *lab) {
		const ttl = time.Second
		c, other := l.farMates(holdfast.WithTTL(ttl)), l.near().RWMutex("x")
		rw := c.RWMutex("x")
		l.read(rw, 3)
		time.Sleep(2 * ttl)
		require.False(t, other.TryLock(), "it is renewed")
		writer := l.ask(other.Lease)
		l.untilWaiting(other, 1)
		l.link.BlackHole(true)
		writer.granted(ttl + ttl/20 + ttl/3 + l.slack)
		l.untilLogged("x", 1)
		l.heal()
		assert.Equal(t, 1, strings.Count(l.log.String(), "lock lost"), "there was one lease")

		// Nobody joins them any more, and they are locked in until they go.
		late := begin(rw.RLock)
		l.stays(late)
		wrote := begin(rw.Lock)
		for range 3 {
			rw.RUnlock()
			l.isHeldBy(other, writer.lease)
		}
		l.stays(late)
		l.giveBack(writer.lease)
		l.ends(late)
		l.stays(wrote)
		rw.RUnlock()
		l.ends(wrote)
		rw.Unlock()
		assert.Contains(t, panics(t, rw.RUnlock), "RUnlock of unlocked RWMutex")
		l.isClean("rwmutex", "x")
	})
}

// Not even at the moment when it is, before anybody has been told. The turn would go on: the
// store has taken its time to answer.
func TestNobodyJoinsWhenTheTrustIsOver(t *testing.T) {
	const ttl = time.Second
	for range 50 { // who is first of those that wait for the same moment is left to chance
		synctest.Test(t, func(t *testing.T) {
			p := &play{asks: make(chan *ask, 16), renew: driver.ErrTransient}
			c := holdfast.Open(p, holdfast.WithTTL(ttl), holdfast.WithLogger(slog.New(slog.DiscardHandler)))
			rw := c.RWMutex("x")
			over := time.Now().Add(ttl - ttl/100 - 2*time.Millisecond)
			first := begin(rw.RLock)
			time.Sleep(ttl - ttl/10)
			(<-p.asks).granted(1)
			require.Nil(t, <-first)
			for len(p.asks) > 0 { // heartbeats
				(<-p.asks).answer <- result{error: driver.ErrTransient}
			}
			time.Sleep(time.Until(over) - time.Millisecond)
			rw.RLock()
			require.Empty(t, p.asks)
			time.Sleep(time.Millisecond)
			late := begin(rw.RLock)
			synctest.Wait()
			require.Len(t, p.asks, 1, "it joins what is over")
			(<-p.asks).granted(2)
			require.Nil(t, <-late)
			require.NoError(t, c.Close())
		})
	}
}

func TestForcedReadersAreNotJoined(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		c, other := l.mates(holdfast.WithTTL(900*time.Millisecond)), l.near().RWMutex("x")
		rw := c.RWMutex("x")
		l.read(rw, 3)
		require.NoError(t, other.ForceUnlock(t.Context()))
		l.untilLogged("x", 1)
		require.True(t, other.TryLock())
		assert.False(t, rw.TryRLock())
		other.Unlock()
		l.read(rw, 2)
		assert.Len(t, l.look(other).Holders, 1)
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
	everywhere(t, func(t *testing.T, l *lab) {
		c, other := l.mates(), l.near()
		in, out := c.RWMutex("in"), c.RWMutex("out")
		l.read(in, 3)
		held := l.take(other.RWMutex("out").Lease)
		var late []<-chan any
		for range 5 {
			late = append(late, begin(out.RLock))
		}
		l.untilWaiting(other.RWMutex("out"), 1)
		require.NoError(t, promptly(t, soon, c.Close))
		for _, locked := range late {
			assert.Contains(t, fmt.Sprint(promptly(t, soon, func() any { return <-locked })), "closed")
		}
		assert.Contains(t, panics(t, in.RLock), "closed")
		assert.Empty(t, l.look(other.RWMutex("in")).Holders)
		assert.Empty(t, l.look(other.RWMutex("out")).Queue)
		for range 3 {
			in.RUnlock()
		}
		assert.Contains(t, panics(t, in.RUnlock), "RUnlock of unlocked RWMutex")
		assert.Zero(t, c.Doors())
		l.giveBack(held)
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
		"TTL":     {holdfast.WithTTL(2 * ages)},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, l *lab) {
				c := l.mates()
				if name == "hooked" {
					c.AddHook(holdfast.HookBase{})
				}
				rw := c.RWMutex("x", opts...)
				switch name {
				case "shown":
					first := l.take(rw.RLease)
					rw.RLock()
					second := l.take(rw.RLease)
					assert.Len(t, l.look(rw).Holders, 3)
					assert.Less(t, first.Fence(), second.Fence())
					l.giveBack(first, second)
				case "TTL":
					held := l.take(l.near().RWMutex("x").Lease)
					in := []<-chan any{begin(c.RWMutex("x").RLock), begin(rw.RLock)}
					l.untilWaiting(rw, 2)
					l.giveBack(held)
					l.ends(in[0])
					l.ends(in[1])
					rw.RUnlock()
					rw.RUnlock()
					c.RWMutex("x").RLock()
					l.read(rw, 2)
					assert.Len(t, l.look(rw).Holders, 2)
					rw.RUnlock()
					rw.RUnlock()
				default:
					l.read(rw, 2)
					assert.Len(t, l.look(rw).Holders, 2)
					rw.RUnlock()
				}
				assert.Len(t, l.look(rw).Holders, 1)
				rw.RUnlock()
				l.isClean("rwmutex", "x")
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
	inBubble(t, func(t *testing.T, l *lab) {
		m := &moody{Driver: memdriver.New()}
		c := holdfast.Open(m)
		defer c.Close()
		rw := c.RWMutex("x")
		rw.RLock()
		rw.RUnlock() // the store has been of use, so a failure is waited out
		m.left.Store(3)
		var in []<-chan any
		for range 5 {
			in = append(in, begin(rw.RLock))
		}
		for _, done := range in {
			l.ends(done)
		}
		for range in {
			rw.RUnlock()
		}
		assert.Zero(t, c.Doors())
	})
}

func TestReadersGoOnWithoutOneThatOnlyTried(t *testing.T) {
	inBubble(t, func(t *testing.T, l *lab) {
		c := l.farMates()
		l.ready(c)
		rw := c.RWMutex("x")
		l.link.BlackHole(true)
		tried := make(chan bool, 1)
		go func() { tried <- rw.TryRLock() }()
		l.settle()
		in := []<-chan any{begin(rw.RLock), begin(rw.RLock)}
		require.False(t, <-tried)
		l.heal()
		for _, done := range in {
			l.ends(done)
		}
		assert.Len(t, l.look(rw).Holders, 1)
		rw.RUnlock()
		rw.RUnlock()
	})
}

func TestReadersWhoJoinedAndWritersNeverMeet(t *testing.T) {
	everywhere(t, func(t *testing.T, l *lab) {
		clients := []*holdfast.Client{l.mates(), l.mates(), l.mates()}
		r := &referee{limit: crowdOf}
		const n, readers, writers = 30, 18, 4
		var wg sync.WaitGroup
		for i := range writers {
			wg.Go(func() { hammer(r, clients[i%3].RWMutex("x"), crowdOf, n) })
		}
		for i := range readers {
			wg.Go(func() { hammer(r, clients[i%3].RWMutex("x").RLocker(), 1, n) })
		}
		promptly(t, 6*soon, func() error { wg.Wait(); return nil })
		r.requireFair(t, n*(readers+writers))
		l.isClean("rwmutex", "x")
		for _, c := range clients {
			assert.Zero(t, c.Doors())
		}
	})
}
