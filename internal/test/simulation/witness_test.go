package simulation_test

import (
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
	"github.com/holdfast-go/holdfast/internal/test/referee"
)

// limit is that of all semaphores, until one is resized.
const limit = 3

// writer is the weight of all of a lock.
const writer = 1 << 20

// strictMargin is how much earlier a waiter must have come to be surely ahead in the queue.
const strictMargin = 100 * millisecond

// hold is the time in which somebody believed to hold a lock: from the return of the call to
// its release, or to the end of the lease's context.
type hold struct {
	Lock   string
	Weight int64
	Group  string // holds of one group are one
	Fence  int64  // 0 if it cannot be seen
	Queued bool   // in the order of all; see strictMargin
	Sync   bool   // no context tells of its end
	By     string

	process *process
	rest    *hold         // what goes on when a part was given back; nil for nothing
	Since   time.Duration // when the lock was asked for, of which this is a part or goes on
	Invoked time.Duration
	Began   time.Duration
	Ended   time.Duration
}

func (h *hold) String() string {
	return fmt.Sprintf("%s on %s, weight %d, group %q, fence %d, asked %v, held %v to %v",
		h.By, h.Lock, h.Weight, h.Group, h.Fence, h.Invoked, h.Began, h.Ended)
}

const open = time.Duration(1<<63 - 1)

// span is a call that changes a lock for all: ForceUnlock or Resize.
type span struct {
	lock     string
	from, to time.Duration
	limit    int64
	done     bool // surely
}

// witness writes down who believes what and when, and has it judged afterwards.
type witness struct {
	began time.Time

	mu      sync.Mutex
	holds   []*hold
	forced  []*span
	resized []*span
}

func (r *witness) now() time.Duration { return time.Since(r.began) }

// begin notes that a call has returned with a hold.
func (r *witness) begin(h hold) *hold {
	r.mu.Lock()
	defer r.mu.Unlock()
	h.Began, h.Ended = r.now(), open
	if h.Since == 0 {
		h.Since = h.Invoked
	}
	r.holds = append(r.holds, &h)
	return &h
}

// end notes that nobody believes in a hold any more, and reports whether that was so before.
func (r *witness) end(h *hold) (before bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before = h.Ended < r.now()
	h.Ended = min(h.Ended, r.now())
	return before
}

// goesOn notes that rest is what is left of h, which may have been lost without anybody having said so.
func (r *witness) goesOn(h, rest *hold) *hold {
	r.mu.Lock()
	defer r.mu.Unlock()
	h.rest = rest
	return rest
}

// ended returns when a hold has ended.
func (r *witness) ended(h *hold) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return h.Ended
}

// lost notes what the log says of a lock: it is all that is known of the end of sync holds. The line
// comes a moment later, for several losses may share one; at level Debug each has its own.
func (r *witness) lost(p *process, lock string, when time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := when.Sub(r.began)
	for _, h := range r.holds {
		if !h.Sync || h.process != p || h.Lock != lock || h.Began > at {
			continue
		}
		for ; h != nil; h = h.rest {
			h.Ended = min(h.Ended, max(at, h.Began))
		}
	}
}

// gone notes that a process believes nothing any more, or nothing that no context ends.
func (r *witness) gone(p *process, syncOnly bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, h := range r.holds {
		if h.process == p && (h.Sync || !syncOnly) {
			h.Ended = min(h.Ended, r.now())
		}
	}
}

// change notes that somebody begins to change a lock for all, and returns what to call when
// that has ended.
func (r *witness) change(list *[]*span, s span) (end func(done bool)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s.from, s.to = r.now(), open
	*list = append(*list, &s)
	return func(done bool) {
		r.mu.Lock()
		defer r.mu.Unlock()
		s.to, s.done = r.now(), done
	}
}

// afterForce is how long it may take until all processes have heard of a ForceUnlock: one
// that was late on its way, or a holder that cannot renew.
const afterForce = 30 * time.Second

// tainted reports whether a ForceUnlock may have taken a hold, or let another in beside it.
func (r *witness) tainted(h *hold) bool {
	return slices.ContainsFunc(r.forced, func(f *span) bool {
		return f.lock == h.Lock && h.Began-afterForce <= f.to && h.Ended >= f.from
	})
}

// everForced and everResized report whether that was done, or begun, to a lock.
func (r *witness) everForced(lock string) bool { return r.ever(&r.forced, lock) }

func (r *witness) everResized(lock string) bool { return r.ever(&r.resized, lock) }

func (r *witness) ever(list *[]*span, lock string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(*list, func(s *span) bool { return s.lock == lock })
}

// judge looks at all that was written down. Nothing fails from the time calm on.
func (r *witness) judge(faulty bool, calm time.Duration) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	locks := map[string][]*hold{}
	for _, h := range r.holds {
		if !r.tainted(h) {
			locks[h.Lock] = append(locks[h.Lock], h)
		}
	}
	for lock, holds := range locks {
		checks := []func([]*hold) error{r.rules}
		if !faulty {
			checks = append(checks, r.order)
		}
		for _, check := range checks {
			if err := check(holds); err != nil {
				return fmt.Errorf("%s: %w", lock, err)
			}
		}
		if err := r.prompt(holds, calm); err != nil && kindOf(lock) == driver.Mutex {
			return fmt.Errorf("%s: %w", lock, err)
		}
	}
	return nil
}

// rules: all who believe at a time have no more than there is, and fences increase from one holder to the
// next. No two leases share one.
func (r *witness) rules(holds []*hold) error {
	var all []*referee.Hold
	for _, h := range holds {
		seen := &referee.Hold{Weight: h.Weight, Group: h.Group, Fence: h.Fence, Asked: h.Invoked, From: h.Began, To: h.Ended, By: h}
		if h.Fence == 0 {
			seen.Fence = referee.Unseen
		}
		all = append(all, seen)
	}
	if breaches := (&referee.Referee{LimitOf: r.limit}).Judge(all); len(breaches) > 0 {
		return breaches[0]
	}
	return nil
}

// limit is the largest that may have been in force since one of those inside asked.
func (r *witness) limit(inside []*referee.Hold) int64 {
	h := inside[len(inside)-1].By.(*hold)
	from, to := h.Began, h.Began
	for _, other := range inside {
		from = min(from, other.By.(*hold).Since)
	}
	if kindOf(h.Lock) != driver.Semaphore {
		return writer
	}
	var most int64
	last := time.Duration(-1) // when the last limit was surely set
	for _, s := range r.resized {
		if s.lock == h.Lock && s.done && s.to <= from {
			last = max(last, s.to)
		}
	}
	for _, s := range r.resized {
		if s.lock != h.Lock || s.from > to {
			continue
		}
		replaced := s.done && slices.ContainsFunc(r.resized, func(next *span) bool {
			return next.lock == h.Lock && next.done && next.from >= s.to && next.to <= from
		})
		if !replaced {
			most = max(most, s.limit)
		}
	}
	if last < 0 || to-last > time.Minute { // by then the store may have forgotten it
		most = max(most, limit)
	}
	return most
}

// order: a caller that queues by itself is served in the order of arrival while nothing fails.
func (r *witness) order(holds []*hold) error {
	queued := slices.DeleteFunc(slices.Clone(holds), func(h *hold) bool { return !h.Queued })
	for _, a := range queued {
		for _, b := range queued {
			if a.Invoked+strictMargin < b.Invoked && b.Invoked < a.Began && a.Fence > b.Fence {
				return fmt.Errorf("the later one was served first:\n    %v\n    %v", a, b)
			}
		}
	}
	return nil
}

// promptly is how soon a mutex that is given up goes to the next one while nothing fails. It
// is less than a heartbeat, by which a waiter would find out that no message comes.
const promptly = 90 * millisecond

// attentive is how long a waiter has waited when it must have found out that its subscription
// is dead, and made another.
const attentive = 5 * time.Second

// prompt: nobody who queues by itself waits for a mutex that is free.
func (r *witness) prompt(holds []*hold, calm time.Duration) error {
	for _, h := range holds {
		if !h.Queued || h.Invoked < calm || h.Began-h.Invoked < attentive {
			continue
		}
		free := h.Invoked
		for _, other := range holds {
			if other != h && other.Began < h.Began {
				free = max(free, other.Ended)
			}
		}
		if h.Began-free > promptly {
			return fmt.Errorf("waited for a free lock, from %v on:\n    %v", free, h)
		}
	}
	return nil
}
