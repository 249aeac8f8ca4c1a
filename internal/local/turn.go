package local

import (
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

const (
	// maxPasses is how often a grant passes on before others get their turn, if any wait.
	// Half-way the store is asked whether any do. If none does another turn begins, so
	// that a client which is alone never stops. While the answer is under way, a grant with
	// very short holds goes on passing, so that it does not stop either. It does so for
	// shortTurn, in which a quick store answers, and at most maxUnanswered times. So a caller
	// elsewhere waits for this many holds, or for 1 ms if those take less.
	maxPasses     = 32
	maxUnanswered = 1024
	shortTurn     = time.Millisecond
	// leastPatience is how long the store has at least to answer that. It may be far away.
	leastPatience = 100 * time.Millisecond
	// turnShare is which part of its TTL a turn lasts at most.
	turnShare = 4
)

// moment is a time after the start by the monotonic clock, in a third of the room of a
// time.Time: thousands of locks may be held for long.
type moment time.Duration

var start = time.Now()

func now() moment { return moment(time.Since(start)) }

// turn is the time, the passes and the fences that this client has left before others get
// the lock. It is guarded by Lock.mu.
type turn struct {
	ends      moment
	passes    int16
	notice    bool // the store tells when somebody waits
	extending bool // the store is being asked for another turn
	wanted    bool // somebody waits, or the store did not say: no further turn
	unfenced  bool // the store has no fences
	shared    bool // by readers, which need no number each
	now, then numbers
	lingering *lingering // nil if nobody waits for the grant to have been idle
}

type lingering struct {
	since time.Time // when the grant became idle
	timer *time.Timer
}

// numbers are integers that the store has given for use as fences.
type numbers struct{ next, left int64 }

func (t *turn) begin(ttl time.Duration, g driver.Grant, shared bool) {
	t.unfenced, t.shared = g.Fence == 0, shared
	t.now = numbers{g.Fence, max(g.Fences, 1)}
	t.ends = now() + moment(ttl/turnShare)
}

// fence takes the next number. There must be one.
func (t *turn) fence() int64 {
	if t.unfenced {
		return 0
	}
	if t.now.left == 0 {
		t.now, t.then = t.then, numbers{}
	}
	f := t.now.next
	t.now.next++
	t.now.left--
	return f
}

// numbered reports whether there is a number for another hold.
func (t *turn) numbered() bool {
	return t.unfenced || t.shared || t.now.left+t.then.left > 0
}

// goesOn reports whether there may be another hold in this turn, once there is a number.
func (t *turn) goesOn(ttl time.Duration) bool {
	if !t.numbered() && t.wanted && !t.extending {
		return false // and there will be none
	}
	if t.notice && !t.wanted { // it lasts until the store says that somebody waits
		return true
	}
	left := time.Duration(t.ends - now())
	if t.passes < maxPasses {
		return left > 0
	}
	return t.extending && t.passes < maxUnanswered && left > ttl/turnShare-shortTurn
}

// count counts another hold, and reports whether to ask for another turn.
func (t *turn) count() bool {
	t.passes = min(t.passes+1, maxUnanswered) // anonymous holds need no numbers, and can be many
	return t.extend(t.passes >= maxPasses/2 && !t.notice || t.few())
}

// few reports whether the numbers are running out.
func (t *turn) few() bool { return !t.unfenced && !t.shared && t.now.left+t.then.left <= maxPasses/2 }

// extend reports whether to ask for another turn, if that is due.
func (t *turn) extend(due bool) bool {
	if !due || t.extending || t.wanted {
		return false
	}
	t.extending = true
	return true
}

// patience is how long to wait for the answer to that: until the end of the turn, or for as
// long as a turn if it has no end yet.
func (t *turn) patience(ttl time.Duration) time.Duration {
	left := time.Duration(t.ends - now())
	if left <= 0 {
		left = ttl / turnShare
	}
	return max(left, leastPatience)
}

// extended takes the numbers that the store has given. Unless somebody waits, another turn
// begins.
func (t *turn) extended(ttl time.Duration, g driver.Grant, err error) {
	t.extending = false
	if err == nil && g.Fence > 0 {
		t.then = numbers{g.Fence, max(g.Fences, 1)}
	}
	if err != nil || g.Wanted {
		t.wanted = true
		return
	}
	t.passes = 0
	t.ends = now() + moment(ttl/turnShare)
}

// mayIdle reports whether the grant may be kept although nobody holds it.
func (t *turn) mayIdle() bool { return t.notice && !t.wanted }

// until returns when the turn is over, or zero if only the store can say.
func (t *turn) until() time.Time {
	if t.notice && !t.wanted {
		return time.Time{}
	}
	return start.Add(time.Duration(t.ends))
}

// linger has the grant released when it has been idle for long enough. The timer is not
// reset each time, which would take longer than the rest.
func (t *turn) linger(g *Grant) {
	if t.lingering == nil {
		t.lingering = &lingering{timer: time.AfterFunc(g.opts.Linger, g.lingered)}
	}
	t.lingering.since = time.Now()
}

// stop stops the timer, which would keep the ended grant in memory.
func (t *turn) stop() {
	if t.lingering != nil {
		t.lingering.timer.Stop()
	}
}

// lingered reports whether the grant was idle for the last time d ago. If not, it sets the timer again.
func (t *turn) lingered(d time.Duration) bool {
	if rest := d - time.Since(t.lingering.since); rest > 0 {
		t.lingering.timer.Reset(rest)
		return false
	}
	t.lingering = nil
	return true
}
