package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/holdfast-go/holdfast/driver"
)

// hold is one that was asked for, granted, believed in and released at these moments.
func hold(kind driver.Kind, weight, fence int64, at ...int64) *op {
	return &op{
		kind: kind, lock: string(kind) + string(fifo), weight: weight, fence: fence, id: uint64(fence), class: "ok", released: "ok",
		invoked: at[0], returned: at[1], believed: at[2], gives: at[2], gave: at[3],
	}
}

func TestHoldersThatExcludeEachOtherMustNotBelieveAtOnce(t *testing.T) {
	for name, c := range map[string]struct {
		ops  []*op
		want int
	}{
		"one after the other": {[]*op{hold(driver.Mutex, 1, 1, 0, 10, 20, 30), hold(driver.Mutex, 1, 2, 0, 25, 40, 50)}, 0},
		"two of a mutex":      {[]*op{hold(driver.Mutex, 1, 1, 0, 10, 20, 30), hold(driver.Mutex, 1, 2, 0, 19, 40, 50)}, 1},
		"two readers":         {[]*op{hold(driver.RWMutex, 0, 1, 0, 10, 20, 30), hold(driver.RWMutex, 0, 2, 0, 15, 40, 50)}, 0},
		"reader and writer":   {[]*op{hold(driver.RWMutex, 0, 1, 0, 10, 20, 30), hold(driver.RWMutex, 1, 2, 0, 15, 40, 50)}, 1},
		"writer and reader":   {[]*op{hold(driver.RWMutex, 1, 1, 0, 10, 20, 30), hold(driver.RWMutex, 0, 2, 0, 15, 40, 50)}, 1},
		"permits that fit":    {[]*op{hold(driver.Semaphore, 3, 1, 0, 10, 20, 30), hold(driver.Semaphore, 1, 2, 0, 15, 40, 50)}, 0},
		"too many permits":    {[]*op{hold(driver.Semaphore, 3, 1, 0, 10, 20, 30), hold(driver.Semaphore, 2, 2, 0, 15, 40, 50)}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			var f findings
			f.judgeBelief(c.ops, nil)
			require.Equal(t, c.want, f.overlaps)
			f.judgeHistory(c.ops, true, nil)
			require.Equal(t, c.want, f.illegal, "porcupine")
			require.Equal(t, 1-c.want, f.linear, "porcupine")
			f = findings{}
			f.judgeBelief(c.ops, windows{{0, 100}})
			f.judgeHistory(c.ops, true, windows{{0, 100}})
			require.Zero(t, f.overlaps, "nothing was promised")
			require.Equal(t, c.want, f.unsafeOverlaps)
			require.Zero(t, f.illegal+f.linear)
		})
	}
}

// Seen from inside, a lost hold ends with its last look.
func TestHistoryOfLostHoldsIsLinearizable(t *testing.T) {
	lost := hold(driver.Mutex, 1, 1, 0, 10, 20, 500)
	lost.released = "lock_lost"
	killed := hold(driver.Mutex, 1, 2, 5, 30, 40, 0)
	killed.gives, killed.released = 0, ""
	never := hold(driver.Mutex, 1, 3, 5, 45, 0, 600) // suspended before it looked
	f := findings{}
	f.judgeHistory([]*op{lost, killed, never, hold(driver.Mutex, 1, 4, 5, 50, 60, 70)}, true, nil)
	require.Equal(t, 1, f.linear)
}

func TestReadersWithoutAnOrderAreLinearizable(t *testing.T) {
	ops := []*op{
		hold(driver.RWMutex, 1, 10, 0, 10, 20, 25),
		hold(driver.RWMutex, 0, 12, 30, 35, 60, 65), // before 11 in time
		hold(driver.RWMutex, 0, 11, 40, 45, 60, 65),
		hold(driver.RWMutex, 1, 13, 50, 70, 80, 85),
	}
	var f findings
	f.judgeHistory(ops, false, nil)
	f.judgeFences(ops, nil, false, nil)
	require.Equal(t, findings{linear: 1}, f)
	f.judgeHistory(ops, true, nil)
	f.judgeFences(ops, nil, true, nil)
	require.Equal(t, []int{1, 1}, []int{f.illegal, f.inversions}, "where they have an order")
}

func TestFencesMustIncreaseInRealTime(t *testing.T) {
	first := hold(driver.Mutex, 1, 7, 0, 10, 20, 30)
	for name, c := range map[string]struct {
		second  *op
		unsafe  windows
		want    findings
		sharing bool
	}{
		"larger":                                         {second: hold(driver.Mutex, 1, 8, 11, 20, 30, 40)},
		"smaller, asked for before":                      {second: hold(driver.Mutex, 1, 6, 9, 20, 30, 40)},
		"smaller, asked for afterwards":                  {second: hold(driver.Mutex, 1, 6, 11, 20, 30, 40), want: findings{inversions: 1}},
		"also when the store forgets":                    {second: hold(driver.Mutex, 1, 6, 11, 20, 30, 40), unsafe: windows{{0, 100}}, want: findings{inversions: 1}},
		"given twice":                                    {second: hold(driver.Mutex, 1, 7, 9, 20, 30, 40), want: findings{doubles: 1}},
		"under an older lease":                           {second: hold(driver.Mutex, 1, 6, 11, 20, 30, 40), sharing: true, unsafe: windows{{0, 100}}, want: findings{lateHandOvers: 1}},
		"under an older lease, but nothing is forgotten": {second: hold(driver.Mutex, 1, 6, 11, 20, 30, 40), sharing: true, want: findings{inversions: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			sentAt := map[uint64]int64{first.id: 1, c.second.id: c.second.invoked}
			if c.sharing { // the lease was asked for before the first of the two was granted
				sentAt[c.second.id] = 5
			}
			var f findings
			f.judgeFences([]*op{first, c.second}, sentAt, true, c.unsafe)
			f.examples = nil
			require.Equal(t, c.want, f)
		})
	}
}

func TestWaitsMustEndInTheCalm(t *testing.T) {
	const heal, patience = 1000, 4 * time.Second
	end := heal + 2*int64(patience)
	storms := []storm{{heal: heal, end: end}}
	wait := func(invoked, returned int64) *op { return &op{incarnation: 3, invoked: invoked, returned: returned} }
	for name, c := range map[string]struct {
		op     *op
		killed map[int]int64
		want   int
	}{
		"ended in time":                 {op: wait(500, heal+10)},
		"ended late":                    {op: wait(500, heal+int64(patience)+10), want: 1},
		"never ended":                   {op: wait(500, 0), want: 1},
		"began in the calm, ended late": {op: wait(heal+5, heal+int64(patience)+10), want: 1},
		"never ended, killed":           {op: wait(500, 0), killed: map[int]int64{3: 600}},
		"began too late to tell":        {op: wait(end-1, 0)},
	} {
		t.Run(name, func(t *testing.T) {
			var f findings
			f.judgeProgress([]*op{c.op}, storms, patience, c.killed)
			require.Equal(t, c.want, f.stuck)
		})
	}
}

func TestNobodyOvertakesAWaiterInACalm(t *testing.T) {
	waiter := hold(driver.Mutex, 1, 9, 10, 100, 110, 120)
	for name, c := range map[string]struct {
		other *op
		want  int
	}{
		"asked before it was queued":            {hold(driver.Mutex, 1, 8, 15, 90, 95, 99), 0},
		"asked afterwards and served before":    {hold(driver.Mutex, 1, 8, 30, 90, 95, 99), 1},
		"asked afterwards and served afterward": {hold(driver.Mutex, 1, 10, 30, 130, 140, 150), 0},
	} {
		t.Run(name, func(t *testing.T) {
			var f findings
			f.judgeOrder([]*op{waiter, c.other}, map[uint64]int64{waiter.id: 20}, [][2]int64{{5, 200}})
			require.Equal(t, c.want, f.overtaken)
			require.Equal(t, 1, f.queued)
		})
	}
}

func TestFencedCounterLosesNoUpdateOfAHolderThatIsLate(t *testing.T) {
	r := newResource()
	var late, next, reply Access
	require.NoError(t, r.Read(Access{Lock: "x", Fence: 1}, &late))
	require.NoError(t, r.Read(Access{Lock: "x", Fence: 2}, &next))
	require.NoError(t, r.Write(Access{Lock: "x", Fence: 2, Plain: next.Plain + 1, Fenced: next.Fenced + 1}, &reply))
	require.False(t, reply.Stale)
	require.NoError(t, r.Write(Access{Lock: "x", Fence: 1, Plain: late.Plain + 1, Fenced: late.Fenced + 1}, &reply))
	require.True(t, reply.Stale)
	writes, lost, fencedLost, refused := r.updates()
	require.Equal(t, []int64{2, 1, 0, 1}, []int64{writes, lost, fencedLost, refused})
}

func TestHistoryOfAKilledProcessIsRead(t *testing.T) {
	name := filepath.Join(t.TempDir(), "history")
	h, err := createHistory(name)
	require.NoError(t, err)
	h.write(record{at: 1, actor: 2, what: ask, kind: driver.Mutex, lock: "x", mode: "wait", weight: 1})
	h.write(record{at: 2, actor: 2, what: got, id: 1<<64 - 1, fence: 5, until: 9, class: "ok"})
	h.write(record{at: 3, actor: 2, what: look})
	h.write(record{at: 4, actor: -1, what: trouble, class: broken})
	text, err := os.ReadFile(name)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(name, append(text, "5 2 gi"...), 0o600))

	records, err := read(name)
	require.NoError(t, err)
	done, rest := ops(7, records)
	require.Equal(t, []*op{{
		incarnation: 7, actor: 2, kind: driver.Mutex, lock: "x", mode: "wait", weight: 1,
		invoked: 1, returned: 2, class: "ok", id: 1<<64 - 1, fence: 5, believed: 3,
	}}, done)
	require.Equal(t, []record{{at: 4, actor: -1, what: trouble, kind: "-", lock: "-", mode: "-", class: broken}}, rest)
}
