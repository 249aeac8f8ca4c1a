package deadlock

import (
	"context"
	"crypto/rand"
	"errors"
	mathrand "math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/leasectx"
	"github.com/holdfast-go/holdfast/internal/local"
	"github.com/holdfast-go/holdfast/internal/telemetry"
)

// watch is over one wait.
//
//	         the pause is over           a circle of which this is the youngest
//	waiting -------------------> looking ---------------------------------------> told
//	   |                            |
//	   +-------------> over <-------+
//
// Most waits are over before the pause. Then the watch serves another one, with its timer and its
// channel, so that it costs no memory.
type watch struct {
	hook      *hook
	timer     *time.Timer // nil before the first wait
	interrupt chan error
	told      atomic.Pointer[Error]

	ctx    context.Context
	held   *leasectx.Leases
	out    chan<- error // of op
	own    bool         // out is interrupt
	want   Lock
	shared bool
	began  time.Time

	// mu guards the end of a watch that looks. It comes before Lock.mu of package local.
	mu     sync.Mutex
	over   bool
	cancel context.CancelFunc
	noted  []*noted
}

// noted is something held beside which the wait is noted.
type noted struct {
	hold    *local.Hold
	told    int  // how often
	arrived bool // the last time
}

// begin watches a wait that begins.
func (w *watch) begin(ctx context.Context, held *leasectx.Leases, op *holdfast.AcquireOp) {
	if w.own = op.Interrupt == nil; w.own {
		op.Interrupt = w.interrupt
	}
	w.ctx, w.held, w.out = ctx, held, op.Interrupt
	w.want, w.shared, w.began = Lock{op.Kind, op.Name}, op.Shared, time.Now()
	if w.timer == nil {
		w.timer = time.AfterFunc(w.hook.pause, w.run)
	} else {
		w.timer.Reset(w.hook.pause)
	}
}

// end ends the watch, even if a hook within has panicked. A hook around it may use op again, when
// this watch serves another wait.
func (w *watch) end(op *holdfast.AcquireOp) {
	if w.own {
		op.Interrupt = nil
	}
	if w.timer.Stop() {
		select {
		case <-w.interrupt: // of a hook within, for a wait that was over in that moment
		default:
		}
		w.ctx, w.held, w.out = nil, nil, nil
		w.hook.watches.Put(w)
		return
	}
	w.mu.Lock()
	w.over = true
	cancel, noted := w.cancel, w.noted
	w.mu.Unlock()
	if cancel != nil {
		cancel()
	}
	for _, n := range noted {
		n.hold.Unnote(w)
	}
}

// patience is how long a command may take. One that fails is tried again at the next look.
const patience = 10 * time.Second

// run looks until the wait is over.
func (w *watch) run() {
	ctx, begun := w.open()
	if !begun {
		return
	}
	began := time.UnixMicro(w.began.UnixMicro()) // as others read it
	find := walk{
		me: note{id: rand.Text()[:13], since: began, want: w.want, shared: w.shared}, want: w.want,
		inspect: func(l Lock) driver.Info { return w.hook.read(ctx, l) }, mine: w.holds,
	}
	for w.tell(ctx, find.me) {
		if circle := find.look(); circle != nil {
			w.interruptWith(errorOf(circle))
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(w.next()):
		}
	}
}

// interruptWith ends the wait, unless it is over.
func (w *watch) interruptWith(told *Error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over {
		return
	}
	w.told.Store(told)
	select {
	case w.out <- told:
	default: // another hook ends it
	}
}

// next is how long to wait before the next look. Jitter keeps those that began together apart.
func (w *watch) next() time.Duration {
	most := max(w.hook.pause/4, time.Since(w.began)/8)
	return most - mathrand.N(most/10+1)
}

// open begins to look, and reports false if the wait is over.
func (w *watch) open() (context.Context, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over {
		return nil, false
	}
	var ctx context.Context
	ctx, w.cancel = context.WithCancel(telemetry.Unasked(w.ctx))
	for l := w.held; l != nil; l = l.Outer {
		if h, ok := l.Lease.(*local.Hold); ok && h.Client() == any(w.hook.locks) && h.Kind() != driver.Semaphore {
			w.noted = append(w.noted, &noted{hold: h})
		}
	}
	return ctx, true
}

// tell notes the wait beside all that is held, and reports whether there is any use in going on.
func (w *watch) tell(ctx context.Context, me note) bool {
	some := false
	for _, n := range w.noted {
		if n.arrived || n.told == 0 {
			n.told, n.arrived = n.told+1, false
		}
		me.told = n.told
		if !w.note(n, me) {
			continue
		}
		some = true
		renewing, cancel := context.WithTimeout(ctx, patience)
		n.arrived = (*holdfast.Lease)(n.hold).Renew(renewing) == nil
		cancel()
		if n.arrived && !w.hook.sees(ctx, n.hold, n.told) {
			return false
		}
	}
	return some && ctx.Err() == nil
}

// note notes the wait beside a hold, unless the wait or the hold is over.
func (w *watch) note(n *noted, me note) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.over && n.hold.Note(w, me.subject(), me.text())
}

// holds reports whether the waiter has what a holder of a lock has.
func (w *watch) holds(at Lock, h driver.Holder) bool {
	for _, n := range w.noted {
		if n.hold.Kind() == at.Kind && n.hold.Name() == at.Name && h.Fence <= n.hold.Fence() && n.hold.Fence() <= h.LastFence && n.hold.Err() == nil {
			return true
		}
	}
	return false
}

// look inspects a lock.
func (h *hook) look(ctx context.Context, l Lock) (holdfast.Info, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if l.Kind == driver.RWMutex {
		return h.locks.RWMutex(l.Name).Inspect(ctx)
	}
	return h.locks.Mutex(l.Name).Inspect(ctx)
}

// read is look for a walk. If a right is missing, it says so once.
func (h *hook) read(ctx context.Context, l Lock) driver.Info {
	info, err := h.look(ctx, l)
	if err == nil {
		return info
	}
	if errors.Is(err, driver.ErrDenied) && !h.denied.Swap(true) {
		h.logger.Warn("holdfast: a lock cannot be read, so deadlocks are not found", "kind", string(l.Kind), "lock", l.Name, "error", err)
	}
	return driver.Info{}
}

// sees reports whether the store shows what a holder has said so often, as far as one can tell. What
// was said once may be missing: a driver may renew a lease though it could not keep the tag.
func (h *hook) sees(ctx context.Context, held *local.Hold, told int) bool {
	if h.seeing.Load() {
		return true
	}
	info, err := h.look(ctx, Lock{held.Kind(), held.Name()})
	if errors.Is(err, errors.ErrUnsupported) {
		h.goBlind()
		return false
	}
	for _, other := range info.Holders {
		switch {
		case other.Fence > held.Fence() || held.Fence() > other.LastFence: // It is another holder.
		case other.Tag != "":
			h.seeing.Store(true)
		case told > 1:
			h.goBlind()
			return false
		}
	}
	return true
}

// errorOf tells of a circle that ends with the waiter itself.
func errorOf(circle []step) *Error {
	e := &Error{}
	for i := range circle {
		s := circle[(i+len(circle)-1)%len(circle)]
		e.Circle = append(e.Circle, Member{
			Holder: s.holder.Holder, Holds: s.on, Fence: s.holder.Fence, Since: s.holder.Since,
			WaitsFor: s.note.want, WaitsSince: s.note.since,
		})
	}
	return e
}
