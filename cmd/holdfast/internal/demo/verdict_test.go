package demo

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

// mutexTurns gives turns the weight that they have on a mutex.
func mutexTurns(turns ...turn) []turn {
	for i := range turns {
		turns[i].weight = 1
	}
	return turns
}

func TestTurnsOneAfterTheOtherAreNoViolation(t *testing.T) {
	assert.Zero(t, inspect(mutexTurns(
		// In the order of their ends on the way, not of their beginnings.
		turn{worker: 2, acquired: 20, released: 30, fence: 5},
		turn{worker: 1, acquired: 10, released: 20, fence: 3},
		turn{worker: 1, acquired: 31, released: 35, fence: 6},
	), 1))
}

func TestOverlapIsAViolation(t *testing.T) {
	v := inspect(mutexTurns(
		turn{worker: 1, acquired: 10, released: 50, fence: 1},
		turn{worker: 2, acquired: 20, released: 30, fence: 2},
		turn{worker: 3, acquired: 40, released: 60, fence: 3}, // overlaps the first, not its neighbour
	), 1)
	assert.Equal(t, verdict{overlaps: 2}, v)
	assert.Equal(t, 2, v.violations())
}

func TestReadersMayOverlapButNoWriter(t *testing.T) {
	readers := []turn{
		{acquired: 10, released: 30, fence: 1, weight: 1},
		{acquired: 20, released: 40, fence: 2, weight: 1},
	}
	for name, c := range map[string]struct {
		acquired, released int64
		overlaps           int
	}{
		"before":               {1, 10, 0},
		"after":                {40, 50, 0},
		"begins before a read": {5, 11, 1},
		"within one read":      {35, 38, 1},
		"around all":           {5, 50, 2},
	} {
		fence := int64(3)
		if c.acquired < 10 {
			fence = 0
		}
		writer := turn{acquired: c.acquired, released: c.released, fence: fence, weight: alone}
		assert.Equal(t, verdict{overlaps: c.overlaps}, inspect(append(readers, writer), alone), name)
	}
	assert.Zero(t, inspect(readers, alone))
}

func TestPermitsOfOverlappingTurnsStayWithinTheLimit(t *testing.T) {
	turns := []turn{
		{acquired: 10, released: 30, fence: 1, weight: 1},
		{acquired: 10, released: 40, fence: 2, weight: 2},
		{acquired: 30, released: 50, fence: 3, weight: 1}, // when the first has just ended
	}
	assert.Zero(t, inspect(turns, 3))
	turns[2].acquired = 29
	assert.Equal(t, verdict{overlaps: 1}, inspect(turns, 3))
	assert.Zero(t, inspect(turns, 4))
}

func TestFenceThatDoesNotIncreaseIsAViolation(t *testing.T) {
	for name, fence := range map[string]int64{"smaller": 6, "same": 7} {
		v := inspect(mutexTurns(
			turn{acquired: 10, released: 20, fence: 7},
			turn{acquired: 30, released: 40, fence: fence},
			turn{acquired: 50, released: 60, fence: 8},
		), 1)
		assert.Equal(t, verdict{fences: 1}, v, name)
	}
}

func TestFencesOfTurnsThatMayOverlap(t *testing.T) {
	for name, c := range map[string]struct {
		first, second turn
		fences        int
	}{
		"heard of in the other order": {turn{requested: 1, acquired: 8, fence: 5}, turn{requested: 2, acquired: 9, fence: 4}, 0},
		"the same":                    {turn{requested: 1, acquired: 8, fence: 5}, turn{requested: 2, acquired: 9, fence: 5}, 1},
		"asked for after the other":   {turn{requested: 1, acquired: 8, fence: 5}, turn{requested: 9, acquired: 9, fence: 6}, 0},
		"and smaller":                 {turn{requested: 1, acquired: 8, fence: 5}, turn{requested: 9, acquired: 9, fence: 4}, 1},
		"but they exclude each other": {turn{requested: 1, acquired: 8, fence: 5}, turn{requested: 2, acquired: 20, fence: 4, weight: 3}, 1},
		"but the first has all to it": {turn{requested: 1, acquired: 8, fence: 5, weight: 3}, turn{requested: 2, acquired: 20, fence: 4}, 1},
		"exclude, and in right order": {turn{requested: 1, acquired: 8, fence: 5, weight: 3}, turn{requested: 2, acquired: 20, fence: 6}, 0},
		"together they just fit":      {turn{requested: 1, acquired: 8, fence: 5, weight: 2}, turn{requested: 2, acquired: 20, fence: 4}, 0},
		"together they just do not":   {turn{requested: 1, acquired: 8, fence: 5, weight: 2}, turn{requested: 2, acquired: 20, fence: 4, weight: 2}, 1},
	} {
		turns := []turn{c.first, c.second}
		for i := range turns {
			turns[i].weight = max(turns[i].weight, 1)
			turns[i].released = turns[i].acquired + 1
		}
		assert.Equal(t, verdict{fences: c.fences}, inspect(turns, 3), name)
	}
}

func TestReadThatSawAChangeIsAViolation(t *testing.T) {
	assert.Equal(t, verdict{torn: 1}, inspect([]turn{
		{acquired: 1, released: 2, fence: 1, weight: 1, end: torn},
		{acquired: 1, released: 2, fence: 2, weight: 1, end: released},
	}, alone))
}

func TestWithoutLockThereAreNoFences(t *testing.T) {
	assert.Zero(t, inspect(mutexTurns(turn{acquired: 1, released: 2}, turn{acquired: 3, released: 4}), 1))
}

func TestCounterMustMatchTheTurns(t *testing.T) {
	assert.Equal(t, 0, miscounts(7, 7, 0))
	assert.Equal(t, 2, miscounts(5, 7, 0), "increments lost")
	assert.Equal(t, 1, miscounts(8, 7, 0), "one too many")
	assert.Equal(t, 0, miscounts(8, 7, 1), "a worker was killed after its write")
	assert.Equal(t, 0, miscounts(7, 7, 1), "a worker was killed before its write")
}
