package local

import (
	"math"
	"time"

	"github.com/holdfast-go/holdfast/driver"
)

const (
	// maxPasses is how often a grant passes on before others get their turn, if any wait. It passes
	// more often in less than shortTurn, but no more readers than that go in together. Half-way the
	// store is asked whether any wait, and tells from then on when somebody comes. As long as nobody
	// does the grant goes on, so that a client which is alone hardly ever stops. A quick store
	// answers within shortTurn.
	maxPasses = 32
	shortTurn = time.Millisecond
	// maxUnasked is after how many passes the store is asked again whether anybody waits: the
	// message that tells of it may have been lost. It has as many more to answer. A goroutine that
	// takes and leaves a lock that lingers never waits, so answers may be read late.
	maxUnasked = 4096
	// maxFences is how many fences a grant is to bring. When they are used up the lock is
	// given up, and asked for anew.
	maxFences = 1024
	// turnShare is which part of its TTL a turn lasts at most, unless nobody waits.
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
	began     moment // of the first hold; not changed any more
	passes    int16
	shared    bool       // among readers
	noticed   bool       // the store tells when somebody waits, or will when it has granted the lock
	asking    bool       // the store is being asked for that
	wanted    bool       // somebody waits, or the store did not say
	next      int64      // fence; 0 if the store has none
	left      int64      // fences
	lingering *lingering // nil if nobody waits for the grant to have been idle
}

type lingering struct {
	since time.Time // when the grant became idle
	timer *time.Timer
}

// begin begins the turn of what was granted. Readers that hold together have one fence.
func (t *turn) begin(g *driver.Grant, shared bool) {
	t.began, t.shared, t.next, t.left = now(), shared, g.Fence, max(g.Fences, 1)
	if g.Fence == 0 || shared {
		t.left = math.MaxInt64
	}
}

// fence takes the next fence. There must be one.
func (t *turn) fence() (f int64) {
	f = t.next
	t.left--
	if f > 0 {
		t.next++
	}
	return f
}

// goesOn reports whether there may be another hold in this turn.
func (t *turn) goesOn(ttl time.Duration) bool {
	if t.alone() {
		return true
	}
	lasts := time.Duration(now() - t.began)
	return lasts < ttl/turnShare && (t.passes < maxPasses || !t.shared && lasts < shortTurn)
}

// alone reports whether nobody waits elsewhere, as far as is known, and the store would tell.
func (t *turn) alone() bool { return t.noticed && !t.wanted && t.passes < 2*maxUnasked }

// count counts another hold, and reports whether to ask the store if anybody waits.
func (t *turn) count() (ask bool) {
	t.passes = min(t.passes+1, 2*maxUnasked)
	due := int16(maxPasses / 2)
	if t.noticed {
		due = maxUnasked
	}
	if t.passes < due || t.asking || t.wanted {
		return false
	}
	t.asking = true
	return true
}

// heard notes whether somebody waits, as the store has said, which will tell when somebody comes.
func (t *turn) heard(wanted bool) {
	t.asking, t.noticed, t.wanted = false, true, t.wanted || wanted
	if !wanted {
		t.passes = 0
	}
}

// unheard notes that the store has not said whether anybody waits.
func (t *turn) unheard() { t.asking, t.wanted = false, true }

// until returns when the turn is over, or zero if only the store can say.
func (t *turn) until(ttl time.Duration) time.Time {
	if t.alone() {
		return time.Time{}
	}
	return start.Add(time.Duration(t.began) + ttl/turnShare)
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
