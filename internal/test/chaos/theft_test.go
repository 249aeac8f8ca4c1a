package main

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
)

// theft is a hold of one that has stolen the lock.
func theft(fence int64, at ...int64) *op {
	o := hold(driver.Mutex, 1, fence, at...)
	o.mode, o.lock, o.incarnation = stealing, string(driver.Mutex)+string(robbedFifo), int(fence)
	return o
}

// victim is a hold of a lock that others steal. It ended with the last look.
func victim(fence int64, at ...int64) *op {
	o := theft(fence, at...)
	o.mode, o.released, o.cause = "wait", "lock_lost", "lost"
	return o
}

// faithful is one that was given back.
func faithful(fence int64, at ...int64) *op {
	o := victim(fence, at...)
	o.released, o.cause = "ok", ""
	return o
}

// judged is what the judges find who look at every lock.
func judged(unsafe windows, calms [][2]int64, ops ...*op) (f findings) {
	markRobbed(ops)
	f.judgeHolds(ops, nil, true, unsafe, nil)
	f.judgeHistory(ops, true, unsafe)
	f.judgeThefts(ops, calms, unsafe)
	return f
}

func TestVictimAndThiefMayBelieveAtOnceAndNobodyElse(t *testing.T) {
	for name, c := range map[string]struct {
		ops   []*op
		third int
		legal bool
	}{
		"victim beside its thief":              {[]*op{victim(1, 0, 10, 50, 55), theft(2, 20, 30, 70, 80)}, 0, true},
		"victim beside whom the thief lets in": {[]*op{victim(1, 0, 10, 60, 65), theft(2, 20, 30, 40, 45), faithful(3, 0, 50, 70, 80)}, 0, true},
		"victim of two":                        {[]*op{victim(1, 0, 10, 50, 55), victim(2, 0, 12, 50, 55), theft(3, 20, 30, 70, 80)}, 1, false},
		"thief that is robbed":                 {[]*op{victim(1, 0, 10, 50, 55), theft(2, 20, 30, 70, 80), theft(3, 40, 50, 90, 95)}, 0, true},
		"another beside the thief":             {[]*op{victim(1, 0, 10, 25, 28), theft(2, 20, 30, 70, 80), faithful(3, 0, 40, 60, 65)}, 1, false},
		"another beside the victim, too early": {[]*op{victim(1, 0, 10, 30, 35), faithful(2, 0, 15, 18, 19), theft(3, 20, 30, 70, 80)}, 1, false},
		"thief of a lock that was given back":  {[]*op{faithful(1, 0, 10, 15, 40), theft(2, 20, 30, 70, 80)}, 0, true},
		"thief that is suspended at once":      {[]*op{victim(1, 0, 10, 50, 55), theft(2, 20, 30, 0, 80), faithful(3, 0, 40, 60, 65)}, 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			for _, o := range c.ops {
				if o.theft() && o.believed == 0 {
					o.gives, o.released = 75, "lock_lost"
				}
			}
			f := judged(nil, nil, c.ops...)
			require.Equal(t, c.third, f.third)
			require.Zero(t, f.overlaps+f.inversions+f.doubles+f.deaf+f.slandered)
			require.Equal(t, []int{1, 0}[b2i(!c.legal)], f.linear)
			require.Equal(t, b2i(!c.legal), f.illegal)
		})
	}
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// Without the theft the same history is one of two holders.
func TestTheftExcusesOnlyWhatCameBeforeIt(t *testing.T) {
	first, second := victim(1, 0, 10, 50, 55), theft(2, 20, 30, 70, 80)
	require.Zero(t, judged(nil, nil, first, second).third)
	second.mode = "wait"
	f := judged(nil, nil, first, second)
	require.Equal(t, []int{1, 1}, []int{f.overlaps, f.illegal})
	// A theft with a smaller fence has robbed nobody.
	second.mode, second.fence, second.invoked = stealing, 1, 5
	first.fence = 2
	require.Equal(t, 1, judged(nil, nil, first, second).third)
}

func TestTheftThatNobodyConfirmedMayHaveHappenedUntilItsMessagesAreGone(t *testing.T) {
	first, second := victim(1, 0, 10, 50, 55), faithful(3, 0, 40, 70, 80)
	killed := theft(0, 20, 0, 0, 0)
	killed.class, killed.released, killed.id = "", "", 77
	f := judged(nil, nil, first, killed, second)
	require.Equal(t, []int{0, 1, 0, 0}, []int{f.third, f.unclear, f.linear, f.illegal})
	late := killed.invoked + mayCome
	first.returned, first.believed, first.gives, first.gave = late, late+50, late+55, late+60
	second.returned, second.believed = late+30, late+70
	require.Equal(t, 1, judged(nil, nil, first, killed, second).third, "it came too late to excuse that")
}

func TestVictimBelievesNoLongerThanItsLease(t *testing.T) {
	end := 30 + int64(ttl)
	for name, c := range map[string]struct {
		believed int64
		unsafe   windows
		deaf     int
	}{
		"in time":                       {believed: end},
		"late":                          {believed: end + 1, deaf: 1},
		"late, while the store forgets": {believed: end + 1, unsafe: windows{{0, 100}}},
	} {
		t.Run(name, func(t *testing.T) {
			robbed := victim(1, 0, 10, c.believed, c.believed+5)
			robbed.cause = "stolen:" + holderText(2)
			f := judged(c.unsafe, [][2]int64{{0, end + 100}}, robbed, theft(2, 20, 30, end+50, end+60))
			require.Equal(t, []int{c.deaf, 1, 1, 1}, []int{f.deaf, f.steals, f.victims, f.named})
			if c.believed == end {
				require.Equal(t, []time.Duration{ttl}, f.heard)
			}
		})
	}
}

func TestVictimNamesAThiefOfItsLock(t *testing.T) {
	for name, c := range map[string]struct {
		thief *op
		by    int
		want  int
	}{
		"the thief":                  {theft(2, 20, 30, 70, 80), 2, 0},
		"another":                    {theft(2, 20, 30, 70, 80), 3, 1},
		"one that stole afterwards":  {theft(2, 60, 65, 70, 80), 2, 1},
		"one that stole before":      {theft(0, 0, 5, 6, 8), 0, 1},
		"one that only waited":       {faithful(2, 20, 30, 70, 80), 2, 1},
		"one that may have stolen":   {&op{mode: stealing, class: "", incarnation: 4, lock: theft(1, 0, 0, 0, 0).lock, invoked: 20}, 4, 0},
		"one that stole another one": {&op{mode: stealing, class: "ok", incarnation: 4, lock: "other", fence: 9, invoked: 20, returned: 25}, 4, 1},
	} {
		t.Run(name, func(t *testing.T) {
			robbed := victim(1, 0, 10, 50, 55)
			robbed.cause = "stolen:" + holderText(c.by)
			require.Equal(t, c.want, judged(nil, nil, robbed, c.thief).slandered)
			require.Zero(t, judged(windows{{40, 45}}, nil, robbed, c.thief).slandered, "data were lost")
		})
	}
}

// A process that does not know yet passes on a lease that was stolen. Its fences come before the
// thief's, and its holds are its victim's.
func TestStolenLeaseThatIsPassedOnIsALateHandOver(t *testing.T) {
	robbed, next := faithful(1, 0, 10, 50, 55), victim(2, 52, 60, 70, 75)
	next.id = robbed.id
	thief := theft(9, 20, 30, 80, 85)
	f := func() findings {
		f := findings{}
		markRobbed([]*op{robbed, next, thief})
		f.judgeHolds([]*op{robbed, next, thief}, map[uint64]int64{robbed.id: 5}, true, nil, nil)
		f.judgeHistory([]*op{robbed, next, thief}, true, nil)
		return f
	}
	require.Equal(t, findings{lateHandOvers: 1, linear: 1}, f())
	next.id = 7 // a lease of its own, of which the store was not asked before
	found := f()
	require.Equal(t, []int{1, 1}, []int{found.inversions, found.illegal})
}

func TestThievesComeBeforeWaitersAndNobodyElseDoes(t *testing.T) {
	waiter := faithful(9, 10, 100, 110, 120)
	queuedAt := map[uint64]int64{waiter.id: 20}
	for _, c := range []struct {
		other *op
		want  int
	}{
		{theft(8, 30, 90, 95, 99), 0},
		{faithful(8, 30, 90, 95, 99), 1}, // as after a theft that has lost the waiter's place
	} {
		var f findings
		f.judgeOrder([]*op{waiter, c.other}, queuesOf(queuedAt), [][2]int64{{5, 200}})
		require.Equal(t, []int{c.want, 1}, []int{f.overtaken, f.queued})
	}
}
