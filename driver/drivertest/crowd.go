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

var readerCrowdCases = []property{
	{"ManyReadersAndWritersExcludeEachOther", func(t *test) {
		t.crowd(waiting, readingMostly)
	}},
	{"ManyReadersAndWritersThatDoNotWaitExcludeEachOther", func(t *test) {
		t.crowd(readingMostly)
	}},
	{"ManyReadersAndWritersThatGiveUpExcludeEachOther", func(t *test) {
		t.needs(Queue)
		t.crowd(waiting, readingMostly, givingUp)
	}},
}

var permitCrowdCases = []property{
	{"ManyWeightsStayWithinTheLimit", func(t *test) {
		t.crowd(waiting, weighingAny)
	}},
	{"ManyWeightsThatDoNotWaitStayWithinTheLimit", func(t *test) {
		t.crowd(weighingAny)
	}},
	{"ManyWeightsThatGiveUpStayWithinTheLimit", func(t *test) {
		t.needs(Queue)
		t.crowd(waiting, weighingAny, givingUp)
	}},
}

func readingMostly(r *driver.Request) { r.Shared = rand.IntN(4) > 0 }

func weighingAny(r *driver.Request) {
	r.Weight, r.Limit = 1+rand.Int64N(3), whole
	if rand.IntN(4) == 0 {
		r.Weight = whole - rand.Int64N(4)
	}
}

func givingUp(r *driver.Request) { r.Holder = impatient }

// crowd has many tokens share the lock, and requires that never too many hold it.
func (t *test) crowd(mods ...func(*driver.Request)) {
	h := &hall{fenced: t.has(Fences), inside: map[*contender]int64{}}
	t.visit(12, t.rounds(12), h.enter, mods...)
}

// hall is what a lock protects that many may hold. It has room for the weight of whole.
type hall struct {
	fenced bool
	fences sync.Map // of all visits

	mu     sync.Mutex
	inside map[*contender]int64 // their weights
}

// enter is what visitors do together. They stay for as long as a renewal takes, so that
// others have the time to come in, rightly or wrongly. A foul is one however late the
// machine is: only visitors that still trust their leases are counted.
func (h *hall) enter(ctx context.Context, c *contender) error {
	if sum := h.come(c); sum > whole && c.trusts() {
		return fmt.Errorf(foul+"%d are in a hall for %d", sum, whole)
	}
	if _, seen := h.fences.LoadOrStore(c.grant.Fence, true); seen && h.fenced {
		return fmt.Errorf(foul+"fence %d was given twice", c.grant.Fence)
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

// come returns the weight of all that are inside with c.
func (h *hall) come(c *contender) (sum int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.inside[c] = space(&c.req)
	for other, weight := range h.inside {
		if other == c || other.trusts() {
			sum += weight
		}
	}
	return sum
}

// space is how much of the hall a request is for.
func space(r *driver.Request) int64 {
	switch {
	case r.Kind == driver.Semaphore:
		return r.Weight
	case r.Shared:
		return 1
	}
	return whole
}
