package main

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

func TestBriefHasThreeDigits(t *testing.T) {
	for want, d := range map[string]time.Duration{
		"0.41 ms": 412 * time.Microsecond,
		"12.3 ms": 12345 * time.Microsecond,
		"123 ms":  123 * time.Millisecond,
		"1.50 s":  1500 * time.Millisecond,
	} {
		assert.Equal(t, want, brief(d))
	}
}
