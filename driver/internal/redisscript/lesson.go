package redisscript

import (
	"context"
	"reflect"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// lesson is a script that a node has turned out not to know.
//
// The text is some 25 kB. The wrong version has each caller send it that hears NOSCRIPT: after a
// failover, or a flush, that is everybody who is under way, and 129 callers send 3.3 MB. So one
// teaches, and the others wait for it, and go by the hash.
//
// Servers forget scripts that came with EVAL if others have them run many of these: Redis 7.4 and
// Valkey 8 keep 500. Those of SCRIPT LOAD they keep. So what is forgotten within a minute is
// loaded, if the user has the right to it.
type lesson struct {
	node   any // the client of a server, or of a node of a Cluster
	script *Script
}

const (
	// Whoever waits for a lesson goes on with the text after so long: the connection on which it
	// is given may have fallen silent.
	longLesson = time.Second
	// A lesson is remembered for so long.
	soonForgotten = time.Minute
)

// teaching is what is known of a lesson.
type teaching struct {
	over   chan struct{} // closed when that under way is over; nil if none is
	at     time.Time     // when it was last over, and the node had taken it in
	plain  bool          // the node has not taken SCRIPT LOAD
	forget *time.Timer
}

var teachings = struct {
	sync.Mutex
	of map[lesson]*teaching
}{of: map[lesson]*teaching{}}

// begin makes a caller the teacher whose run, sent at that moment, was of no known script. It is to
// call end. load tells how to teach: with SCRIPT LOAD. Or somebody teaches already, until over is
// closed, or has taught the node since.
func (l lesson) begin(sent time.Time) (over <-chan struct{}, load bool) {
	teachings.Lock()
	defer teachings.Unlock()
	t := teachings.of[l]
	if t == nil {
		t = &teaching{}
		teachings.of[l] = t
	}
	switch {
	case t.over != nil:
		return t.over, false
	case !t.at.IsZero() && !t.at.Before(sent):
		return past, false
	}
	if t.forget != nil {
		t.forget.Stop()
	}
	t.over = make(chan struct{})
	return nil, !t.at.IsZero() && !t.plain
}

// past is what is over.
var past = make(chan struct{})

func init() { close(past) }

// end ends the lesson.
func (l lesson) end(taught bool) {
	teachings.Lock()
	defer teachings.Unlock()
	t := teachings.of[l]
	close(t.over)
	if t.over = nil; taught {
		t.at = time.Now()
	}
	t.forget = time.AfterFunc(soonForgotten, func() {
		teachings.Lock()
		defer teachings.Unlock()
		if t.over == nil && teachings.of[l] == t {
			delete(teachings.of, l)
		}
	})
}

// attend waits until a lesson is over, and reports false if it takes too long, or ctx ends.
func attend(ctx context.Context, over <-chan struct{}) bool {
	timeout := time.NewTimer(longLesson)
	defer timeout.Stop()
	select {
	case <-over:
		return true
	case <-timeout.C:
	case <-ctx.Done():
	}
	return false
}

// load has the node take the script, and reports whether it has. If not, as for a user without the
// right to that, the text goes with a run.
func (l lesson) load(ctx context.Context, to processor, family string) bool {
	if node, ok := l.node.(*redis.Client); ok {
		if _, cluster := to.(*redis.ClusterClient); cluster {
			to = node // or it would go to any node
		}
	}
	c := &Command{Cmd: redis.NewCmd(ctx, "script", "load", l.script.text), script: l.script, family: family, sent: ctx}
	err := to.Process(ctx, c)
	if err != nil && ctx.Err() == nil {
		teachings.Lock()
		defer teachings.Unlock()
		teachings.of[l].plain = true
	}
	return err == nil
}

// place is the client of the node to which a call goes.
func place(ctx context.Context, rdb processor, call Call) any {
	if cluster, ok := rdb.(*redis.ClusterClient); ok {
		if node, err := cluster.MasterForKey(ctx, call.Key()); err == nil {
			return node
		}
	}
	if !reflect.ValueOf(rdb).Comparable() {
		return new(int) // like no other: each teaches for itself
	}
	return rdb
}

// taught runs the script, once the node knows it. A run was sent before that was of no known script.
func (l lesson) taught(ctx context.Context, rdb processor, call Call, sent time.Time) (*Command, error) {
	// A teacher may fail, by its own context or connection. Then another one teaches, and whoever
	// has waited twice does not wait again.
	for range 2 {
		over, load := l.begin(sent)
		if over == nil {
			return l.teach(ctx, rdb, call, load)
		}
		if !attend(ctx, over) {
			break
		}
		sent = time.Now()
		c := call.command(ctx, false)
		if err := rdb.Process(ctx, c); !c.unknown {
			return c, err
		}
	}
	if err := ctx.Err(); err != nil {
		return call.command(ctx, false), err
	}
	c := call.command(ctx, true)
	return c, rdb.Process(ctx, c)
}

// teach runs the script in such a way that the node knows it from then on.
func (l lesson) teach(ctx context.Context, rdb processor, call Call, load bool) (*Command, error) {
	taught := false
	end := sync.OnceFunc(func() { l.end(taught) })
	defer end() // a hook of the user may panic
	if load && l.load(ctx, rdb, call.family) {
		taught = true
		end()
		c := call.command(ctx, false)
		if err := rdb.Process(ctx, c); !c.unknown {
			return c, err
		}
	}
	c := call.command(ctx, true)
	err := rdb.Process(ctx, c)
	taught = err == nil
	return c, err
}

// lessons sends a pipeline of calls whose scripts nodes do not know: one of each script and node with the
// text, unless the node comes to know it in another way.
func lessons(ctx context.Context, rdb processor, calls []Call, which []int, cmds []*Command, sent time.Time, send func(byText func(i int) bool)) {
	met, teaches := map[lesson]bool{}, map[int]lesson{}
	defer func() { // a hook of the user may panic
		for i, l := range teaches {
			l.end(cmds[i].Err() == nil)
		}
	}()
	for _, i := range which {
		l := lesson{place(ctx, rdb, calls[i]), calls[i].script}
		if met[l] {
			continue
		}
		met[l] = true
		over, load := l.begin(sent)
		if over != nil {
			attend(ctx, over)
			continue
		}
		teaches[i] = l
		if load && l.load(ctx, rdb, calls[i].family) {
			delete(teaches, i)
			l.end(true)
		}
	}
	send(func(i int) bool { _, text := teaches[i]; return text })
}
