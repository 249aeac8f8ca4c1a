package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// told makes a ledger of two workers from what they told.
func told(events ...event) *ledger {
	l := newLedger(2)
	for _, e := range events {
		l.apply(e)
	}
	return l
}

const ms = int64(time.Millisecond)

func TestHandOverIsMeasuredFromReleaseToTheOneThatWaited(t *testing.T) {
	l := told(
		event{1, requested, 0 * ms, 0}, event{1, acquired, 1 * ms, 10},
		event{2, requested, 2 * ms, 0},
		event{1, released, 5 * ms, 10},
		event{2, acquired, 8 * ms, 11},
		event{2, released, 9 * ms, 11},
	)
	assert.Equal(t, []time.Duration{3 * time.Millisecond}, l.handovers)
	assert.Equal(t, []time.Duration{1 * time.Millisecond, 6 * time.Millisecond}, l.waits)
	assert.Equal(t, []turn{{1, 0, 1 * ms, 5 * ms, 10, false}, {2, 2 * ms, 8 * ms, 9 * ms, 11, false}}, l.turns)
}

func TestNoHandOverIfNobodyWaited(t *testing.T) {
	l := told(
		event{1, requested, 1 * ms, 0}, event{1, acquired, 2 * ms, 10}, event{1, released, 3 * ms, 10},
		event{2, requested, 4 * ms, 0}, event{2, acquired, 5 * ms, 11},
	)
	assert.Empty(t, l.handovers)
}

func TestLostTurnIsNoTurnAndNoHandOver(t *testing.T) {
	l := told(
		event{1, requested, 1 * ms, 0}, event{1, acquired, 2 * ms, 10},
		event{2, requested, 3 * ms, 0}, event{2, acquired, 9 * ms, 11},
		event{1, lost, 10 * ms, 10},
		event{2, released, 12 * ms, 11},
	)
	assert.Equal(t, 1, l.lost)
	assert.Equal(t, []turn{{2, 3 * ms, 9 * ms, 12 * ms, 11, false}}, l.turns)
	assert.Empty(t, l.handovers)
	assert.Zero(t, inspect(l.turns))
}

func TestStateFollowsTheEvents(t *testing.T) {
	l := newLedger(1)
	m := l.members[0]
	is := func(want state, since int64) {
		t.Helper()
		s, at := m.state()
		assert.Equal(t, want, s)
		assert.Equal(t, since, at)
	}
	is(idle, 0)
	l.apply(event{1, requested, 1, 0})
	is(waits, 1)
	l.apply(event{1, acquired, 2, 7})
	is(holds, 2)
	assert.Equal(t, 1, l.open())
	l.apply(event{1, released, 3, 7})
	is(idle, 0)
	l.apply(event{1, requested, 4, 0})
	l.apply(event{1, left, 5, 0})
	is(idle, 0)
	l.apply(event{1, gone, 6, 0})
	is(ended, 0)
}

func TestHistoryShowsFinishedAndPresentTurns(t *testing.T) {
	l := told(
		event{1, requested, 10, 0}, event{1, acquired, 20, 1}, event{1, released, 30, 1},
		event{1, requested, 40, 0}, event{1, acquired, 50, 2}, event{1, released, 60, 2},
		event{1, requested, 70, 0}, event{1, acquired, 80, 3},
	)
	times := []int64{85, 75, 65, 55, 45, 35, 25, 15, 5}
	assert.Equal(t, []state{holds, waits, idle, holds, waits, idle, holds, waits, idle}, l.members[0].history(times))
	assert.Equal(t, []state{idle, idle}, l.members[1].history([]int64{20, 10}))
}
