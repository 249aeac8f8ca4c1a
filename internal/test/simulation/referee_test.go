package simulation_test

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/driver"
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

// referee writes down who believes what and when, and judges it afterwards.
type referee struct {
	began time.Time

	mu      sync.Mutex
	holds   []*hold
	forced  []*span
	resized []*span
}

func (r *referee) now() time.Duration { return time.Since(r.began) }

// begin notes that a call has returned with a hold.
func (r *referee) begin(h hold) *hold {
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
func (r *referee) end(h *hold) (before bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before = h.Ended < r.now()
	h.Ended = min(h.Ended, r.now())
	return before
}

// goesOn notes that rest is what is left of h, which may have been lost without anybody having said so.
func (r *referee) goesOn(h, rest *hold) *hold {
	r.mu.Lock()
	defer r.mu.Unlock()
	h.rest = rest
	return rest
}

// ended returns when a hold has ended.
func (r *referee) ended(h *hold) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return h.Ended
}

// lost notes what the log says of a lock: it is all that is known of the end of sync holds. The line
// comes a moment later, for several losses may share one; at level Debug each has its own.
func (r *referee) lost(p *process, lock string, when time.Time) {
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
func (r *referee) gone(p *process, syncOnly bool) {
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
func (r *referee) change(list *[]*span, s span) (end func(done bool)) {
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
func (r *referee) tainted(h *hold) bool {
	return slices.ContainsFunc(r.forced, func(f *span) bool {
		return f.lock == h.Lock && h.Began-afterForce <= f.to && h.Ended >= f.from
	})
}

// everForced and everResized report whether that was done, or begun, to a lock.
func (r *referee) everForced(lock string) bool { return r.ever(&r.forced, lock) }

func (r *referee) everResized(lock string) bool { return r.ever(&r.resized, lock) }

func (r *referee) ever(list *[]*span, lock string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(*list, func(s *span) bool { return s.lock == lock })
}

// judge looks at all that was written down. Nothing fails from the time calm on.
func (r *referee) judge(faulty bool, calm time.Duration) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	locks := map[string][]*hold{}
	for _, h := range r.holds {
		if !r.tainted(h) {
			locks[h.Lock] = append(locks[h.Lock], h)
		}
	}
	for lock, holds := range locks {
		checks := []func([]*hold) error{r.exclusion, r.fences, r.order}
		if faulty {
			checks = checks[:2]
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

// exclusion: all who believe at a time have no more than there is.
func (r *referee) exclusion(holds []*hold) error {
	type event struct {
		at    time.Duration
		begin bool
		hold  *hold
	}
	var events []event
	for _, h := range holds {
		if h.Ended > h.Began {
			events = append(events, event{h.Began, true, h}, event{h.Ended, false, h})
		}
	}
	slices.SortStableFunc(events, func(a, b event) int {
		if c := cmp.Compare(a.at, b.at); c != 0 || a.begin == b.begin {
			return c
		}
		if b.begin {
			return -1 // a holder leaves before another comes
		}
		return 1
	})
	var inside []*hold
	for _, e := range events {
		if !e.begin {
			inside = slices.DeleteFunc(inside, func(h *hold) bool { return h == e.hold })
			continue
		}
		inside = append(inside, e.hold)
		var sum int64
		first := e.at
		groups := map[string]bool{}
		for _, h := range inside {
			first = min(first, h.Since)
			if h.Group == "" || !groups[h.Group] {
				sum += h.Weight
				groups[h.Group] = true
			}
		}
		if most := r.limit(e.hold, first, e.at); sum > most {
			text := fmt.Sprintf("together they have %d of %d:", sum, most)
			for _, h := range inside {
				text += "\n    " + h.String()
			}
			return fmt.Errorf("two holders: %s", text)
		}
	}
	return nil
}

// limit is the largest that may have been in force at a time between the two.
func (r *referee) limit(h *hold, from, to time.Duration) int64 {
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

// fences: they increase from one holder to the next, and no two leases share one.
func (r *referee) fences(holds []*hold) error {
	byReturn := slices.DeleteFunc(slices.Clone(holds), func(h *hold) bool { return h.Fence == 0 })
	byInvoke := slices.Clone(byReturn)
	slices.SortFunc(byReturn, func(a, b *hold) int { return cmp.Compare(a.Began, b.Began) })
	slices.SortFunc(byInvoke, func(a, b *hold) int { return cmp.Compare(a.Invoked, b.Invoked) })
	var largest *hold
	i := 0
	for _, h := range byInvoke {
		for ; i < len(byReturn) && byReturn[i].Began < h.Invoked; i++ {
			if largest == nil || byReturn[i].Fence > largest.Fence {
				largest = byReturn[i]
			}
		}
		if largest == nil || largest == h {
			continue
		}
		together := h.Group != "" && h.Group == largest.Group
		if h.Fence < largest.Fence || h.Fence == largest.Fence && !together {
			return fmt.Errorf("fences went back:\n    %v\n    %v", largest, h)
		}
	}
	seen := map[int64]*hold{}
	for _, h := range byInvoke {
		if other := seen[h.Fence]; other != nil && (h.Group == "" || h.Group != other.Group) {
			return fmt.Errorf("a fence was given twice:\n    %v\n    %v", other, h)
		}
		seen[h.Fence] = h
	}
	return nil
}

// order: a caller that queues by itself is served in the order of arrival while nothing fails.
func (r *referee) order(holds []*hold) error {
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
func (r *referee) prompt(holds []*hold, calm time.Duration) error {
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
