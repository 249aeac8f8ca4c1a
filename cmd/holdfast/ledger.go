package main

import "time"

// turn is one passage of a worker: it asks, holds and gives back. Times are those
// of clock; 0 is a time that has not come yet.
type turn struct {
	worker    int
	requested int64
	acquired  int64
	released  int64
	fence     int64
	lost      bool // the lease was lost, and nothing was written
}

type state int

const (
	idle state = iota
	waits
	holds
	ended // the process is no more
)

// member is what is known of one worker.
type member struct {
	pid    int
	now    turn   // the turn under way; requested is 0 in between
	turns  []turn // the finished ones
	done   int    // how many of them were not lost
	waited time.Duration
	fence  int64 // the last one
	ended  bool
}

// ledger is what the workers have told, and what follows from it.
type ledger struct {
	members   []*member
	turns     []turn // finished and not lost, by their end
	waits     []time.Duration
	handovers []time.Duration
	lost      int
	free      int64 // when the last holder let go, if nobody has held since
}

func newLedger(workers int) *ledger {
	l := &ledger{members: make([]*member, workers)}
	for i := range l.members {
		l.members[i] = &member{}
	}
	return l
}

func (l *ledger) apply(e event) {
	m := l.members[e.Worker-1]
	switch e.What {
	case requested:
		m.now = turn{worker: e.Worker, requested: e.At}
	case acquired:
		l.acquire(m, e)
	case released, lost:
		l.finish(m, e)
	case gone:
		m.ended = true
	case left:
		if m.now.acquired == 0 { // it asked no longer
			m.now = turn{}
		}
	}
}

func (l *ledger) acquire(m *member, e event) {
	m.now.acquired, m.now.fence, m.fence = e.At, e.Fence, e.Fence
	wait := time.Duration(e.At - m.now.requested)
	m.waited += wait
	l.waits = append(l.waits, wait)
	// It was a hand-over if this one already waited when the last holder let go.
	// Otherwise the lock lay free for a while, and that time says nothing.
	if l.free != 0 && m.now.requested < l.free {
		l.handovers = append(l.handovers, time.Duration(e.At-l.free))
	}
	l.free = 0
}

func (l *ledger) finish(m *member, e event) {
	m.now.released, m.now.lost = e.At, e.What == lost
	m.turns = append(m.turns, m.now)
	if m.now.lost {
		l.lost++
	} else {
		m.done++
		l.turns = append(l.turns, m.now)
		l.free = e.At
	}
	m.now = turn{}
}

// open is how many workers ended, or were ended, while they held the lock: nobody
// knows whether they had written.
func (l *ledger) open() int {
	n := 0
	for _, m := range l.members {
		if m.now.acquired != 0 {
			n++
		}
	}
	return n
}

// state is what the worker does, and since when.
func (m *member) state() (state, int64) {
	switch {
	case m.ended:
		return ended, 0
	case m.now.acquired != 0:
		return holds, m.now.acquired
	case m.now.requested != 0:
		return waits, m.now.requested
	}
	return idle, 0
}

// history says what the worker did at times, which descend.
func (m *member) history(times []int64) []state {
	states := make([]state, len(times))
	t, next := m.now, len(m.turns)
	for i, at := range times {
		// Back to the turn that had begun by then.
		for next > 0 && (t.requested == 0 || at < t.requested) {
			next--
			t = m.turns[next]
		}
		states[i] = t.at(at)
	}
	return states
}

func (t turn) at(at int64) state {
	switch {
	case t.requested == 0 || at < t.requested, t.released != 0 && at >= t.released:
		return idle
	case t.acquired != 0 && at >= t.acquired:
		return holds
	}
	return waits
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
