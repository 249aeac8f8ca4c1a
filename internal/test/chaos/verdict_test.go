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
			f.judgeHolds(c.ops, nil, true, nil, nil)
			require.Equal(t, c.want, f.overlaps)
			f.judgeHistory(c.ops, true, nil)
			require.Equal(t, c.want, f.illegal, "porcupine")
			require.Equal(t, 1-c.want, f.linear, "porcupine")
			f = findings{}
			f.judgeHolds(c.ops, nil, true, windows{{0, 100}}, nil)
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
	f.judgeHolds(ops, nil, false, nil, nil)
	require.Equal(t, findings{linear: 1}, f)
	f.judgeHistory(ops, true, nil)
	f.judgeHolds(ops, nil, true, nil, nil)
	require.Equal(t, []int{1, 1}, []int{f.illegal, f.inversions}, "where they have an order")
}

func TestFencesMustIncreaseInRealTime(t *testing.T) {
	first := hold(driver.Mutex, 1, 7, 0, 10, 20, 30)
	for name, c := range map[string]struct {
		second  *op
		unsafe  windows
		steps   windows
		want    findings
		sharing bool
	}{
		"larger":                                         {second: hold(driver.Mutex, 1, 8, 11, 20, 30, 40)},
		"smaller, asked for before":                      {second: hold(driver.Mutex, 1, 6, 9, 20, 30, 40)},
		"smaller, asked for afterwards":                  {second: hold(driver.Mutex, 1, 6, 11, 20, 30, 40), want: findings{inversions: 1}},
		"also when the store forgets":                    {second: hold(driver.Mutex, 1, 6, 11, 20, 30, 40), unsafe: windows{{0, 100}}, want: findings{inversions: 1}},
		"smaller, over one step of the clock":            {second: hold(driver.Mutex, 1, 6, 11, 20, 30, 40), steps: windows{{5, 12}}, want: findings{inversions: 1}},
		"smaller, over two steps":                        {second: hold(driver.Mutex, 1, 6, 11, 20, 30, 40), steps: windows{{5, 6}, {15, 18}}, want: findings{clockLosses: 1}},
		"smaller, and two steps are later":               {second: hold(driver.Mutex, 1, 6, 11, 20, 30, 40), steps: windows{{21, 22}, {25, 28}}, want: findings{inversions: 1}},
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
			f.judgeHolds([]*op{first, c.second}, sentAt, true, c.unsafe, c.steps)
			f.examples = nil
			require.Equal(t, c.want, f)
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
	h, err := createHistory(name, 3)
	require.NoError(t, err)
	h.write(record{at: 1, actor: 1, what: ask, kind: driver.Mutex, lock: "x", mode: "wait", weight: 1})
	h.write(record{at: 2, actor: 1, what: got, id: 1<<64 - 1, fence: 5, class: "ok"})
	h.looks[1].Store(3)
	h.write(record{at: 6, actor: 1, what: give, seen: 3, class: "lost"})
	h.write(record{at: 7, actor: 1, what: gave, class: "lock_lost"})
	for actor := range 3 {
		h.write(record{at: 8, actor: actor, what: ask, kind: driver.RWMutex, lock: "y", mode: "try"})
		h.write(record{at: 9, actor: actor, what: got, fence: int64(actor), class: "ok"})
	}
	h.looks[2].Store(10)
	h.write(record{at: 4, actor: -1, what: trouble, class: broken})
	text, err := os.ReadFile(name)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(name, append(text, "5 2 gi"...), 0o600))

	var rest []record
	done, err := testify(7, 3, name, func(r record) { rest = append(rest, r) })
	require.NoError(t, err)
	later := func(actor int, believed int64) *op {
		return &op{
			incarnation: 7, actor: actor, kind: driver.RWMutex, lock: "y", mode: "try", invoked: 8, returned: 9,
			class: "ok", fence: int64(actor), believed: believed,
		}
	}
	require.Equal(t, []*op{
		{
			incarnation: 7, actor: 1, kind: driver.Mutex, lock: "x", mode: "wait", weight: 1,
			invoked: 1, returned: 2, class: "ok", id: 1<<64 - 1, fence: 5, believed: 3, gives: 6, gave: 7, released: "lock_lost", cause: "lost",
		},
		later(0, 0), // it never looked
		later(1, 0), // its last look was in an earlier hold
		later(2, 10),
	}, done)
	require.Equal(t, []record{{at: 4, actor: -1, what: trouble, class: broken}}, rest)
}

func TestSlotsHaveNewNamesAfterSomeUses(t *testing.T) {
	file := filepath.Join(t.TempDir(), "names")
	a, err := openNames(file)
	require.NoError(t, err)
	b, err := openNames(file)
	require.NoError(t, err)
	first := a.take(0)
	for range rotation - 1 {
		require.Equal(t, first, b.take(0))
	}
	second := a.take(0)
	require.NotEqual(t, first, second)
	b.rotate()
	third := a.take(0)
	require.NotContains(t, []string{first, second}, third)
	require.NotEqual(t, third, a.take(1))
	_, now := b.current(0)
	require.Equal(t, third, now)
}

func TestLoadCountsFromTheFirstGrant(t *testing.T) {
	n, err := openNames(filepath.Join(t.TempDir(), "names"))
	require.NoError(t, err)
	over := make(chan struct{})
	go func() {
		n.begun(2)
		close(over)
	}()
	for range 2 * len(wholes) { // as much as two actors can want at once
		n.take(1)
	}
	select {
	case <-over:
		t.Fatal("nobody was granted anything")
	case <-time.After(50 * time.Millisecond):
	}
	n.take(2)
	<-over
}
