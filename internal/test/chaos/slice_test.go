package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// part is a slice with so many grants.
func part(hash, commit string, grants int) *sum {
	return &sum{
		Topology: "single", Hash: hash, Commit: commit, Date: "today", Slices: 1, Worlds: 2, Took: time.Minute, CPU: time.Second, Load: float64(grants),
		Recovery: time.Duration(grants), Counts: map[string]int{"grants": grants, "steals": 1}, Heard: make([]int, grants%7),
		Faults: map[string]tale{"a": {Set: safe, Made: 2, Felt: 1, Total: time.Second}},
	}
}

func TestSlicesOfOneHashAddUp(t *testing.T) {
	name := filepath.Join(t.TempDir(), "slices")
	other := part("now", "c1", 1000)
	other.Topology = "cluster"
	silent := part("now", "c1", 1000)
	silent.Void = []string{"nobody felt it"}
	broken := part("now", "c3", 4)
	broken.Void, broken.Broken, broken.Counts[deaf] = []string{"nobody felt it"}, []string{"violation: deaf"}, 1
	for _, s := range []*sum{part("now", "c1", 10), part("then", "c0", 1000), part("now", "c1", 20), other, silent, broken} {
		require.NoError(t, keepSlice(name, s))
	}
	sum, err := sumUp(name, "single", "now")
	require.NoError(t, err)
	require.Equal(t, map[string]int{"grants": 34, "steals": 3, deaf: 1}, sum.Counts)
	require.Equal(t, tale{Set: safe, Made: 6, Felt: 3, Total: 3 * time.Second}, sum.Faults["a"])
	require.Equal(t, []string{"c1", "c3"}, sum.commits)
	require.Equal(t, []int{3, 1, 1}, []int{sum.Slices, sum.void, sum.old})
	require.Equal(t, []time.Duration{3 * time.Minute, 3 * time.Second, 20}, []time.Duration{sum.Took, sum.CPU, sum.Recovery})
	require.EqualValues(t, 4, sum.Load)
	require.ErrorContains(t, sum.err(), "deaf", "nothing hides a promise that was broken")
	require.Contains(t, sum.provenance(), "3 slices, commit c1, c3, hash now; not in the sum: 1 slices of other hashes, 1 that say nothing")

	again, err := sumUp(name, "single", "later")
	require.NoError(t, err)
	require.Zero(t, again.Slices)
}

func TestWorldsSideBySideAreOneSlice(t *testing.T) {
	s := part("now", "c1", 10)
	other := part("now", "c1", 20)
	other.Took *= 2
	s.beside(other)
	require.Equal(t, []int{1, 4, 30}, []int{s.Slices, s.Worlds, s.Counts["grants"]})
	require.Equal(t, 2*time.Minute, s.Took)
}

func TestVictimsThatHeardAreCountedByTheirTime(t *testing.T) {
	h := histogram([]time.Duration{0, 900 * time.Nanosecond, time.Microsecond, 3 * time.Microsecond, time.Second})
	require.Equal(t, time.Microsecond, within(h, 0.4))
	require.Equal(t, 2*time.Microsecond, within(h, 0.5))
	require.Equal(t, 4*time.Microsecond, within(h, 0.8))
	require.Less(t, time.Second, within(h, 1))
	require.Zero(t, within(nil, 1))
}

func TestReportHasTheSumInTheSectionOfItsTopology(t *testing.T) {
	name := filepath.Join(t.TempDir(), "report.md")
	begin, end := marks("single")
	require.NoError(t, os.WriteFile(name, []byte("before\n"+begin+"\nforgotten text\n"+end+"\nafter\n"), 0o600))
	require.NoError(t, publish(name, "single", "the head", part("now", "c1", 10).table()))
	text, err := os.ReadFile(name)
	require.NoError(t, err)
	require.NotContains(t, string(text), "forgotten text")
	require.Regexp(t, `(?s)^before\n.*## One server\n\nthe head\n\n\| fault.*\| grants \| 10 .*`+end+"\nafter\n$", string(text))
	require.Error(t, publish(name, "cluster", "", ""))
}

func TestCommentsAreNoMatter(t *testing.T) {
	of := func(name, text string) string {
		var b strings.Builder
		matterOf(&b, name, []byte(text))
		return b.String()
	}
	const source = "package a\nvar x = 1\n"
	require.Equal(t, of("a.go", source), of("a.go", "// Package a is one.\npackage a\n\nvar x = 1 // of it\n"))
	require.NotEqual(t, of("a.go", source), of("a.go", "package a\nvar x = 2\n"))
	require.Equal(t, of("a.lua", "local x = 1\n"), of("a.lua", "-- one\n\n  local x = 1\n"))
	require.NotEqual(t, of("a.lua", "local x = 1\n"), of("a.lua", "local x = 2\n"))
	hash, err := matter()
	require.NoError(t, err)
	require.Len(t, hash, 12)
}
