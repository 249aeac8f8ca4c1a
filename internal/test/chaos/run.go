package main

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// plan is what a run shall do.
type plan struct {
	topology string
	length   time.Duration // from the first operation to the last one
	worlds   int           // side by side
	workers  int
	actors   int // of each worker
	seed     uint64
	load     float64 // grants/s before the first fault, below which the run is void
	sabotage string
	only     string // what the kinds of faults to make begin with
	thefts   bool   // use only locks that may be stolen
	keep     string // directory for the histories, "" for none
	log      func(format string, args ...any)
}

// warmUp is the time before the first fault. A storm lasts for rage, or less so that there
// are two, and a calm for longer than anybody may have to wait after a storm.
const (
	warmUp = 3 * time.Second
	rage   = 15 * time.Second
	spare  = 2 * time.Second
)

// outcome is what a run found.
type outcome struct {
	plan     plan
	patience time.Duration
	took     time.Duration
	events   []event
	findings

	load                                        float64
	asked, grants, parts, cancels, busy, losses int
	killed                                      int // operations whose process was killed
	grantsByKind                                map[string]int
	felt                                        map[string]int // faults, by kind
	eternal, forgotten                          []string       // keys without TTL, and that outlive their use
	goroutines, connections                     int            // left in the end
	writes, lostUpdates, fencedLost, refusals   int64
	calms                                       int      // without a process that was held up
	void                                        []string // why the run says nothing
	errs                                        error
}

// run makes faults while workers work, and judges what they wrote down.
func run(p plan) (o *outcome, err error) {
	h := &host{}
	defer h.close()
	err = attempt(func() error {
		o, err = p.run(h)
		return err
	})
	return o, err
}

func (p plan) run(h *host) (*outcome, error) {
	dir := p.keep
	if dir == "" {
		dir = h.TempDir()
	} else if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	resource := newResource()
	socket := filepath.Join(h.TempDir(), "resource")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return nil, err
	}
	h.Cleanup(func() { _ = listener.Close() })
	go func() { _ = resource.serve(listener) }()
	namesFile := filepath.Join(h.TempDir(), "names")
	names, err := openNames(namesFile)
	if err != nil {
		return nil, err
	}
	h.Cleanup(names.uses.close)
	s, err := newStage(h, p.topology, names)
	if err != nil {
		return nil, err
	}
	if p.thefts {
		s.slots = slotsOf(slot.robbed)
	}
	if p.actors == 0 {
		p.actors = s.actors
	}
	if p.load == 0 {
		p.load = s.load
	}

	w := startWorkers(h, assignment{
		Seed: p.seed, Actors: p.actors, Slots: s.slots, Resource: socket, Names: namesFile, Store: s.store, Sabotage: p.sabotage,
	}, dir, p.workers)
	names.begun(p.workers * p.actors)
	began := time.Now()
	n := &nemesis{rng: rand.New(rand.NewPCG(p.seed, 1)), log: p.log, active: map[string]fault{}}
	faults := append(s.faults, workerFaults(w, names.rotate)...)
	faults = slices.DeleteFunc(faults, func(f fault) bool { return !strings.HasPrefix(f.kind, p.only) })
	stopWatching := make(chan struct{})
	if s.elects {
		go n.watchElections(s.roles, stopWatching)
	}
	keys := newKeys(s)
	go keys.watch(stopWatching)

	o := &outcome{plan: p, patience: s.patience, grantsByKind: map[string]int{}, felt: map[string]int{}}
	calm := s.patience + spare
	length := min(rage, (p.length-warmUp)/2-calm) // of a storm
	if length < 3*time.Second {
		length = rage // there is time for one only
	}
	warmFrom := clock()
	time.Sleep(warmUp)
	warmTo := clock()
	var storms []storm
	for end := began.Add(p.length); len(storms) == 0 || time.Until(end) > calm+time.Second; {
		class := s.storms[len(storms)%len(s.storms)]
		storm := n.rage(faults, class, time.Now().Add(min(length, time.Until(end)-calm)))
		// The locks of this storm shall not matter in the next one.
		names.rotate()
		time.Sleep(calm)
		storm.end = clock()
		storms = append(storms, storm)
		p.log("storm %d of %s faults is over, %v", len(storms), class, time.Since(began).Round(time.Second))
	}
	stopped := w.stop()
	close(stopWatching)
	o.took = time.Since(began)
	o.events, o.errs = n.events, errors.Join(stopped, n.err())
	if s.clock != nil {
		s.clock.Set(0)
	}
	told, err := w.testimony()
	if err != nil {
		return nil, err
	}
	o.goroutines, o.connections = told.goroutines, told.connections
	o.count(told.ops, warmFrom, warmTo)
	o.feel(told.troubles)
	unsafe := unsafeWindows(o.events)
	markRobbed(told.ops)
	o.judgeHolds(told.ops, told.sentAt, s.ordered, unsafe, stepWindows(o.events))
	o.judgeHistory(told.ops, s.ordered, unsafe)
	storms = undisturbed(storms, o.events)
	o.judgeProgress(told.ops, s.ordered, awake(storms, told.troubles), s.patience, w.killed)
	calms := quiet(storms, told.troubles)
	o.calms = len(calms)
	if s.ordered {
		o.judgeOrder(told.ops, told.queues, calms)
		o.judgeBounds(told.ops, told.queues, calms)
	}
	o.judgeThefts(told.ops, calms, unsafe)
	if o.victims == 0 && slices.ContainsFunc(s.slots, func(i int) bool { return slots[i].robbed() }) {
		o.void = append(o.void, "nobody was robbed")
	}
	o.eternal, o.forgotten = keys.judge(told.ops, o.events)
	o.writes, o.lostUpdates, o.fencedLost, o.refusals = resource.updates()
	return o, nil
}

func (o *outcome) count(all []*op, from, to int64) {
	early := 0
	o.asked = len(all)
	for _, op := range all {
		switch op.class {
		case "ok":
			o.grants++
			if op.mode == "all" {
				o.parts++
			}
			o.grantsByKind[string(op.kind)]++
			if from <= op.returned && op.returned < to {
				early++
			}
		case "canceled":
			o.cancels++
		case "locked", "queue_full":
			o.busy++
		case "":
			o.killed++
		}
		if op.released == "lock_lost" {
			o.losses++
		}
	}
	o.load = float64(early) / time.Duration(to-from).Seconds()
}

// aftermath is how long after a fault its symptoms may be seen.
const aftermath = int64(1500 * time.Millisecond)

// feel decides which faults were felt, and whether the run says anything.
func (o *outcome) feel(troubles []record) {
	made := map[string]int{}
	for i := range o.events {
		e := &o.events[i]
		made[e.fault.kind]++
		e.felt = e.felt || slices.ContainsFunc(troubles, func(r record) bool {
			return e.start <= r.at && r.at <= e.end+aftermath && slices.Contains(e.fault.symptoms, r.class)
		})
		if e.felt {
			o.felt[e.fault.kind]++
		}
	}
	if o.load < o.plan.load {
		o.void = append(o.void, fmt.Sprintf("%.0f grants/s before the first fault, want %.0f", o.load, o.plan.load))
	}
	for kind, n := range made {
		if n >= 3 && o.felt[kind] == 0 {
			o.void = append(o.void, fmt.Sprintf("nobody felt any of %d faults of this kind: %s", n, kind))
		}
	}
	if len(made) == 0 {
		o.void = append(o.void, "no faults")
	}
	slices.Sort(o.void)
}

// quiet returns the times in which nothing is wrong: the calms, without the time that the
// locks need to recover, and without those in which a process was held up.
func quiet(storms []storm, troubles []record) (calms [][2]int64) {
	for _, s := range storms {
		from := s.heal + int64(ttl+ttl/2)
		heldUp := slices.ContainsFunc(troubles, func(r record) bool {
			return r.class == suspended && s.heal < r.at && r.at <= s.end
		})
		if !heldUp && from < s.end {
			calms = append(calms, [2]int64{from, s.end})
		}
	}
	return calms
}

// Counts of what the library has promised and not kept. The others only tell.
const (
	overlaps   = "moments with too many that believed"
	inversions = "fences smaller than an earlier one"
	doubles    = "fences given twice"
	illegal    = "histories that no lock could have"
	stuck      = "waits that did not end after the faults"
	overtaken  = "waiters overtaken in a calm"
	thirds     = "third holders beside a thief"
	deaf       = "victims that heard too late"
	unheard    = "holders that did not hear of a waiter"
	early      = "grants earlier than WithMinHold allows"
	crowds     = "moments with more waiters than WithMaxWaiters allows"
	hung       = "leases longer than WithMaxHold allows"
	slandered  = "victims that named no thief"
	eternal    = "keys without a TTL"
	forgotten  = "keys that outlive their use"
	goroutines = "goroutines left"
	conns      = "connections left"
	fencedLost = "updates lost despite fences"
)

var promises = []string{
	overlaps, inversions, doubles, illegal, stuck, overtaken, thirds, deaf, slandered, unheard, early, crowds, hung,
	eternal, forgotten, goroutines, conns, fencedLost,
}

// counts are all numbers of an outcome that can be added up.
func (o *outcome) counts() map[string]int {
	all := map[string]int{
		overlaps: o.overlaps, inversions: o.inversions, doubles: o.doubles, illegal: o.illegal, stuck: o.stuck,
		overtaken: o.overtaken, thirds: o.third, deaf: o.deaf, slandered: o.slandered,
		unheard: o.unheard, early: o.early, crowds: o.crowds, hung: o.hung, eternal: len(o.eternal),
		forgotten: len(o.forgotten), goroutines: o.goroutines, conns: o.connections, fencedLost: int(o.fencedLost),

		"asked": o.asked, "grants": o.grants, "cancelled": o.cancels, "busy": o.busy, "killed": o.killed, "lost": o.losses,
		"unsafe overlaps": o.unsafeOverlaps, "late hand-overs": o.lateHandOvers, "clock losses": o.clockLosses, "linear": o.linear, "unclear": o.unclear,
		"queued": o.queued, "steals": o.steals, "victims": o.victims, "named": o.named,
		"yields": len(o.yields), "parts": o.parts, "ticks": o.ticks, "ended": o.ended,
		"updates": int(o.writes), "lost updates": int(o.lostUpdates), "refusals": int(o.refusals),
	}
	for kind, n := range o.grantsByKind {
		all[kind] = n
	}
	return all
}

// violations is what the library has promised and not kept.
func violations(counts map[string]int) (v []string) {
	for _, text := range promises {
		if n := counts[text]; n != 0 {
			v = append(v, fmt.Sprintf("%d %s", n, text))
		}
	}
	slices.Sort(v)
	return v
}

// broken tells which promises were not kept, with examples.
func (o *outcome) broken() (all []string) {
	for _, v := range violations(o.counts()) {
		all = append(all, "violation: "+v)
	}
	if len(all) == 0 {
		return nil
	}
	for _, of := range slices.Sorted(maps.Keys(o.examples)) {
		all = append(all, o.examples[of]...)
	}
	return all
}

// err is nil if the run says that the library keeps its promises.
func (s *sum) err() error {
	all := slices.Clone(s.Broken)
	for _, v := range s.Void {
		all = append(all, "void: "+v)
	}
	if len(all) == 0 {
		return nil
	}
	return errors.New(strings.Join(all, "\n"))
}
