package pgdriver

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Parts are the files of the schema, in their order.
var Parts = parts

// Rights returns what the package documentation says that a user called app needs.
func Rights(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("doc.go")
	require.NoError(t, err)
	lines := regexp.MustCompile(`(?m)^//\tGRANT .* TO app;$`).FindAllString(string(text), -1)
	require.NotEmpty(t, lines)
	return strings.ReplaceAll(strings.Join(lines, "\n"), "//\t", "")
}
