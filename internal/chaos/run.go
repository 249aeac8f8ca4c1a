package main

import (
	"errors"
	"fmt"
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
	workers  int
	actors   int // of each worker
	seed     uint64
	load     float64 // grants/s before the first fault, below which the run is void
	sabotage string
	only     string // what the kinds of faults to make begin with
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

	load                                      float64
	asked, grants, cancels, busy, losses      int
	killed                                    int // operations whose process was killed
	grantsByKind                              map[string]int
	felt                                      map[string]int // faults, by kind
	eternal, forgotten                        []string       // keys without TTL, and that outlive their use
	goroutines, connections                   int            // left in the end
	writes, lostUpdates, fencedLost, refusals int64
	void                                      []string // why the run says nothing
	errs                                      error
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
	s, err := newStage(h, p.topology, resource)
	if err != nil {
		return nil, err
	}
	if p.actors == 0 {
		p.actors = s.actors
	}
	if p.load == 0 {
		p.load = s.load
	}

	began := time.Now()
	c, err := newCrew(assignment{
		Seed: p.seed, Actors: p.actors, Slots: s.slots, Resource: socket, Store: s.store, Sabotage: p.sabotage,
	}, dir, p.workers)
	if err != nil {
		return nil, err
	}
	n := &nemesis{rng: rand.New(rand.NewPCG(p.seed, 1)), log: p.log, active: map[string]fault{}}
	faults := append(s.faults, workerFaults(c, resource.rotate)...)
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
		resource.rotate()
		time.Sleep(calm)
		storm.end = clock()
		storms = append(storms, storm)
		p.log("storm %d of %s faults is over, %v", len(storms), class, time.Since(began).Round(time.Second))
	}
	stopped := c.stop()
	close(stopWatching)
	o.took = time.Since(began)
	o.events, o.errs = n.events, errors.Join(stopped, n.err())
	if s.clock != nil {
		s.clock.Set(0)
	}
	told, err := c.testimony()
	if err != nil {
		return nil, err
	}
	o.goroutines, o.connections = told.goroutines, told.connections
	o.count(told.ops, warmFrom, warmTo)
	o.feel(told.troubles)
	unsafe := unsafeWindows(o.events)
	o.judgeBelief(told.ops, unsafe)
	o.judgeFences(told.ops, told.sentAt, s.ordered, unsafe)
	o.judgeHistory(told.ops, s.ordered, unsafe)
	storms = undisturbed(storms, o.events)
	o.judgeProgress(told.ops, storms, s.patience, c.killed)
	if s.ordered {
		o.judgeOrder(told.ops, told.queuedAt, quiet(storms, told.troubles))
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
			o.grantsByKind[string(op.kind)]++
			if from <= op.returned && op.returned < to {
				early++
			}
		case "canceled":
			o.cancels++
		case "locked":
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

// violations is what the library has promised and not kept.
func (o *outcome) violations() (v []string) {
	for text, n := range map[string]int{
		"moments with too many that believed":     o.overlaps,
		"fences smaller than an earlier one":      o.inversions,
		"fences given twice":                      o.doubles,
		"histories that no lock could have":       o.illegal,
		"waits that did not end after the faults": o.stuck,
		"waiters overtaken in a calm":             o.overtaken,
		"keys without a TTL":                      len(o.eternal),
		"keys that outlive their use":             len(o.forgotten),
		"goroutines left":                         o.goroutines,
		"connections left":                        o.connections,
		"updates lost despite fences":             int(o.fencedLost),
	} {
		if n != 0 {
			v = append(v, fmt.Sprintf("%d %s", n, text))
		}
	}
	slices.Sort(v)
	return v
}

// err is nil if the run says that the library keeps its promises.
func (o *outcome) err() error {
	var all []string
	for _, v := range o.violations() {
		all = append(all, "violation: "+v)
	}
	for _, v := range o.void {
		all = append(all, "void: "+v)
	}
	for _, of := range o.examples {
		all = append(all, of...)
	}
	if o.errs != nil {
		all = append(all, "rig: "+o.errs.Error())
	}
	if len(all) == 0 {
		return nil
	}
	return errors.New(strings.Join(all, "\n"))
}
