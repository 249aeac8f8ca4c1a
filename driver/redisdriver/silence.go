package redisdriver

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/holdfast-go/holdfast/driver/internal/redisscript"
	"github.com/holdfast-go/holdfast/internal/telemetry"
)

const (
	// leastPatience and mostPatience bound how long a command may go unanswered before its
	// connection counts as silent. Between them it is slowness times what the last answer took.
	leastPatience = 250 * time.Millisecond
	mostPatience  = time.Second
	slowness      = 3
	// later is how much later than on a new connection an answer may come on one that is well. Most of
	// it is for a busy machine.
	later = 50 * time.Millisecond
	// answerTimeout bounds the wait for an answer where the client has no other connection, see
	// within. It is the ReadTimeout that go-redis has by default.
	answerTimeout = 5 * time.Second
)

// silence finds connections that have fallen silent. A NAT, a firewall or a load balancer may
// forget the connections that there are, and tell nobody. What is written to one of them is
// lost. go-redis notices after its ReadTimeout, for that connection. The next command takes
// the next of them, although the server can be reached all the time.
//
// So when a command goes unanswered, a new connection is made. If that is not answered either, it is
// the server that is silent, or the way to it. Then nothing is closed, and some time later the
// same is done again. If it is answered, and the command is by then, too, the server stood still. If
// it is answered a second time, and the command not at all, then it is the connection: a server that
// answers what was written last has come by what was written first. So all connections that are idle
// are tried at once, with a short timeout. While that lasts they are nobody's, and a repeated command
// gets a fresh one. Those that do not answer are closed, and only those.
//
// The wrong versions: one relied on repeats. Each of them took one silent connection out, and with
// more of these than repeats a lease was lost. One made no new connection before. A server that stood still
// for a second cost the application its whole pool, and the server a handshake for each. One took a
// single answer for enough. A server that stood still again right after it cost as much.
//
// One timer watches all commands. It is set for the oldest of them when that is written, and
// not again for those after it: it finds what is overdue then, and is set for the next.
type silence struct {
	rdb redis.UniversalClient

	mu        sync.Mutex
	took      time.Duration // what the last answer took
	ring      pending       // of commands under way: next is the oldest
	timer     *time.Timer   // nil before the first command
	set       bool
	due       time.Time                   // when the timer fires
	late      bool                        // it did so late, the last time
	dialed    map[*redis.Client]time.Time // when a new connection to a node was made last
	swept     map[*redis.Client]time.Time // when the idle ones were tried last
	fullPools map[*redis.Client]bool      // nodes that answer, whose pool is full
	full      atomic.Int32                // how many these are
	closed    bool
	wg        sync.WaitGroup

	life context.Context // until it is closed
	end  context.CancelFunc
}

func newSilence(rdb redis.UniversalClient) *silence {
	s := &silence{rdb: rdb, dialed: map[*redis.Client]time.Time{}, swept: map[*redis.Client]time.Time{}, fullPools: map[*redis.Client]bool{}}
	s.ring.next, s.ring.last = &s.ring, &s.ring
	s.life, s.end = context.WithCancel(telemetry.Unasked(context.Background()))
	return s
}

// pending is a command under way. It is in a ring, in the order in which commands were written,
// until it is answered or overdue.
type pending struct {
	key        string // of the call, which a hook may rewrite once it is sent
	began      time.Time
	next, last *pending
	over       bool               // nobody waits for the answer any more
	answered   bool               // for it has come
	leave      context.CancelFunc // if it waits for a connection, it waits no more; nil if it can go nowhere else
	left       bool               // that was called
}

// watch begins to watch a command.
func (s *silence) watch(call redisscript.Call, leave context.CancelFunc) *pending {
	v := &pending{key: call.Key(), began: time.Now(), leave: leave}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.add(v)
	return v
}

// add puts a command that has just begun into the ring. The caller holds mu.
func (s *silence) add(v *pending) {
	v.next, v.last = &s.ring, s.ring.last
	v.last.next, v.next.last = v, v
	if !s.set {
		s.set = true
		s.wake(s.patience())
	}
}

// wake sets the timer. The caller holds mu.
func (s *silence) wake(after time.Duration) {
	if s.closed {
		return
	}
	s.due = time.Now().Add(after)
	if s.timer == nil {
		s.timer = time.AfterFunc(after, s.look)
	} else {
		s.timer.Reset(after)
	}
}

// done ends the watch. It reports whether the command has left the pool.
func (s *silence) done(v *pending, err error) (left bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.remove(v)
	v.over, v.answered = true, err == nil || redisscript.Answered(err)
	if v.answered {
		s.took = time.Since(v.began)
	}
	return v.left
}

// remove takes a command out of the ring, if it is there. The caller holds mu.
func (s *silence) remove(v *pending) {
	if v.next != nil {
		v.last.next, v.next.last = v.next, v.last
		v.next, v.last = nil, nil
	}
}

// look tries the connections of what is overdue, and sets the timer for what is next.
func (s *silence) look() {
	s.mu.Lock()
	patience := s.patience()
	// If this process stood still, answers may have come that nobody has read.
	if s.late = !s.late && time.Since(s.due) >= leastPatience/2; s.late {
		s.wake(leastPatience)
		s.mu.Unlock()
		return
	}
	var overdue []*pending
	for s.ring.next != &s.ring && time.Since(s.ring.next.began) >= patience {
		overdue = append(overdue, s.ring.next)
		s.remove(s.ring.next)
	}
	if s.set = s.ring.next != &s.ring; s.set {
		s.wake(patience - time.Since(s.ring.next.began))
	}
	s.mu.Unlock()
	for _, v := range overdue {
		go s.try(v)
	}
}

// watchAgain watches a command again whose server is silent, unless nobody waits for it any more.
func (s *silence) watchAgain(v *pending) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !v.over && !s.closed {
		v.began = time.Now()
		s.add(v)
	}
}

// patience is how long an answer may take. The caller holds mu.
func (s *silence) patience() time.Duration {
	return min(max(leastPatience, slowness*s.took), mostPatience)
}

// try tries the idle connections to the node of a command, if a new one is answered. Pipelines have a
// pool of their own.
func (s *silence) try(v *pending) {
	if !s.begin() {
		return
	}
	defer s.wg.Done()
	s.mu.Lock()
	timeout := 2 * s.patience() // or a slow server would cost connections that are well
	s.mu.Unlock()
	ctx, cancel := context.WithTimeout(s.life, timeout)
	defer cancel()
	node, err := redisscript.Master(ctx, s.rdb, v.key)
	if err != nil {
		return
	}
	full, room := poolState(node)
	switch {
	case full && s.joins(node, v, room):
		return
	case !full && s.sweptSince(node, v):
		return
	case !s.mayDial(node, timeout):
		s.watchAgain(v)
		return
	}
	switch s.compare(ctx, node, v, timeout) {
	case nothing:
		return
	case theNode:
		s.note(node, false)
		s.watchAgain(v)
		return
	}
	if full {
		s.note(node, true)
		s.joins(node, v, room)
	}
	s.noteSwept(node)
	// They have as much time as that had. It may have taken nearly all, and connections that are well
	// would be closed by what is left, if the client heeds deadlines of contexts.
	ctx, cancel = context.WithTimeout(s.life, timeout)
	defer cancel()
	brief := node.WithTimeout(timeout)
	var pings sync.WaitGroup
	stats := node.PoolStats()
	for range idle(stats.IdleConns) {
		pings.Go(func() { _ = brief.Process(ctx, newPing(ctx)) })
	}
	if stats.PipelineStats != nil {
		for range idle(stats.PipelineStats.IdleConns) {
			pings.Go(func() {
				pipe := brief.Pipeline()
				_ = pipe.Process(ctx, newPing(ctx))
				_, _ = pipe.Exec(ctx)
			})
		}
	}
	pings.Wait()
}

// silenced is what has fallen silent, as far as can be told from a new connection.
type silenced int

const (
	nothing       silenced = iota // or it cannot be told
	theNode                       // it answers on the new one neither
	theConnection                 // the node answers on the new one alone
)

// compare makes a new connection to a node, on which it must answer twice, the second time with a timeout
// of its own. It compares that with a command that was written before.
func (s *silence) compare(ctx context.Context, node *redis.Client, v *pending, timeout time.Duration) silenced {
	o := *node.Options()
	o.PoolSize, o.MinIdleConns, o.MaxRetries, o.DialerRetries = 1, 0, -1, 1
	o.ContextTimeoutEnabled = true
	// An open limiter would say nothing of the server, and notices of maintenance are not for two pings.
	o.Limiter = nil
	o.MaintNotificationsConfig = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}
	fresh := redis.NewClient(&o)
	defer func() { _ = fresh.Close() }()
	defer context.AfterFunc(s.life, func() { _ = fresh.Close() })() // which looks at no context while it reads
	if !answers(ctx, fresh) {
		return theNode
	}
	if over, _ := s.state(v); over {
		return nothing // also if it was given up, which a server that stood still is reason enough for
	}
	time.Sleep(later)
	ctx, cancel := context.WithTimeout(s.life, timeout)
	defer cancel()
	alive := answers(ctx, fresh)
	switch _, answered := s.state(v); {
	case answered:
		return nothing
	case !alive:
		return theNode
	}
	return theConnection
}

// answers reports whether a ping is answered.
func answers(ctx context.Context, rdb *redis.Client) bool {
	err := rdb.Process(ctx, newPing(ctx))
	return err == nil || redisscript.Answered(err)
}

// poolState reports whether all connections of a client to a node are taken, and whether it has others, for
// pipelines.
//
// The program may have taken them for commands that block, such as BLPOP. Then our commands wait for
// theirs to end: a free lock is had after seconds, and one that is released is not free. So whoever
// waits for a connection for as long as an answer may take goes in a pipeline, as renewals do. go-redis
// keeps up to 10 connections for these, apart from PoolSize. That is not done at once: a pool that
// is full for a moment would cost the server connections.
//
// A server that is silent fills a pool as well, so it must have answered on a new connection.
func poolState(node *redis.Client) (full, room bool) {
	o, stats := node.Options(), node.PoolStats()
	size, spare := o.PoolSize, o.PipelinePoolSize
	if o.MaxActiveConns > 0 {
		size = min(size, o.MaxActiveConns)
	}
	if spare == 0 {
		spare = redis.DefaultPipelinePoolSize
	}
	full = idle(stats.IdleConns) == 0 && int(stats.TotalConns) >= size
	p := stats.PipelineStats
	return full, p != nil && (idle(p.IdleConns) > 0 || int(p.TotalConns) < spare)
}

// poolIsFull reports whether the pool of the node of a call is known to be full, and still is.
func (s *silence) poolIsFull(ctx context.Context, call redisscript.Call) bool {
	if s.full.Load() == 0 {
		return false
	}
	node, err := redisscript.Master(ctx, s.rdb, call.Key())
	if err != nil {
		return false
	}
	s.mu.Lock()
	known := s.fullPools[node]
	s.mu.Unlock()
	if !known {
		return false
	}
	full, room := poolState(node)
	if !full {
		s.note(node, false)
	}
	return full && room
}

// exhausted reports whether a call failed since the pool is full, and can go elsewhere.
func (s *silence) exhausted(ctx context.Context, call redisscript.Call, err error) bool {
	if !errors.Is(err, redis.ErrPoolTimeout) && !errors.Is(err, redis.ErrPoolExhausted) {
		return false
	}
	node, err := redisscript.Master(ctx, s.rdb, call.Key())
	if err != nil {
		return false
	}
	full, room := poolState(node)
	return full && room
}

// note notes whether the pool of a node is full although the node answers.
func (s *silence) note(node *redis.Client, full bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if full {
		s.fullPools[node] = true
	} else {
		delete(s.fullPools, node)
	}
	s.full.Store(int32(len(s.fullPools)))
}

// joins has a command wait no more for a connection to a node whose pool is known to be full, if there
// is room elsewhere, and else watches it again. It reports false if there is more to try.
func (s *silence) joins(node *redis.Client, v *pending, room bool) bool {
	s.mu.Lock()
	known, leaves := s.fullPools[node], room && v.leave != nil
	if known && leaves {
		v.left = true
	}
	s.mu.Unlock()
	switch {
	case !known, room && !leaves:
		return false
	case leaves:
		v.leave()
	default:
		s.watchAgain(v)
	}
	return true
}

// explain says so if there is no connection to a node although it answers. It does not look at commands
// under way: those that wait end with the contexts of their callers, who may ask only then.
func (s *silence) explain() error {
	s.mu.Lock()
	nodes := slices.Collect(maps.Keys(s.fullPools))
	s.mu.Unlock()
	for _, node := range nodes {
		if full, room := poolState(node); full && !room {
			return redisscript.Classify(redis.ErrPoolTimeout)
		}
	}
	return nil
}

// idle is a number of connections that go-redis tells. It counts a connection that comes back only
// after others may have taken it, so for a moment it can have counted -1, as a uint32. The wrong
// version then sent four thousand million pings.
func idle(n uint32) int { return max(0, int(int32(n))) }

// begin notes that something goes on in the background. It reports false if the driver is
// closed.
func (s *silence) begin() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.wg.Add(1)
	}
	return !s.closed
}

// mayDial reports whether to make a new connection to a node. Of many callers that get no answer,
// one does.
func (s *silence) mayDial(node *redis.Client, every time.Duration) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	forget(s.dialed, every)
	forget(s.swept, every)
	_, lately := s.dialed[node]
	if !lately {
		s.dialed[node] = time.Now()
	}
	return !lately
}

// forget takes out what is that old: nodes of a Cluster go.
func forget(times map[*redis.Client]time.Time, every time.Duration) {
	maps.DeleteFunc(times, func(_ *redis.Client, at time.Time) bool { return time.Since(at) >= every })
}

// state returns whether anybody waits for a command, and whether that is because it was answered.
func (s *silence) state(v *pending) (over, answered bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return v.over, v.answered
}

// noteSwept notes that the idle connections to a node are tried.
func (s *silence) noteSwept(node *redis.Client) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.swept[node] = time.Now()
}

// sweptSince reports whether that was so since a command was written.
func (s *silence) sweptSince(node *redis.Client, v *pending) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.swept[node].After(v.began)
}

// close returns when nothing goes on in the background.
func (s *silence) close() {
	s.mu.Lock()
	s.closed = true
	if s.timer != nil {
		s.timer.Stop()
	}
	s.mu.Unlock()
	s.end()
	s.wg.Wait()
}

// ping is a PING that go-redis sends once: a repeat would try the same connection, or none.
// Any answer will do, also that the user may not.
type ping struct{ *redis.StatusCmd }

func newPing(ctx context.Context) ping { return ping{redis.NewStatusCmd(ctx, "ping")} }

// NoRetry keeps go-redis from repeating it.
func (ping) NoRetry() bool { return true }

// within returns rdb with a ReadTimeout of no more than limit, if it has a single connection for
// pipelines, or for other commands: should that hang, there is no other. The result shares the
// pool with rdb, but go-redis gives it none of the hooks. So it is for the case alone in which
// a lease would be lost. A Cluster client cannot be told.
func within(rdb redis.UniversalClient, pipelines bool, limit time.Duration) redis.UniversalClient {
	c, one := rdb.(*redis.Client)
	if !one {
		return rdb
	}
	o := c.Options()
	if o.PoolSize > 1 || pipelines && o.PipelinePoolSize >= 0 || o.ReadTimeout > 0 && o.ReadTimeout <= limit {
		return rdb
	}
	return c.WithTimeout(limit)
}
