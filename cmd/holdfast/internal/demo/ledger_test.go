package demo

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// told makes a ledger of two workers and a mutex from what they told.
func told(events ...event) *ledger { return toldOf(2, 1, events...) }

func toldOf(workers int, limit int64, events ...event) *ledger {
	l := newLedger(workers, limit)
	for _, e := range events {
		l.apply(e)
	}
	return l
}

const ms = int64(time.Millisecond)

func TestHandOverIsMeasuredFromReleaseToTheOneThatWaited(t *testing.T) {
	l := told(
		event{1, requested, 0 * ms, 0, 1}, event{1, acquired, 1 * ms, 10, 1},
		event{2, requested, 2 * ms, 0, 1},
		event{1, released, 5 * ms, 10, 1},
		event{2, acquired, 8 * ms, 11, 1},
		event{2, released, 9 * ms, 11, 1},
	)
	assert.Equal(t, []time.Duration{3 * time.Millisecond}, l.handovers)
	assert.Equal(t, []turn{{1, 0, 1 * ms, 5 * ms, 10, 1, released}, {2, 2 * ms, 8 * ms, 9 * ms, 11, 1, released}}, l.turns)
}

func TestNoHandOverIfNobodyWaited(t *testing.T) {
	l := told(
		event{1, requested, 1 * ms, 0, 1}, event{1, acquired, 2 * ms, 10, 1}, event{1, released, 3 * ms, 10, 1},
		event{2, requested, 4 * ms, 0, 1}, event{2, acquired, 5 * ms, 11, 1},
	)
	assert.Empty(t, l.handovers)
}

func TestLostTurnIsNoTurnAndNoHandOver(t *testing.T) {
	l := told(
		event{1, requested, 1 * ms, 0, 1}, event{1, acquired, 2 * ms, 10, 1},
		event{2, requested, 3 * ms, 0, 1}, event{2, acquired, 9 * ms, 11, 1},
		event{1, lost, 10 * ms, 10, 1},
		event{2, released, 12 * ms, 11, 1},
	)
	assert.Equal(t, 1, l.lost)
	assert.Equal(t, []turn{{2, 3 * ms, 9 * ms, 12 * ms, 11, 1, released}}, l.turns)
	assert.Empty(t, l.handovers)
	assert.Zero(t, inspect(l.turns, 1))
}

func TestStateFollowsTheEvents(t *testing.T) {
	l := newLedger(1, 1)
	m := l.members[0]
	is := func(want state, since int64) {
		t.Helper()
		s, at := m.state()
		assert.Equal(t, want, s)
		assert.Equal(t, since, at)
	}
	is(idle, 0)
	l.apply(event{1, requested, 1, 0, 1})
	is(waits, 1)
	l.apply(event{1, acquired, 2, 7, 1})
	is(holds, 2)
	l.apply(event{1, released, 3, 7, 1})
	is(idle, 0)
	l.apply(event{1, requested, 4, 0, 1})
	l.apply(event{1, left, 5, 0, 1})
	is(idle, 0)
	l.apply(event{1, gone, 6, 0, 1})
	is(ended, 0)
}

func TestHistoryShowsFinishedAndPresentTurns(t *testing.T) {
	l := told(
		event{1, requested, 10, 0, 1}, event{1, acquired, 20, 1, 1}, event{1, released, 30, 1, 1},
		event{1, requested, 40, 0, 1}, event{1, acquired, 50, 2, 1}, event{1, released, 60, 2, 1},
		event{1, requested, 70, 0, 1}, event{1, acquired, 80, 3, 1},
	)
	times := []int64{85, 75, 65, 55, 45, 35, 25, 15, 5}
	h, w := pose{holds, 1}, pose{waits, 1}
	assert.Equal(t, []pose{h, w, {}, h, w, {}, h, w, {}}, l.members[0].history(times))
	assert.Equal(t, []pose{{}, {}}, l.members[1].history([]int64{20, 10}))
}

func TestHandOverIsMeasuredFromWhenThereWasRoom(t *testing.T) {
	l := toldOf(4, alone,
		event{1, requested, 0 * ms, 0, 1}, event{1, acquired, 1 * ms, 1, 1},
		event{2, requested, 0 * ms, 0, 1}, event{2, acquired, 1 * ms, 2, 1},
		event{3, requested, 2 * ms, 0, alone}, event{4, requested, 3 * ms, 0, 1},
		event{1, released, 5 * ms, 1, 1}, // no room for 3 yet, and 4 waits behind it
		event{2, released, 10 * ms, 2, 1}, event{3, acquired, 11 * ms, 3, alone},
		event{1, requested, 12 * ms, 0, 1},
		event{3, released, 20 * ms, 3, alone}, // room for both
		event{1, acquired, 22 * ms, 5, 1}, event{4, acquired, 23 * ms, 4, 1},
	)
	assert.Equal(t, []time.Duration{1 * time.Millisecond, 2 * time.Millisecond, 3 * time.Millisecond}, l.handovers)
}

func TestNoHandOverIfThereWasRoomAllAlong(t *testing.T) {
	l := toldOf(2, 2,
		event{1, requested, 1 * ms, 0, 1}, event{1, acquired, 2 * ms, 10, 1},
		event{2, requested, 3 * ms, 0, 1}, event{1, released, 4 * ms, 10, 1}, event{2, acquired, 5 * ms, 11, 1},
	)
	assert.Empty(t, l.handovers)
}

func TestNoHandOverFromARoomThatAnotherTook(t *testing.T) {
	l := toldOf(3, 1,
		event{1, requested, 1 * ms, 0, 1}, event{1, acquired, 2 * ms, 10, 1},
		event{2, requested, 3 * ms, 0, 1}, event{3, requested, 4 * ms, 0, 1},
		event{1, released, 5 * ms, 10, 1}, event{3, acquired, 6 * ms, 11, 1}, // its request was faster
		event{3, released, 40 * ms, 11, 1}, event{2, acquired, 42 * ms, 12, 1},
	)
	assert.Equal(t, []time.Duration{2 * time.Millisecond}, l.handovers)
}

func TestNoHandOverFromALeaseThatRanOut(t *testing.T) {
	for _, end := range []what{lost, gone} {
		l := told(
			event{1, requested, 1 * ms, 0, 1}, event{1, acquired, 2 * ms, 10, 1},
			event{2, requested, 3 * ms, 0, 1}, event{1, end, 5 * ms, 10, 1}, event{2, acquired, 9 * ms, 11, 1},
		)
		assert.Empty(t, l.handovers, "%v", end)
	}
}

func TestDeadProcessLeavesNoRoomForATime(t *testing.T) {
	l := toldOf(3, 2,
		event{1, requested, 1 * ms, 0, 1}, event{1, acquired, 2 * ms, 10, 1},
		event{2, requested, 1 * ms, 0, 1}, event{2, acquired, 2 * ms, 11, 1},
		event{3, requested, 3 * ms, 0, 2}, event{1, gone, 4 * ms, 0, 0}, event{2, released, 5 * ms, 11, 1},
		event{3, acquired, 2100 * ms, 12, 2}, // when the lease of the first has run out
		event{2, requested, 5000 * ms, 0, 1}, event{3, released, 5001 * ms, 12, 2}, event{2, acquired, 5004 * ms, 13, 1},
	)
	assert.Equal(t, []time.Duration{3 * time.Millisecond}, l.handovers)
	assert.Equal(t, []pose{{ended, 0}, {holds, 1}}, l.members[0].history([]int64{4 * ms, 3 * ms}))
}
