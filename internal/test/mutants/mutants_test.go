package main

import (
	"fmt"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func all(t *testing.T) (root string, mutants []*mutant) {
	t.Helper()
	root, err := moduleRoot(t.Context())
	require.NoError(t, err)
	mutants, err = mutantsIn("testdata")
	require.NoError(t, err)
	return root, mutants
}

// A change of the code must not take a mutant's text away unnoticed.
func TestEveryMutantCanBePutIn(t *testing.T) {
	root, mutants := all(t)
	names := map[string]bool{}
	for _, m := range mutants {
		assert.False(t, names[m.name], "two mutants are called %s", m.name)
		names[m.name] = true
		file, mutated, err := m.mutate(root)
		if assert.NoError(t, err) && filepath.Ext(file) == ".go" {
			assert.NotEmpty(t, m.symbol, m.name)
			_, err = parser.ParseFile(token.NewFileSet(), file, mutated, parser.SkipObjectResolution)
			assert.NoError(t, err, m.name)
		}
	}
}

// Nor may a test go, or get another name.
func TestEveryMutantHasATestThatExists(t *testing.T) {
	root, mutants := all(t)
	for _, m := range mutants {
		files, err := filepath.Glob(filepath.Join(root, m.pkg, "*_test.go"))
		require.NoError(t, err)
		name, _, _ := strings.Cut(m.test, "/")
		found := false
		for _, file := range files {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			found = found || strings.Contains(string(text), "\nfunc "+name+"(")
		}
		assert.True(t, found, "%s: %s has no %s", m.name, m.pkg, name)
	}
}

// The promises stand in doc.go, the rules in package redisdriver. Each can be broken.
func TestEveryPromiseAndRuleHasAMutant(t *testing.T) {
	_, mutants := all(t)
	missing := map[string]bool{}
	for promise := range 6 {
		missing[fmt.Sprint("promise ", promise+1)] = true
	}
	for rule := range 14 {
		missing[fmt.Sprint("rule ", rule+1)] = true
	}
	for _, m := range mutants {
		for _, what := range m.breaks {
			assert.Regexp(t, `^(promise [1-6]|rule ([1-9]|1[0-4]))$`, what, m.name)
			delete(missing, what)
		}
	}
	assert.Empty(t, missing)
}

func TestSymbolIsFoundWhereverItWent(t *testing.T) {
	root := t.TempDir()
	write := func(file, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(root, file), []byte(text), 0o600))
	}
	write("a.go", "package p\n\nfunc (t *T[K]) f() bool {\n\treturn a &&\n\t\tb\n}\n\nfunc g() bool { return a && b }\n")
	write("b.go", "package p\n\nvar v = a && b\n")
	write("a.lua", "local function f()\n  if a then\n    b()\n  end\nend\n\nlocal function g()\n  b()\nend\n")
	m := mutant{file: "b.go", symbol: "T.f", old: "a&&b", new: "a"}
	_, text, err := m.mutate(root)
	require.NoError(t, err)
	assert.Contains(t, text, "return a\n}\n\nfunc g() bool { return a && b }")

	m.symbol = "v"
	_, text, err = m.mutate(root)
	require.NoError(t, err)
	assert.Equal(t, "package p\n\nvar v = a\n", text)

	m.symbol, m.file = "h", "a.go"
	_, _, err = m.mutate(root)
	assert.ErrorContains(t, err, "a.go has no h")

	write("c.go", "package p\n\nfunc g() bool { return a && b || a && b }\n")
	m.symbol, m.file = "g", "b.go"
	_, _, err = m.mutate(root)
	assert.ErrorContains(t, err, "2 other files have it")
	m.file = "c.go"
	_, _, err = m.mutate(root)
	assert.ErrorContains(t, err, "found 2 times")

	m = mutant{file: "a.lua", symbol: "f", old: "b()", new: ""}
	_, text, err = m.mutate(root)
	require.NoError(t, err)
	assert.Contains(t, text, "local function g()\n  b()\nend")
	assert.NotContains(t, text, "    b()")
}
