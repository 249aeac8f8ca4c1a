package main

import (
	"context"
	"fmt"
	"log/slog"
	"net/rpc"
	"os"
	"runtime"
	"sync"
	"time"

	"github.com/redis/go-redis/v9/logging"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/test/crew"
)

// role is that of all processes of the crew.
const role = "worker"

// assignment is what a worker is told.
type assignment struct {
	Worker, Incarnation int
	Seed                uint64
	Actors              int
	Slots               []int
	History, Resource   string
	Names               string
	Store               store
	Sabotage            string
}

// ttl is that of all leases.
const ttl = time.Second

func init() {
	crew.Register(role, func() {
		logging.Disable() // go-redis says something for each connection that breaks
		a, _ := crew.Order[assignment]()
		if err := a.work(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	})
}

// worker is a process that wants locks, with some goroutines.
type worker struct {
	assignment
	history  *history
	resource *rpc.Client
	names    names
	locks    *holdfast.Client

	// stop is closed when no actor shall begin anything new, and patience ends some
	// time later.
	stop     chan struct{}
	patience context.Context
}

// lastWait is how long a worker that is to stop lets its actors wait for what they want.
const lastWait = 8 * time.Second

// work ends some time after the worker was dismissed.
func (a assignment) work() error {
	h, err := createHistory(a.History, a.Actors*voices)
	if err != nil {
		return err
	}
	n, err := openNames(a.Names)
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
	d = &observed{Driver: d, history: h, sabotage: a.Sabotage, known: map[string]bool{}}
	w := &worker{assignment: a, history: h, resource: resource, names: n, stop: make(chan struct{})}
	w.locks = holdfast.Open(d, holdfast.WithTTL(ttl), holdfast.WithHolder(holderText(a.Incarnation)), holdfast.WithLogger(slog.New(slog.DiscardHandler)))
	var giveUp context.CancelFunc
	w.patience, giveUp = context.WithCancel(context.Background())

	var actors sync.WaitGroup
	for i := range a.Actors {
		actors.Go(func() { w.act(i) })
	}
	go w.watchPauses(eyes)
	crew.Order[assignment]() // There is none.
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
