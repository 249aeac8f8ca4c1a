package demo

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/show"
)

// turn is one passage of a worker: it asks, holds and gives back. Times are those of clock;
// 0 is a time that has not come yet.
type turn struct {
	worker    int
	requested int64
	acquired  int64
	released  int64
	fence     int64
	weight    int64 // see kind
	end       what  // released, torn or lost
}

type state int

const (
	idle state = iota
	waits
	holds
	ended // the process is no more
)

// pose is what a worker does, in a turn of what weight.
type pose struct {
	state  state
	weight int64
}

// member is what is known of one worker.
type member struct {
	pid    int
	now    turn   // the turn under way; requested is 0 in between
	room   int64  // since when there is room for it, or unmeasured, or 0 if there is none
	turns  []turn // the finished ones
	done   int    // how many of them were not lost
	waited time.Duration
	fence  int64 // the last one
	ended  int64 // when the process ended, 0 if it has not
	buried bool  // others have what it had when it ended
}

// fault is the end of a process that was killed while it had the lock.
type fault struct {
	worker int
	at     int64
	after  time.Duration // until others had what it had; 0 as long as they have not
}

func (f *fault) String() string {
	who := fmt.Sprintf("holder %d was killed", f.worker)
	if f.after == 0 {
		return who + "; its lease lasts up to " + workerTTL.String()
	}
	return who + "; the others went on after " + show.Brief(f.after)
}

// ledger is what the workers have told, and what follows from it.
type ledger struct {
	limit     int64
	members   []*member
	turns     []turn // finished and not lost, by their end
	handovers []time.Duration
	lost      int
	fault     *fault // nil without one
}

func newLedger(workers int, limit int64) *ledger {
	l := &ledger{limit: limit, members: make([]*member, workers)}
	for i := range l.members {
		l.members[i] = &member{}
	}
	return l
}

func (l *ledger) apply(e event) {
	m := l.members[e.Worker-1]
	switch e.What {
	case requested:
		m.now, m.room = turn{worker: e.Worker, requested: e.At, weight: e.Weight}, 0
		l.makeRoom(e.At, unmeasured)
	case acquired:
		l.acquire(m, e)
	case released, torn, lost:
		l.finish(m, e)
	case gone:
		m.ended = e.At
	case doomed:
		l.fault = &fault{worker: e.Worker, at: e.At}
	case left:
		if m.now.acquired == 0 { // it asked no longer
			m.now = turn{}
		}
	}
}

func (l *ledger) acquire(m *member, e event) {
	m.now.acquired, m.now.fence, m.fence = e.At, e.Fence, e.Fence
	m.waited += m.now.wait()
	l.bury(e.At)
	if m.room > 0 {
		l.handovers = append(l.handovers, time.Duration(e.At-m.room))
	}
	l.makeRoom(e.At, unmeasured)
}

func (l *ledger) finish(m *member, e event) {
	m.now.released, m.now.end = e.At, e.What
	m.turns = append(m.turns, m.now)
	t := m.now
	m.now = turn{}
	if e.What == lost {
		l.lost++
		l.makeRoom(e.At, unmeasured)
		return
	}
	m.done++
	l.turns = append(l.turns, t)
	l.makeRoom(e.At, e.At)
}

// unmeasured stands for the moment since when there was room, if nobody let go then:
// there was room from the start, or the lock came free when a lease ran out.
const unmeasured = -1

// afterlife is longer than a lease lasts after the process that had it has ended.
const afterlife = int64(2 * workerTTL)

// makeRoom notes since when there is room for the waiters that fit now, first come, first
// served. A hand-over is measured from there. Workers that asked at nearly the same time
// may have come the other way round: the note of a worker that was overtaken is taken back.
func (l *ledger) makeRoom(now, since int64) {
	left := l.limit
	for _, m := range l.members {
		if m.now.acquired != 0 && (m.ended == 0 || !m.buried && now < m.ended+afterlife) {
			left -= m.now.weight
		}
	}
	for _, m := range l.queue() {
		left -= m.now.weight
		if left < 0 {
			m.room = 0
		} else if m.room == 0 {
			m.room = since
		}
	}
}

// bury notes that others have what processes had that have ended, if there would be too many
// otherwise.
func (l *ledger) bury(now int64) {
	left := l.limit
	for _, m := range l.members {
		if m.now.acquired != 0 && !m.buried {
			left -= m.now.weight
		}
	}
	for i, m := range l.members {
		if left < 0 && m.ended != 0 && m.now.acquired != 0 && !m.buried {
			m.buried = true
			if f := l.fault; f != nil && f.worker == i+1 {
				f.after = time.Duration(now - f.at)
			}
		}
	}
}

func (l *ledger) holders() []*member { return l.who(holds) }

// queue is the workers that wait, first come, first served.
func (l *ledger) queue() []*member {
	q := l.who(waits)
	slices.SortFunc(q, func(a, b *member) int { return cmp.Compare(a.now.requested, b.now.requested) })
	return q
}

func (l *ledger) who(does state) (ms []*member) {
	for _, m := range l.members {
		if s, _ := m.state(); s == does {
			ms = append(ms, m)
		}
	}
	return ms
}

// state is what the worker does, and since when.
func (m *member) state() (state, int64) {
	switch {
	case m.ended != 0:
		return ended, 0
	case m.now.acquired != 0:
		return holds, m.now.acquired
	case m.now.requested != 0:
		return waits, m.now.requested
	}
	return idle, 0
}

// history says what the worker did at times, which descend.
func (m *member) history(times []int64) []pose {
	poses := make([]pose, len(times))
	t, next := m.now, len(m.turns)
	for i, at := range times {
		if m.ended != 0 && at >= m.ended {
			poses[i] = pose{state: ended}
			continue
		}
		// Back to the turn that had begun by then.
		for next > 0 && (t.requested == 0 || at < t.requested) {
			next--
			t = m.turns[next]
		}
		poses[i] = t.at(at)
	}
	return poses
}

func (t turn) wait() time.Duration { return time.Duration(t.acquired - t.requested) }

func (t turn) at(at int64) pose {
	switch {
	case t.requested == 0 || at < t.requested, t.released != 0 && at >= t.released:
		return pose{}
	case t.acquired != 0 && at >= t.acquired:
		return pose{holds, t.weight}
	}
	return pose{waits, t.weight}
}

func (m *member) meanWait() time.Duration {
	n := len(m.turns)
	if m.now.acquired != 0 {
		n++
	}
	if n == 0 {
		return 0
	}
	return m.waited / time.Duration(n)
}
