package main

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestTurnsOneAfterTheOtherAreNoViolation(t *testing.T) {
	assert.Zero(t, inspect([]turn{
		// In the order of their ends on the way, not of their beginnings.
		{worker: 2, acquired: 20, released: 30, fence: 5},
		{worker: 1, acquired: 10, released: 20, fence: 3},
		{worker: 1, acquired: 31, released: 35, fence: 6},
	}))
}

func TestOverlapIsAViolation(t *testing.T) {
	v := inspect([]turn{
		{worker: 1, acquired: 10, released: 50, fence: 1},
		{worker: 2, acquired: 20, released: 30, fence: 2},
		{worker: 3, acquired: 40, released: 60, fence: 3}, // overlaps the first, not its neighbour
	})
	assert.Equal(t, verdict{overlaps: 2}, v)
	assert.Equal(t, 2, v.violations())
}

func TestFenceThatDoesNotIncreaseIsAViolation(t *testing.T) {
	for name, fence := range map[string]int64{"smaller": 6, "same": 7} {
		v := inspect([]turn{
			{acquired: 10, released: 20, fence: 7},
			{acquired: 30, released: 40, fence: fence},
			{acquired: 50, released: 60, fence: 8},
		})
		assert.Equal(t, verdict{fences: 1}, v, name)
	}
}

func TestWithoutLockThereAreNoFences(t *testing.T) {
	assert.Zero(t, inspect([]turn{{acquired: 1, released: 2}, {acquired: 3, released: 4}}))
}

func TestCounterMustMatchTheTurns(t *testing.T) {
	assert.Equal(t, 0, miscounts(7, 7, 0))
	assert.Equal(t, 2, miscounts(5, 7, 0), "increments lost")
	assert.Equal(t, 1, miscounts(8, 7, 0), "one too many")
	assert.Equal(t, 0, miscounts(8, 7, 1), "a worker was killed after its write")
	assert.Equal(t, 0, miscounts(7, 7, 1), "a worker was killed before its write")
}
