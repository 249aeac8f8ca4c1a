package behavior_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The index in the package comment names tests that exist, and forgets no promise. Each has one that
// is run always, not in the soak alone.
func TestEveryPromiseAndRuleHasItsTests(t *testing.T) {
	for section, source := range map[string]string{
		"Promises": "../../../doc.go",
		"Rules":    "../../../driver/redisdriver/redisdriver.go",
	} {
		want := items(t, source, section)
		require.Greater(t, len(want), 5, source)
		index := items(t, "doc.go", section)
		for number := range want {
			assert.Contains(t, index, number, "%s: number %s is not in the index", section, number)
		}
		for number, text := range index {
			assert.Contains(t, want, number, "%s has no number %s", source, number)
			tests := named.FindAllStringSubmatch(text, -1)
			assert.NotEmpty(t, tests, "%s %s", section, number)
			gated := 0
			for _, test := range tests {
				soak, exists := testsOf(t, test[1])[test[2]]
				assert.True(t, exists, "%s %s: there is no %s", section, number, test[0])
				if !soak {
					gated++
				}
			}
			assert.NotZero(t, gated, "%s %s: all its tests are for the soak, so the gate does not hold it", section, number)
		}
	}
}

var (
	item  = regexp.MustCompile(`^ +(\d+)\. `)
	named = regexp.MustCompile(`\b([a-z]+)\.(Test\w+)`)
)

// items are the numbered ones of a section of a package comment.
func items(t *testing.T, file, section string) map[string]string {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments|parser.PackageClauseOnly)
	require.NoError(t, err)
	all := map[string]string{}
	inside, number := false, ""
	for line := range strings.Lines(f.Doc.Text()) {
		line = strings.TrimRight(line, "\n")
		if heading, ok := strings.CutPrefix(line, "# "); ok {
			inside, number = heading == section, ""
		} else if start := item.FindStringSubmatch(line); inside && start != nil {
			number = start[1]
			assert.NotContains(t, all, number, "%s: two of one number", file)
			all[number] = line
		} else if number != "" {
			all[number] += "\n" + line
		}
	}
	return all
}

// testsOf are the tests in a folder, and whether they are for the soak alone. Its name is unique in the module.
func testsOf(t *testing.T, name string) map[string]bool {
	t.Helper()
	folders := []string{"../../.."}
	if name != "holdfast" {
		folders = nil
		for _, parent := range []string{".", "..", "../..", "../../../driver"} {
			if _, err := os.Stat(filepath.Join(parent, name)); err == nil {
				folders = append(folders, filepath.Join(parent, name))
			}
		}
	}
	require.Len(t, folders, 1, "no folder, or more than one, is called %s", name)
	files, err := filepath.Glob(filepath.Join(folders[0], "*_test.go"))
	require.NoError(t, err)
	tests := map[string]bool{}
	for _, file := range files {
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, d := range f.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil && strings.HasPrefix(f.Name.Name, "Test") {
				tests[f.Name.Name] = len(f.Body.List) > 0 && isSoakOnly(f.Body.List[0])
			}
		}
	}
	return tests
}

// isSoakOnly reports whether a statement is redistest.SoakOnly(t).
func isSoakOnly(s ast.Stmt) bool {
	expr, ok := s.(*ast.ExprStmt)
	if !ok {
		return false
	}
	call, ok := expr.X.(*ast.CallExpr)
	if !ok {
		return false
	}
	f, ok := call.Fun.(*ast.SelectorExpr)
	return ok && f.Sel.Name == "SoakOnly"
}
