package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A change of the code must not take a mutant's text away unnoticed.
func TestTextOfEveryMutantStandsInItsFileOnce(t *testing.T) {
	root, err := moduleRoot(t.Context())
	require.NoError(t, err)
	names := map[string]bool{}
	for _, m := range mutants {
		assert.False(t, names[m.name], "two mutants are called %s", m.name)
		names[m.name] = true
		text, err := os.ReadFile(filepath.Join(root, m.file))
		require.NoError(t, err, m.name)
		mutated, err := m.mutate(string(text))
		if assert.NoError(t, err, m.name) {
			assert.NotEqual(t, string(text), mutated, m.name)
		}
	}
}

// Nor may a test go, or get another name.
func TestEveryMutantHasTestsThatExist(t *testing.T) {
	root, err := moduleRoot(t.Context())
	require.NoError(t, err)
	declared := map[string]string{}
	for _, m := range mutants {
		assert.NotEmpty(t, m.bug, m.name)
		require.NotEmpty(t, m.tests, m.name)
		for _, of := range m.tests {
			if _, known := declared[of.pkg]; !known {
				files, err := filepath.Glob(filepath.Join(root, of.pkg, "*_test.go"))
				require.NoError(t, err)
				for _, file := range files {
					text, err := os.ReadFile(file)
					require.NoError(t, err)
					declared[of.pkg] += string(text)
				}
			}
			require.NotEmpty(t, of.names, m.name)
			for name := range strings.FieldsSeq(of.names) {
				top, _, _ := strings.Cut(name, "/")
				assert.True(t, strings.Contains(declared[of.pkg], "\nfunc "+top+"("), "%s: %s has no %s", m.name, of.pkg, top)
			}
		}
	}
}

// The rules of the protocol stand in package redisdriver, the defects in CHANGELOG.md as what
// was fixed. Each can be broken.
func TestEveryRuleHasAMutant(t *testing.T) {
	broken := map[string]bool{}
	for _, m := range mutants {
		for of := range strings.SplitSeq(m.of, ", ") {
			broken[of] = true
		}
	}
	for rule := 1; rule <= 14; rule++ {
		assert.True(t, broken[fmt.Sprint("rule ", rule)], "no mutant breaks rule %d", rule)
	}
	known := regexp.MustCompile(`^$|^rule \d+$|^[BP]\d+$`)
	for of := range broken {
		assert.Regexp(t, known, of)
	}
}

func TestSampleIsOfSoManyAndOfItsSeed(t *testing.T) {
	var all []*mutant
	for i := range mutants {
		all = append(all, &mutants[i])
	}
	assert.Equal(t, all, draw{}.from(all))
	assert.Equal(t, all, draw{many: len(all) + 1}.from(all))
	one := draw{many: 12, seed: 1}.from(all)
	assert.Len(t, one, 12)
	assert.Subset(t, all, one)
	assert.Equal(t, one, draw{many: 12, seed: 1}.from(all))
	assert.NotEqual(t, one, draw{many: 12, seed: 2}.from(all))

	var parts []*mutant
	for _, part := range []string{"1/3", "2/3", "3/3"} {
		parts = append(parts, draw{part: part}.from(all)...)
	}
	assert.Equal(t, all, parts)
}
