package bench

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"syscall"
	"time"
)

// Held is a process that has locked very many things, for long.
var Held = held(10_000)

func held(n int) Work {
	return Work{
		Name:  fmt.Sprintf("Held/%d", n),
		Title: fmt.Sprintf("%d locks held", n),
		About: "What it costs one client to hold and renew them, with nobody else around. Goroutines and heap are what " +
			"came with the client and its locks; costs per second include all renewals that fall due.",
		Contenders: All,
		Columns:    []Figure{Goroutines, HeapPerLease, ClientCPU, ServerCPU, CommandsPerSec},
		Turns:      1,
		Time:       12 * time.Second,
		Enter: func(ctx context.Context, s *Stage, c Contender) (Scene, error) {
			switch c.Name {
			case Raw.Name, Redsync.Name, Redislock.Name:
				return nil, Absence("leaves renewal to the caller")
			case InProcess.Name:
				return nil, Absence("nothing to renew")
			}
			p, err := c.Open(ctx, s)
			if err != nil {
				return nil, err // maybe an absence
			}
			return &estate{stage: s, of: c, n: n}, p.Close()
		},
	}
}

// estate is a scene of many locks that are held.
type estate struct {
	stage *Stage
	of    Contender
	n     int
}

func (e *estate) Close() error { return nil }

// Turn holds all locks for the time of the stint. A client of its own begins and ends with
// each turn, so that its costs can be told from the rest.
func (e *estate) Turn(ctx context.Context, until Stint) (t Turn, err error) {
	names := make([]string, e.n)
	for i := range names {
		names[i] = newName()
	}
	if err := sleep(ctx, 200*time.Millisecond); err != nil { // for what others have left to end
		return t, err
	}
	goroutines, heap := runtime.NumGoroutine(), liveHeap()
	p, err := e.of.Open(ctx, e.stage)
	if err != nil {
		return t, err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	ctx, cancel := context.WithCancelCause(ctx) // some locks end with the context that they were acquired with
	defer cancel(nil)
	tooLong := time.AfterFunc(time.Minute, func() { cancel(errors.New("did not get all the locks within a minute")) })
	lockers, err := lockAll(ctx, p, names)
	tooLong.Stop()
	if err != nil {
		return t, err
	}
	t.Figures = map[Figure]float64{
		Goroutines:   float64(runtime.NumGoroutine() - goroutines),
		HeapPerLease: (liveHeap() - heap) / float64(e.n),
	}
	if err := e.watch(ctx, max(until.Time, time.Second), t.Figures); err != nil {
		return t, err
	}
	return t, unlockAll(ctx, lockers)
}

// watch measures what it costs to hold.
func (e *estate) watch(ctx context.Context, d time.Duration, figures map[Figure]float64) error {
	before, err := e.stage.counters(ctx)
	cpu, began := processCPU(), time.Now()
	if err := errors.Join(err, sleep(ctx, d)); err != nil {
		return err
	}
	after, err := e.stage.counters(ctx)
	elapsed := time.Since(began).Seconds()
	calls, redisCPU := after.since(before, e.of.Sends)
	figures[ClientCPU] = 1e3 * (processCPU() - cpu).Seconds() / elapsed
	if e.of.Sends != nil {
		figures[ServerCPU] = 1e3 * redisCPU / elapsed
		figures[CommandsPerSec] = calls / elapsed
	}
	return err
}

// lockAll locks 64 at a time.
func lockAll(ctx context.Context, p Process, names []string) ([]Locker, error) {
	lockers := make([]Locker, len(names))
	return lockers, concurrently(len(names), func(i int) (err error) {
		if lockers[i], err = p.Mutex(ctx, names[i]); err == nil {
			err = lockers[i].Lock(ctx)
		}
		return err
	})
}

func unlockAll(ctx context.Context, lockers []Locker) error {
	return concurrently(len(lockers), func(i int) error { return lockers[i].Unlock(ctx) })
}

func concurrently(n int, do func(i int) error) error {
	const at = 64
	errs := make([]error, at)
	var wg sync.WaitGroup
	for from := range at {
		wg.Go(func() {
			for i := from; i < n && errs[from] == nil; i += at {
				errs[from] = do(i)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

func liveHeap() float64 {
	runtime.GC()
	runtime.GC() // frees what the first one has finalized
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc)
}

// processCPU is the CPU time of this process.
func processCPU() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err) // of a constant argument
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
