package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/token"
)

// act is the life of an actor.
func (w *worker) act(actor int) {
	rng := rand.New(rand.NewPCG(w.Seed, uint64(actor)))
	for {
		select {
		case <-w.stop:
			return
		default:
		}
		i := w.Slots[rng.IntN(len(w.Slots))]
		if rng.IntN(slots[i].rarity()) > 0 {
			continue
		}
		if slots[i].how == whole {
			w.turnAll(actor, rng)
			continue
		}
		w.turn(actor, rng, slots[i], w.names.take(i))
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
	case s.robbed() && r.weight > 0 && luck < 6:
		r.mode = stealing
	case luck < 2 || s.onlyTried():
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
		if !slices.Contains([]string{"locked", "canceled", "queue_full"}, r.class) {
			time.Sleep(20 * time.Millisecond) // the store refuses, as after a change of rights
		}
		return
	}
	r.id, r.fence = identity(lease.Token()), lease.Fence()
	note(got)
	w.hold(rng, lease, s, &r)
	r.at, r.what, r.class = clock(), give, stillHeld
	if !w.believes(lease) {
		r.class = causeOf(lease.Err())
	}
	w.history.write(r)
	r.class = class(lease.Release(context.Background()))
	note(gave)
}

func (w *worker) acquire(ctx context.Context, s slot, r *record) (*holdfast.Lease, error) {
	var opts []holdfast.LockOption
	switch {
	case s.fifo():
		opts = append(opts, holdfast.WithStrictFIFO())
	case s.how == linger:
		opts = append(opts, holdfast.WithLinger(10*time.Millisecond))
	case s == longMutex:
		opts = append(opts, holdfast.WithMaxHold(maxHold))
	case s.how == ticking:
		opts = append(opts, holdfast.WithMinHold(minHold))
	case s.how == crowded:
		opts = append(opts, holdfast.WithMaxWaiters(maxWaiters))
	}
	try := r.mode == "try"
	switch s.kind {
	case driver.RWMutex:
		rw := w.locks.RWMutex(r.lock, opts...)
		switch {
		case r.mode == stealing:
			return rw.Steal(ctx)
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
	switch {
	case r.mode == stealing:
		return mu.Steal(ctx)
	case try:
		return mu.TryLease(ctx)
	}
	return mu.Lease(ctx)
}

// believes reports whether the holder believes that it holds the lock. The caller has taken
// the time before.
func (w *worker) believes(lease interface{ Err() error }) bool {
	return w.Sabotage == ignoreLoss || lease.Err() == nil
}

// causeOf is a word for why a lease is lost.
func causeOf(err error) string {
	if stolen := new(token.Stolen); errors.As(err, &stolen) {
		return "stolen:" + stolen.By
	}
	if errors.Is(err, holdfast.ErrHeldTooLong) {
		return overdue
	}
	return "lost"
}

// overdue is a cause: WithMaxHold has ended the lease.
const overdue = "overdue"

// looksEvery is how often a holder looks whether it still holds the lock.
const looksEvery = 4 * time.Millisecond

// length is how long a holder keeps the lock: mostly for up to 1 ms, sometimes for up to 50 ms. A
// long hold is one that must be renewed, and some holders wait for a thief.
func (s slot) length(rng *rand.Rand) time.Duration {
	luck := rng.Float64()
	switch {
	case s.how == yielding:
		return between(rng, ttl/4, 3*ttl) // if nobody else waits
	case s == longMutex:
		return between(rng, ttl/4, maxHold+2*hearing)
	case s.how == long:
		return between(rng, ttl/4, 3*ttl)
	case s.robbed() && rng.IntN(50) == 0:
		return between(rng, ttl/4, 3*ttl) // one that is deaf believes for long enough to be found
	case s.robbed():
		return time.Duration(luck * float64(8*time.Millisecond))
	case rng.IntN(10) > 0:
		return time.Duration(luck * float64(time.Millisecond))
	}
	return time.Duration(luck * luck * luck * float64(50*time.Millisecond))
}

// hold uses what the lock guards, until its end, or another waits, or the lease is lost. The record
// then tells the time of its last look.
func (w *worker) hold(rng *rand.Rand, lease *holdfast.Lease, s slot, r *record) {
	end := time.Now().Add(s.length(rng))
	exclusive := r.kind != driver.Semaphore && r.weight > 0
	a := Access{Lock: r.lock, Fence: r.fence}
	var read Access
	if exclusive && w.resource.Call("Resource.Read", a, &read) != nil {
		return
	}
	var wanted <-chan struct{}
	if s.how == yielding && w.Sabotage != neverYield {
		wanted = lease.Wanted()
	}
	for {
		at := clock()
		if !w.believes(lease) {
			break
		}
		r.seen = at
		w.history.looks[r.actor].Store(at)
		left := time.Until(end)
		if left <= 0 || r.heard != 0 {
			break
		}
		select {
		case <-wanted:
			r.heard = clock()
		case <-time.After(min(left, looksEvery)):
		}
	}
	if exclusive {
		a.Plain = read.Plain + 1
		if !read.Stale {
			a.Fenced = read.Fenced + 1
		}
		_ = w.resource.Call("Resource.Write", a, &read)
	}
}
