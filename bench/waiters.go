package bench

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// Waiters are works where more and more wait for one lock.
var Waiters = []Work{waiters(10), waiters(100), waiters(1000), waiters(10_000)}

func waiters(n int) Work {
	return Work{
		Name:  fmt.Sprintf("Waiters/%d", n),
		Title: fmt.Sprintf("Hand-over with %d waiters", n),
		About: "They are goroutines of 10 clients, and each waits again as soon as it has had the lock. Most get it " +
			"from another of their client, but for *holdfast strict*, of which all queue in Redis. " +
			"What is timed is the hand-over: from the call to unlock to the next return from lock.",
		Contenders: slices.Concat(All, []Contender{HoldfastStrict}),
		Columns:    []Figure{Throughput, WaitP50, WaitP99, WaitMax, Commands, RedisCPU},
		Turns:      3,
		Time:       1500 * time.Millisecond,
		Enter: func(ctx context.Context, s *Stage, c Contender) (Scene, error) {
			if c.Name == Etcd.Name && n > 100 {
				return nil, Absence("needs a session for each waiter, and does not get so many")
			}
			crowd, err := mutexes(evenly(n, 10)...).gather(ctx, s, c)
			return &queue{crowd: crowd, handovers: new(Histogram)}, err
		},
	}
}

// evenly returns n goroutines in that many processes.
func evenly(n, processes int) []int {
	sizes := make([]int, processes)
	for i := range sizes {
		sizes[i] = n / processes
	}
	return sizes
}

// queue is a crowd of which nearly all wait. They are sent away at the end of a turn, for
// it can take long to serve so many.
type queue struct {
	*crowd
	mu        sync.Mutex // for the race detector: what follows is for the holder of the lock
	unlocking time.Time
	handovers *Histogram
}

func (q *queue) Turn(ctx context.Context, until Stint) (Turn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	first := q.members[0].next()
	if err := first.Lock(ctx); err != nil {
		return Turn{}, err
	}
	clock := newClock(until)
	var wg sync.WaitGroup
	for _, m := range q.members[1:] {
		wg.Go(func() { m.queue(ctx, q, clock) })
	}
	t, err := q.watch(ctx, first, clock)
	cancel()
	wg.Wait()
	for _, m := range q.members {
		t.Figures[Failures] += float64(m.failures)
		m.failures = 0
	}
	t.Figures[Overlaps] = q.overlaps()
	return t, err
}

// watch has the first holder unlock when all others wait, and measures what happens then.
func (q *queue) watch(ctx context.Context, first door, clock *clock) (Turn, error) {
	t := Turn{Figures: map[Figure]float64{}, Waits: new(Histogram)}
	if err := q.settle(ctx); err != nil {
		return t, err
	}
	meter, err := startMeter(ctx, q.stage, q.sends)
	if err != nil {
		return t, err
	}
	q.handovers = t.Waits
	clock.start()
	q.unlock(ctx, first)
	select {
	case <-clock.over:
	case <-time.After(clock.until.most() + patience): // the lock is stuck
	}
	elapsed := clock.stop()
	q.mu.Lock()
	defer q.mu.Unlock()
	q.handovers = new(Histogram) // of what comes now
	t.Figures[Throughput] = float64(t.Waits.Count()) / elapsed.Seconds()
	err = meter.read(ctx, float64(t.Waits.Count()), t.Figures)
	return t, err
}

// settle returns when all wait. That is when there is quiet, or after a time in which even
// waiters that poll must have begun to wait.
func (q *queue) settle(ctx context.Context) error {
	n := len(q.members)
	last := 0.0
	for end := time.Now().Add(500*time.Millisecond + time.Duration(n)*400*time.Microsecond); time.Now().Before(end); {
		if err := sleep(ctx, 200*time.Millisecond); err != nil {
			return err
		}
		now, err := q.stage.counters(ctx)
		if err != nil {
			return err
		}
		calls, _ := now.since(counters{}, q.sends)
		if calls-last < float64(n)/50 {
			return nil
		}
		last = calls
	}
	return nil
}

// queue waits, hands over, and waits again.
func (m *member) queue(ctx context.Context, q *queue, clock *clock) {
	d := m.next()
	for m.acquire(ctx, d) {
		q.mu.Lock()
		q.handovers.Add(time.Since(q.unlocking))
		q.mu.Unlock()
		d.visit(m.of, d.width, 0)
		if !clock.another() {
			clock.end()
		}
		if q.unlock(context.WithoutCancel(ctx), d) != nil {
			m.failures++
		}
		if ctx.Err() != nil { // not all locks see that themselves
			return
		}
	}
}

func (q *queue) unlock(ctx context.Context, d door) error {
	q.mu.Lock()
	q.unlocking = time.Now()
	q.mu.Unlock()
	return d.Unlock(ctx)
}
