package bench

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"
)

// patience is how long a member may still wait after the end of a stint, when there are
// fewer and fewer others. The locks of holders that have gone do not last that long.
const patience = 8 * time.Second

// crowd is a scene of members that lock and unlock as fast as they can.
type crowd struct {
	stage     *Stage
	sends     []string
	processes []Process
	members   []*member
	rooms     []*room
	every     int64 // of so many waits one is timed
}

// member is one of a crowd, a goroutine.
type member struct {
	next   func() door // for its next cycle
	hold   time.Duration
	hidden bool // whose waits are not of interest

	punctual int64 // cycles that ended within the stint
	cycles   int64
	failures int64
	stuck    float64 // 1 if it never got the lock that it waited for at the end
	waits    Histogram
}

// door is a lock, and the room behind it.
type door struct {
	Locker
	*room
	width int64 // how much of the room is taken
}

// room is what a lock guards. It notices if the lock fails.
type room struct {
	name     string // of the lock
	size     int64
	inside   atomic.Int64
	writes   atomic.Int64 // by visitors that take the whole room
	written  atomic.Int64 // how many of them are left: without a lock some are lost
	overlaps atomic.Int64
}

// visit stays in the room for as long as hold, or just long enough to look around.
func (r *room) visit(width int64, hold time.Duration) {
	if r.inside.Add(width) > r.size {
		r.overlaps.Add(1)
	}
	// The counter is atomic for the race detector's sake only, which does not know of locks in
	// Redis. To read it and write it later is as wrong as with a plain one.
	n := r.written.Load()
	if hold > 0 {
		time.Sleep(hold)
	}
	if width == r.size {
		r.written.Store(n + 1)
		r.writes.Add(1)
	} else if r.written.Load() != n {
		r.overlaps.Add(1) // somebody wrote while we read
	}
	r.inside.Add(-width)
}

func (c *crowd) Close() error {
	var errs []error
	for _, p := range c.processes {
		errs = append(errs, p.Close())
	}
	return errors.Join(errs...)
}

// Turn has all members contend until the stint is over. A member that waits then still gets
// the lock. If waiters were sent away, the longest waits of all would be hidden.
func (c *crowd) Turn(ctx context.Context, until Stint) (Turn, error) {
	ctx, cancel := context.WithTimeout(ctx, until.most()+patience)
	defer cancel()
	m, err := startMeter(ctx, c.stage, c.sends)
	if err != nil {
		return Turn{}, err
	}
	clock := newClock(until)
	clock.start()
	var wg sync.WaitGroup
	for _, one := range c.members {
		*one = member{next: one.next, hold: one.hold, hidden: one.hidden}
		wg.Go(func() { one.contend(ctx, clock, c.every) })
	}
	wg.Wait()
	elapsed := clock.stop()
	return c.sum(m, elapsed)
}

// contend does cycles until the clock says stop.
func (m *member) contend(ctx context.Context, clock *clock, every int64) {
	for ; clock.another(); m.cycles++ {
		d := m.next()
		if !m.acquire(ctx, d, m.cycles%every == 0) {
			m.stuck = 1
			return
		}
		d.visit(d.width, m.hold)
		if d.Unlock(ctx) != nil {
			m.failures++
		}
		if !clock.done.Load() {
			m.punctual++
		}
	}
}

// acquire tries again when it fails, as callers would, unless the turn is stuck.
func (m *member) acquire(ctx context.Context, d door, timed bool) bool {
	var began time.Time
	if timed = timed && !m.hidden; timed {
		began = time.Now()
	}
	for d.Lock(ctx) != nil {
		if ctx.Err() != nil {
			return false
		}
		m.failures++
		_ = sleep(ctx, retryDelay)
	}
	if timed {
		m.waits.Add(time.Since(began))
	}
	return true
}

func (c *crowd) sum(m *meter, elapsed time.Duration) (Turn, error) {
	t := Turn{Figures: map[Figure]float64{}, Waits: new(Histogram)}
	var punctual, cycles, failures, stuck float64
	var shares []float64
	for _, one := range c.members {
		punctual += float64(one.punctual)
		cycles += float64(one.cycles)
		failures += float64(one.failures)
		stuck += one.stuck
		shares = append(shares, float64(one.punctual))
		t.Waits.Merge(&one.waits)
	}
	t.Figures[Throughput] = punctual / elapsed.Seconds()
	t.Figures[Jain] = JainIndex(shares)
	t.Figures[Failures] = failures
	t.Figures[Stuck] = stuck
	t.Figures[Overlaps] = c.overlaps()
	return t, m.read(context.Background(), cycles, t.Figures)
}

// overlaps also counts the writes that were lost.
func (c *crowd) overlaps() float64 {
	var overlaps int64
	for _, r := range c.rooms {
		overlaps += r.overlaps.Swap(0) + r.writes.Swap(0) - r.written.Swap(0)
	}
	return float64(overlaps)
}
