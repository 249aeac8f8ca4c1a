package simulation_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast"
	"github.com/holdfast-go/holdfast/driver"
)

// prompt is how soon a call returns after its context has ended, as promised.
const prompt = 10 * millisecond

// groupOf is how many locks are taken at a time: enough for calls with many of them.
const groupOf = 14

func groupName(i int) string { return fmt.Sprintf("mutex-of-group-%d", i) }

func lockName(p *plan, i int) string { return fmt.Sprintf("%s-%d", p.Locks[i], i) }

func kindOf(name string) driver.Kind {
	kind, _, _ := strings.Cut(name, "-")
	return driver.Kind(kind)
}

// lease is what all forms of a lock that return leases need to be told.
type lease struct {
	get    func(context.Context) (*holdfast.Lease, error)
	lock   string
	weight int64
	group  string
	queued bool
	try    bool
	fixed  bool
}

// player is an actor in one of its steps.
type player struct {
	*world
	*process
	step
	id   int
	name string // of the lock
	ctx  context.Context
}

// act takes one step after the other.
func (w *world) act(id int) {
	a := w.plan.Actors[id]
	for i, s := range a.Steps {
		time.Sleep(s.Pause)
		ctx, cancel := context.WithCancel(context.Background())
		if s.Patience > 0 {
			ctx, cancel = context.WithTimeout(context.Background(), s.Patience)
		}
		w.mu.Lock()
		w.doing[id] = fmt.Sprintf("actor %d, step %d: %s", id, i, s.Do)
		w.cancels[id] = cancel
		p := &player{w, w.slots[a.Proc], s, id, lockName(w.plan, s.Lock%len(w.plan.Locks)), ctx}
		w.mu.Unlock()
		p.perform()
		cancel()
	}
	w.mu.Lock()
	w.doing[id] = fmt.Sprintf("actor %d is done", id)
	w.mu.Unlock()
}

// count counts calls of the library.
func (p *player) count(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ops += n
}

func (p *player) by() string { return fmt.Sprintf("actor %d of process %d: %s", p.id, p.slot, p.Do) }

func (p *player) perform() {
	defer p.caught(p.process, string(p.Do))
	switch p.Do {
	case doInspect:
		p.inspect()
	case doClose, doCrash:
		p.restart(p.process, p.Do == doCrash)
	case doLock, doRLock, doTryLock:
		p.lock()
	case doGroup:
		var taking sync.WaitGroup
		for i := 0; i < groupOf; i += 1 + int(p.N%2) { // all, or every second
			taking.Go(func() {
				defer p.caught(p.process, string(p.Do))
				mu := p.locks.Mutex(groupName(i))
				p.use(lease{get: mu.Lease, lock: groupName(i), weight: writer, queued: p.Strict})
			})
		}
		taking.Wait()
	case doDo:
		p.do()
	case doForce:
		p.force()
	case doResize:
		p.resize()
	case doNest:
		p.nest()
	case doMove:
		p.move()
	case doDowngrade:
		p.downgrade()
	default:
		p.use(p.form())
	}
}

// form is the form of the lock that the step is about.
func (p *player) form(more ...holdfast.LockOption) lease {
	f := lease{lock: p.name, weight: writer, try: p.Do == doTry || p.Do == doTryR, fixed: p.Do == doFixed}
	f.queued = p.Strict && !f.try && p.Do != doOwner && p.Do != doNest
	if kindOf(p.name) == driver.Semaphore {
		more = nil // no context, and no owner, counts for permits
	}
	if f.fixed {
		more = append(more, holdfast.WithoutRenewal())
	}
	if p.Do == doOwner && kindOf(p.name) != driver.Semaphore {
		more = append(more, holdfast.WithOwner("o"))
		f.group = "owner"
	}
	shared := p.Do == doRLease || p.Do == doTryR
	switch kindOf(p.name) {
	case driver.Mutex:
		mu := p.locks.Mutex(p.name, more...)
		f.get = mu.Lease
		if f.try {
			f.get = mu.TryLease
		}
	case driver.RWMutex:
		rw := p.locks.RWMutex(p.name, more...)
		switch {
		case shared && f.try:
			f.get, f.weight = rw.TryRLease, 1
		case shared:
			f.get, f.weight = rw.RLease, 1
		case f.try:
			f.get = rw.TryLease
		default:
			f.get = rw.Lease
		}
	case driver.Semaphore:
		sem := p.locks.Semaphore(p.name, limit, more...)
		f.weight = p.N
		f.get = func(ctx context.Context) (*holdfast.Lease, error) { return sem.Lease(ctx, p.N) }
		if f.try {
			f.get = func(ctx context.Context) (*holdfast.Lease, error) { return sem.TryLease(ctx, p.N) }
		}
	}
	return f
}

// take gets a lease, and looks at how that went.
func (p *player) take(ctx context.Context, f lease) (*holdfast.Lease, *hold) {
	p.count(1)
	var ended time.Time
	stop := context.AfterFunc(ctx, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		ended = time.Now()
	})
	invoked := p.referee.now()
	l, err := f.get(ctx)
	if !stop() {
		p.mu.Lock()
		if late := time.Since(ended); !ended.IsZero() && late > prompt {
			defer p.fail("%s: returned %v after its context ended", p.by(), late)
		}
		p.mu.Unlock()
	}
	if err != nil {
		p.refused(ctx, f, err)
		return nil, nil
	}
	h := p.referee.begin(hold{
		Lock: f.lock, Weight: f.weight, Group: f.group, Fence: l.Fence(), Queued: f.queued, By: p.by(), process: p.process, Invoked: invoked,
	})
	context.AfterFunc(l.Context(), func() { p.referee.end(h) })
	if p.dead.Load() {
		p.referee.end(h)
	}
	return l, h
}

// refused looks at why a lease was not to be had.
func (p *player) refused(ctx context.Context, f lease, err error) {
	var locked *holdfast.LockError
	resized := p.referee.everResized(f.lock)
	switch {
	case !errors.As(err, &locked):
		p.fail("%s: not a LockError: %v", p.by(), err)
	case errors.Is(err, holdfast.ErrClosed) && p.closing.Load():
	case ctx.Err() != nil && errors.Is(err, context.Cause(ctx)):
	case f.try && errors.Is(err, holdfast.ErrLocked):
	case f.try && p.faulty && errors.Is(err, driver.ErrTransient):
	case f.try && p.faulty && errors.Is(err, holdfast.ErrLost) && p.referee.everForced(f.lock): // before the answer was repeated
	case resized && errors.Is(err, holdfast.ErrLimitExceeded):
	default:
		p.fail("%s: refused: %v", p.by(), err)
	}
}

// give releases a lease. One that is still good must not be reported as lost.
func (p *player) give(l *holdfast.Lease, h *hold) {
	p.count(1)
	before, left := l.Err(), time.Until(l.Deadline())
	p.referee.end(h)
	released := time.Now()
	err := l.Release(context.Background())
	taken := p.referee.everForced(h.Lock)
	switch {
	case p.closing.Load():
	case p.faulty && errors.Is(err, driver.ErrTransient) && time.Since(released) >= max(left, time.Second): // by then it has ended by itself
	case before == nil && left > 0 && err != nil && !(taken && errors.Is(err, holdfast.ErrLost)):
		p.fail("%s: release of a lease with %v left: %v", p.by(), left, err)
	case before != nil && err == nil:
		p.fail("%s: release hides that the lease was over: %v", p.by(), before)
	case err == nil && p.Strict && h.Group == "" && p.store.has(h.Lock, l.Fence()):
		p.fail("%s: released, and the store does not know", p.by())
	case errors.Is(before, holdfast.ErrLost) && !errors.Is(before, holdfast.ErrExpired) && !taken:
		p.fail("%s: taken away by nobody: %v", p.by(), before)
	case errors.Is(before, holdfast.ErrLost) && !p.faulty && !taken && p.Do != doFixed:
		p.fail("%s: lost although nothing failed: %v", p.by(), before)
	}
}

// stay works under a lease until the time is over, or the lease.
func (p *player) stay(l *holdfast.Lease) {
	select {
	case <-time.After(p.Hold):
	case <-l.Done():
	}
}

// use takes, holds and releases.
func (p *player) use(f lease) {
	l, h := p.take(p.ctx, f)
	if l == nil {
		return
	}
	if f.fixed {
		for end := time.Now().Add(p.Hold); time.Now().Before(end) && l.Err() == nil; time.Sleep(min(p.TTL/2, p.Hold)) {
			p.count(1)
			ctx, cancel := context.WithTimeout(context.Background(), p.TTL)
			if err := l.Renew(ctx); err != nil && l.Err() == nil && ctx.Err() == nil && !p.closing.Load() {
				p.fail("%s: renewal of a good lease: %v", p.by(), err)
			}
			cancel()
		}
	} else {
		p.stay(l)
	}
	p.give(l, h)
}

// do uses the form that calls a function.
func (p *player) do() {
	f := p.form()
	invoked, called := p.referee.now(), false
	work := func(ctx context.Context) error {
		called = true
		h := p.referee.begin(hold{Lock: f.lock, Weight: f.weight, By: p.by(), process: p.process, Invoked: invoked})
		context.AfterFunc(ctx, func() { p.referee.end(h) })
		if p.dead.Load() {
			p.referee.end(h)
		}
		select {
		case <-time.After(p.Hold):
		case <-ctx.Done():
		}
		p.referee.end(h)
		return nil
	}
	p.count(1)
	var err error
	switch kindOf(p.name) {
	case driver.Mutex:
		err = p.locks.Mutex(p.name).Do(p.ctx, work)
	case driver.RWMutex:
		err = p.locks.RWMutex(p.name).Do(p.ctx, work)
	case driver.Semaphore:
		err = p.locks.Semaphore(p.name, limit).Do(p.ctx, p.N, work)
	}
	switch {
	case err != nil && !called:
		p.refused(p.ctx, f, err)
	case err != nil && !p.faulty && !p.closing.Load() && p.ctx.Err() == nil && !p.referee.everForced(p.name):
		p.fail("%s: %v", p.by(), err)
	}
}

// lock uses the forms of package sync, whose holds have no context.
func (p *player) lock() {
	weight, shared, wait := int64(writer), p.Do == doRLock, p.Do != doTryLock
	var in func() bool
	var out func(n int64)
	var parts []int64 // to give back before the rest
	locked := func(lock func()) func() bool { return func() bool { lock(); return true } }
	switch kindOf(p.name) {
	case driver.Mutex:
		mu := p.locks.Mutex(p.name)
		in, out = mu.TryLock, func(int64) { mu.Unlock() }
		if wait {
			in = locked(mu.Lock)
		}
	case driver.RWMutex:
		rw := p.locks.RWMutex(p.name)
		in, out = rw.TryLock, func(int64) { rw.Unlock() }
		if wait {
			in = locked(rw.Lock)
		}
		if shared {
			weight = 1
			in, out = locked(rw.RLock), func(int64) { rw.RUnlock() }
		}
	case driver.Semaphore:
		sem := p.locks.Semaphore(p.name, limit)
		weight = p.N
		if weight > 1 {
			parts = []int64{1}
		}
		in, out = func() bool { return sem.TryAcquire(p.N) }, sem.Release
		if wait {
			in = func() bool {
				err := sem.Acquire(p.ctx, p.N)
				if err != nil {
					p.refused(p.ctx, lease{lock: p.name}, err)
				}
				return err == nil
			}
		}
	}
	p.count(1)
	invoked := p.referee.now()
	if !in() {
		return
	}
	believe := func(weight int64) *hold {
		return p.referee.begin(hold{Lock: p.name, Weight: weight, Sync: true, By: p.by(), process: p.process, Invoked: invoked})
	}
	h := believe(weight)
	for weight > 0 {
		if p.closing.Load() {
			p.referee.end(h)
		}
		n := weight
		if len(parts) > 0 {
			n, parts = parts[0], nil
		}
		time.Sleep(p.Hold)
		p.count(1)
		weight -= n
		rest := h
		if lost := p.referee.end(h); weight > 0 {
			rest = p.referee.goesOn(h, believe(weight))
			if lost {
				p.referee.end(rest)
			}
		}
		h = rest
		out(n)
	}
}

// nest takes a lease within a lease, and releases the outer one first or last.
func (p *player) nest() {
	f := p.form(holdfast.WithReentrancy())
	if kindOf(p.name) == driver.Semaphore {
		p.use(f)
		return
	}
	f.group = fmt.Sprintf("nest of %d at %v", p.id, p.referee.now())
	outer, h := p.take(p.ctx, f)
	if outer == nil {
		return
	}
	p.stay(outer)
	ctx, cancel := context.WithTimeout(outer.Context(), 20*time.Second)
	defer cancel()
	p.count(1)
	invoked := p.referee.now()
	inner, err := f.get(ctx)
	if err != nil {
		if outer.Err() == nil && !p.closing.Load() {
			p.fail("%s: nested: %v", p.by(), err)
		}
		p.give(outer, h)
		return
	}
	if inner.Fence() != outer.Fence() && outer.Err() == nil {
		p.fail("%s: nested with another fence", p.by())
	}
	in := p.referee.begin(hold{
		Lock: f.lock, Weight: f.weight, Group: f.group, Fence: inner.Fence(), By: p.by(), process: p.process, Invoked: invoked,
	})
	context.AfterFunc(inner.Context(), func() { p.referee.end(in) })
	p.stay(inner)
	if p.N == 1 {
		p.give(inner, in)
		p.give(outer, h)
	} else {
		p.give(outer, h)
		p.stay(inner)
		p.give(inner, in)
	}
}

// move has a lease go on in another process.
func (p *player) move() {
	f := p.form()
	l, h := p.take(p.ctx, f)
	if l == nil {
		return
	}
	p.stay(l)
	p.count(2)
	detaching := p.referee.now()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	token, err := l.Detach(ctx)
	cancel()
	if err != nil {
		if !p.faulty && !p.closing.Load() && !p.referee.everForced(p.name) {
			p.fail("%s: detach: %v", p.by(), err)
		}
		p.give(l, h)
		return
	}
	p.referee.end(h)
	moved := p.referee.ended(h)
	to := p.in((p.slot + 1) % len(p.slots))
	pause := min(p.Hold, p.TTL/4)
	time.Sleep(pause)
	f.queued = false
	f.get = func(ctx context.Context) (*holdfast.Lease, error) { return to.locks.Attach(ctx, token) }
	here := p.process
	p.process = to
	defer func() { p.process = here }()
	ctx, cancel = context.WithTimeout(context.Background(), p.TTL/2)
	defer cancel()
	invoked := p.referee.now()
	next, err := f.get(ctx)
	switch {
	case err == nil:
	case !p.faulty && !to.closing.Load() && !p.referee.everForced(p.name):
		p.fail("%s: attach: %v", p.by(), err)
		return
	default:
		return
	}
	bridge := p.referee.begin(hold{
		Lock: f.lock, Weight: f.weight, By: p.by() + " on the way", process: to, Since: max(h.Since, 1), Invoked: detaching,
	})
	p.referee.mu.Lock()
	bridge.Began, bridge.Ended = moved, bridge.Began
	p.referee.mu.Unlock()
	h = p.referee.begin(hold{
		Lock: f.lock, Weight: f.weight, Fence: next.Fence(), By: p.by(), process: to, Since: max(h.Since, 1), Invoked: invoked,
	})
	context.AfterFunc(next.Context(), func() { p.referee.end(h) })
	if to.dead.Load() {
		p.referee.end(h)
	}
	p.stay(next)
	p.give(next, h)
}

// downgrade goes on as a reader.
func (p *player) downgrade() {
	f := p.form()
	l, h := p.take(p.ctx, f)
	if l == nil {
		return
	}
	p.stay(l)
	if kindOf(p.name) != driver.RWMutex {
		p.give(l, h)
		return
	}
	p.referee.end(h)
	reader := p.referee.begin(hold{Lock: f.lock, Weight: 1, By: p.by() + " as a reader", process: p.process, Invoked: h.Invoked})
	if l.Err() != nil || p.dead.Load() {
		p.referee.end(reader)
	}
	context.AfterFunc(l.Context(), func() { p.referee.end(reader) })
	p.count(1)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	err := l.Downgrade(ctx)
	cancel()
	if err != nil && ctx.Err() == nil && l.Err() == nil && !p.closing.Load() {
		p.fail("%s: downgrade of a good lease: %v", p.by(), err)
	}
	p.stay(l)
	p.give(l, reader)
}

func (p *player) force() {
	if p.N > 1 { // it spoils what the referee can say of the lock, so not often
		p.inspect()
		return
	}
	p.count(1)
	end := p.referee.change(&p.referee.forced, span{lock: p.name})
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	var err error
	switch kindOf(p.name) {
	case driver.Mutex:
		err = p.locks.Mutex(p.name).ForceUnlock(ctx)
	case driver.RWMutex:
		err = p.locks.RWMutex(p.name).ForceUnlock(ctx)
	case driver.Semaphore:
		err = p.locks.Semaphore(p.name, limit).ForceUnlock(ctx)
	}
	end(err == nil)
	if err != nil && !errors.Is(err, holdfast.ErrNotHeld) && !p.faulty && !p.closing.Load() {
		p.fail("%s: %v", p.by(), err)
	}
}

func (p *player) resize() {
	if kindOf(p.name) != driver.Semaphore {
		p.use(p.form())
		return
	}
	p.count(1)
	end := p.referee.change(&p.referee.resized, span{lock: p.name, limit: p.N + 1})
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	err := p.locks.Semaphore(p.name, limit).Resize(ctx, p.N+1)
	end(err == nil)
	if err != nil && !p.faulty && !p.closing.Load() {
		p.fail("%s: %v", p.by(), err)
	}
}

func (p *player) inspect() {
	p.count(1)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	var info holdfast.Info
	var err error
	switch kindOf(p.name) {
	case driver.Mutex:
		info, err = p.locks.Mutex(p.name).Inspect(ctx)
	case driver.RWMutex:
		info, err = p.locks.RWMutex(p.name).Inspect(ctx)
	case driver.Semaphore:
		info, err = p.locks.Semaphore(p.name, limit).Inspect(ctx)
	}
	if err != nil && !p.faulty && !p.closing.Load() {
		p.fail("%s: %v", p.by(), err)
	}
	if kindOf(p.name) == driver.Mutex && len(info.Holders) > 1 {
		for _, h := range info.Holders {
			if h.Owner == "" {
				p.fail("%s: the store has two holders: %+v", p.by(), info)
			}
		}
	}
}
