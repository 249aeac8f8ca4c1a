package main

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

// Some actors want several locks of different kinds at once, by All. Each of these is an operation
// of its own, as if several actors had asked for one each, and all judges look at it.

// voices is as how many an actor can speak: for itself, and for each part of a whole.
const voices = 4

// wholes are the slots that are only taken together.
var wholes = slotsOf(func(s slot) bool { return s.how == whole })

// turnAll asks for two or all of them once, in any order.
func (w *worker) turnAll(actor int, rng *rand.Rand) {
	chosen := slices.Clone(wholes)
	rng.Shuffle(len(chosen), func(i, j int) { chosen[i], chosen[j] = chosen[j], chosen[i] })
	chosen = chosen[:2+rng.IntN(len(chosen)-1)]
	records, parts := make([]record, len(chosen)), make([]holdfast.Part, len(chosen))
	for i, of := range chosen {
		records[i] = record{actor: actor + (i+1)*w.Actors, kind: slots[of].kind, lock: w.names.take(of), mode: "all"}
		parts[i] = w.part(&records[i], rng)
	}
	note := func(what, class string) {
		at := clock()
		for _, r := range records {
			r.at, r.what, r.class = at, what, class
			w.history.write(r)
		}
	}
	ctx, cancel := context.WithCancel(w.patience)
	defer cancel()
	if rng.IntN(10) == 0 {
		defer time.AfterFunc(time.Duration(rng.Int64N(int64(20*time.Millisecond))), cancel).Stop()
	}
	note(ask, "")
	all, err := holdfast.All(ctx, parts...)
	if err != nil {
		note(missed, class(err))
		return
	}
	for i, lease := range all.Each() {
		records[i].id, records[i].fence = identity(lease.Token()), lease.Fence()
	}
	note(got, "ok")
	w.holdAll(rng, all, records)
	held := stillHeld
	at := clock()
	if !w.believes(all) {
		held = causeOf(all.Err())
	}
	for _, r := range records {
		r.at, r.what, r.class = at, give, held
		w.history.write(r)
	}
	note(gave, class(all.Release(context.Background())))
}

// part is a lock as All takes it.
func (w *worker) part(r *record, rng *rand.Rand) holdfast.Part {
	switch r.kind {
	case driver.Semaphore:
		r.weight = 1 + rng.Int64N(3)
		return w.locks.Semaphore(r.lock, permits).Permits(r.weight)
	case driver.RWMutex:
		if r.weight = rng.Int64N(2); r.weight == 0 {
			return w.locks.RWMutex(r.lock).Reading()
		}
		return w.locks.RWMutex(r.lock)
	}
	r.weight = 1
	return w.locks.Mutex(r.lock)
}

// holdAll looks for some milliseconds whether all is still held.
func (w *worker) holdAll(rng *rand.Rand, all *holdfast.Leases, records []record) {
	end := time.Now().Add(time.Duration(rng.Int64N(int64(2 * time.Millisecond))))
	for {
		at := clock()
		if !w.believes(all) {
			return
		}
		for i := range records {
			records[i].seen = at
			w.history.looks[records[i].actor].Store(at)
		}
		left := time.Until(end)
		if left <= 0 {
			return
		}
		time.Sleep(min(left, looksEvery))
	}
}
