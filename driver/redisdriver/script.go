package redisdriver

import (
	"embed"
	"slices"
	"strings"
	"sync"

	"github.com/holdfast-go/holdfast/driver/internal/redisscript"
)

//go:embed script
var files embed.FS

// What can be done to locks. The first four handle any number of locks in one call, with so many
// arguments for each.
var (
	acquireScript = newScript("acquire", 3, forMany("acquire")...)
	releaseScript = newScript("release", 2, forMany("release", "lib/burial")...)
	renewScript   = newScript("renew", 3, forMany("renew")...)
	inspectScript = newScript("inspect", 0, "lib/begin", "lib/locks", "lib/time", "op/inspect")

	noticeScript    = newScript("notice", 0, forOneLock("notice")...)
	raiseScript     = newScript("raise", 0, forOneLock("raise")...)
	forceScript     = newScript("force", 0, forOneLock("force", "lib/burial")...)
	stealScript     = newScript("steal", 0, forOneLock("steal", "lib/burial")...)
	downgradeScript = newScript("downgrade", 0, forOneLock("downgrade")...)
	resizeScript    = newScript("resize", 0, forOneLock("resize", "lib/burial")...)
	attachScript    = newScript("attach", 0, forOneLock("attach", "lib/burial")...)
	pingScript      = newScript("ping", 0, "op/ping")
	nodeScript      = newScript("node", 0, "op/node")
)

// library is what a lock is, in files of the folder script, each of which builds on those before.
var library = []string{"lib/record", "lib/lock", "lib/hold", "lib/expiry", "lib/tombstone", "lib/queue"}

// forMany puts a script for many locks together: the straight line for what is common comes first,
// before anything is defined, and returns if it is enough.
func forMany(verb string, more ...string) []string {
	begin := []string{"lib/begin", "lib/locks", "lib/time", "short/" + verb}
	if verb == "release" {
		begin = []string{"lib/begin", "lib/locks", "short/leave", "lib/time", "short/release"}
	}
	return slices.Concat(begin, library, more, []string{"op/" + verb, "lib/each"})
}

func forOneLock(verb string, more ...string) []string {
	return slices.Concat([]string{"lib/begin", "lib/time"}, library, more, []string{"op/" + verb})
}

var allScripts = []*script{
	acquireScript, releaseScript, renewScript, noticeScript, raiseScript, forceScript, stealScript,
	downgradeScript, resizeScript, attachScript, inspectScript, pingScript, nodeScript,
}

// script is a Lua script in four versions: for one lock, whose key is literally KEYS[1] as some
// proxies want it and whose reply stands in no list, for one on a Cluster, for many, and for many
// on a node of a Cluster. Each is put together when it is first needed: for all together that takes
// 20 ms, which every program would wait for as it starts.
type script struct {
	one, onCluster, many, onNode func() *redisscript.Script

	verb      string
	arguments int // for each of many
	parts     []string
}

func newScript(verb string, arguments int, parts ...string) *script {
	s := &script{verb: verb, arguments: arguments, parts: parts}
	version := func(parts []string, changes ...*strings.Replacer) func() *redisscript.Script {
		return sync.OnceValue(func() *redisscript.Script {
			text := source(parts)
			for _, change := range changes {
				text = change.Replace(text)
			}
			return redisscript.New(verb, text)
		})
	}
	s.one, s.onCluster = version(parts, forOne), version(parts, forCluster, forOne)
	if slices.Contains(parts, "lib/locks") {
		s.many, s.onNode = version(parts), version(onNode(parts), forCluster)
	}
	return s
}

// onNode are the files of a script for many locks of a node.
func onNode(parts []string) []string {
	parts = slices.Clone(parts)
	parts[slices.Index(parts, "lib/locks")] = "lib/node"
	return parts
}

// forOne also leaves out notes for locks that come later in a call.
var forOne = strings.NewReplacer("KEYS[n]", "KEYS[1]", "unpack(KEYS)", "KEYS[1]", "return replies", "return replies[1]",
	"passed[KEYS[n]] = true\n", "", "passed[KEYS[n]] = passed[KEYS[n]] or false\n", "")

// forCluster makes a hash of a string in one step, where save() in lib/lock.lua deletes the string
// first. A node whose slot is moving to another node refuses to write a key that is missing. So
// the script would fail between the two, and the lock with its holder would be gone.
//
// RESTORE takes a hash in the form that DUMP gives, here one with the field life, which save()
// then sets. A user without the right to it gets the two steps.
var forCluster = strings.NewReplacer("redis.call('DEL', KEYS[n])",
	"if redis.pcall('RESTORE', KEYS[n], 0, '"+hashWithLife+"', 'REPLACE').err then redis.call('DEL', KEYS[n]) end")

// hashWithLife is, as Lua writes bytes, a hash with life = 0: type 4, one field, the field, the
// value, version 6 of the format, and a checksum.
const hashWithLife = `\4\1\4\108\105\102\101\1\48\6\0\127\15\47\215\216\83\206\176`

// source is what Redis gets: the files without indents and comments, but for the line that says
// which file it is. They are half of it, and every client sends it once to every server.
func source(parts []string) string {
	var text strings.Builder
	for _, name := range parts {
		part, err := files.ReadFile("script/" + name + ".lua")
		if err != nil {
			panic(err) // not in the binary: cannot be
		}
		text.WriteString("-- " + name + ".lua\n")
		for line := range strings.Lines(string(part)) {
			line, _, _ = strings.Cut(strings.TrimSpace(line), "-- ")
			if line = strings.TrimSpace(strings.TrimSuffix(line, "--")); line != "" {
				text.WriteString(line + "\n")
			}
		}
	}
	return text.String()
}
