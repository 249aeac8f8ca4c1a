package main

import (
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/test/referee"
)

// findings are what was found wrong, from outside of the library: by a clock, by numbers
// and their order, and by what a server has.
type findings struct {
	overlaps       int // moments at which more believed than may hold, while all promises hold
	unsafeOverlaps int // while they do not
	inversions     int // fences that are smaller than that of an earlier grant
	lateHandOvers  int // the same within one process that has not heard of its loss, see promise 5
	clockLosses    int // the same over two steps of the clock by an hour, of which the first has lost data
	doubles        int // fences that were given twice
	illegal        int // histories of a lock that no lock could have, by porcupine
	linear         int // histories that one could
	stuck          int // waits that did not end in time after all faults
	overtaken      int // waiters that a later one overtook while there were no faults
	queued         int // waits of which that is known
	recovery       time.Duration

	unheard int             // holders that did not hear that another waits
	yields  []time.Duration // how long after a waiter came its holder heard of it
	ticks   int             // pairs of grants with WithMinHold
	early   int             // of these, those with too little time between them
	fullest int             // how many have waited at a time with WithMaxWaiters
	crowds  int             // moments with too many of them
	ended   int             // leases that WithMaxHold has ended
	hung    int             // leases that it should have

	third     int             // moments with too many that believed, robbed ones not counted, of locks that are stolen
	deaf      int             // victims that believed for too long
	slandered int             // victims that named somebody who was no thief
	steals    int             // thefts that were confirmed
	victims   int             // holders that were surely robbed
	named     int             // of these, those that were told by whom
	heard     []time.Duration // in a calm, how long after the theft its victim still believed
	unclear   int             // histories with a theft of which nobody knows whether it happened
	examples  map[string][]string
}

// example keeps some of what was found, for people.
func (f *findings) example(of, format string, args ...any) {
	if f.examples == nil {
		f.examples = map[string][]string{}
	}
	if len(f.examples[of]) < 4 {
		f.examples[of] = append(f.examples[of], of+": "+fmt.Sprintf(format, args...))
	}
}

// everyone is a weight that leaves no room.
const everyone = 1 << 30

// room returns how much a hold takes, and how much there is.
func (o *op) room() (weight, limit int64) {
	switch {
	case o.kind == driver.Semaphore:
		return o.weight, permits
	case o.kind == driver.RWMutex && o.weight == 0:
		return 1, everyone
	}
	return everyone, everyone
}

// shared says that the hold is not alone.
func (o *op) shared() bool {
	weight, limit := o.room()
	return weight < limit
}

func (o *op) String() string {
	return fmt.Sprintf("%s #%d/%d %s weight %d fence %d id %x: %d..%d believed %d given %d..%d %s/%s", o.lock, o.incarnation,
		o.actor, o.mode, o.weight, o.fence, o.id, o.invoked, o.returned, o.believed, o.gives, o.gave, o.class, o.released)
}

// window is a time in which the store may have forgotten leases.
type windows [][2]int64

// after is how long a fault may matter after it is over: no lease is older.
const after = int64(2 * ttl)

func unsafeWindows(events []event) (w windows) {
	for _, e := range events {
		if e.fault.set != safe {
			w = append(w, [2]int64{e.start, e.end + after})
		}
	}
	return w
}

func (w windows) touch(from, to int64) bool {
	return slices.ContainsFunc(w, func(one [2]int64) bool { return one[0] <= to && from <= one[1] })
}

func (w windows) count(from, to int64) (n int) {
	for _, one := range w {
		if one[0] <= to && from <= one[1] {
			n++
		}
	}
	return n
}

// stepWindows are when the clock was an hour ahead or behind.
func stepWindows(events []event) (w windows) {
	for _, e := range events {
		if e.fault.set == times {
			w = append(w, [2]int64{e.start, e.end})
		}
	}
	return w
}

func byLock(all []*op) map[string][]*op {
	locks := map[string][]*op{}
	for _, o := range all {
		locks[o.lock] = append(locks[o.lock], o)
	}
	return locks
}

// counts is until when the holder counts as one.
func (o *op) counts() int64 {
	if o.robbed != 0 {
		return min(o.believed, o.robbed)
	}
	return o.believed
}

// belief is the hold as the referee judges it. A holder believes from the moment at which it heard of the
// grant to the last one before which it looked and was right: the time was taken before the look. Where
// readers have no order, only readers and writers are compared.
func (o *op) belief(ordered bool) *referee.Hold {
	weight, _ := o.room()
	return &referee.Hold{
		Weight: weight, Fence: o.fence, Shared: o.shared() && !ordered, By: o,
		Asked: time.Duration(o.invoked), From: time.Duration(o.returned), To: time.Duration(o.counts()),
	}
}

// judgeHolds has the referee look at all grants, and excuses what was not promised.
func (f *findings) judgeHolds(all []*op, sentAt map[uint64]int64, ordered bool, unsafe, steps windows) {
	for _, ops := range byLock(all) {
		stolen := slices.ContainsFunc(ops, (*op).theft)
		var holds []*referee.Hold
		var r referee.Referee
		for _, o := range ops {
			if o.granted() {
				holds = append(holds, o.belief(ordered))
				_, r.Limit = o.room()
			}
		}
		for _, breach := range r.Judge(holds) {
			o := breach.Hold.By.(*op)
			switch {
			case breach.Rule == referee.Different:
				f.doubles++
				f.example("fence given twice", "%v", o)
			case breach.Rule == referee.Order:
				f.judgeOldFence(o, breach.Others[0].By.(*op), sentAt, unsafe, steps)
			case unsafe.touch(o.returned, o.returned):
				f.unsafeOverlaps++
			case stolen:
				f.third++
				f.example("third holder", "%v while %v", o, breach.Others)
			default:
				f.overlaps++
				f.example("overlap", "%v while %v", o, breach.Others)
			}
		}
	}
}

// judgeOldFence judges a grant that was asked for after the other one had been heard of, and has no
// larger fence.
//
// A process may have been granted a lease before the other grant, and pass it on to a goroutine
// that asked afterwards. That is no fault if the store has forgotten the lease meanwhile, and
// the process does not know yet. So it counts when the store was asked for the lease. It is the
// same if the lease was stolen.
//
// No order is promised over a loss of data while the clock is behind. A step of the clock by an
// hour and back loses keys; if another step follows, fences may be smaller than before the first.
func (f *findings) judgeOldFence(o, before *op, sentAt map[uint64]int64, unsafe, steps windows) {
	switch {
	case sentAt[o.id] != 0 && sentAt[o.id] < before.returned && o.id != before.id && (unsafe.touch(before.invoked, o.returned) || o.robbed != 0 && o.robbed < o.returned):
		f.lateHandOvers++
	case steps.count(before.invoked, o.returned) > 1:
		f.clockLosses++
	default:
		f.inversions++
		f.example("fences", "%v after %v", o, before)
	}
}
