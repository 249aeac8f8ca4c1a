package redisson_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/redisson"
	"github.com/holdfast-go/holdfast/internal/test/redistest"
)

// bench is a fair lock that threads of Java and programs of ours wait for.
type bench struct {
	*testing.T
	s    *redistest.Server
	rdb  *redis.Client
	name string
}

func newBench(t *testing.T, s *redistest.Server) *bench {
	return &bench{t, s, s.Client(t), s.Prefix() + "orders"}
}

// waiting waits until so many wait.
func (b *bench) waiting(n int64) {
	b.Helper()
	_, queue, _ := fairKeys(b.name)
	require.Eventually(b, func() bool { return b.rdb.LLen(b.Context(), queue).Val() == n }, 20*time.Second, 5*time.Millisecond)
}

// ours is a client of its own, as another program has.
func (b *bench) ours(opts ...holdfast.LockOption) *holdfast.Mutex {
	locks := holdfast.Open(redisson.New(b.s.Client(b.T), fair))
	b.Cleanup(func() { assert.NoError(b, locks.Close()) })
	return locks.Mutex(b.name, append([]holdfast.LockOption{holdfast.WithTTL(long)}, opts...)...)
}

// visitor waits for the lock, and calls visit while it has it.
type visitor func(ctx context.Context, visit func()) error

func (b *bench) visitorOfJava() visitor {
	j := newJava(b.rdb)
	return func(ctx context.Context, visit func()) error {
		if err := j.lockFair(ctx, b.name, func() {}); err != nil {
			return err
		}
		visit()
		return j.unlockFair(ctx, b.name)
	}
}

func (b *bench) visitorOfOurs() visitor {
	m := b.ours()
	return func(ctx context.Context, visit func()) error {
		return m.Do(ctx, func(context.Context) error {
			visit()
			return nil
		})
	}
}

// Those that wait are served in the order in which they came, in Go and in Java, and each is told:
// none of them would ask in time.
func TestOrderIsKeptAmongOursAndThoseOfJava(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		b := newBench(t, s)
		holder := newJava(b.rdb)
		_, locked, err := holder.tryFair(t.Context(), b.name, false)
		require.NoError(t, err)
		require.True(t, locked)
		const crew = 8
		served, done := make(chan int, crew), make(chan error, crew)
		for i := range crew {
			v := b.visitorOfOurs()
			if i%3 == 1 {
				v = b.visitorOfJava()
			}
			go func() { done <- v(t.Context(), func() { served <- i }) }()
			b.waiting(int64(i) + 1)
		}
		began := time.Now()
		require.NoError(t, holder.unlockFair(t.Context(), b.name))
		for i := range crew {
			require.NoError(t, soon(t, done))
			require.Equal(t, i, <-served, "FOUL: served out of turn")
		}
		require.Less(t, time.Since(began), long/3*crew/3, "they were not told")
	})
}

// All of them at one lock. Who is in the room leaves it when all others are in the queue, so that
// their order is known: nobody is overtaken.
func TestNobodyStarvesAmongOursAndThoseOfJava(t *testing.T) {
	t.Parallel()
	b := newBench(t, redistest.Shared(t))
	const crew, rounds = 6, 20
	_, queue, ends := fairKeys(b.name)
	ctx, end := context.WithCancel(t.Context()) // of all, once one fails: the others might wait for ever
	defer end()
	var inside atomic.Int64
	var mu sync.Mutex
	visits := make([]int, crew)
	visit := func(i int) {
		assert.EqualValues(t, 1, inside.Add(1), "FOUL: two are in the room")
		mu.Lock()
		visits[i]++
		others := int64(0)
		for other, n := range visits {
			if !assert.LessOrEqual(t, visits[i], n+1, "FOUL: %d was overtaken by %d: %v", other, i, visits) {
				end()
			}
			if other != i && n < rounds {
				others++
			}
		}
		mu.Unlock()
		come := func() bool { return b.rdb.LLen(t.Context(), queue).Val() == others }
		if ctx.Err() == nil && !assert.Eventually(t, come, 20*time.Second, time.Millisecond, "%d wait", others) {
			end()
		}
		inside.Add(-1)
	}
	var wg sync.WaitGroup
	for i := range crew {
		v := b.visitorOfOurs()
		if i%2 == 1 {
			v = b.visitorOfJava()
		}
		wg.Go(func() {
			for range rounds {
				if !assert.NoError(t, v(ctx, func() { visit(i) })) {
					return
				}
			}
		})
	}
	wg.Wait()
	for _, n := range visits {
		require.Equal(t, rounds, n)
	}
	require.Zero(t, b.rdb.Exists(t.Context(), b.name, queue, ends).Val(), "nothing is left")
}

// dies has somebody wait who is never heard of again.
func (b *bench) dies(java bool) {
	if java {
		_, locked, err := newJava(b.rdb).tryFair(b.Context(), b.name, true)
		require.NoError(b, err)
		require.False(b, locked)
		return
	}
	d := open(b.T, b.s.Client(b.T), fair)
	r, _ := of("", b.name, "dead", 10*time.Second)
	r.Wait = true
	g, err := d.Acquire(b.Context(), r)
	require.NoError(b, err)
	require.Equal(b, driver.Queued, g.Status)
}

// A waiter that has died keeps the others waiting no longer than Redisson's fairLockWaitTimeout. One
// of ours, behind which one of ours waits, is dropped as soon as its heartbeats are missing.
func TestDeadWaiterIsPassedOver(t *testing.T) {
	for _, c := range []struct {
		dead, next  bool // is it Java?
		least, most time.Duration
	}{
		{true, true, turn, turn + 2*long},
		{true, false, turn, turn + 2*long},
		{false, true, turn, turn + 2*long},
		{false, false, 0, 20 * time.Second},
	} {
		t.Run(fmt.Sprintf("java=%v,%v", c.dead, c.next), func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T, s *redistest.Server) {
				b := newBench(t, s)
				holder := newJava(b.rdb)
				_, _, err := holder.tryFair(t.Context(), b.name, false)
				require.NoError(t, err)
				b.dies(c.dead)
				v := b.visitorOfOurs()
				if c.next {
					v = b.visitorOfJava()
				}
				done := make(chan error, 1)
				go func() { done <- v(t.Context(), func() {}) }()
				b.waiting(2)
				began := time.Now()
				require.NoError(t, holder.unlockFair(t.Context(), b.name))
				require.NoError(t, <-done)
				require.GreaterOrEqual(t, time.Since(began), c.least)
				require.LessOrEqual(t, time.Since(began), c.most)
			})
		})
	}
}

// Nobody tells that the turn of a waiter that has died is over: a waiter of ours asks then, however
// long its TTL is.
func TestWaiterAsksWhenTheTurnOfTheDeadHasPassed(t *testing.T) {
	for _, c := range []struct {
		name string
		dead queue // "dead" is of ours, and silent from s on
		want time.Duration
	}{
		{"Java", queue{{"J:1", 4}}, 4 * time.Second},
		{"Java twice", queue{{"J:1", 4}, {"J:2", 9}}, 9 * time.Second},
		{"Java, ours", queue{{"J:1", 4}, {"dead", 1}}, 4 * time.Second},
		{"ours, Java", queue{{"dead", 1}, {"J:1", turn.Seconds() + 4}}, 4 * time.Second}, // it takes its turn with it
		{"Java, ours, Java", queue{{"J:1", 4}, {"dead", 7}, {"J:2", turn.Seconds() + 9}}, 9 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			redistest.Bubble(t, func(t *testing.T, s *redistest.Server) {
				b := newBench(t, s)
				_, list, ends := fairKeys(b.name)
				now := float64(b.rdb.Time(t.Context()).Val().UnixMilli())
				for _, w := range c.dead {
					require.NoError(t, b.rdb.RPush(t.Context(), list, w.who).Err())
					require.NoError(t, b.rdb.ZAdd(t.Context(), ends, redis.Z{Score: now + 1000*w.s, Member: w.who}).Err())
					if w.who == "dead" {
						waits := "holdfast:redisson:waits:{" + b.name + "}"
						require.NoError(t, b.rdb.ZAdd(t.Context(), waits, redis.Z{Score: now + 1000*w.s, Member: w.who}).Err())
					}
				}
				began := time.Now()
				lease, err := b.ours(patient).Lease(t.Context())
				require.NoError(t, err)
				require.InDelta(t, c.want, time.Since(began), float64(time.Second/4))
				require.NoError(t, lease.Release(t.Context()))
			})
		})
	}
}

// A holder that keeps the lock for longer than the time of the first waiter does not cost ours its
// place, though each thread of Java that asks looks for places that are over.
func TestPlaceOutlastsALongHold(t *testing.T) {
	redistest.Bubble(t, func(t *testing.T, s *redistest.Server) {
		b := newBench(t, s)
		holder, asks := newJava(b.rdb), newJava(b.rdb)
		_, _, err := holder.tryFair(t.Context(), b.name, false)
		require.NoError(t, err)
		crew := []string{"ours", "ours, too", "Java"}
		served, done := make(chan string, len(crew)), make(chan error, len(crew))
		for i, who := range crew {
			v := b.visitorOfOurs()
			if who == "Java" {
				v = b.visitorOfJava()
			}
			go func() { done <- v(t.Context(), func() { served <- who }) }()
			b.waiting(int64(i) + 1)
		}
		for range 80 { // 13 minutes, in which two would lose their places
			time.Sleep(10 * time.Second)
			require.Equal(t, []int64{1}, holder.renew(t, long, b.name))
			_, _, err := asks.tryFair(t.Context(), b.name, false)
			require.NoError(t, err)
		}
		require.NoError(t, holder.unlockFair(t.Context(), b.name))
		for _, who := range crew {
			require.NoError(t, <-done)
			require.Equal(t, who, <-served)
		}
	})
}

// A waiter of ours that gives up leaves its place, and those behind it move up.
func TestWaiterThatGivesUpLeavesItsPlace(t *testing.T) {
	redistest.Each(t, func(t *testing.T, s *redistest.Server) {
		b := newBench(t, s)
		holder := newJava(b.rdb)
		_, _, err := holder.tryFair(t.Context(), b.name, false)
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		first, second := make(chan error, 1), make(chan error, 1)
		go func() { first <- b.visitorOfOurs()(ctx, func() {}) }()
		b.waiting(1)
		go func() { second <- b.visitorOfJava()(t.Context(), func() {}) }()
		b.waiting(2)
		cancel()
		require.ErrorIs(t, <-first, context.Canceled)
		b.waiting(1)
		require.NoError(t, holder.unlockFair(t.Context(), b.name))
		require.NoError(t, soon(t, second))
	})
}
