package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
)

// holdOf is a hold of a mutex of a kind, of a process of its own.
func holdOf(how way, fence int64, at ...int64) *op {
	o := hold(driver.Mutex, 1, fence, at...)
	o.lock, o.incarnation = nameBegin(slot{kind: driver.Mutex, how: how})+"7", int(fence)
	return o
}

// inCalm is what the judges of bounds find, in a calm and in a storm.
func inCalm(t *testing.T, queuedAt map[uint64]int64, ops ...*op) (f findings) {
	t.Helper()
	f.judgeBounds(ops, queuesOf(queuedAt), [][2]int64{{0, 1 << 40}})
	var storm findings
	storm.judgeBounds(ops, queuesOf(queuedAt), [][2]int64{{1 << 39, 1 << 40}})
	f.examples = nil
	require.Zero(t, storm.unheard+storm.early+storm.hung+storm.crowds)
	return f
}

func TestHolderHearsOfAWaiterInTime(t *testing.T) {
	late := int64(hearing)
	for name, c := range map[string]struct {
		heard, gives, queued int64
		local                bool
		want                 findings
	}{
		"heard":                           {heard: 150, gives: 160, queued: 120, want: findings{yields: []time.Duration{30}}},
		"waits already":                   {heard: 150, gives: 160, queued: 20, want: findings{yields: []time.Duration{50}}},
		"heard late":                      {heard: 120 + late + 1, gives: 130 + late, queued: 120, want: findings{unheard: 1}},
		"never heard":                     {gives: 120 + late + 1, queued: 120, want: findings{unheard: 1}},
		"given back before it must":       {gives: 120 + late, queued: 120},
		"given back before another comes": {heard: 110, gives: 115, queued: 120},
		"nobody is known to wait":         {gives: 120 + late + 1},
		"of the same process":             {gives: 120 + late + 1, queued: 120, local: true},
	} {
		t.Run(name, func(t *testing.T) {
			holder := holdOf(yielding, 1, 10, 100, c.gives, c.gives+5)
			holder.heard = c.heard
			waiter := holdOf(yielding, 2, 15, c.gives+10, c.gives+20, c.gives+30)
			if c.local {
				waiter.incarnation = holder.incarnation
			}
			require.Equal(t, c.want, inCalm(t, map[uint64]int64{waiter.id: c.queued}, holder, waiter))
		})
	}
}

func TestNextGrantComesNotBeforeMinHold(t *testing.T) {
	first := holdOf(ticking, 1, 10, 20, 30, 35)
	for returned, want := range map[int64]int{10 + int64(minHold) - 1: 1, 10 + int64(minHold): 0} {
		next := holdOf(ticking, 2, 40, returned, returned+10, returned+20)
		require.Equal(t, findings{ticks: 1, early: want}, inCalm(t, nil, next, first))
	}
	lost := holdOf(ticking, 1, 10, 20, 30, 35)
	lost.released = "lock_lost"
	require.Equal(t, findings{ticks: 1}, inCalm(t, nil, lost, holdOf(ticking, 2, 40, 50, 60, 70)))
}

func TestMaxHoldEndsALease(t *testing.T) {
	end := 20 + int64(maxHold+hearing)
	require.Equal(t, findings{}, inCalm(t, nil, holdOf(long, 1, 10, 20, end, end+5)))
	require.Equal(t, findings{hung: 1}, inCalm(t, nil, holdOf(long, 1, 10, 20, end+1, end+5)))
	ended := holdOf(long, 1, 10, 20, 30, 40)
	ended.cause = overdue
	require.Equal(t, findings{ended: 1}, inCalm(t, nil, ended))
}

func TestNoMoreWaitThanMaxWaitersAllows(t *testing.T) {
	holder := holdOf(crowded, 1, 10, 20, 100, 110)
	queuedAt := map[uint64]int64{}
	ops := []*op{holder}
	for i := range int64(maxWaiters + 1) {
		begin := 110 + 10*i
		w := holdOf(crowded, 2+i, 12, begin, begin+5, begin+6)
		queuedAt[w.id] = 50
		ops = append(ops, w)
	}
	require.Equal(t, findings{crowds: 1, fullest: maxWaiters + 1}, inCalm(t, queuedAt, ops...))
	queuedAt[ops[1].id] = 100 // when the holder may have gone already
	require.Equal(t, findings{fullest: maxWaiters}, inCalm(t, queuedAt, ops...))
}
