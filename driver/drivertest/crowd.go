package drivertest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"

	"github.com/holdfast-go/holdfast/driver"
)

// A writer takes up the whole hall, like a token that wants all permits.
const whole = 12

var (
	hammerCases      = crowds("ManyTokens", "ExcludeEachOther")
	readerCrowdCases = crowds("ManyReadersAndWriters", "ExcludeEachOther", readingMostly)
	permitCrowdCases = crowds("ManyWeights", "StayWithinTheLimit", weighingAny)
)

// crowds are the properties of many tokens that wait, that do not, and of which some give up.
func crowds(who, what string, mods ...func(*driver.Request)) []property {
	return []property{
		{who + what, func(t *test) { t.crowd(append(mods, waiting)...) }},
		{who + "ThatDoNotWait" + what, func(t *test) { t.crowd(mods...) }},
		{who + "ThatGiveUp" + what, func(t *test) {
			t.needs(Queue)
			t.crowd(append(mods, waiting, givingUp)...)
		}},
	}
}

func readingMostly(r *driver.Request) { r.Shared = rand.IntN(4) > 0 }

func weighingAny(r *driver.Request) {
	r.Weight, r.Limit = 1+rand.Int64N(3), whole
	if rand.IntN(4) == 0 {
		r.Weight = whole - rand.Int64N(4)
	}
}

// impatient marks the tokens of which every second one gives up after a moment.
const impatient = "impatient"

func givingUp(r *driver.Request) { r.Holder = impatient }

// crowd has many tokens share the lock, and requires that never too many hold it.
func (t *test) crowd(mods ...func(*driver.Request)) {
	h := &hall{fenced: t.has(Fences), inside: map[*contender]int64{}, fences: map[int64]bool{}}
	t.visit(10, t.rounds(12), h.enter, mods...)
}

// hall is what a lock protects that many may hold. It has room for the weight of whole.
type hall struct {
	fenced bool

	mu     sync.Mutex
	inside map[*contender]int64 // their weights
	fences map[int64]bool       // of all visits
	last   int64                // the largest
}

// enter is what visitors do together. They stay for as long as a renewal takes, so that
// others have the time to come in, rightly or wrongly. A foul is one however late the
// machine is: only visitors that still trust their leases are counted.
func (h *hall) enter(ctx context.Context, c *contender) error {
	if err := h.come(c); err != nil {
		return err
	}
	runtime.Gosched()
	if err := c.d.Renew(ctx, []driver.Lease{c.lease()})[0]; err != nil {
		return fmt.Errorf("renew: %w", err)
	}
	if !c.trusts() {
		return fmt.Errorf("the lease ended within the hall; the machine is too slow for this test")
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.inside, c)
	return nil
}

// come counts those that are inside with c. One that takes up the whole hall comes after all that came before, and
// its fence says so.
func (h *hall) come(c *contender) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.inside[c] = space(&c.req)
	sum, fence := int64(0), c.grant.Fence
	for other, weight := range h.inside {
		if other == c || other.trusts() {
			sum += weight
		}
	}
	switch {
	case !c.trusts():
	case sum > whole:
		return fmt.Errorf(foul+"%d tokens hold %d of %d at a time", len(h.inside), sum, whole)
	case h.fenced && h.fences[fence]:
		return fmt.Errorf(foul+"fence %d was given twice", fence)
	case h.fenced && h.inside[c] == whole && fence <= h.last:
		return fmt.Errorf(foul+"entered with fence %d after %d", fence, h.last)
	}
	h.fences[fence], h.last = true, max(h.last, fence)
	return nil
}

// space is how much of the hall a request is for.
func space(r *driver.Request) int64 {
	switch {
	case r.Kind == driver.Semaphore && r.Weight < r.Limit:
		return r.Weight
	case r.Shared:
		return 1
	}
	return whole
}
