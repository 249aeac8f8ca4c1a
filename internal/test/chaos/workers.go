package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/internal/test/crew"
)

// workers are the processes that work. One that was killed comes back as another incarnation,
// with a history of its own.
type workers struct {
	host *host
	plan assignment // of all, except for what tells them apart
	dir  string

	mu           sync.Mutex
	incarnations int
	present      []*process
	killed       map[int]int64 // when an incarnation was
}

type process struct {
	incarnation int
	*crew.Process
}

func startWorkers(h *host, plan assignment, dir string, n int) *workers {
	w := &workers{host: h, plan: plan, dir: dir, present: make([]*process, n), killed: map[int]int64{}}
	for i := range w.present {
		w.start(i)
	}
	return w
}

func (w *workers) historyOf(incarnation int) string {
	return filepath.Join(w.dir, fmt.Sprintf("worker-%d", incarnation))
}

// start puts a new process in the place of worker i.
func (w *workers) start(i int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	a := w.plan
	a.Worker, a.Incarnation = i, w.incarnations
	a.Seed = w.plan.Seed + uint64(w.incarnations)
	a.History = w.historyOf(w.incarnations)
	w.present[i] = &process{w.incarnations, crew.Start(w.host, role)}
	w.present[i].Tell(a)
	w.incarnations++
}

// freeze suspends worker i, which notices nothing of it.
func (w *workers) freeze(i int, d time.Duration) {
	p := w.worker(i)
	p.Pause()
	time.Sleep(d)
	p.Resume()
}

// replace kills worker i, and starts another after d.
func (w *workers) replace(i int, d time.Duration) {
	p := w.worker(i)
	w.mu.Lock()
	w.killed[p.incarnation] = clock()
	w.mu.Unlock()
	p.Kill()
	time.Sleep(d)
	w.start(i)
}

func (w *workers) worker(i int) *process {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.present[i]
}

// stop has all workers end by themselves, and kills those that do not.
func (w *workers) stop() error {
	for _, p := range w.present {
		p.Dismiss()
	}
	late := time.After(lastWait + 30*time.Second)
	var failed []error
	for _, p := range w.present {
		select {
		case <-p.Exited():
			failed = append(failed, p.Wait())
		case <-late:
			p.Abort() // its stacks tell why
			failed = append(failed, fmt.Errorf("worker %d does not end: %w", p.incarnation, p.Wait()))
		}
	}
	return errors.Join(failed...)
}

// testimony is what the workers wrote down.
type testimony struct {
	ops      []*op
	sentAt   map[uint64]int64 // when the store was first asked for a token
	queues   queues
	troubles []record

	goroutines, connections int // that were left
}

func (w *workers) testimony() (*testimony, error) {
	t := &testimony{sentAt: map[uint64]int64{}, queues: newQueues()}
	for i := range w.incarnations {
		done, err := testify(i, w.plan.Actors*voices, w.historyOf(i), func(r record) { t.take(i, r) })
		if _, dead := w.killed[i]; err != nil && !(dead && errors.Is(err, os.ErrNotExist)) { // killed at once
			return nil, err
		}
		t.ops = append(t.ops, done...)
	}
	return t, nil
}

func (t *testimony) take(incarnation int, r record) {
	switch r.what {
	case sent:
		t.sentAt[r.id] = r.at
	case queued:
		t.queues.asks[r.id] = append(t.queues.asks[r.id], span{r.seen, r.at})
	case trouble:
		t.troubles = append(t.troubles, r)
		if r.class == deafened {
			t.queues.ears[incarnation] = append(t.queues.ears[incarnation], r.at)
		}
	case leak:
		t.goroutines += max(0, int(r.weight))
		t.connections += max(0, int(r.fence))
	}
}
