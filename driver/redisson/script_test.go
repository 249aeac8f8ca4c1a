package redisson_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver/redisson"
)

var (
	argument = regexp.MustCompile(`\b(?:KEYS|ARGV)\[\d+\]`)
	declared = regexp.MustCompile(`(?m)^-- ((?:KEYS|ARGV)\[\d+\])  `)
	comment  = regexp.MustCompile(`(?m)(^|\s)--.*$`)
)

// A header that does not fit its script misleads more than none. It is that of the last
// part, and says what all parts use.
func TestScriptHeadersNameWhatTheirBodiesUse(t *testing.T) {
	for _, parts := range redisson.ScriptParts() {
		last := parts[len(parts)-1]
		t.Run(last, func(t *testing.T) {
			var used []string
			var text string
			for _, part := range parts {
				b, err := os.ReadFile("script/" + part + ".lua")
				require.NoError(t, err)
				text = string(b)
				require.True(t, strings.HasPrefix(text, "-- "+part+".lua: "), "says what it is")
				used = append(used, argument.FindAllString(comment.ReplaceAllString(text, ""), -1)...)
			}
			require.Contains(t, text, "\n-- Returns ")
			var names []string
			for _, m := range declared.FindAllStringSubmatch(text, -1) {
				names = append(names, m[1])
			}
			slices.Sort(used)
			require.ElementsMatch(t, names, slices.Compact(used))
		})
	}
}
