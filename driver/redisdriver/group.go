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
	// A server that is far has several calls of one script under way, one for each apart that a
	// call takes, but no more than far, or than there are connections. So few callers go at
	// once, each with a call.
	apart = 500 * time.Microsecond
	far   = 16
	few   = 8
	// most is how many locks go in one call. Redis does nothing else meanwhile, for some
	// 200 us; see also script/lib/each.lua. One that is contended takes as long as some others,
	// so a call of most/contended handles them all. If the server is farther than as many calls
	// as may be are worth, each handles more: see dear.
	most      = 64
	contended = 8
	// quiet is how long callers wait behind a call without an answer: a call has one
	// connection, and if that hangs, they must not.
	quiet = 100 * time.Millisecond
)

// group runs scripts for many callers at a time in one call ("group commit": DeWitt et al.,
// Implementation Techniques for Main Memory Database Systems, 1984). Each lock is handled by
// itself, and fails by itself. All locks are on one server, which may be a node of a Cluster.
//
// One call of a script is under way, and callers gather behind it. A caller that finds none
// leaves at once. When the call ends, the first of those who have gathered leads the others. So
// nobody waits for company, and the more callers there are, the more share a call. If the
// server is far, more calls are under way, and leave evenly. Were they to leave together, their
// callers would also come back together, and gather for the whole time of a call.
//
// A caller behind a call that was written 100 ms ago goes alone, if there is a connection for
// it; the others keep their seats. The wrong version lets everybody go alone when a server has
// been silent. They queue for the connections of the pool, shared calls queue behind them, so
// they seem to be silent, too, and have still more callers go alone: for good.
//
// Nor are there more shared calls of a script than connections. The time that a call takes
// contains its wait for one. The wrong version takes that for distance, and sends more calls for
// fewer callers each, which wait still longer.
type group struct {
	*groups
	addr  string      // of the node, on a Cluster
	tried atomic.Bool // it keeps to its keys, as far as we know
	seats sync.Pool   // of this group, since synctest keeps bubbles apart
	began time.Time

	mu      sync.Mutex
	callers int // under way, or waiting for that
	calls   int // under way: connections in use or waited for
	lines   []*line
}

// line is those who wait for a call of one script.
type line struct {
	*script
	waiting []*seat
	under   int           // calls under way, but for those beside
	left    time.Duration // when the last of them left, after began
	took    time.Duration // how long they take, see measured
	timer   *time.Timer   // when to look whether a call may leave
	looks   time.Duration // at that time after began, 0 for none
}

// dear is what a contended lock costs. It falls from the distance on from which there are no more calls, of
// 8 ms, and is 1 beyond 32 ms. So calls hold up the server for the same small part of the time that they take,
// one for some 3 ms at most, and no longer than several of a nearer server together.
//
// The wrong version has 16 calls under way for 8 locks each, however long they take: that is 512 locks in
// a second at 250 ms. A thousand waiters with a TTL of 3 s ask twice as often. Their asks queued, no grant
// was trusted any more when it was heard of, and it kept the lock for a TTL.
func (l *line) dear() int {
	if l.took <= far*apart {
		return contended
	}
	return max(1, int(contended*far*apart/l.took))
}

// load is how many of those who wait go in one call, and whether it has room for no more.
func (l *line) load() (n int, full bool) {
	room, dear := most, l.dear()
	for ; n < len(l.waiting) && room > 0; n++ {
		room--
		if l.waiting[n].contended {
			room -= dear - 1
		}
	}
	return n, room <= 0
}

func (l *line) full() bool {
	_, full := l.load()
	return full
}

// measured notes how long a call took. The quickest of late tell how far the server is: what
// others take longer is the time of a busy machine. So it falls at once, and grows by 1/16.
func (l *line) measured(took time.Duration) {
	if l.took > 0 {
		took = min(took, l.took+l.took/16+time.Microsecond)
	}
	l.took = took
}

// turn is what a caller does next.
//
//	waits ──► leads ──┬──► answered
//	  ▲ │             ├──► alone      a shared call failed, perhaps because of another
//	  │ └──► alone ───┼──► answered
//	  └───────────────┘               the call was long enough without this lock
//
// Its company goes the same ways as the caller that leads, from waits on.
type turn int

const (
	waits    turn = iota
	leads         // it makes a call for itself and its company
	alone         // it makes a call for itself, beside those
	answered      // it has the reply, or the error
)

// seat is one caller. Its next task is decided under mu, and its own from then on.
type seat struct {
	request
	done chan struct{} // gets one when there is something to do; has room for it

	turn    turn
	company []*seat       // of one that leads others, itself the first
	dear    int           // what a contended lock costs in their call
	left    time.Duration // when it left

	before error // of a shared call that did not tell whose fault that was
	reply  any
	err    error
}

func newSeat() any { return &seat{done: make(chan struct{}, 1)} }

// enter returns a seat for the caller.
func (g *group) enter(r request) *seat {
	c := g.seats.Get().(*seat)
	c.request = r
	g.mu.Lock()
	defer g.mu.Unlock()
	g.callers++
	l := g.line(r.script)
	l.waiting = append(l.waiting, c)
	g.next(l, time.Since(g.began))
	return c
}

// await waits until the caller has something to do, or reports false if its context ends before.
//
// Once the request is sent, the caller stays until there is an answer, as it does with a call
// of its own. So there is somebody who gives back what nobody wants any more. The wrong
// version leaves, and has the call release the token. Another goroutine may have taken the
// token over meanwhile, and trusts a grant of it.
func (g *group) await(ctx context.Context, c *seat) bool {
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

// vacate gives a seat to others. A caller that was to make a call and has not, because a hook of
// the user panics, leaves its company an error.
func (g *group) vacate(c *seat) {
	if c.turn == leads || c.turn == alone {
		g.ended(c, nil, errAbandoned)
		<-c.done
	}
	*c = seat{done: c.done}
	g.seats.Put(c)
}

var errAbandoned = errors.New("redisdriver: a call for several locks was abandoned")

func (g *group) line(s *script) *line {
	for _, l := range g.lines {
		if l.script == s {
			return l
		}
	}
	l := &line{script: s}
	g.lines = append(g.lines, l)
	return l
}

// leave takes back a request, and reports false if it has gone.
func (g *group) leave(c *seat) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	l := g.line(c.script)
	i := slices.Index(l.waiting, c)
	if i < 0 {
		return false
	}
	l.waiting = slices.Delete(l.waiting, i, i+1)
	g.callers--
	return true
}

// next has those who wait go on, as far as they may: together, or alone if no call leaves
// because those under way are silent. It is called whenever that may have changed. The
// caller holds mu.
func (g *group) next(l *line, now time.Duration) {
	for len(l.waiting) > 0 {
		lanes := min(max(1, int(l.took/apart)), far, g.room)
		gap := l.took / time.Duration(lanes)
		idle, room := now-l.left, g.calls < g.room
		switch {
		case l.under == 0, room && g.callers <= few && l.took >= apart, l.under < lanes && (idle >= gap || l.full()):
			g.depart(l, now)
		case room && idle >= quiet:
			g.alone(l)
		case l.under < lanes:
			g.lookIn(l, now, gap-idle)
			return
		case idle < quiet:
			g.lookIn(l, now, quiet-idle)
			return
		default: // until some call ends
			return
		}
	}
}

// lookIn calls next later. It may be too early then, and sets another time. The caller
// holds mu.
func (g *group) lookIn(l *line, now, d time.Duration) {
	switch at := now + d; {
	case l.timer == nil:
		l.looks, l.timer = at, time.AfterFunc(d, func() { g.look(l) })
	case l.looks == 0 || at < l.looks:
		l.looks = at
		l.timer.Reset(d)
	}
}

func (g *group) look(l *line) {
	g.mu.Lock()
	defer g.mu.Unlock()
	l.looks = 0
	g.next(l, time.Since(g.began))
}

// alone lets the caller go that has waited longest. The caller holds mu.
func (g *group) alone(l *line) {
	c := l.waiting[0]
	l.waiting = slices.Delete(l.waiting, 0, 1)
	g.calls++
	c.turn = alone
	c.done <- struct{}{}
}

// depart has those who have waited longest leave in a call. The caller holds mu.
func (g *group) depart(l *line, now time.Duration) {
	n, _ := l.load()
	c := l.waiting[0]
	if n > 1 {
		c.company, c.dear = slices.Clone(l.waiting[:n]), l.dear()
	}
	l.waiting = slices.Delete(l.waiting, 0, n)
	l.under++
	g.calls++
	l.left, c.left = now, now
	c.turn = leads
	c.done <- struct{}{}
}

// ended is called with what came of a call that c made. Of one for many, value has the replies.
// A lock for which there is none was not handled, and is asked for again.
func (g *group) ended(c *seat, value any, err error) {
	self, only := [1]*seat{c}, [1]any{value}
	all, replies := self[:], only[:]
	shared := len(c.company) > 0
	if shared {
		all = c.company
		if err == nil {
			replies, err = repliesFor(len(all), value)
		}
	}
	separate := shared && g.separable(err)
	g.mu.Lock()
	now := time.Since(g.began)
	l := g.line(c.script)
	g.calls--
	if c.turn == leads {
		if l.under--; err == nil {
			l.measured(now - c.left)
		}
	}
	again := 0 // stay at the head of the line
	for i, one := range all {
		switch {
		case shared && err == nil && replies[i] == nil:
			// The wrong version counts it like any other next time. Each call takes along as many
			// again and handles a few of them, so a crowd takes a trip for every few.
			one.turn, one.contended = waits, true
			l.waiting = slices.Insert(l.waiting, again, one)
			again++
		case shared && err == nil && replies[i] == elsewhere:
			one.turn = alone
			g.calls++
		case separate && !(one == c && err == errAbandoned):
			one.turn, one.before = alone, err
			g.calls++ // perhaps more than there is room for, but only once
		default:
			if one.turn, one.err = answered, err; err == nil {
				one.reply = replies[i]
			}
			g.callers--
		}
	}
	c.company = nil
	for i, one := range all { // later a seat that waits again may have gone
		if one.turn == waits {
			all[i] = nil
		}
	}
	for _, l := range g.lines { // there may be a connection for those who go alone
		g.next(l, now)
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
func (c *seat) outcome() (any, error) {
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
