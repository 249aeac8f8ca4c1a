package demo

import (
	"cmp"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

const ms = int64(time.Millisecond)

// heard is a demo that has heard of turns, whose times are in milliseconds. Each step of them came
// when it happened.
func heard(k *kind, workers int, limit int64, turns ...turn) *demo {
	d := &demo{kind: k, limit: limit, workers: workers, duration: time.Minute, server: "embedded Redis, 127.0.0.1:40545"}
	for range workers {
		d.crew = append(d.crew, &member{pid: 4194301 + len(d.crew)}) // as long as they get
	}
	type step struct {
		at int64
		turn
	}
	var steps []step
	for _, t := range turns {
		t.Asked, t.Held, t.Done, t.Weight = t.Asked*ms, t.Held*ms, t.Done*ms, max(t.Weight, 1)
		if t.Done != 0 {
			t.End = cmp.Or(t.End, released)
			steps = append(steps, step{t.Done, t})
		}
		if t.Done, t.End = 0, ""; t.Held != 0 {
			steps = append(steps, step{t.Held, t})
		}
		if t.Held, t.Fence = 0, 0; t.Asked != 0 {
			steps = append(steps, step{t.Asked, t})
		}
	}
	slices.SortStableFunc(steps, func(a, b step) int { return cmp.Compare(a.at, b.at) })
	for _, s := range steps {
		d.hear(s.turn)
	}
	return d
}

func TestHandOverIsMeasuredFromWhenThereWasRoom(t *testing.T) {
	for name, c := range map[string]struct {
		workers int
		limit   int64
		turns   []turn
		want    []time.Duration // in milliseconds
	}{
		"from release to the one that waited": {2, 1, []turn{{1, 1, 10, 1, 2, 5, ""}, {2, 1, 11, 3, 8, 9, ""}}, []time.Duration{3}},
		"nobody waited":                       {2, 1, []turn{{1, 1, 10, 1, 2, 3, ""}, {2, 1, 11, 4, 5, 0, ""}}, nil},
		"readers, a writer, readers": {4, alone, []turn{
			{1, 1, 1, 1, 2, 5, ""}, // no room for 3 yet, and 4 waits behind it
			{2, 1, 2, 1, 2, 10, ""}, {3, alone, 3, 3, 11, 20, ""}, {4, 1, 4, 4, 23, 0, ""}, {1, 1, 5, 12, 22, 0, ""},
		}, []time.Duration{1, 2, 3}},
		"there was room all along":                          {2, 2, []turn{{1, 1, 10, 1, 2, 4, ""}, {2, 1, 11, 3, 5, 0, ""}}, nil},
		"another took the room":                             {3, 1, []turn{{1, 1, 10, 1, 2, 5, ""}, {2, 1, 12, 3, 42, 0, ""}, {3, 1, 11, 4, 6, 40, ""}}, []time.Duration{1, 2}},
		"the lease ran out":                                 {2, 1, []turn{{1, 1, 10, 1, 2, 5, lost}, {2, 1, 11, 3, 9, 0, ""}}, nil},
		"the process ended with it":                         {2, 1, []turn{{1, 1, 10, 1, 2, 0, ""}, {1, 0, 0, 0, 0, 5, gone}, {2, 1, 11, 3, 2000, 0, ""}}, nil},
		"the process ended with what had been handed to it": {3, 1, []turn{{1, 1, 10, 1, 2, 5, ""}, {2, 1, 11, 3, 6, 0, ""}, {2, 0, 0, 0, 0, 7, gone}, {3, 1, 12, 4, 2000, 0, ""}}, []time.Duration{1}},
		"a dead process leaves no room for a time": {3, 2, []turn{
			{1, 1, 10, 1, 2, 0, ""}, {1, 0, 0, 0, 0, 4, gone}, {2, 1, 11, 1, 2, 5, ""},
			{3, 2, 12, 3, 2100, 5001, ""}, // when the lease of the first has run out
			{2, 1, 13, 5000, 5004, 0, ""},
		}, []time.Duration{3}},
	} {
		var want []time.Duration
		for _, n := range c.want {
			want = append(want, n*time.Millisecond)
		}
		assert.Equal(t, want, heard(mutex, c.workers, c.limit, c.turns...).handovers, name)
	}
}

func TestStateFollowsWhatAWorkerTold(t *testing.T) {
	d := heard(mutex, 2, 1, turn{1, 1, 1, 10, 20, 30, ""}, turn{1, 1, 2, 40, 50, 60, ""}, turn{1, 1, 3, 70, 80, 0, ""}, turn{1, 0, 0, 0, 0, 90, gone})
	for at, want := range map[int64]state{5: idle, 10: waits, 19: waits, 20: holds, 30: idle, 45: waits, 55: holds, 65: idle, 75: waits, 85: holds, 90: ended, 99: ended} {
		s, _ := d.crew[0].at(at * ms)
		assert.Equal(t, want, s, "at %d", at)
	}
	d.ending = true // a worker that was asked to end is idle, and does not ask any more
	d.hear(turn{Worker: 2, Weight: 1, Asked: 95 * ms})
	d.hear(turn{Worker: 2, End: gone, Done: 96 * ms})
	s, _ := d.crew[1].at(99 * ms)
	assert.Equal(t, idle, s)
}

func TestLostTurnIsNoTurn(t *testing.T) {
	d := heard(mutex, 2, 1, turn{1, 1, 10, 1, 2, 10, lost}, turn{2, 1, 11, 3, 9, 12, ""})
	a := d.tally()
	assert.Equal(t, 1, a.lost)
	assert.Equal(t, 1, a.written)
	assert.Len(t, a.finished, 1)
	assert.Zero(t, inspect(a.finished, 1))
}

func TestNobodyKnowsWhetherAWriterThatWasKilledHadWritten(t *testing.T) {
	d := heard(rwmutex, 3, alone, turn{1, alone, 1, 1, 2, 3, ""}, turn{2, alone, 2, 4, 5, 0, ""}, turn{2, 0, 0, 0, 0, 6, gone}, turn{3, 1, 3, 7, 2000, 2001, ""})
	a := d.tally()
	assert.Equal(t, []int{1, 1}, []int{a.written, a.open})
	for counter, wrong := range map[int]int{0: 1, 1: 0, 2: 0, 3: 1} {
		assert.Equal(t, wrong, a.wrong(counter), counter)
	}
}

func TestViolationsAreFound(t *testing.T) {
	for name, c := range map[string]struct {
		limit int64
		turns []turn
		want  verdict
	}{
		"one after the other":                   {1, []turn{{1, 1, 3, 0, 10, 20, ""}, {2, 1, 5, 0, 20, 30, ""}, {1, 1, 6, 0, 31, 35, ""}}, verdict{}},
		"overlaps the first, not its neighbour": {1, []turn{{1, 1, 1, 0, 10, 50, ""}, {2, 1, 2, 0, 20, 30, ""}, {3, 1, 3, 0, 40, 60, ""}}, verdict{excess: 2}},
		"readers together":                      {alone, []turn{{1, 1, 1, 0, 10, 30, ""}, {2, 1, 2, 0, 20, 40, ""}}, verdict{}},
		"a writer before":                       {alone, []turn{{3, alone, 1, 0, 1, 10, ""}, {1, 1, 2, 0, 10, 30, ""}}, verdict{}},
		"a writer after":                        {alone, []turn{{1, 1, 2, 0, 10, 30, ""}, {3, alone, 3, 0, 30, 40, ""}}, verdict{}},
		"a writer begins before a read":         {alone, []turn{{3, alone, 1, 0, 5, 11, ""}, {1, 1, 2, 0, 10, 30, ""}}, verdict{excess: 1}},
		"a writer within a read":                {alone, []turn{{1, 1, 2, 0, 10, 30, ""}, {3, alone, 3, 0, 20, 22, ""}}, verdict{excess: 1}},
		"a writer around all":                   {alone, []turn{{3, alone, 1, 0, 5, 50, ""}, {1, 1, 2, 0, 10, 30, ""}, {2, 1, 3, 0, 20, 40, ""}}, verdict{excess: 2}},
		"as many permits as there are":          {3, []turn{{1, 1, 1, 0, 10, 30, ""}, {2, 2, 2, 0, 10, 40, ""}, {3, 1, 3, 0, 30, 50, ""}}, verdict{}},
		"more permits than there are":           {3, []turn{{1, 1, 1, 0, 10, 30, ""}, {2, 2, 2, 0, 10, 40, ""}, {3, 1, 3, 0, 29, 50, ""}}, verdict{excess: 1}},
		"a fence is smaller":                    {1, []turn{{1, 1, 7, 0, 10, 20, ""}, {1, 1, 6, 0, 30, 40, ""}, {1, 1, 8, 0, 50, 60, ""}}, verdict{fences: 1}},
		"a fence is the same":                   {1, []turn{{1, 1, 7, 0, 10, 20, ""}, {1, 1, 7, 0, 30, 40, ""}, {1, 1, 8, 0, 50, 60, ""}}, verdict{fences: 1}},
		"heard of in the other order":           {3, []turn{{1, 1, 5, 1, 8, 9, ""}, {2, 1, 4, 2, 9, 10, ""}}, verdict{}},
		"together, with the same fence":         {3, []turn{{1, 1, 5, 1, 8, 9, ""}, {2, 1, 5, 2, 9, 10, ""}}, verdict{fences: 1}},
		"asked for after the other":             {3, []turn{{1, 1, 5, 1, 8, 9, ""}, {2, 1, 6, 9, 9, 10, ""}}, verdict{}},
		"asked for later, and smaller":          {3, []turn{{1, 1, 5, 1, 8, 9, ""}, {2, 1, 4, 9, 9, 10, ""}}, verdict{fences: 1}},
		"they exclude each other":               {3, []turn{{1, 1, 5, 1, 8, 9, ""}, {2, 3, 4, 2, 20, 21, ""}}, verdict{fences: 1}},
		"the first has all to it":               {3, []turn{{1, 3, 5, 1, 8, 9, ""}, {2, 1, 4, 2, 20, 21, ""}}, verdict{fences: 1}},
		"exclude, and in the right order":       {3, []turn{{1, 3, 5, 1, 8, 9, ""}, {2, 1, 6, 2, 20, 21, ""}}, verdict{}},
		"together they just fit":                {3, []turn{{1, 2, 5, 1, 8, 9, ""}, {2, 1, 4, 2, 20, 21, ""}}, verdict{}},
		"together they just do not":             {3, []turn{{1, 2, 5, 1, 8, 9, ""}, {2, 2, 4, 2, 20, 21, ""}}, verdict{fences: 1}},
		"a read that saw a change":              {alone, []turn{{1, 1, 1, 0, 1, 2, torn}, {2, 1, 2, 0, 1, 2, ""}}, verdict{reads: 1}},
	} {
		assert.Equal(t, c.want, inspect(c.turns, c.limit), name)
	}
}
