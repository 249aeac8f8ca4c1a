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
	of     int64       // number of its process
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
	last     atomic.Int64 // process of the last visitor
	handed   atomic.Int64 // visits after that of another process
}

// visit stays in the room for as long as hold, or just long enough to look around. of is the
// process of the visitor.
func (r *room) visit(of, width int64, hold time.Duration) {
	if r.inside.Add(width) > r.size {
		r.overlaps.Add(1)
	}
	if r.last.Swap(of) != of {
		r.handed.Add(1)
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
		*one = member{next: one.next, of: one.of, hold: one.hold, hidden: one.hidden}
		wg.Go(func() { one.contend(ctx, clock, c.every) })
	}
	wg.Wait()
	elapsed := clock.stop()
	return c.sum(m, elapsed)
}

// contend does cycles until the clock says stop.
func (m *member) contend(ctx context.Context, clock *clock, every int64) {
	for ; clock.another(); m.cycles++ {
		if !m.cycle(ctx, m.next(), m.cycles%every == 0) {
			m.stuck = 1
			return
		}
		if !clock.done.Load() {
			m.punctual++
		}
	}
}

// cycle is a visit. It reports false if the member never got the lock.
func (m *member) cycle(ctx context.Context, d door, timed bool) bool {
	entered := m.arrive(timed)
	if doer, ok := d.Locker.(Doer); ok {
		in := false
		for !in && m.again(ctx, doer.Do(ctx, func() {
			in = true
			entered()
			d.visit(m.of, d.width, m.hold)
		})) {
		}
		return in
	}
	if !m.acquire(ctx, d) {
		return false
	}
	entered()
	d.visit(m.of, d.width, m.hold)
	if d.Unlock(ctx) != nil {
		m.failures++
	}
	return true
}

// arrive returns what to call when the wait that begins now is over.
func (m *member) arrive(timed bool) (entered func()) {
	if !timed || m.hidden {
		return func() {}
	}
	began := time.Now()
	return func() { m.waits.Add(time.Since(began)) }
}

// acquire tries again when it fails, as callers would, unless the turn is stuck.
func (m *member) acquire(ctx context.Context, d door) bool {
	for {
		err := d.Lock(ctx)
		if err == nil {
			return true
		}
		if !m.again(ctx, err) {
			return false
		}
	}
}

// again counts an error, and reports whether to try again.
func (m *member) again(ctx context.Context, err error) bool {
	if err == nil {
		return true
	}
	if ctx.Err() != nil {
		return false
	}
	m.failures++
	_ = sleep(ctx, retryDelay)
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
	t.Figures[Handovers] = t.Figures[Throughput] * c.handovers() / max(1, cycles)
	t.Figures[Jain] = JainIndex(shares)
	t.Figures[Failures] = failures
	t.Figures[Stuck] = stuck
	t.Figures[Overlaps] = c.overlaps()
	return t, m.read(context.Background(), cycles, t.Figures)
}

// handovers counts how often a lock went from one process to another.
func (c *crowd) handovers() (n float64) {
	for _, r := range c.rooms {
		n += float64(r.handed.Swap(0))
	}
	return n
}

// overlaps also counts the writes that were lost.
func (c *crowd) overlaps() float64 {
	var overlaps int64
	for _, r := range c.rooms {
		overlaps += r.overlaps.Swap(0) + r.writes.Swap(0) - r.written.Swap(0)
	}
	return float64(overlaps)
}
