package main

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAStormHasTheFaultsOfItsSetAndOneOnEachPart(t *testing.T) {
	faults := []fault{
		{kind: "a", part: "1", set: safe}, {kind: "a", part: "2", set: safe}, {kind: "b", part: "2", set: safe},
		{kind: "never beside a loss", part: "3", set: safe, never: []set{data, times}},
		{kind: "loss", part: "3", set: data}, {kind: "step", part: "4", set: times},
	}
	for class, want := range map[set][]string{
		safe:  {"a", "b", "never beside a loss"},
		data:  {"a", "b", "loss"},
		times: {"a", "b", "step"},
	} {
		n := &nemesis{rng: rand.New(rand.NewPCG(1, 2)), active: map[string]fault{}}
		drawn := map[string]bool{}
		for range 1000 {
			first, ok := n.draw(faults, class)
			require.True(t, ok)
			drawn[first.kind] = true
			if second, ok := n.draw(faults, class); ok {
				require.NotEqual(t, first.part, second.part)
				drawn[second.kind] = true
				_, ok = n.draw(faults, class)
				require.False(t, ok, "a third one")
			}
			clear(n.active)
		}
		require.ElementsMatch(t, want, slices.Collect(maps.Keys(drawn)))
	}
}

func TestElectionsThatNobodyAskedForAreNoted(t *testing.T) {
	second := int64(time.Second)
	seen := func(at int64) event {
		return event{fault: fault{kind: unasked, set: data}, start: at - 4*second, end: at}
	}
	n := &nemesis{log: t.Logf, active: map[string]fault{"server": {elects: true}}}
	n.elected(seen(10 * second))
	require.Empty(t, n.events, "a fault does that now")
	clear(n.active)
	n.events = []event{{fault: fault{elects: true}, end: 10 * second}}
	n.elected(seen(10*second + second/2))
	require.Len(t, n.events, 1, "a fault has just done that")
	n.elected(seen(12 * second))
	require.Len(t, n.events, 2)
	n.elected(seen(13 * second))
	require.Len(t, n.events, 2, "the same goes on")
	require.Equal(t, 13*second, n.events[1].end)

	disturbed, calm := storm{heal: 11 * second, end: 17 * second}, storm{heal: 14 * second, end: 20 * second}
	require.Equal(t, []storm{calm}, undisturbed([]storm{disturbed, calm}, n.events))
}
