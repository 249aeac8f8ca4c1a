package simulation_test

import (
	"fmt"
	"strings"
	"time"

	"pgregory.net/rapid"

	"github.com/holdfast-go/holdfast/driver"
)

// plan is all that happens in one bubble, but for what the library does with it.
type plan struct {
	Procs  []proc
	Locks  []driver.Kind
	Actors []actor
	Faults []fault
	Seed   uint64 // of the times that frames take
}

// proc is a process: a client with a connection pool of its own.
type proc struct {
	TTL     time.Duration
	Linger  time.Duration
	Timeout time.Duration // of its connections
	Strict  bool
	RESP2   bool
}

// actor is a goroutine of a process. It goes on in the next process if that ends.
type actor struct {
	Proc  int
	Steps []step
}

// step is a call, and what follows it until nothing is held.
type step struct {
	Do       act
	Lock     int   // of plan.Locks
	N        int64 // permits
	Pause    time.Duration
	Hold     time.Duration
	Patience time.Duration // 0: for as long as it takes
}

type act string

const (
	doLease     act = "lease"
	doRLease    act = "rlease"
	doTry       act = "try"
	doTryR      act = "tryR"
	doDo        act = "do"
	doLock      act = "lock" // of a semaphore: Acquire, and Release in parts
	doRLock     act = "rlock"
	doTryLock   act = "trylock"
	doNest      act = "nest"
	doOwner     act = "owner"
	doMove      act = "move" // Detach here, Attach in another process
	doFixed     act = "fixed"
	doDowngrade act = "downgrade"
	doResize    act = "resize"
	doForce     act = "force"
	doInspect   act = "inspect"
	doGroup     act = "group" // many locks at a time
	doClose     act = "close" // the process ends, and another takes its place
	doCrash     act = "crash"
)

var acts = []act{
	doLease, doLease, doLease, doLock, doLock, doRLease, doRLock, doTry, doTryLock, doTryR, doDo, doNest, doOwner, doOwner,
	doMove, doFixed, doDowngrade, doDowngrade, doResize, doInspect, doGroup, doForce, doClose, doCrash,
}

const millisecond = time.Millisecond

// waits and holds are the times of a step. Some are longer than a TTL, or than a timeout.
var (
	pauses   = []time.Duration{0, 1 * millisecond, 5 * millisecond, 30 * millisecond, 150 * millisecond, time.Second, 7 * time.Second}
	holds    = []time.Duration{1 * millisecond, 3 * millisecond, 20 * millisecond, 20 * millisecond, 90 * millisecond, 400 * millisecond, 400 * millisecond, 3 * time.Second, 14 * time.Second}
	patience = []time.Duration{0, 0, 0, 1 * millisecond, 4 * millisecond, 25 * millisecond, 200 * millisecond, 2 * time.Second, 20 * time.Second}
)

var steps = rapid.Custom(func(t *rapid.T) step {
	s := step{
		Do:       rapid.SampledFrom(acts).Draw(t, "do"),
		Lock:     rapid.IntRange(0, 1).Draw(t, "lock"),
		N:        rapid.Int64Range(1, limit).Draw(t, "n"),
		Pause:    rapid.SampledFrom(pauses).Draw(t, "pause"),
		Hold:     rapid.SampledFrom(holds).Draw(t, "hold"),
		Patience: rapid.SampledFrom(patience).Draw(t, "patience"),
	}
	return s
})

var plans = rapid.Custom(func(t *rapid.T) plan {
	p := plan{Seed: uint64(rapid.Uint32().Draw(t, "seed"))}
	p.Locks = rapid.SliceOfN(rapid.SampledFrom([]driver.Kind{driver.Mutex, driver.RWMutex, driver.Semaphore}), 1, 2).Draw(t, "locks")
	p.Procs = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) proc {
		return proc{
			TTL:     rapid.SampledFrom([]time.Duration{time.Second, 300 * millisecond, 10 * time.Second}).Draw(t, "ttl"),
			Linger:  rapid.SampledFrom([]time.Duration{0, 0, 20 * millisecond, 2 * time.Second}).Draw(t, "linger"),
			Timeout: rapid.SampledFrom([]time.Duration{500 * millisecond, 80 * millisecond, 3 * time.Second}).Draw(t, "timeout"),
			Strict:  rapid.Bool().Draw(t, "strict"),
			RESP2:   rapid.IntRange(0, 4).Draw(t, "resp2") == 4,
		}
	}), 1, 3).Draw(t, "procs")
	p.Actors = rapid.SliceOfN(rapid.Custom(func(t *rapid.T) actor {
		return actor{
			Proc:  rapid.IntRange(0, len(p.Procs)-1).Draw(t, "proc"),
			Steps: rapid.SliceOfN(steps, 1, 24).Draw(t, "steps"),
		}
	}), 1, 7).Draw(t, "actors")
	if rapid.IntRange(0, 4).Draw(t, "weather") > 0 {
		p.Faults = rapid.SliceOfN(faults(len(p.Procs)), 1, 8).Draw(t, "faults")
	}
	return p
})

// faulty reports whether anything goes wrong that a caller could notice.
func (p *plan) faulty() bool { return len(p.Faults) > 0 }

// length bounds how long the calls take that nothing holds up.
func (p *plan) length() time.Duration {
	var sum time.Duration
	for _, a := range p.Actors {
		for _, s := range a.Steps {
			sum += s.Pause + 2*s.Hold + s.Patience
		}
	}
	return sum
}

// GoString is how rapid prints a plan that fails.
func (p plan) GoString() string {
	var b strings.Builder
	fmt.Fprintf(&b, "locks %v seed %d\n", p.Locks, p.Seed)
	for i, c := range p.Procs {
		fmt.Fprintf(&b, "  process %d: %+v\n", i, c)
	}
	for i, a := range p.Actors {
		fmt.Fprintf(&b, "  actor %d of process %d\n", i, a.Proc)
		for _, s := range a.Steps {
			fmt.Fprintf(&b, "    %+v\n", s)
		}
	}
	for _, f := range p.Faults {
		fmt.Fprintf(&b, "  fault %+v\n", f)
	}
	return b.String()
}
