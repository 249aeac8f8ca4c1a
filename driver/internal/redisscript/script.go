// Package redisscript is what the drivers that keep locks on Redis have in common. It runs
// Lua scripts, each attempt once, by hash or text. Its errors say what is known of the
// outcome. It refuses requests that none of the drivers can serve.
package redisscript

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/driver"
)

// Script is a Lua script. redis.Script is not used because its commands would be retried
// by go-redis.
type Script struct {
	verb, text string
	sha        any // a string, made an argument once for all commands
}

// New returns the script with that text; verb says what it does.
func New(verb, text string) *Script {
	sum := sha1.Sum([]byte(text))
	return &Script{verb, text, hex.EncodeToString(sum[:])}
}

// Call is one run of a script: on what, and with what arguments. Family is the kind of
// lock, or of driver, for people.
type Call struct {
	script *Script
	family string
	line   []any // the command: name, script, number of keys, keys, arguments
	first  int   // where the first key is in that
	writes func()
}

// firstKey is where the keys are in a command.
const firstKey = 3

// Call returns a run of the script on these keys, with room for so many arguments.
func (s *Script) Call(family string, room int, keys ...string) Call {
	of := make([]any, len(keys))
	for i, key := range keys {
		of[i] = key
	}
	return s.On(family, room, of...)
}

// On is Call for keys that are arguments already. Every lock and unlock comes this way, so the
// command is put together where it will stay.
func (s *Script) On(family string, room int, keys ...any) Call {
	line := make([]any, firstKey, firstKey+len(keys)+room)
	line[0], line[1], line[2] = "evalsha", s.sha, len(keys)
	return Call{script: s, family: family, line: append(line, keys...), first: firstKey}
}

// Undeclared is On for keys that are among the arguments. The first is behind so many others, and
// says which node of a Cluster gets the call. A node never sends such a call elsewhere.
func (s *Script) Undeclared(family string, room, behind int) Call {
	call := s.On(family, room)
	call.first += behind
	return call
}

// With returns the call with more arguments.
func (call Call) With(args ...any) Call {
	call.line = append(call.line, args...)
	return call
}

// Writing returns the call with what is to be called when it is about to be written to a connection, or a hook
// looks at it.
func (call Call) Writing(f func()) Call {
	call.writes = f
	return call
}

// Key returns the first key.
func (call Call) Key() string { return call.line[call.first].(string) }

// Command is a script that is being run.
type Command struct {
	*redis.Cmd
	script  *Script
	family  string
	sent    context.Context
	writes  func()
	unknown bool
	written bool
}

// Args returns the command, and notes that somebody has asked for it. A command that nobody
// has asked for was never written to a connection.
func (c *Command) Args() []any {
	c.written = true
	if c.writes != nil {
		c.writes()
	}
	return c.Cmd.Args()
}

// NoRetry keeps go-redis from sending a command again by itself after it lost the
// answer. Only an attempt that we know of can be counted as under way.
func (*Command) NoRetry() bool { return true }

// SetErr notes when the server does not know the script. That is no error. So hooks may
// hide it from each other, but not from us.
func (c *Command) SetErr(err error) {
	c.unknown = c.unknown || err != nil && redis.HasErrorPrefix(err, "NOSCRIPT")
	c.Cmd.SetErr(err)
}

// Unknown reports whether the server did not know the script; the text follows.
func (c *Command) Unknown() bool { return c.unknown }

// Procedure returns the name of the script, for people, and the context that the command
// was sent with. The hooks of holdfast ask for both.
func (c *Command) Procedure() (name string, sent context.Context) {
	return "holdfast." + c.family + "." + c.script.verb, c.sent
}

// command is the call as a command, by the hash of its script or with the text.
func (call Call) command(ctx context.Context, byText bool) *Command {
	line := call.line
	if byText {
		line = slices.Clone(line) // somebody may still look at the command before
		line[0], line[1] = "eval", call.script.text
	}
	c := &Command{Cmd: redis.NewCmd(ctx, line...), script: call.script, family: call.family, sent: ctx, writes: call.writes}
	c.SetFirstKeyPos(int8(call.first))
	return c
}

// processor is a client, or one connection of it.
type processor interface {
	Process(ctx context.Context, cmd redis.Cmder) error
}

// Run runs a script by its hash, or with its text if the server does not know it, see [lesson].
// The error is classified.
func Run(ctx context.Context, rdb processor, call Call) (*Command, error) {
	return run(ctx, rdb, call, nil)
}

// run is Run. node is the client of the one to which the call goes, if that is known.
func run(ctx context.Context, rdb processor, call Call, node *redis.Client) (*Command, error) {
	c, sent := call.command(ctx, false), time.Now()
	err := rdb.Process(ctx, c)
	if c.unknown {
		l := lesson{node, call.script}
		if node == nil {
			l.node = place(ctx, rdb, call)
		}
		c, err = l.taught(ctx, rdb, call, sent)
	}
	Rediscover(ctx, rdb, err)
	return c, c.judge(ctx, rdb, err)
}

// judge classifies the error of a command that was processed.
func (c *Command) judge(ctx context.Context, rdb processor, err error) error {
	if err == nil {
		return nil
	}
	switch rdb.(type) {
	case *redis.Client, *redis.AutoPipeliner:
		if hasPrefix(err, []string{"MOVED", "ASK"}) {
			return misdirected(err)
		}
	}
	err = Classify(plainly(ctx, rdb, err))
	if _, one := rdb.(*redis.Client); one && !c.written {
		err = Unwritten(err) // no connection was to be had, or a hook was against it
	}
	return err
}

// RunAll runs scripts in one pipeline. Their errors are in the commands.
//
// A pipeline cannot fall back by itself. After a failover the new server knows none of our
// scripts, and every lease would be lost for it. So scripts that were not known are sent
// again. The first run of a script on a node goes with the text, unless somebody teaches it
// that already, see [lesson], and the others go by the hash. Should a node nevertheless not know
// a script, as a slot has moved meanwhile, the text goes with every run.
func RunAll(ctx context.Context, rdb redis.UniversalClient, calls []Call) []*Command {
	cmds := make([]*Command, len(calls))
	which := make([]int, len(calls))
	for i := range calls {
		which[i] = i
	}
	send := func(byText func(i int) bool) {
		pipeline(ctx, rdb, calls, which, byText, cmds)
		which = slices.DeleteFunc(which, func(i int) bool { return !cmds[i].unknown })
	}
	sent := time.Now()
	send(func(int) bool { return false })
	if len(which) > 0 {
		lessons(ctx, rdb, calls, which, cmds, sent, send)
	}
	send(func(int) bool { return true })
	for _, c := range cmds {
		Rediscover(ctx, rdb, c.Err())
	}
	return cmds
}

// RunPiped is Run on a connection for pipelines.
func RunPiped(ctx context.Context, rdb redis.UniversalClient, call Call) (*Command, error) {
	c := RunAll(ctx, rdb, []Call{call})[0]
	return c, c.judge(ctx, rdb, c.Err())
}

// pipeline sends those of the calls that are listed, and puts the commands where they belong.
func pipeline(ctx context.Context, rdb redis.UniversalClient, calls []Call, which []int, byText func(i int) bool, cmds []*Command) {
	if len(which) == 0 {
		return
	}
	pipe := rdb.Pipeline()
	for _, i := range which {
		cmds[i] = calls[i].command(ctx, byText(i))
		_ = pipe.Process(ctx, cmds[i]) // queues; the outcome is in the command
	}
	if _, err := pipe.Exec(ctx); err != nil {
		for _, i := range which { // a hook may have refused the whole pipeline
			if c := cmds[i]; c.Err() == nil && c.Val() == nil {
				c.SetErr(err)
			}
		}
	}
}

// Renewed is what came of a renewal, whose script answers 1 or more, or else the token does
// not hold the lock.
func (c *Command) Renewed() error {
	n, err := c.Int64()
	if err == nil && n <= 0 {
		return driver.ErrNotHeld
	}
	return Classify(err)
}
