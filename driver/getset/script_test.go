package getset_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	argument = regexp.MustCompile(`\b(?:KEYS|ARGV)\[\d+\]`)
	declared = regexp.MustCompile(`(?m)^-- ((?:KEYS|ARGV)\[\d+\])  `)
	comment  = regexp.MustCompile(`(?m)(^|\s)--.*$`)
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
			require.True(t, strings.HasPrefix(string(text), "-- "+filepath.Base(file)+": "), "says what it is")
			require.Contains(t, string(text), "\n-- Returns ")
			var names []string
			for _, m := range declared.FindAllStringSubmatch(string(text), -1) {
				names = append(names, m[1])
			}
			used := argument.FindAllString(comment.ReplaceAllString(string(text), ""), -1)
			slices.Sort(used)
			require.ElementsMatch(t, names, slices.Compact(used))
		})
	}
}
