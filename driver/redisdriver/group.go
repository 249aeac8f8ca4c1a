package redisdriver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/internal/redisscript"
)

const (
	// A server that is far has several calls of one script under way, one for each spacing that a
	// call takes, but no more than maxCalls, or than there are connections. Up to fewCallers go
	// at once, each with a call.
	spacing    = 500 * time.Microsecond
	maxCalls   = 16
	fewCallers = 8
	// maxLocks is how many locks go in one call. Redis does nothing else meanwhile, for some
	// 200 us; see also script/lib/each.lua. One that is contended takes as long as some others,
	// so a call of maxLocks/contendedCost handles them all. If the server is farther than as many calls
	// as may be are worth, each handles more: see cost.
	maxLocks      = 64
	contendedCost = 8
	// silentAfter is how long callers wait behind a call without an answer: a call has one
	// connection, and if that hangs, they must not.
	silentAfter = 100 * time.Millisecond
)

// group runs scripts for many callers at a time in one call ("group commit": DeWitt et al.,
// Implementation Techniques for Main Memory Database Systems, 1984). Each lock is handled by
// itself, and fails by itself. All locks are on one server, which may be a node of a Cluster.
//
// One call of a script is under way, and callers gather behind it. A caller that finds none
// leaves at once. When the call ends, the first of those who have gathered leads the others. So
// nobody waits for others to come, and the more callers there are, the more share a call. If the
// server is far, more calls are under way, and leave evenly. Were they to leave together, their
// callers would also come back together, and gather for the whole time of a call.
//
// A caller behind a call that was written 100 ms ago goes alone, if there is a connection for
// it; the others go on waiting. The wrong version lets everybody go alone when a server has
// been silent. They queue for the connections of the pool, shared calls queue behind them, so
// they seem to be silent, too, and have still more callers go alone: for good.
//
// Nor are there more shared calls of a script than connections. The time that a call takes
// contains its wait for one. The wrong version takes that for distance, and sends more calls for
// fewer callers each, which wait still longer.
type group struct {
	*groups
	addr   string      // of the node, on a Cluster
	tried  atomic.Bool // it keeps to its keys, as far as we know
	unused sync.Pool   // callers, of this group alone, since synctest keeps bubbles apart
	began  time.Time

	mu      sync.Mutex
	callers int // under way, or waiting for that
	calls   int // under way: connections in use or waited for
	queues  []*callQueue
}

// callQueue is those who wait for a call of one script.
type callQueue struct {
	*script
	waiting  []*caller
	underWay int           // calls under way, but for those beside
	left     time.Duration // when the last of them left, after began
	took     time.Duration // how long they take, see measured
	timer    *time.Timer   // when to look whether a call may leave
	looks    time.Duration // at that time after began, 0 for none
}

// cost is what a contended lock costs. It falls from the distance on from which there are no more calls, of
// 8 ms, and is 1 beyond 32 ms. So calls hold up the server for the same small part of the time that they take,
// one for some 3 ms at most, and no longer than several of a nearer server together.
//
// The wrong version has 16 calls under way for 8 locks each, however long they take: that is 512 locks in
// a second at 250 ms. A thousand waiters with a TTL of 3 s ask twice as often. Their asks queued, no grant
// was trusted any more when it was heard of, and it kept the lock for a TTL.
func (q *callQueue) cost() int {
	if q.took <= maxCalls*spacing {
		return contendedCost
	}
	return max(1, int(contendedCost*maxCalls*spacing/q.took))
}

// load is how many of those who wait go in one call, and whether it has room for no more.
func (q *callQueue) load() (n int, full bool) {
	room, cost := maxLocks, q.cost()
	for ; n < len(q.waiting) && room > 0; n++ {
		room--
		if q.waiting[n].contended {
			room -= cost - 1
		}
	}
	return n, room <= 0
}

func (q *callQueue) full() bool {
	_, full := q.load()
	return full
}

// measured notes how long a call took. The quickest of late tell how far the server is: what
// others take longer is the time of a busy machine. So it falls at once, and grows by 1/16.
func (q *callQueue) measured(took time.Duration) {
	if q.took > 0 {
		took = min(took, q.took+q.took/16+time.Microsecond)
	}
	q.took = took
}

// step is what a caller does next.
//
//	waits ──► leads ──┬──► answered
//	  ▲ │             ├──► alone      a shared call failed, perhaps because of another
//	  │ └──► alone ───┼──► answered
//	  └───────────────┘               the call was long enough without this lock
//
// Those of its batch go the same ways as the caller that leads, from waits on.
type step int

const (
	waits    step = iota
	leads         // it makes a call for all of its batch
	alone         // it makes a call for itself, beside those
	answered      // it has the reply, or the error
)

// caller is one that waits for a call. Its next task is decided under mu, and its own from then on.
type caller struct {
	request
	done chan struct{} // gets one when there is something to do; has room for it

	step  step
	batch []*caller     // of one that leads others, itself the first
	cost  int           // what a contended lock costs in their call
	left  time.Duration // when it left

	before error // of a shared call that did not tell whose fault that was
	reply  any
	err    error
}

func newCaller() any { return &caller{done: make(chan struct{}, 1)} }

// enter has a caller wait for a call.
func (g *group) enter(r request) *caller {
	c := g.unused.Get().(*caller)
	c.request = r
	g.mu.Lock()
	defer g.mu.Unlock()
	g.callers++
	q := g.queueOf(r.script)
	q.waiting = append(q.waiting, c)
	g.next(q, time.Since(g.began))
	return c
}

// await waits until the caller has something to do, or reports false if its context ends before.
//
// Once the request is sent, the caller stays until there is an answer, as it does with a call
// of its own. So there is somebody who gives back what nobody wants any more. The wrong
// version leaves, and has the call release the token. Another goroutine may have taken the
// token over meanwhile, and trusts a grant of it.
func (g *group) await(ctx context.Context, c *caller) bool {
	done := ctx.Done()
	if done == nil {
		<-c.done
		return true
	}
	select {
	case <-c.done:
		return true
	case <-done:
	}
	if g.leave(c) {
		return false
	}
	<-c.done
	return true
}

// recycle ends the use of a caller. One that was to make a call and has not, because a hook of
// the user panics, leaves its batch an error.
func (g *group) recycle(c *caller) {
	if c.step == leads || c.step == alone {
		g.ended(c, nil, errAbandoned)
		<-c.done
	}
	*c = caller{done: c.done}
	g.unused.Put(c)
}

var errAbandoned = errors.New("redisdriver: a call for several locks was abandoned")

func (g *group) queueOf(s *script) *callQueue {
	for _, q := range g.queues {
		if q.script == s {
			return q
		}
	}
	q := &callQueue{script: s}
	g.queues = append(g.queues, q)
	return q
}

// leave takes back a request, and reports false if it has gone.
func (g *group) leave(c *caller) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	q := g.queueOf(c.script)
	i := slices.Index(q.waiting, c)
	if i < 0 {
		return false
	}
	q.waiting = slices.Delete(q.waiting, i, i+1)
	g.callers--
	return true
}

// next has those who wait go on, as far as they may: together, or alone if no call leaves
// because those under way are silent. It is called whenever that may have changed. The
// caller holds mu.
func (g *group) next(q *callQueue, now time.Duration) {
	for len(q.waiting) > 0 {
		slots := min(max(1, int(q.took/spacing)), maxCalls, g.room)
		gap := q.took / time.Duration(slots)
		idle, room := now-q.left, g.calls < g.room
		switch {
		case q.underWay == 0, room && g.callers <= fewCallers && q.took >= spacing, q.underWay < slots && (idle >= gap || q.full()):
			g.depart(q, now)
		case room && idle >= silentAfter:
			g.alone(q)
		case q.underWay < slots:
			g.lookIn(q, now, gap-idle)
			return
		case idle < silentAfter:
			g.lookIn(q, now, silentAfter-idle)
			return
		default: // until some call ends
			return
		}
	}
}

// lookIn calls next later. It may be too early then, and sets another time. The caller
// holds mu.
func (g *group) lookIn(q *callQueue, now, d time.Duration) {
	switch at := now + d; {
	case q.timer == nil:
		q.looks, q.timer = at, time.AfterFunc(d, func() { g.look(q) })
	case q.looks == 0 || at < q.looks:
		q.looks = at
		q.timer.Reset(d)
	}
}

func (g *group) look(q *callQueue) {
	g.mu.Lock()
	defer g.mu.Unlock()
	q.looks = 0
	g.next(q, time.Since(g.began))
}

// alone lets the caller go that has waited longest. The caller holds mu.
func (g *group) alone(q *callQueue) {
	c := q.waiting[0]
	q.waiting = slices.Delete(q.waiting, 0, 1)
	g.calls++
	c.step = alone
	c.done <- struct{}{}
}

// depart has those who have waited longest leave in a call. The caller holds mu.
func (g *group) depart(q *callQueue, now time.Duration) {
	n, _ := q.load()
	c := q.waiting[0]
	if n > 1 {
		c.batch, c.cost = slices.Clone(q.waiting[:n]), q.cost()
	}
	q.waiting = slices.Delete(q.waiting, 0, n)
	q.underWay++
	g.calls++
	q.left, c.left = now, now
	c.step = leads
	c.done <- struct{}{}
}

// ended is called with what came of a call that c made. Of one for many, value has the replies.
// A lock for which there is none was not handled, and is asked for again.
func (g *group) ended(c *caller, value any, err error) {
	self, only := [1]*caller{c}, [1]any{value}
	all, replies := self[:], only[:]
	shared := len(c.batch) > 0
	if shared {
		all = c.batch
		if err == nil {
			replies, err = repliesFor(len(all), value)
		}
	}
	separate := shared && g.separable(err)
	g.mu.Lock()
	now := time.Since(g.began)
	q := g.queueOf(c.script)
	g.calls--
	if c.step == leads {
		if q.underWay--; err == nil {
			q.measured(now - c.left)
		}
	}
	again := 0 // stay at the head of the queue
	for i, one := range all {
		switch {
		case shared && err == nil && replies[i] == nil:
			// The wrong version counts it like any other next time. Each call takes along as many
			// again and handles a few of them, so a crowd takes a trip for every few.
			one.step, one.contended = waits, true
			q.waiting = slices.Insert(q.waiting, again, one)
			again++
		case shared && err == nil && replies[i] == elsewhere:
			one.step = alone
			g.calls++
		case separate && !(one == c && err == errAbandoned):
			one.step, one.before = alone, err
			g.calls++ // perhaps more than there is room for, but only once
		default:
			if one.step, one.err = answered, err; err == nil {
				one.reply = replies[i]
			}
			g.callers--
		}
	}
	c.batch = nil
	for i, one := range all { // later one that waits again may have gone
		if one.step == waits {
			all[i] = nil
		}
	}
	for _, q := range g.queues { // there may be a connection for those who go alone
		g.next(q, now)
	}
	g.mu.Unlock()
	for _, one := range all { // last, so that the next call is on its way
		if one != nil {
			one.done <- struct{}{}
		}
	}
}

// repliesFor returns one reply for each of n locks. Some may be nothing: to be asked for again.
func repliesFor(n int, reply any) ([]any, error) {
	replies, _ := reply.([]any)
	if len(replies) != n || !slices.ContainsFunc(replies, func(r any) bool { return r != nil }) {
		return nil, fmt.Errorf("redisdriver: a script answered with %v", reply)
	}
	return replies, nil
}

// outcome is what came of a request.
func (c *caller) outcome() (any, error) {
	if c.before == nil || errors.Is(c.before, driver.ErrNotExecuted) {
		return c.reply, c.err
	}
	// The shared call may have done it. If then the token does not hold the lock that it
	// was to release, the first attempt has released it.
	switch list, _ := c.reply.([]any); {
	case c.script != releaseScript:
	case c.reply == int64(statusNeither):
		return int64(statusHeld), redisscript.Unknown(c.err)
	case len(list) > 0 && list[0] == int64(statusNeither):
		list[0] = int64(statusHeld)
	}
	return c.reply, redisscript.Unknown(c.err)
}
