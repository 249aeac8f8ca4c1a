package bench

import (
	"context"
	"errors"
	"time"
)

// setting is how the members of a crowd are placed, and what they do.
type setting struct {
	processes []int // how many goroutines each has
	hold      time.Duration
	apart     bool  // each goroutine of a process has a lock of its own
	every     int64 // of so many waits one is timed; 0 is as 1
	seat      func(ctx context.Context, p Process, r *room) (next func() door, err error)
	size      int64 // of the room
}

// mutexes is a setting of mutexes.
func mutexes(processes ...int) setting {
	return setting{processes: processes, seat: seatMutex, size: 1}
}

func seatMutex(ctx context.Context, p Process, r *room) (func() door, error) {
	l, err := p.Mutex(ctx, r.name)
	d := door{l, r, r.size}
	return func() door { return d }, err
}

// each returns n processes with one goroutine each.
func each(n int) []int {
	ones := make([]int, n)
	for i := range ones {
		ones[i] = 1
	}
	return ones
}

// enter is Enter of a work in that setting.
func (st setting) enter(ctx context.Context, s *Stage, of Contender) (Scene, error) {
	return st.gather(ctx, s, of)
}

func (st setting) gather(ctx context.Context, s *Stage, of Contender) (*crowd, error) {
	c := &crowd{stage: s, sends: of.Sends, every: max(1, st.every)}
	for i, goroutines := range st.processes {
		p, err := of.Open(ctx, s)
		if err == nil {
			c.processes = append(c.processes, p)
			err = st.fill(ctx, c, p, int64(i), goroutines)
		}
		if err != nil {
			return nil, errors.Join(err, c.Close())
		}
	}
	return c, nil
}

// fill adds members that share a process. Where they are apart, those with the same number in
// different processes share a lock.
func (st setting) fill(ctx context.Context, c *crowd, p Process, of int64, goroutines int) error {
	for i := range goroutines {
		if !st.apart {
			i = 0
		}
		if i == len(c.rooms) {
			c.rooms = append(c.rooms, &room{name: newName(), size: st.size})
		}
		r := c.rooms[i]
		next, err := st.seat(ctx, p, r)
		if err != nil {
			return err
		}
		c.members = append(c.members, &member{next: next, of: of + 1, hold: st.hold})
	}
	return nil
}
