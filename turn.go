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
	answered  chan struct{} // closed when the store has said whether there is another turn; nil if nobody waits for that
	wanted    bool          // somebody waits, or the store did not say: no further turn
	unfenced  bool          // the store has no fences
	together  bool          // readers, who need no number each
	now, then block
	lingering *lingering // nil if nobody waits for the term to have been idle
}

type lingering struct {
	since time.Time
	timer *time.Timer
}

// block is numbers that the store has given.
type block struct{ next, left int64 }

func (t *turn) begin(a *acquisition, g driver.Grant) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ttl, t.notice, t.unfenced, t.together = a.cfg.ttl, a.notice, g.Fence == 0, a.req.Shared
	t.now = block{g.Fence, max(g.Fences, 1)}
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
	case t.left() == 0 && t.wanted && !t.extending: // and there will be no more
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

// pass notes another lease, and reports whether to ask for another turn.
func (t *turn) pass() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.passes++
	return t.extend(t.passes >= maxPasses/2 && !t.notice || t.left() <= maxPasses/2)
}

// awaited notes that somebody here waits for the term, and reports whether to ask for another
// turn: a lock that the store had forgotten comes with a single number.
func (t *turn) awaited() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.extend(t.left() == 0)
}

// numbered reports whether there is a number for another lease, and waits for the store if
// that was asked for more: it takes less time than to give the term up and ask again.
func (t *turn) numbered(patience, closing <-chan struct{}) bool {
	for {
		t.mu.Lock()
		left, extending := t.left() > 0, t.extending
		if !left && extending && t.answered == nil {
			t.answered = make(chan struct{})
		}
		answered := t.answered
		t.mu.Unlock()
		if left || !extending {
			return left
		}
		select {
		case <-answered:
		case <-patience:
			return false
		case <-closing:
			return false
		}
	}
}

// left is how many numbers there are. The caller holds mu.
func (t *turn) left() int64 {
	if t.unfenced || t.together {
		return maxAhead
	}
	return t.now.left + t.then.left
}

// extend notes that another turn is asked for if it is of use and can be had, and reports
// whether. The caller holds mu.
func (t *turn) extend(use bool) bool {
	use = use && !t.extending && !t.wanted
	t.extending = t.extending || use
	return use
}

// extended takes the numbers that the store has given, and begins another turn unless
// somebody waits.
func (t *turn) extended(g driver.Grant, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.extending = false
	if t.answered != nil {
		close(t.answered)
		t.answered = nil
	}
	if err == nil && g.Fence > 0 {
		t.then = block{g.Fence, max(g.Fences, 1)}
	}
	if err != nil || g.Wanted {
		t.wanted = true
		return
	}
	t.passes = 0
	t.ends = time.Now().Add(t.ttl / turnShare)
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
