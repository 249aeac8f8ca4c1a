package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// crowdOf is how many clients share a lock that more than one can have.
const crowdOf = 64

// ReadWrite are works of many readers and more or less writers.
var ReadWrite = []Work{readWrite(99), readWrite(50)}

func readWrite(reads int) Work {
	st := setting{processes: each(crowdOf), hold: time.Millisecond, size: 1 << 30}
	st.seat = func(ctx context.Context, p Process, r *room) (func() door, error) {
		rw, ok := p.(RWProcess)
		if !ok {
			return nil, Absence("has no read-write lock")
		}
		read, write, err := rw.RWMutex(ctx, r.name)
		reader, writer := door{read, r, 1}, door{write, r, r.size}
		random := rand.New(rand.NewPCG(rand.Uint64(), 0))
		return func() door {
			if random.IntN(100) < reads {
				return reader
			}
			return writer
		}, err
	}
	return Work{
		Name:       fmt.Sprintf("ReadWrite/%d:%d", reads, 100-reads),
		Title:      fmt.Sprintf("Read-write lock, %d %% reads", reads),
		About:      fmt.Sprintf("%d clients with one goroutine each, which read or write for 1 ms, at random.", crowdOf),
		Contenders: All,
		Columns:    contended,
		Turns:      5,
		Time:       time.Second,
		Enter:      st.enter,
	}
}

// Readers is a read-write lock that nobody writes to, such as of a table of settings.
var Readers = Work{
	Name:       fmt.Sprintf("Readers/%d", crowdOf),
	Title:      fmt.Sprintf("%d clients read, nobody writes", crowdOf),
	About:      "Each client has one goroutine that locks for reading, looks around and unlocks.",
	Contenders: slices.Concat(All, []Contender{SortedSet}),
	Columns:    even,
	Turns:      9,
	Time:       300 * time.Millisecond,
	Enter:      reading.enter,
}

var reading = setting{processes: each(crowdOf), size: 1 << 30, seat: func(ctx context.Context, p Process, r *room) (func() door, error) {
	rw, ok := p.(RWProcess)
	if !ok {
		return nil, Absence("has no read-write lock")
	}
	read, _, err := rw.RWMutex(ctx, r.name)
	d := door{read, r, 1}
	return func() door { return d }, err
}}

// Permits is a work of a semaphore.
var Permits = permits(16)

func permits(limit int64) Work {
	st := setting{processes: each(crowdOf), hold: time.Millisecond, size: limit}
	st.seat = func(_ context.Context, p Process, r *room) (func() door, error) {
		s, ok := p.(SemaphoreProcess)
		if !ok {
			return nil, Absence("has no semaphore")
		}
		d := door{s.Semaphore(r.name, r.size), r, 1}
		return func() door { return d }, nil
	}
	return Work{
		Name:  fmt.Sprintf("Semaphore/%d-of-%d", limit, crowdOf),
		Title: fmt.Sprintf("Semaphore, %d permits for %d clients", limit, crowdOf),
		About: "Each client takes one permit at a time, for 1 ms. The semaphores of asynq and redisemaphore are not compared: " +
			"the one does not wait, the other polls every 100 ms at best.",
		Contenders: slices.Concat(All, []Contender{SortedSet}),
		Columns:    contended,
		Turns:      5,
		Time:       time.Second,
		Enter:      st.enter,
	}
}
