package redisdriver

import (
	"context"
	"embed"
	"fmt"
	"strconv"
	"strings"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/driver/internal/redisscript"
)

//go:embed script
var files embed.FS

// What can be done to locks. Each is put together from these files in the folder script; the
// first three handle any number of locks in one call, with so many arguments for each.
var (
	acquireScript = newScript("acquire", 3, "clock", "thin_acquire", "record", "thin_wait",
		"lock", "holders", "lease", "queue", "rare", "acquire", "each")
	releaseScript = newScript("release", 2, "clock", "thin_release", "record", "lock", "holders", "queue", "rare", "release", "each")
	renewScript   = newScript("renew", 3, "clock", "record", "thin_renew", "lock", "holders", "lease", "queue", "rare", "renew", "each")

	extendScript    = newScript("extend", 0, "clock", "record", "lock", "holders", "lease", "queue", "rare", "extend")
	raiseScript     = newScript("raise", 0, "clock", "record", "lock", "holders", "queue", "rare", "raise")
	forceScript     = newScript("force", 0, "clock", "record", "lock", "holders", "queue", "rare", "force")
	downgradeScript = newScript("downgrade", 0, "clock", "record", "lock", "holders", "queue", "rare", "downgrade")
	resizeScript    = newScript("resize", 0, "clock", "record", "lock", "holders", "queue", "rare", "resize")
	attachScript    = newScript("attach", 0, "clock", "record", "lock", "holders", "lease", "queue", "rare", "attach")
	inspectScript   = newScript("inspect", 0, "clock", "inspect")
	pingScript      = newScript("ping", 0, "ping")
)

var allScripts = []*script{
	acquireScript, releaseScript, renewScript, extendScript, raiseScript, forceScript,
	downgradeScript, resizeScript, attachScript, inspectScript, pingScript,
}

// What the scripts answer first, under the names that it has there.
const (
	acquireBuried   = 0
	acquireBusy     = 1
	acquireQueued   = 2
	acquireGranted  = 3
	acquireExceeded = 4
	acquireConflict = 5

	statusNeither = 0
	statusHeld    = 1
	statusWaited  = 2 // of a release
	statusWanted  = 2 // of an extension
	statusOwned   = 2 // of a downgrade
)

// script is a Lua script in three versions: for one lock, whose key is literally KEYS[1] as some
// proxies want it and whose reply stands in no list, for one on a Cluster, and for many.
type script struct {
	one, onCluster, many *redisscript.Script

	verb      string
	arguments int // for each of many
	parts     []string
}

func newScript(verb string, arguments int, parts ...string) *script {
	text := source(parts)
	one := forOne.Replace(text)
	s := &script{one: redisscript.New(verb, one), verb: verb, arguments: arguments, parts: parts}
	s.onCluster = redisscript.New(verb, forCluster.Replace(one))
	if arguments > 0 {
		s.many = redisscript.New(verb, text)
	}
	return s
}

var forOne = strings.NewReplacer("KEYS[n]", "KEYS[1]", "unpack(KEYS)", "KEYS[1]", "return replies", "return replies[1]")

// forCluster makes a hash of a string in one step, where save() in lock.lua deletes the string
// first. A node whose slot is moving to another node refuses to write a key that is missing. So
// the script would fail between the two, and the lock with its holder would be gone.
//
// RESTORE takes a hash in the form that DUMP gives, here one with the field life, which save()
// then sets. A user without the right to it gets the two steps.
var forCluster = strings.NewReplacer("redis.call('DEL', KEYS[1])",
	"if redis.pcall('RESTORE', KEYS[1], 0, '"+hashWithLife+"', 'REPLACE').err then redis.call('DEL', KEYS[1]) end")

// hashWithLife is, as Lua writes bytes, a hash with life = 0: type 4, one field, the field, the
// value, version 6 of the format, and a checksum.
const hashWithLife = `\4\1\4\108\105\102\101\1\48\6\0\127\15\47\215\216\83\206\176`

func source(parts []string) string {
	var text strings.Builder
	for _, name := range parts {
		part, err := files.ReadFile("script/" + name + ".lua")
		if err != nil {
			panic(err) // not in the binary: cannot be
		}
		text.Write(part)
	}
	return text.String()
}

// call is a run of a script for one lock.
func (d *Driver) call(s *script, k driver.Kind, name string, args ...any) redisscript.Call {
	one := s.one
	if d.onCluster {
		one = s.onCluster
	}
	return one.Call(string(k), 2+len(args), d.key(k, name)).With(d.channels, d.keeps).With(args...)
}

// run runs a script for one lock.
func (d *Driver) run(ctx context.Context, s *script, k driver.Kind, name string, args ...any) (answer, error) {
	var reply any
	var err error
	if s.many == nil {
		reply, err = d.value(ctx, d.call(s, k, name, args...))
	} else {
		reply, err = d.group.run(ctx, request{s, k, name, args})
	}
	var a answer
	if err == nil {
		a, err = read(reply)
	}
	return a, d.named(err, k, name)
}

// named adds the key to an error of Redis that is about it and does not say so.
func (d *Driver) named(err error, k driver.Kind, name string) error {
	if err != nil && strings.Contains(err.Error(), "WRONGTYPE Operation") {
		return fmt.Errorf("key %q: %w", d.key(k, name), err)
	}
	return err
}

func (d *Driver) value(ctx context.Context, call redisscript.Call) (any, error) {
	c, err := redisscript.Run(ctx, d.rdb, call)
	if err != nil {
		return nil, err
	}
	return c.Val(), nil
}

// answer is what a script says of a lock: a status, numbers, those that it leaves out 0, and
// perhaps a text at the end.
type answer struct {
	n    [5]int64
	text string
}

// read reads what a script says of a lock: a list, or what stands for one. A number is the
// status, and the rest is 0. A text is "fence numbers" of a grant.
func read(reply any) (a answer, err error) {
	switch reply := reply.(type) {
	case error:
		return a, redisscript.Classify(reply)
	case int64:
		a.n[0] = reply
		return a, nil
	case string:
		fence, numbers, _ := strings.Cut(reply, " ")
		a.n[0] = acquireGranted
		a.n[1], err = strconv.ParseInt(fence, 10, 64)
		if err == nil {
			a.n[3], err = strconv.ParseInt(numbers, 10, 64)
		}
		if err != nil {
			err = fmt.Errorf("redisdriver: a script answered with %q", reply)
		}
		return a, err
	}
	list, _ := reply.([]any)
	if last := len(list) - 1; last > 0 {
		if text, ok := list[last].(string); ok {
			a.text, list = text, list[:last]
		}
	}
	if len(list) == 0 || len(list) > len(a.n) {
		return a, fmt.Errorf("redisdriver: a script answered with %v", reply)
	}
	for i, v := range list {
		n, ok := v.(int64)
		if !ok {
			return a, fmt.Errorf("redisdriver: a script answered with a %T", v)
		}
		a.n[i] = n
	}
	return a, nil
}
