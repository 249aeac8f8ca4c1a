package redisdriver_test

import (
	"crypto/sha256"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver/redisdriver"
)

var (
	argument     = regexp.MustCompile(`\b((?:KEYS|ARGV)\[(?:n|\d+)(?: \+ at)?\])`)
	declared     = regexp.MustCompile(`(?m)^-- ((?:KEYS|ARGV)\[(?:n|\d+)\])  `)
	eachArgument = regexp.MustCompile(`\bARGV\[(\d+) \+ at\]`)
	anyIndex     = regexp.MustCompile(`\b(?:KEYS|ARGV)\[[^\]]*\]`)
	call         = regexp.MustCompile(`(?:redis\.p?call\(|\bwrite\(\w+, )([^)]*)`)
	constant     = regexp.MustCompile(`(?m)^local ([A-Z_]+(?:, [A-Z_]+)*) = (\d+(?:, \d+)*)(?: --.*)?$`)
)

var update = flag.Bool("update", false, "write the golden files anew")

// A header that does not fit its script misleads more than none.
func TestScriptHeadersNameWhatTheirBodiesUse(t *testing.T) {
	for _, file := range scriptFiles(t) {
		t.Run(file, func(t *testing.T) {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			header, body := split(string(text))
			require.True(t, strings.HasPrefix(header, "-- "+strings.TrimPrefix(file, "script/")+": "), "says what it is")

			names := unique(declared.FindAllStringSubmatch(header, -1))
			require.Subset(t, names, used(body), "all it uses is declared")
			require.Subset(t, append(used(body+theRest(t, file)), "KEYS[n]", "KEYS[1]"), names, "all it declares is used")
			if strings.Contains(body, "\nreturn {") {
				require.Contains(t, header, "Returns ")
			}
		})
	}
}

func scriptFiles(t *testing.T) []string {
	files, err := filepath.Glob("script/*/*.lua")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	return files
}

// used are the keys and arguments that a body uses, those of each lock as those of the first.
func used(body string) []string {
	return unique(argument.FindAllStringSubmatch(strings.ReplaceAll(body, " + at]", "]"), -1))
}

// theRest is what comes after a file in scripts: the first part of a script declares
// the arguments of the second, too.
func theRest(t *testing.T, file string) string {
	t.Helper()
	name, text, used := strings.TrimSuffix(strings.TrimPrefix(file, "script/"), ".lua"), "", false
	if name == "lib/node" {
		name = "lib/locks" // which it replaces
	}
	for _, s := range redisdriver.Scripts() {
		i := slices.Index(s.Parts, name)
		if i < 0 {
			continue
		}
		used = true
		for _, part := range s.Parts[i+1:] {
			more, err := os.ReadFile("script/" + part + ".lua")
			require.NoError(t, err)
			_, body := split(string(more))
			text += body
		}
	}
	require.True(t, used, "it is in a script")
	return text
}

// What servers other than Redis, and proxies in front of it, ask of scripts: the key
// literally in the call, no library that is not everywhere, integers as integers. The key of one
// of many locks is KEYS[n], and its arguments begin at "at"; the Go side replaces n by 1 where a
// script is for one lock.
func TestScriptsUseOnlyWhatRunsEverywhere(t *testing.T) {
	for _, file := range scriptFiles(t) {
		t.Run(file, func(t *testing.T) {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			_, body := split(string(text))
			for _, c := range call.FindAllStringSubmatch(body, -1) {
				args := strings.Split(c[1], ", ")
				if !slices.Contains([]string{"'TIME'", "'PUBSUB'", "'PUBLISH'", "..."}, args[0]) {
					require.Greater(t, len(args), 1, c[0])
					if file != "script/op/node.lua" { // which finds out what becomes of others
						require.Contains(t, []string{"KEYS[n]", "unpack(KEYS"}, args[1], c[0])
					}
				}
			}
			require.LessOrEqual(t, strings.Count(body, "call(...)"), 2, "only write has what it is given")

			many := strings.Contains(body, "for i = 1, #KEYS do") || strings.Contains(body, "for n = 1, #KEYS do") ||
				strings.Contains(body, "local function handle(at)")
			for _, index := range anyIndex.FindAllString(body, -1) {
				switch {
				case index == "KEYS[n]", index == "ARGV[1]", index == "ARGV[2]":
				case file == "script/lib/locks.lua", file == "script/lib/node.lua": // take the arguments apart
				case many:
					require.Regexp(t, `^ARGV\[([3-9]|\d\d) \+ at\]$`, index)
				default:
					require.Regexp(t, `^ARGV\[([3-9]|\d\d)\]$`, index)
				}
			}

			if filepath.Base(file) == "begin.lua" {
				const both = "local unpack = table.unpack or unpack" // Lua 5.4, or 5.1
				require.Equal(t, 1, strings.Count(body, both))
				body = strings.Replace(body, both, "", 1)
			}
			require.Equal(t, strings.Count(body, "unpack("), strings.Count(body, "unpack"), "only to call it")
			for _, word := range []string{"#!", "bit.", "struct.", "cmsgpack", "cjson", "tostring", "table.unpack", "loadstring", "os."} {
				require.NotContains(t, body, word)
			}
		})
	}
}

// Each answer of a script has one name, and one number, on both sides; and both sides know how
// many arguments each lock has.
func TestScriptsAndGoMeanTheSameByAStatus(t *testing.T) {
	for _, s := range redisdriver.Scripts() {
		t.Run(s.Verb, func(t *testing.T) {
			found, arguments := map[string]int{}, 0
			for _, m := range eachArgument.FindAllStringSubmatch(s.Text, -1) {
				n, err := strconv.Atoi(m[1])
				require.NoError(t, err)
				arguments = max(arguments, n-2)
			}
			for _, line := range constant.FindAllStringSubmatch(s.Text, -1) {
				names, values := strings.Split(line[1], ", "), strings.Split(line[2], ", ")
				require.Len(t, values, len(names), line[0])
				for i, name := range names {
					n, err := strconv.Atoi(values[i])
					require.NoError(t, err)
					switch name {
					case "LOOKED_AT", "ROOM", "AT_ONCE", "AT_LENGTH", "ENOUGH", "NOTICE", "SETTLED", "DISTANT", "SEARCHED":
					default:
						if before, twice := found[name]; twice { // in the short way, too
							require.Equal(t, before, n, name)
						}
						found[name] = n
					}
				}
			}
			require.Equal(t, s.Arguments, arguments)
			require.Len(t, found, len(s.Statuses))
			for name, n := range s.Statuses {
				require.Equal(t, n, found[name], name)
			}
		})
	}
}

// The three scripts of every lock stand as Redis gets them, so that they can be read whole. Of the
// others there are sums, which show that a change reaches a script. To write all of them anew:
//
//	go test -run Golden -update
func TestGoldenFilesHaveTheScripts(t *testing.T) {
	golden, sums := map[string]string{}, ""
	for _, s := range redisdriver.Scripts() {
		switch s.Verb {
		case "acquire", "release", "renew":
			golden[s.Verb+".lua"] = s.Text
		default:
			sums += fmt.Sprintf("%x  %s.lua\n", sha256.Sum256([]byte(s.Text)), s.Verb)
		}
	}
	golden["sha256sum"] = sums

	const folder, anew = "testdata/scripts/", "to write it anew, run in driver/redisdriver: go test -run Golden -update"
	if *update {
		require.NoError(t, os.RemoveAll(folder))
		require.NoError(t, os.MkdirAll(folder, 0o755))
		for name, text := range golden {
			require.NoError(t, os.WriteFile(folder+name, []byte(text), 0o644))
		}
	}
	found, err := os.ReadDir(folder)
	require.NoError(t, err)
	require.Len(t, found, len(golden), anew)
	for name, want := range golden {
		text, err := os.ReadFile(folder + name)
		require.NoError(t, err)
		require.Equal(t, string(text), want, "%s is not what the files in script make; %s", folder+name, anew)
	}
}

// On a Cluster a lock is never deleted to change its form, see forCluster.
func TestScriptsForAClusterReplaceAStringInOneStep(t *testing.T) {
	for _, s := range redisdriver.Scripts() {
		if slices.Contains(s.Parts, "lib/lock") {
			require.Equal(t, 1, strings.Count(s.OnCluster, "'RESTORE', KEYS[1]"), s.Verb)
			require.Equal(t, 1, strings.Count(s.OnCluster, "redis.call('DEL'"), "%s: only if that is refused", s.Verb)
			if s.Arguments > 0 {
				require.Equal(t, 1, strings.Count(s.OnNode, "'RESTORE', KEYS[n]"), s.Verb)
				require.Equal(t, 1, strings.Count(s.OnNode, "redis.call('DEL'"), "%s: only if that is refused", s.Verb)
			}
		}
	}
}

// split returns the comment at the top of a script, and the rest without comments.
func split(text string) (header, body string) {
	lines := strings.SplitAfter(text, "\n")
	for i, line := range lines {
		if !strings.HasPrefix(line, "--") {
			return strings.Join(lines[:i], ""), regexp.MustCompile(`(?m)\s--.*$`).ReplaceAllString(strings.Join(lines[i:], ""), "")
		}
	}
	return text, ""
}

func unique(matches [][]string) []string {
	names := []string{}
	for _, m := range matches {
		names = append(names, m[len(m)-1])
	}
	slices.Sort(names)
	return slices.Compact(names)
}
