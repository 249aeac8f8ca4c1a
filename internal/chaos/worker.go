package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/rpc"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/redis/go-redis/v9/logging"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

// workerVar has the assignment of a process that is a worker.
const workerVar = "HOLDFAST_CHAOS_WORKER"

// assignment is what a worker is told.
type assignment struct {
	Worker, Incarnation int
	Seed                uint64
	Actors              int
	Slots               int
	History, Resource   string
	Store               store
	Sabotage            string
}

// ttl is that of all leases.
const ttl = time.Second

// runWorker does not return if this process is a worker. A program and a test binary that
// start themselves again call it first.
func runWorker() {
	text, ok := os.LookupEnv(workerVar)
	if !ok {
		return
	}
	logging.Disable() // go-redis says something for each connection that breaks
	var a assignment
	if err := json.Unmarshal([]byte(text), &a); err != nil {
		panic(err)
	}
	if err := a.work(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// worker is a process that wants locks, with some goroutines.
type worker struct {
	assignment
	history  *history
	resource *rpc.Client
	locks    *holdfast.Client

	// stop is closed when no actor shall begin anything new, and patience ends some
	// time later.
	stop     chan struct{}
	patience context.Context
}

// lastWait is how long a worker that is to stop lets its actors wait for what they want.
const lastWait = 8 * time.Second

// work ends some time after standard input does.
func (a assignment) work() error {
	h, err := createHistory(a.History)
	if err != nil {
		return err
	}
	resource, err := rpc.Dial("unix", a.Resource)
	if err != nil {
		return err
	}
	goroutines, files := runtime.NumGoroutine(), openFiles()

	eyes := &witness{history: h, last: map[string]int64{}}
	d, closers := a.Store.open(eyes, a.Worker%2 == 1)
	if r, able := driver.As[driver.Reporter](d); able {
		r.OnReconnect(func(string) { eyes.note(newEars) })
	}
	d = &observed{Driver: d, history: h, sabotage: a.Sabotage, known: map[string]string{}}
	w := &worker{assignment: a, history: h, resource: resource, stop: make(chan struct{})}
	w.locks = holdfast.Open(d, holdfast.WithTTL(ttl), holdfast.WithLogger(slog.New(slog.DiscardHandler)))
	var giveUp context.CancelFunc
	w.patience, giveUp = context.WithCancel(context.Background())

	var actors sync.WaitGroup
	for i := range a.Actors {
		actors.Go(func() { w.act(i) })
	}
	go w.watchPauses(eyes)
	_, _ = io.Copy(io.Discard, os.Stdin)
	close(w.stop)
	timer := time.AfterFunc(lastWait, giveUp)
	actors.Wait()
	timer.Stop()
	giveUp()

	if err := w.locks.Close(); err != nil {
		eyes.note("close")
	}
	for _, c := range closers {
		_ = c.Close()
	}
	// A command that nobody answers ends with the ReadTimeout of its client.
	r := record{actor: -1, what: leak}
	for end := time.Now().Add(6 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		r.at, r.weight, r.fence = clock(), int64(runtime.NumGoroutine()-goroutines), int64(openFiles()-files)
		if r.weight <= 0 && r.fence <= 0 {
			return nil
		}
	}
	h.write(r)
	stacks := make([]byte, 1<<20)
	return os.WriteFile(a.History+".goroutines", stacks[:runtime.Stack(stacks, true)], 0o600)
}

// openFiles is how many files and connections this process has.
func openFiles() int {
	all, _ := os.ReadDir("/proc/self/fd")
	return len(all)
}

// pausesEvery is how often a process looks whether it was suspended, and pauseLeast how long
// it was if so.
const (
	pausesEvery = 20 * time.Millisecond
	pauseLeast  = 300 * time.Millisecond
)

func (w *worker) watchPauses(eyes *witness) {
	for last := time.Now(); ; {
		select {
		case <-w.stop:
			return
		case <-time.After(pausesEvery):
		}
		now := time.Now()
		if now.Sub(last) > pauseLeast {
			eyes.note(suspended)
		}
		last = now
	}
}

// act is the life of an actor.
func (w *worker) act(actor int) {
	rng := rand.New(rand.NewPCG(w.Seed, uint64(actor)))
	for {
		select {
		case <-w.stop:
			return
		default:
		}
		i := rng.IntN(w.Slots)
		var name string
		if err := w.resource.Call("Resource.Name", i, &name); err != nil {
			return // the rig has gone
		}
		w.turn(actor, rng, slots[i], name)
	}
}

// turn asks for a lock once, and holds it if it is granted.
func (w *worker) turn(actor int, rng *rand.Rand, s slot, name string) {
	r := record{actor: actor, kind: s.kind, lock: name, mode: "wait", weight: 1}
	note := func(what string) { r.at, r.what = clock(), what; w.history.write(r) }
	if s.kind == driver.RWMutex && rng.IntN(10) < 7 {
		r.weight = 0
	}
	if s.kind == driver.Semaphore {
		r.weight = 1 + rng.Int64N(3)
	}
	ctx, cancel := context.WithCancel(w.patience)
	defer cancel()
	switch luck := rng.IntN(20); {
	case luck < 2 || s.how == long:
		r.mode = "try"
	case luck < 4:
		r.mode = "cancel"
		defer time.AfterFunc(time.Duration(rng.Int64N(int64(100*time.Millisecond))), cancel).Stop()
	}

	note(ask)
	lease, err := w.acquire(ctx, s, &r)
	r.class = class(err)
	if err != nil {
		note(missed)
		if r.class != "locked" && r.class != "canceled" {
			time.Sleep(20 * time.Millisecond) // the store refuses, as after a change of rights
		}
		return
	}
	r.id, r.fence = identity(lease.Token()), lease.Fence()
	r.until = clock() + int64(time.Until(lease.Deadline()))
	note(got)
	w.hold(rng, lease, s.how == long, &r)
	r.at, r.what, r.class = clock(), give, "lost"
	if w.believes(lease) {
		r.class = "held"
	}
	w.history.write(r)
	r.class = class(lease.Release(context.Background()))
	note(gave)
}

func (w *worker) acquire(ctx context.Context, s slot, r *record) (*holdfast.Lease, error) {
	var opts []holdfast.LockOption
	switch s.how {
	case fifo:
		opts = append(opts, holdfast.WithStrictFIFO())
	case linger:
		opts = append(opts, holdfast.WithLinger(10*time.Millisecond))
	}
	try := r.mode == "try"
	switch s.kind {
	case driver.RWMutex:
		rw := w.locks.RWMutex(r.lock, opts...)
		switch {
		case r.weight == 0 && try:
			return rw.TryRLease(ctx)
		case r.weight == 0:
			return rw.RLease(ctx)
		case try:
			return rw.TryLease(ctx)
		}
		return rw.Lease(ctx)
	case driver.Semaphore:
		sem := w.locks.Semaphore(r.lock, s.limit, opts...)
		if try {
			return sem.TryLease(ctx, r.weight)
		}
		return sem.Lease(ctx, r.weight)
	}
	mu := w.locks.Mutex(r.lock, opts...)
	if try {
		return mu.TryLease(ctx)
	}
	return mu.Lease(ctx)
}

// believes reports whether the holder believes that it holds the lock. The caller has taken
// the time before.
func (w *worker) believes(lease *holdfast.Lease) bool {
	return w.Sabotage == ignoreLoss || lease.Err() == nil
}

// looksEvery is how often a holder looks whether it still holds the lock.
const looksEvery = 4 * time.Millisecond

// hold uses what the lock guards, and returns after up to 50 ms, mostly less, or as soon as
// the lease is lost. A long hold is one that must be renewed.
func (w *worker) hold(rng *rand.Rand, lease *holdfast.Lease, long bool, r *record) {
	luck := rng.Float64()
	d := time.Duration(luck * luck * luck * float64(50*time.Millisecond))
	if long {
		d = between(rng, ttl/4, 3*ttl)
	}
	end := time.Now().Add(d)

	exclusive := r.kind != driver.Semaphore && r.weight > 0
	a := Access{Lock: r.lock, Fence: r.fence}
	var read Access
	if exclusive && w.resource.Call("Resource.Read", a, &read) != nil {
		return
	}
	for {
		at := clock()
		if !w.believes(lease) {
			break
		}
		r.at, r.what = at, look
		w.history.write(*r)
		left := time.Until(end)
		if left <= 0 {
			break
		}
		time.Sleep(min(left, looksEvery))
	}
	if exclusive {
		a.Plain = read.Plain + 1
		if !read.Stale {
			a.Fenced = read.Fenced + 1
		}
		_ = w.resource.Call("Resource.Write", a, &read)
	}
}
