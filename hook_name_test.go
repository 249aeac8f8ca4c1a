package holdfast_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Who looks for a span finds what it is in the documentation of NameHook.
func TestNameHookSaysWhatSpansAreCalled(t *testing.T) {
	text, err := os.ReadFile("hook.go")
	require.NoError(t, err)
	doc := regexp.MustCompile(`(?s)// NameHook returns.*?\nfunc NameHook`).FindString(string(text))
	files, err := filepath.Glob("driver/*/*.go")
	require.NoError(t, err)
	named := map[string]bool{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		for _, call := range regexp.MustCompile(`(?:\.(?:Call|On)|plain\.New)\("(\w+)"`).FindAllStringSubmatch(string(text), -1) {
			named[call[1]] = true
			require.Contains(t, doc, `"`+call[1]+`"`, file)
		}
	}
	require.GreaterOrEqual(t, len(named), 5)
}
