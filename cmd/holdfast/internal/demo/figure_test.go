package demo

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestSpreadTakesTheNearestRank(t *testing.T) {
	var ds []time.Duration
	for i := 100; i >= 1; i-- {
		ds = append(ds, time.Duration(i))
	}
	assert.Equal(t, spread{50, 99, 100}, spreadOf(ds))
	assert.Equal(t, spread{3, 3, 3}, spreadOf([]time.Duration{3}))
	assert.Zero(t, spreadOf(nil))
}

func TestFairness(t *testing.T) {
	assert.InDelta(t, 1, fairness([]int{5, 5, 5, 5}), 1e-9)
	assert.InDelta(t, 0.25, fairness([]int{0, 0, 7, 0}), 1e-9)
	assert.Zero(t, fairness([]int{0, 0}))
}
