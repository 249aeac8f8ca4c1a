//go:build unix

package holdfast_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

// Readers, writers and holders of permits in four processes.
const fleetOf = 4

// form is the form of Lease that the order wants.
func (w *worker) form(o order) leasing {
	switch o.Kind {
	case "":
		return w.locks.Mutex(o.Lock).Lease
	case "read":
		return w.locks.RWMutex(o.Lock).RLease
	case "write":
		return w.locks.RWMutex(o.Lock).Lease
	case "permits":
		return permits(w.locks.Semaphore(o.Lock, o.Limit), o.Weight)
	}
	panic("no such kind: " + o.Kind)
}

// gate returns how to go in and out by the forms of package sync.
func (w *worker) gate(o order) (in, out func()) {
	switch o.Kind {
	case "nothing":
		return func() {}, func() {}
	case "read":
		rw := w.locks.RWMutex(o.Lock)
		return rw.RLock, rw.RUnlock
	case "write":
		rw := w.locks.RWMutex(o.Lock)
		return rw.Lock, rw.Unlock
	case "permits":
		s := w.locks.Semaphore(o.Lock, o.Limit)
		return func() {
			if err := s.Acquire(context.Background(), o.Weight); err != nil {
				panic(err)
			}
		}, func() { s.Release(o.Weight) }
	}
	panic("no such kind: " + o.Kind)
}

// obeyFleet carries out the orders hammer, stop, lock and unlock.
func (w *worker) obeyFleet(o order, r report) {
	if o.Do == "stop" {
		close(w.stop)
		return
	}
	in, out := w.gate(o)
	switch o.Do {
	case "hammer":
		go w.hammer(o, r, in, out)
	case "lock":
		go func() {
			in()
			r.What = "locked"
			w.say(r)
		}()
	case "unlock":
		out()
		r.What = "unlocked"
		w.say(r)
	default:
		panic("no such order: " + o.Do)
	}
}

// hammer goes in and out N times, or until it is told to stop, and calls the referee.
func (w *worker) hammer(o order, r report, in, out func()) {
	p := newPlayer(o.Dir)
	for !w.stopped() && (o.N == 0 || r.N < o.N) {
		in()
		p.enter(o.Weight)
		if o.Stay > 0 {
			time.Sleep(rand.N(o.Stay))
		}
		p.leave(o.Weight)
		out()
		r.N++
	}
	r.What = "hammered"
	w.say(r)
}

func (w *worker) stopped() bool {
	select {
	case <-w.stop:
		return true
	default:
		return false
	}
}

// hammer has every process go in and out in as many goroutines as there are orders, and
// returns how often they did.
func (a *arena) hammer(cs []*contender, addr string, orders ...order) (n int64) {
	a.Helper()
	for _, c := range cs {
		for _, o := range orders {
			o.Do, o.Lock, o.Dir = "hammer", "l", addr
			c.tell(o)
		}
	}
	for _, c := range cs {
		for range orders {
			n += int64(c.expect("hammered", "l").N)
		}
	}
	return n
}

func newFleet(t *testing.T, kind driver.Kind, ttl time.Duration) (*arena, []*contender) {
	t.Helper()
	a := newArena(t, ttl)
	a.kind = kind
	return a, a.contenders(fleetOf)
}

func TestReadersAndWritersOfFourProcessesNeverMeet(t *testing.T) {
	a, cs := newFleet(t, driver.RWMutex, 10*time.Second)
	r := &referee{limit: crowdOf}
	reader := order{Kind: "read", Weight: 1, N: 60, Stay: time.Millisecond}
	writer := order{Kind: "write", Weight: crowdOf, N: 30}
	n := a.hammer(cs, r.listen(t), reader, reader, reader, writer)
	r.requireFair(t, n)
	assert.EqualValues(t, fleetOf*(3*60+30), n)
	assert.Empty(t, a.inspect("l").Holders, a.situation("l"))
	assert.Empty(t, a.inspect("l").Queue, a.situation("l"))
}

func TestFourProcessesNeverHaveMoreThanTheLimit(t *testing.T) {
	const limit = 5
	a, cs := newFleet(t, driver.Semaphore, 10*time.Second)
	r := &referee{limit: limit}
	var orders []order
	for _, weight := range []int64{1, 2, 3, limit} {
		orders = append(orders, order{Kind: "permits", Weight: weight, Limit: limit, N: 50, Stay: time.Millisecond})
	}
	n := a.hammer(cs, r.listen(t), orders...)
	r.requireFair(t, n)
	assert.EqualValues(t, fleetOf*4*50, n)
	assert.EqualValues(t, limit, r.peak)
	assert.Empty(t, a.inspect("l").Holders, a.situation("l"))
	assert.Empty(t, a.inspect("l").Queue, a.situation("l"))
}

// The two tests above prove something only if the referee sees what happens without a
// lock.
func TestRefereeSeesThatNothingIsNoLock(t *testing.T) {
	a, cs := newFleet(t, driver.RWMutex, 10*time.Second)
	cs[0].lease("m") // for the arena, which wants to see a key
	for _, limit := range []int64{crowdOf, 5} {
		r := &referee{limit: limit}
		small := order{Kind: "nothing", Weight: 1, N: 30, Stay: time.Millisecond}
		all := order{Kind: "nothing", Weight: limit, N: 15}
		n := a.hammer(cs, r.listen(t), small, small, small, all)
		r.mu.Lock()
		assert.Greater(t, r.fouls, n/20, "of %d", n)
		r.mu.Unlock()
	}
}

// As many read as there are processes, and more come all the time.
func TestNobodyStarvesBesideAStreamOfSmallRequests(t *testing.T) {
	const limit = 12
	for kind, scene := range map[driver.Kind]struct{ small, large order }{
		driver.RWMutex: {
			order{Kind: "read", Weight: 1}, order{Kind: "write"},
		},
		driver.Semaphore: {
			order{Kind: "permits", Weight: 1, Limit: limit}, order{Kind: "permits", Weight: limit, Limit: limit},
		},
	} {
		t.Run(string(kind), func(t *testing.T) {
			a, cs := newFleet(t, kind, 10*time.Second)
			r := &referee{limit: limit}
			stream, large := cs[1:], cs[0]
			scene.small.Do, scene.small.Lock, scene.small.Dir = "hammer", "l", r.listen(t)
			scene.small.Stay = 5 * time.Millisecond
			const each = 4
			for _, c := range stream {
				for range each {
					c.tell(scene.small)
				}
			}
			a.until("l", "a stream", func(i holdfast.Info) bool { return len(i.Holders) > 2 })
			scene.large.Do, scene.large.Lock = "lease", "l"
			for range 5 {
				large.tell(scene.large)
				got := large.expect("leased", "l")
				t.Logf("served after %v", got.At-got.Began)
				info := a.inspect("l")
				require.Len(t, info.Holders, 1)
				assert.True(t, isFrom(large, info.Holders[0].Holder))
				large.release("l")
			}
			var n int64
			for _, c := range stream {
				c.tell(order{Do: "stop"})
			}
			for _, c := range stream {
				for range each {
					n += int64(c.expect("hammered", "l").N)
				}
			}
			r.requireFair(t, n)
		})
	}
}
