package holdfast

import (
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

const (
	// maxPasses is how often a term passes on before others get their turn, if any wait.
	// Half-way the store is asked whether any do. If none does another turn begins, so
	// that a client which is alone never stops. While the answer is under way terms with
	// very short holds go on passing, so that those do not stop either: for grace, which a
	// quick store needs no longer than for its answer, and at most maxAhead times. So a
	// caller elsewhere waits for this many holds, or for 1 ms if those take less.
	maxPasses   = 32
	maxAhead    = 1024
	graceOfTurn = time.Millisecond
	// turnShare is which part of its TTL a turn lasts at most.
	turnShare = 4
)

// turn is what is left of the time, the passes and the fences that this client has before
// it is for others to have the lock. Its methods may be called from any goroutine.
type turn struct {
	mu        sync.Mutex
	ttl       time.Duration
	ends      time.Time
	passes    int32
	notice    bool // the store tells when somebody waits
	extending bool
	wanted    bool // somebody waits, or the store did not say: no further turn
	unfenced  bool // the store has no fences
	now, then block
	size      int64      // of the next block
	lingering *lingering // nil if nobody waits for the term to have been idle
}

type lingering struct {
	since time.Time
	timer *time.Timer
}

// block is numbers that the store has reserved.
type block struct{ next, left int64 }

func (t *turn) begin(a *acquisition, fence int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ttl, t.notice, t.unfenced, t.size = a.cfg.ttl, a.notice, fence == 0, maxPasses
	t.now = block{fence, max(a.fences, 1)}
	t.ends = time.Now().Add(t.ttl / turnShare)
}

// fence takes the next number.
func (t *turn) fence() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.unfenced {
		return 0
	}
	if t.now.left == 0 {
		t.now, t.then = t.then, block{}
	}
	f := t.now.next
	t.now.next++
	t.now.left--
	return f
}

// goesOn reports whether there may be another lease in this turn.
func (t *turn) goesOn() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case !t.unfenced && t.now.left+t.then.left == 0:
		return false
	case t.notice && !t.wanted: // it lasts until the store says that somebody waits
		return true
	}
	left := time.Until(t.ends)
	if t.passes < maxPasses {
		return left > 0
	}
	return t.extending && t.passes < maxAhead && left > t.ttl/turnShare-graceOfTurn
}

// pass notes another lease, and returns how many fences to ask for with another turn, 0 if
// not to ask.
func (t *turn) pass() int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.passes++
	enough := t.passes < maxPasses/2 || t.notice
	if t.extending || t.wanted || enough && (t.unfenced || 2*t.now.left > t.size || t.then.left > 0) {
		return 0
	}
	t.extending = true
	return t.size
}

// extended begins another turn if the store has granted one. Numbers that the last answer
// came too late for were too few.
func (t *turn) extended(g driver.Grant, n int64, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.extending = false
	if err != nil || g.Wanted {
		t.wanted = true
		return
	}
	t.passes = 0
	t.ends = time.Now().Add(t.ttl / turnShare)
	if t.then = (block{g.Fence, n}); t.now.left == 0 {
		t.size = min(2*t.size, maxAhead)
	}
}

func (t *turn) want() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.wanted = true
}

// stays reports whether the term may be kept although nobody holds it.
func (t *turn) stays() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.notice && !t.wanted
}

// end returns when the turn is over, or zero if only the store can say.
func (t *turn) end() time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.notice && !t.wanted {
		return time.Time{}
	}
	return t.ends
}

// linger has the term given up when it has been idle for long enough. The timer is not set back each
// time, which would take longer than the rest.
func (t *turn) linger(a *acquisition) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.lingering == nil {
		t.lingering = &lingering{timer: time.AfterFunc(a.cfg.linger, a.idled)}
	}
	t.lingering.since = time.Now()
}

// stop ends the timer with the term, which it would keep in memory.
func (t *turn) stop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.lingering != nil {
		t.lingering.timer.Stop()
	}
}

// rested reports whether the term has been idle for d, and else sets the timer again.
func (t *turn) rested(d time.Duration) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if rest := d - time.Since(t.lingering.since); rest > 0 {
		t.lingering.timer.Reset(rest)
		return false
	}
	t.lingering = nil
	return true
}
