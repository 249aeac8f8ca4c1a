package redisdriver_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver/redisdriver"
)

var (
	argument = regexp.MustCompile(`\b(?:KEYS|ARGV)\[\d+\]`)
	declared = regexp.MustCompile(`(?m)^-- ((?:KEYS|ARGV)\[\d+\])  `)
	call     = regexp.MustCompile(`redis\.p?call\(([^)]*)`)
)

// A header that does not fit its script misleads more than none.
func TestScriptHeadersNameWhatTheirBodiesUse(t *testing.T) {
	files, err := filepath.Glob("script/*.lua")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			header, body := split(string(text))
			require.True(t, strings.HasPrefix(header, "-- "+filepath.Base(file)+": "), "says what it is")

			names := unique(declared.FindAllStringSubmatch(header, -1))
			require.Subset(t, names, unique(argument.FindAllStringSubmatch(body, -1)), "all it uses is declared")
			used := append(unique(argument.FindAllStringSubmatch(body+theRest(t, file), -1)), "KEYS[1]")
			require.Subset(t, used, names, "all it declares is used")
			if strings.Contains(body, "\nreturn {") {
				require.Contains(t, header, "Returns ")
			}
		})
	}
}

// theRest is what comes after a file in scripts: the first part of a script declares
// the arguments of the second, too.
func theRest(t *testing.T, file string) string {
	t.Helper()
	name, text, used := strings.TrimSuffix(filepath.Base(file), ".lua"), "", false
	for _, parts := range redisdriver.ScriptParts() {
		i := slices.Index(parts, name)
		if i < 0 {
			continue
		}
		used = true
		for _, part := range parts[i+1:] {
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
// literally in the call, no library that is not everywhere, integers as integers.
func TestScriptsUseOnlyWhatRunsEverywhere(t *testing.T) {
	files, err := filepath.Glob("script/*.lua")
	require.NoError(t, err)
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			_, body := split(string(text))
			for _, c := range call.FindAllStringSubmatch(body, -1) {
				args := strings.Split(c[1], ", ")
				if !slices.Contains([]string{"'TIME'", "'PUBSUB'", "'PUBLISH'"}, args[0]) {
					require.Greater(t, len(args), 1, c[0])
					require.Equal(t, "KEYS[1]", args[1], c[0])
				}
			}
			for _, word := range []string{"#!", "bit.", "struct.", "cmsgpack", "cjson", "tostring", "unpack", "loadstring", "os."} {
				require.NotContains(t, body, word)
			}
		})
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
