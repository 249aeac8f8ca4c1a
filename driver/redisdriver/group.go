package redisdriver

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/internal/redisscript"
)

const (
	// crowd is how many calls must be under way for it to pay to send them together: a lone
	// caller waits for nobody, and a few are faster on a connection for each.
	crowd = 8
	// lanes is how many calls of one script may be under way. While there is one, callers
	// gather for the next. A second goes only with most of them, or when the first is late.
	lanes = 3
	// late is when what a call takes is the network's time more than the server's.
	late = 500 * time.Microsecond
	// most is how many locks go in one call. Redis does nothing else meanwhile, for some
	// 200 us; see also script/each.lua. A heartbeat takes as long as four short ways.
	most      = 64
	heartbeat = 4
	// fresh is how recent the last answer must be, or the first question after a rest. A call
	// has one connection: if that hangs, those who come later must not hang with it.
	fresh = 100 * time.Millisecond
)

// group runs scripts for many callers at a time in one call ("group commit": DeWitt et al.,
// Implementation Techniques for Main Memory Database Systems, 1984). Each lock is handled by
// itself, and fails by itself. It does so only on a [redis.Client], one server for all
// locks; on a Cluster they are in different slots.
type group struct {
	d    *Driver
	can  atomic.Bool // the client leads to one server for all locks, as far as we know
	off  atomic.Bool // the user does not want it
	busy atomic.Int32
	last atomic.Int64 // when an answer came, or the first caller, after start

	seats sync.Pool // of this group, since synctest keeps bubbles apart

	mu    sync.Mutex
	queue map[*script]*line
}

// request is a run of a script for one lock.
type request struct {
	*script
	kind driver.Kind
	name string
	args []any
}

// cost is how long it takes, beside the short way of a lock that nobody waits for.
func (r request) cost() int {
	if r.script == acquireScript && r.args[1] != newcomer {
		return heartbeat
	}
	return 1
}

// line is those who wait for a call of one script.
type line struct {
	waiting []*seat
	under   int           // calls under way
	sent    time.Duration // when the last of them was, after start
}

// seat is one caller. It is used again, unless the caller has left before the reply came.
type seat struct {
	request
	done chan struct{} // gets one when there is a reply, or nobody to wait for; has room for it

	sent, left bool // with a call, and by the caller; guarded by group.mu

	reply any
	err   error
}

func newSeat() any { return &seat{done: make(chan struct{}, 1)} }

var start = time.Now()

func newGroup(d *Driver) *group {
	g := &group{d: d, queue: map[*script]*line{}, seats: sync.Pool{New: newSeat}}
	_, can := d.rdb.(*redis.Client)
	g.can.Store(can)
	return g
}

// on reports whether a call may be for many locks.
func (g *group) on() bool { return g.can.Load() && !g.off.Load() }

// split reports whether a server has refused a call for many because its keys are in different
// slots, as a proxy in front of several servers does. Nothing was done then, and from now on
// each call is for one lock.
func (g *group) split(err error) bool {
	if !redis.HasErrorPrefix(err, "CROSSSLOT") {
		return false
	}
	g.can.Store(false)
	return true
}

// run runs a script for one lock, with others if there are many.
func (g *group) run(ctx context.Context, r request) (any, error) {
	n := g.busy.Add(1)
	defer g.busy.Add(-1)
	if n == 1 { // nobody has waited for an answer
		g.last.Store(int64(time.Since(start)))
	}
	if n > crowd && g.on() && time.Since(start)-time.Duration(g.last.Load()) < fresh {
		if reply, err, taken := g.join(ctx, r); taken {
			return reply, err
		}
	}
	return g.alone(ctx, r)
}

// alone makes a call for one.
func (g *group) alone(ctx context.Context, r request) (any, error) {
	return g.answer(ctx, g.d.call(r.script, r.kind, r.name, r.args...))
}

// join waits for a call that takes the request along. It reports false if none does, as all that
// are under way may hang, though the server answers others.
func (g *group) join(ctx context.Context, r request) (reply any, err error, taken bool) {
	g.mu.Lock()
	l := g.queue[r.script]
	if l == nil {
		l = &line{}
		g.queue[r.script] = l
	}
	since := time.Since(start) - l.sent
	if l.under == lanes && since > fresh { // these have dismissed who waited, see send
		g.mu.Unlock()
		return nil, nil, false
	}
	c := g.seats.Get().(*seat)
	c.request = r
	l.waiting = append(l.waiting, c)
	if l.under == 0 || l.under < lanes && (len(l.waiting) >= most || since > late) {
		l.under++
		l.sent = time.Since(start)
		go g.send(r.script, l)
	}
	g.mu.Unlock()

	select {
	case <-c.done:
		reply, err, taken = c.reply, c.err, c.sent
		*c = seat{done: c.done}
		g.seats.Put(c)
		return reply, err, taken
	case <-ctx.Done():
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if c.left = true; c.sent {
		return nil, redisscript.Classify(ctx.Err()), true // nobody knows what comes of it
	}
	return nil, redisscript.Unsent(ctx.Err()), true
}

// dismiss has all who wait for a call make one of their own.
func (g *group) dismiss(l *line) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, c := range l.waiting {
		c.done <- struct{}{}
	}
	l.waiting = nil
}

// send makes calls for as long as anybody waits for one.
func (g *group) send(s *script, l *line) {
	for {
		g.mu.Lock()
		l.waiting = slices.DeleteFunc(l.waiting, func(c *seat) bool { return c.left })
		n := 0
		for room := most; n < len(l.waiting) && room > 0; n++ {
			room -= l.waiting[n].cost()
		}
		batch := slices.Clone(l.waiting[:n])
		l.waiting = slices.Delete(l.waiting, 0, len(batch))
		if len(batch) == 0 {
			l.under--
			g.mu.Unlock()
			return
		}
		for _, c := range batch {
			c.sent = true
		}
		l.sent = time.Since(start)
		g.mu.Unlock()

		keys := make([]string, len(batch))
		for i, c := range batch {
			keys[i] = g.d.key(c.kind, c.name)
		}
		call := s.many.Call("locks", 2+len(batch)*s.arguments, keys...).With(g.d.channels, g.d.keeps)
		for _, c := range batch {
			call = call.With(c.args...)
		}
		hangs := time.AfterFunc(fresh, func() { g.dismiss(l) })
		reply, err := g.answer(context.Background(), call)
		hangs.Stop()
		if g.split(err) {
			for _, c := range batch { // also for one that has left: its release finds what came of it
				c.reply, c.err = g.alone(context.Background(), c.request)
				c.done <- struct{}{}
			}
			continue
		}
		replies, _ := reply.([]any)
		if err == nil && len(replies) != len(batch) {
			err = fmt.Errorf("redisdriver: a script answered with %v", reply)
		}
		var again []*seat
		for i, c := range batch {
			if err == nil && replies[i] == nil {
				again = append(again, c)
				continue
			}
			if c.err = err; err == nil {
				c.reply = replies[i]
			}
			c.done <- struct{}{}
		}
		if len(again) > 0 {
			g.mu.Lock()
			for _, c := range again {
				c.sent = false // nothing was done for it
			}
			l.waiting = append(again, l.waiting...)
			g.mu.Unlock()
		}
	}
}

// answer makes a call and notes when its answer came.
func (g *group) answer(ctx context.Context, call redisscript.Call) (any, error) {
	reply, err := g.d.value(ctx, call)
	if err == nil {
		g.last.Store(int64(time.Since(start)))
	}
	return reply, err
}
